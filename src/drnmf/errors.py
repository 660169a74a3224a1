"""What can go wrong, in words for the person who caused it or has to deal with it."""

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """The caller's mistake, in one line that names the file or value and, where there is one, the remedy."""


class DivergedError(ArithmeticError):
    """Training that turned to NaN or infinity, or whose loss left all bounds."""


@contextmanager
def needing_pytorch(what: str) -> Iterator[None]:
    """Around imports of what needs PyTorch: where it is not installed, say so in one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError(f"{what} needs PyTorch: pip install 'drnmf[train]'") from None
