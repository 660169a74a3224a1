"""The command `drnmf`: one module for each group of commands.

What a command needs is imported when it runs, so that help and completion answer at once.
"""

import io
import logging
import sys

from drnmf.cli import terminal
from drnmf.cli.base import app
from drnmf.errors import DivergedError, InputError, needing_pytorch

# Importing them adds their commands, in the order that help shows.
from drnmf.cli import sound, learning, mixtures, experiments, inspection  # noqa: F401  # isort: skip

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; a mistake is one line and exit status 2, a run that diverged is 3, Ctrl-C is 130."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: names of files need not be UTF-8
    try:
        with needing_pytorch("this command"):
            app()
    except (InputError, DivergedError) as error:
        terminal.stderr.print(f"drnmf: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        sys.exit(2 if isinstance(error, InputError) else 3)
    except OSError as error:  # what the system refuses: a name that is too long, a folder one may not look into
        if error.filename is None:
            raise
        terminal.say(f"drnmf: {error.filename}: {error.strerror}", logging.ERROR)
        sys.exit(2)
