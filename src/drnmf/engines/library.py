"""The compiled part, `csrc/steps.c`, found and called without PyTorch."""

import ctypes
import logging
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

log = logging.getLogger("drnmf")

TYPES = {"float32": "f32", "float64": "f64"}


@cache
def load() -> ctypes.CDLL | None:
    """The compiled `steps.c`, where there is one."""
    found = find_spec("drnmf.engines._steps")
    if found is None or found.origin is None:
        return None
    try:
        return ctypes.CDLL(found.origin)
    except OSError:  # compiled for another machine
        return None


def agrees(compiled: ctypes.CDLL, name: str, struct: type[ctypes.Structure]) -> bool:
    """Whether the library has the same structure: not if the package changed and was not installed anew."""
    same = hasattr(compiled, f"size_of_{name}") and compiled[f"size_of_{name}"]() == ctypes.sizeof(struct)
    if not same:
        log.warning("the compiled part of drnmf is another version and is not used; install the package again")
    return same


def type_name(dtype: object) -> str:
    """Of PyTorch's or numpy's numbers, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def function(name: str, dtype: object) -> Callable[..., int]:
    """A function of the library, for a type of numbers."""
    found: Callable[..., int] = getattr(load(), f"{name}_{TYPES[type_name(dtype)]}")
    return found
