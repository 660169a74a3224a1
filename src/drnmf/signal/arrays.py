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
_MOST_CHANNELS, _FEWEST_SAMPLES = 32, 1024


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


def samples_axis(shape: tuple[int, ...], axis: int | None) -> int:
    """Along which axis of sound its samples lie: as given, or where the shape leaves no doubt."""
    if len(shape) not in (1, 2):
        raise InputError(f"sound is (samples,), (channels, samples) or (samples, channels), got {shape}")
    if axis is not None:
        if not -len(shape) <= axis < len(shape):
            raise InputError(f"there is no axis {axis} in an array of shape {shape}")
        return axis % len(shape)
    for axis, length in enumerate(shape):
        if len(shape) == 1 or (length >= _FEWEST_SAMPLES and 1 <= shape[1 - axis] <= _MOST_CHANNELS):
            return axis
    raise InputError(f"is {shape} channels and samples (pass axis=1 for that), or samples and channels (axis=0)?")
