"""The compiled part, `csrc/steps.c`, found and called without PyTorch.

C trusts what it is given. So whatever it reads or writes gets its address here, and only if it fits.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from drnmf.errors import InputError
from drnmf.signal.audio import Samples

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("drnmf")

TYPES = {"float32": "f32", "float64": "f64"}
INSTRUCTIONS = ("baseline", "avx2", "avx512")  # which the library is compiled for
REGISTER = 16  # numbers: the widths of panels are multiples
_PANEL = 208  # the most numbers in a row of a panel
_LINE = 64  # bytes of a cache line


@cache
def load() -> ctypes.CDLL | None:
    """The compiled `steps.c`, where there is one."""
    found = find_spec("drnmf.engines._steps")
    if found is None or found.origin is None:
        return None
    try:
        compiled = ctypes.CDLL(found.origin)
    except OSError:  # compiled for another machine
        return None
    if most := os.environ.get("DRNMF_INSTRUCTIONS"):
        _allow(compiled, most)
    return compiled


def _allow(compiled: ctypes.CDLL, most: str) -> None:
    """Keep to a set of instructions below the best that this machine has: how the others are tested."""
    if not hasattr(compiled, "allow_instructions"):
        raise InputError("the compiled part of drnmf is too old for DRNMF_INSTRUCTIONS; install the package again")
    if most not in INSTRUCTIONS:
        raise InputError(f"DRNMF_INSTRUCTIONS must be one of {', '.join(INSTRUCTIONS)}, got {most!r}")
    used = INSTRUCTIONS[compiled.allow_instructions(INSTRUCTIONS.index(most))]
    if used != most:
        log.warning("this machine does not have %s: %s is used", most, used)


def agrees(compiled: ctypes.CDLL, name: str, struct: type[ctypes.Structure]) -> bool:
    """Whether the library has the same structure: not if the package changed and was not installed anew."""
    same = hasattr(compiled, f"size_of_{name}") and compiled[f"size_of_{name}"]() == ctypes.sizeof(struct)
    if not same:
        log.warning("the compiled part of drnmf is another version and is not used; install the package again")
    return same


@cache
def type_name(dtype: object) -> str:
    """Of PyTorch's or numpy's numbers, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def function(name: str, dtype: object) -> Callable[..., int]:
    """A function of the library, for a type of numbers."""
    found: Callable[..., int] = getattr(load(), f"{name}_{TYPES[type_name(dtype)]}")
    return found


def address(name: str, array: Samples | Tensor, shape: tuple[int, ...], dtype: object, *, strided: int = 0) -> int:
    """Where the numbers of an array lie, if they lie as C will read them: one after the other.

    Where C knows the strides of the first axes, those may be `strided`.
    """
    check(name, array, shape, dtype)
    numbers = array if isinstance(array, np.ndarray) else array.detach().numpy()  # fails if they are on a GPU
    dense = numbers[(slice(1),) * strided].flags.c_contiguous
    if not dense or not numbers.flags.aligned:
        raise InputError(f"the numbers of {name} must lie one after the other, got strides {numbers.strides}")
    return int(numbers.ctypes.data)


def panels_address(
    name: str, array: Samples | Tensor, *sizes: int, width: int, dtype: object, single: bool = False
) -> int:
    """The same for matrices (..., rows, columns), which lie in panels of so many columns or in a single one."""
    *layers, rows, columns = sizes
    n = 1 if single else -(-columns // max(1, width))
    if width % REGISTER or n * width < columns:
        raise InputError(f"panels of {width} columns do not hold the {columns} of {name}")
    return address(name, array, (*layers, n, rows, width), dtype)


def panels(A: Samples, most: int = _PANEL) -> Samples:
    """Matrices (..., rows, columns) as C reads them: (..., panels, rows, width), with zeros after the last column.

    A panel has at most so many columns: by default as many as registers can hold sums, so that it is read once and
    straight through.
    """
    *layers, rows, columns = A.shape
    n = -(-columns // most)
    width = -(-columns // (n * REGISTER)) * REGISTER
    padded = np.zeros((*layers, rows, n * width), A.dtype)
    padded[..., :columns] = A
    return _aligned(padded.reshape(*layers, rows, n, width).swapaxes(-3, -2))


def _aligned(array: Samples) -> Samples:
    """A copy, one number after the other, that starts with a cache line: from there vectors are read fastest."""
    room = np.empty(array.nbytes + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def check(name: str, array: Samples | Tensor, shape: tuple[int, ...], dtype: object) -> None:
    """Refuse other shapes, numbers and devices."""
    wanted, found = (shape, type_name(dtype)), (tuple(array.shape), type_name(array.dtype))
    if wanted != found:
        raise InputError(f"{name} must be {wanted[0]} of {wanted[1]}, got {found[0]} of {found[1]}")
