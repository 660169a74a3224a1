"""Training losses: each takes a mask and the spectra it is judged by, and returns a sum and what to divide it by.

    mask (B, T, F), noisy X and clean Y complex (B, T, F), valid (B, T): which frames are not padding

Sum and count apart let the mean be the same however a batch is spread over processes.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from drnmf.signal import metrics
from drnmf.signal.spectra import HOP, synthesise

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def signal_approximation(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Equation (7): (M |X| - |Y|)^2, over time-frequency cells."""
    return _over_cells((mask * X.abs() - Y.abs()).square(), valid)


def phase_sensitive(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """(M |X| - |Y| cos(X, Y))^2: up to what no real mask can mend, the error |M X - Y|^2 of the complex spectrum."""
    magnitude = X.abs()
    target = (Y * X.conj()).real / magnitude.clamp_min(1e-10)
    return _over_cells((mask * magnitude - target).square(), valid)


def snr(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Negative SNR in dB of the complex spectrum, |Y|^2 / |M X - Y|^2, over sequences, loud and soft ones alike."""
    weight = valid[..., None]
    error, power = (((mask * X - Y).abs().square() * weight).sum((1, 2)), (Y.abs().square() * weight).sum((1, 2)))
    return _over_sequences(10 * torch.log10(power.clamp_min(1e-9) / error.clamp_min(1e-9)), valid)


def si_sdr(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Negative SI-SDR in dB of the resynthesised waveform, over sequences."""
    return _over_sequences(metrics.si_sdr(*_waveforms(mask, X, Y, valid)), valid)


def sdr(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Negative SDR (BSS Eval, 512 taps) in dB of the resynthesised waveform, over sequences."""
    return _over_sequences(metrics.ratio_db(*metrics.decompose(*_waveforms(mask, X, Y, valid), 512)), valid)


SHORTEST = 16000 // HOP  # frames, a second: what is shorter says little about a ratio and can make it explode
OVER_SEQUENCES = ("snr", "si_sdr", "sdr")
"""Losses in dB, for which sequences shorter than that do not count."""
LOSSES: dict[str, Loss] = {loss.__name__: loss for loss in (signal_approximation, phase_sensitive, snr, si_sdr, sdr)}


def _over_cells(error: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    return (error * valid[..., None]).sum(), valid.sum() * error.shape[-1]


def _over_sequences(score: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    counted = valid.sum(1) >= SHORTEST
    return -torch.where(counted, score, 0).sum(), counted.sum().clamp_min(1)


def _waveforms(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    weight = valid[..., None]
    return synthesise(mask * X * weight), synthesise(Y * weight)
