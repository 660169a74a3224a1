"""`python -m drnmf.cli` is the command `drnmf`."""

from drnmf.cli import main

main()
