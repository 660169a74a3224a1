"""Numpy's arrays and PyTorch's tensors: functions that take both return what they were given.

Nothing here imports PyTorch unless it is given a tensor.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from drnmf.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Samples = np.ndarray[Any, Any]
Array = TypeVar("Array", "Tensor", Samples)  # the result is of the kind that was given


def functions(x: "Tensor | Samples") -> Any:
    """The module of those functions, such as `fft.rfft`, that go by one name in numpy and in PyTorch."""
    if isinstance(x, np.ndarray):
        return np
    import torch

    return torch


def as_array(x: "Tensor | Samples") -> Samples:
    """Samples as a plain array, which shares memory with them where it can."""
    if not isinstance(x, np.ndarray):
        return x.numpy(force=True)
    # its own functions would not see what is under the mask, others would
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise InputError("some samples are masked: fill them, for instance by x.filled(0)")
    return np.asarray(x)


def like(x: Array, y: Samples) -> Array:
    """The samples y as a tensor where x is one, on its device."""
    if isinstance(x, np.ndarray):
        return y
    import torch

    return torch.from_numpy(y).to(x.device)
