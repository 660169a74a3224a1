"""What can go wrong, in words for the person who caused it or has to deal with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_REMEDY = "pip install 'drnmf[train]'"
NEEDS_PYTORCH = f"needs PyTorch: {_REMEDY}"
_PACKAGES = {"torch": "PyTorch", "lightning": "Lightning", "pydantic": "Pydantic"}


class InputError(ValueError):
    """The caller's mistake, in one line that names the file or value and, where there is one, the remedy.

    Examples:
        >>> from drnmf import InputError, audio
        >>> try:
        ...     audio.read("nothing.wav")
        ... except InputError as error:
        ...     print(error)
        nothing.wav: no such file
    """

    def __init__(self, message: str) -> None:
        # a file's name may hold anything: no message breaks its line, or sends a terminal commands
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))


class DivergedError(ArithmeticError):
    """Training that turned to NaN or infinity, or whose loss left all bounds."""


def raise_first(problems: Sequence[str]) -> None:
    """Raise the first problem and say how many more there are; nothing if there is none."""
    if problems:
        more = f" (and {len(problems) - 1} more like this)" if len(problems) > 1 else ""
        raise InputError(problems[0] + more)


def shown(value: object) -> str:
    """A value of somebody's file as a message shows it: on one line, and not for pages."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@contextmanager
def needing_pytorch(what: str) -> Iterator[None]:
    """Around imports of what needs PyTorch, or what trains with it: where it is not installed, say so in one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = _PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise InputError(f"{what} needs {package}: {_REMEDY}") from None
