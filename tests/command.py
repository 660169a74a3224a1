"""The command `drnmf`, run in this process; and what tests need that run it in another."""

import contextlib
import io
import signal
import subprocess
import sys
import time
from pathlib import Path
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


def listen_to_ctrl_c() -> None:
    """To be called in a child before it starts: a shell's background job ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_file(path: Path, process: subprocess.Popen, seconds: float = 120) -> None:
    """Until `process` has written a file; a process that ends or hangs without it is a failure."""
    end = time.monotonic() + seconds
    while not path.is_file():
        assert process.poll() is None, process.stderr.read()
        if time.monotonic() > end:
            process.kill()
            raise AssertionError(f"{path.name} was not written in {seconds} s: {process.stderr.read()}")
        time.sleep(0.05)
