"""Short-time Fourier transform: 512-sample periodic square-root Hann windows, hop 128, F = 257 bins.

The signal is extended by one window of zeros on both sides, so every sample lies under four full windows, whose
squares add up to 2; halving the overlap-add of windowed frames therefore returns the signal exactly. There is no other
scaling.
"""

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.signal import BINS as BINS
from drnmf.signal import HOP as HOP
from drnmf.signal import SAMPLE_RATE as SAMPLE_RATE
from drnmf.signal import WINDOW as WINDOW

_OVERLAP = WINDOW // HOP
_windows: dict[tuple[torch.dtype, torch.device], Tensor] = {}


def n_frames(length: int) -> int:
    """Number of frames `stft` makes of a signal of `length` samples."""
    return (length + WINDOW) // HOP + 1


def stft(x: Tensor) -> Tensor:
    """Analyse real signals (..., samples) into complex spectra (..., frames, 257).

    Examples:
        >>> from drnmf import audio, stft
        >>> noisy, rate = audio.read("noisy.wav")
        >>> stft(noisy).shape, stft(noisy).dtype
        (torch.Size([1, 667, 257]), torch.complex64)
    """
    if x.dtype not in (torch.float32, torch.float64):
        raise InputError(f"stft needs float32 or float64 samples in [-1, 1], got {x.dtype}; divide integers by 2^15")
    if x.ndim == 0 or x.numel() == 0:
        raise InputError(f"stft needs at least one sample, got a signal of shape {tuple(x.shape)}")
    return analyse(torch.nn.functional.pad(x, (WINDOW, WINDOW)))


def analyse(x: Tensor) -> Tensor:
    """Spectra (..., frames, 257) of the full windows inside x (..., samples), nothing added at its ends."""
    frames = x.unfold(-1, WINDOW, HOP)
    spectra: Tensor = torch.fft.rfft(frames * sqrt_hann(x.dtype, x.device))
    return spectra


def synthesise(X: Tensor) -> Tensor:
    """The inverse of `analyse`: (..., 128 (frames - 1) + 512) samples, faded in and out over the outer three hops."""
    frames = torch.fft.irfft(X, n=WINDOW)
    return overlap_add(frames * sqrt_hann(frames.dtype, frames.device))


def istft(X: Tensor, length: int) -> Tensor:
    """Synthesise the signals (..., length) whose spectra are X (..., frames, 257).

    Examples:
        >>> from drnmf import audio, istft, stft
        >>> noisy, rate = audio.read("noisy.wav")
        >>> same = istft(stft(noisy), noisy.shape[-1])
        >>> bool((same - noisy).abs().max() < 1e-6)
        True
    """
    if not X.is_complex() or X.ndim < 2 or X.shape[-1] != BINS:
        raise InputError(f"istft needs complex spectra (..., frames, {BINS}), got {X.dtype} of shape {tuple(X.shape)}")
    if length < 1:
        raise InputError(f"istft needs a length of at least one sample, got {length}")
    if X.shape[-2] != n_frames(length):
        raise InputError(
            f"istft: {X.shape[-2]} frames do not belong to {length} samples, which have {n_frames(length)}"
        )
    return synthesise(X)[..., WINDOW : WINDOW + length]


def overlap_add(frames: Tensor) -> Tensor:
    """Add up windowed frames (..., T, 512), one every hop, and undo the windows' overlap."""
    T = frames.shape[-2]
    hops = frames.view(*frames.shape[:-1], _OVERLAP, HOP)  # frame t contributes its hop j to the output's hop t + j
    total = frames.new_zeros(*frames.shape[:-2], T + _OVERLAP - 1, HOP)
    for j in range(_OVERLAP):
        total[..., j : j + T, :] += hops[..., j, :]
    return total.flatten(-2) / (_OVERLAP / 2)


def sqrt_hann(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The window, periodic: its squares at hop 128 add up to 2 everywhere."""
    if (dtype, device) in _windows:
        return _windows[dtype, device]
    with torch.inference_mode(False):  # kept: a tensor made in inference mode could never be used in training
        window = torch.hann_window(WINDOW, periodic=True, dtype=torch.float64).sqrt().to(dtype=dtype, device=device)
    if type(window) is Tensor:  # nor could the stand-in that tracing makes, as in torch.export
        _windows[dtype, device] = window
    return window
