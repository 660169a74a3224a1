"""Short-time Fourier transform: 512-sample periodic square-root Hann windows, hop 128, F = 257 bins.

The signal is extended by one window of zeros on both sides, so every sample lies under four full windows, whose
squares add up to 2; halving the overlap-add of windowed frames therefore returns the signal exactly. There is no other
scaling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from drnmf.errors import InputError
from drnmf.signal import BINS as BINS
from drnmf.signal import HOP as HOP
from drnmf.signal import SAMPLE_RATE as SAMPLE_RATE
from drnmf.signal import WINDOW as WINDOW
from drnmf.signal.arrays import Array, functions

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_OVERLAP = WINDOW // HOP
_windows: dict[tuple[torch.dtype, torch.device], Tensor] = {}


def n_frames(length: int) -> int:
    """Number of frames `stft` makes of a signal of `length` samples."""
    return (length + WINDOW) // HOP + 1


def stft(x: Array) -> Array:
    """Analyse real signals (..., samples) into complex spectra (..., frames, 257).

    Examples:
        >>> from drnmf import audio, stft
        >>> noisy, rate = audio.read("noisy.wav")
        >>> stft(noisy).shape, stft(noisy).dtype
        (torch.Size([1, 667, 257]), torch.complex64)
    """
    if str(x.dtype).removeprefix("torch.") not in ("float32", "float64"):
        raise InputError(f"stft needs float32 or float64 samples in [-1, 1], got {x.dtype}; divide integers by 2^15")
    if x.ndim == 0 or 0 in x.shape:
        raise InputError(f"stft needs at least one sample, got a signal of shape {tuple(x.shape)}")
    zeros = functions(x).zeros((*x.shape[:-1], WINDOW), dtype=x.dtype, device=x.device)
    padded: Array = functions(x).concatenate([zeros, x, zeros], -1)
    return analyse(padded)


def analyse(x: Array) -> Array:
    """Spectra (..., frames, 257) of the full windows inside x (..., samples), nothing added at its ends."""
    if isinstance(x, np.ndarray):
        frames = np.lib.stride_tricks.sliding_window_view(x, WINDOW, -1)[..., ::HOP, :]
    else:
        frames = x.unfold(-1, WINDOW, HOP)
    spectra: Array = functions(x).fft.rfft(frames * _window(x))
    return spectra


def synthesise(X: Array) -> Array:
    """The inverse of `analyse`: (..., 128 (frames - 1) + 512) samples, faded in and out over the outer three hops."""
    frames: Array = functions(X).fft.irfft(X, n=WINDOW)
    windowed: Array = frames * _window(frames)
    return overlap_add(windowed)


def istft(X: Array, length: int) -> Array:
    """Synthesise the signals (..., length) whose spectra are X (..., frames, 257).

    Examples:
        >>> from drnmf import audio, istft, stft
        >>> noisy, rate = audio.read("noisy.wav")
        >>> same = istft(stft(noisy), noisy.shape[-1])
        >>> bool((same - noisy).abs().max() < 1e-6)
        True
    """
    if "complex" not in str(X.dtype) or X.ndim < 2 or X.shape[-1] != BINS:
        raise InputError(f"istft needs complex spectra (..., frames, {BINS}), got {X.dtype} of shape {tuple(X.shape)}")
    if length < 1:
        raise InputError(f"istft needs a length of at least one sample, got {length}")
    if X.shape[-2] != n_frames(length):
        raise InputError(
            f"istft: {X.shape[-2]} frames do not belong to {length} samples, which have {n_frames(length)}"
        )
    return synthesise(X)[..., WINDOW : WINDOW + length]


def overlap_add(frames: Array) -> Array:
    """Add up windowed frames (..., T, 512), one every hop, and undo the windows' overlap."""
    T = frames.shape[-2]
    hops = frames.reshape(*frames.shape[:-1], _OVERLAP, HOP)  # frame t contributes its hop j to the output's hop t + j
    shape = (*frames.shape[:-2], T + _OVERLAP - 1, HOP)
    total = functions(frames).zeros(shape, dtype=frames.dtype, device=frames.device)
    for j in range(_OVERLAP):
        total[..., j : j + T, :] += hops[..., j, :]
    signal: Array = total.reshape(*total.shape[:-2], -1) / (_OVERLAP / 2)
    return signal


def _window(like: Array) -> Any:
    """The window, for arrays or tensors like this one."""
    if isinstance(like, np.ndarray):
        return np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(like.dtype)
    return sqrt_hann(like.dtype, like.device)


def sqrt_hann(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The window, periodic: its squares at hop 128 add up to 2 everywhere."""
    import torch

    if (dtype, device) in _windows:
        return _windows[dtype, device]
    with torch.inference_mode(False):  # kept: a tensor made in inference mode could never be used in training
        window = torch.hann_window(WINDOW, periodic=True, dtype=torch.float64).sqrt().to(dtype=dtype, device=device)
    if type(window) is torch.Tensor:  # nor could the stand-in that tracing makes, as in torch.export
        _windows[dtype, device] = window
    return window
