"""The command `drnmf`, run in this process."""

import contextlib
import io
import sys
from types import SimpleNamespace
from unittest import mock

from drnmf import cli


def drnmf(*arguments, status=0):
    """Run the command in this process: importing torch anew for each would take most of the time."""
    out, err, code = io.StringIO(), io.StringIO(), None
    with (
        mock.patch.object(sys, "argv", ["drnmf", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
    assert (code or 0) == status, err.getvalue()
    return SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())
