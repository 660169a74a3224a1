"""Training losses: each takes a mask and the spectra it is judged by, and returns a sum and what to divide it by.

    mask (B, T, F), noisy X and clean Y complex (B, T, F), valid (B, T): which frames are not padding

Sum and count apart let the mean be the same however a batch is spread over processes.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from drnmf.signal import metrics
from drnmf.signal.spectra import HOP, synthesise
from drnmf.training.perceptual import pesq_loss

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


def weighted(*, si_sdr: float, pesq: float, gain: float, limit_db: float) -> Loss:
    """A weighted sum over sequences whose target is not silent.

    Args:
        si_sdr: weight of the negative SI-SDR in dB.
        pesq: weight of what is missing of the raw PESQ of 4.5.
        gain: weight of the squared change of the speech's level in dB.
        limit_db: the most that the SI-SDR can reach.
    """

    def loss(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        e_BS, r_BS = _waveforms(mask, X, Y, valid)
        gain_B = speech_gain(e_BS, r_BS)
        cost_B = gain * (20 * torch.log10(gain_B.clamp_min(_LEAST_GAIN))).square()
        cost_B = cost_B - si_sdr * limited_si_sdr(e_BS, r_BS, gain_B, limit_db)
        if pesq:
            cost_B = cost_B + pesq * pesq_loss(e_BS, r_BS)
        audible_B = r_BS.square().mean(1) > _SILENT
        return _over_sequences(-cost_B, valid, audible_B)

    return loss


def speech_gain(estimate_BS: Tensor, reference_BS: Tensor) -> Tensor:
    """What the speech has been multiplied by (B,): <e, r> / <r, r>."""
    e_BS, r_BS = estimate_BS.double(), reference_BS.double()
    return (e_BS * r_BS).sum(1) / (r_BS.square().sum(1) + _EPSILON)


def limited_si_sdr(estimate_BS: Tensor, reference_BS: Tensor, gain_B: Tensor, limit_db: float) -> Tensor:
    """10 log10 (T / (R + tau T)) (B,), T the power of the speech g r, R that of the rest e - g r, tau the limit.

    Without it, speech that was clean already would outweigh all that is to be mended: the gradient of an error grows as
    the error falls, at 40 dB a hundred times.
    """
    e_BS, target_BS = estimate_BS.double(), gain_B[:, None] * reference_BS.double()
    target_B, rest_B = target_BS.square().sum(1), (e_BS - target_BS).square().sum(1)
    floor_B = _EPSILON * (1 + reference_BS.double().square().sum(1))
    tau = 10 ** (-limit_db / 10)
    return 10 * torch.log10((target_B + floor_B) / (rest_B + tau * target_B + floor_B))


SHORTEST = 16000 // HOP  # frames, a second: what is shorter says little about a ratio and can make it explode
_SILENT = 1e-8  # mean square, -80 dBFS
_LEAST_GAIN = 1e-3
_EPSILON = 1e-9
OVER_SEQUENCES = ("snr", "si_sdr", "sdr")
"""Losses in dB, for which sequences shorter than that do not count."""
LOSSES: dict[str, Loss] = {loss.__name__: loss for loss in (signal_approximation, phase_sensitive, snr, si_sdr, sdr)}


def _over_cells(error: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    return (error * valid[..., None]).sum(), valid.sum() * error.shape[-1]


def _over_sequences(score: Tensor, valid: Tensor, audible: Tensor | None = None) -> tuple[Tensor, Tensor]:
    counted = valid.sum(1) >= SHORTEST
    counted = counted if audible is None else counted & audible
    return -torch.where(counted, score, 0).sum(), counted.sum().clamp_min(1)


def _waveforms(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    weight = valid[..., None]
    return synthesise(mask * X * weight), synthesise(Y * weight)
