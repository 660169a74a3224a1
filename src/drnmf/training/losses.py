"""Training losses: each takes a mask and the spectra it is judged by, and returns a sum and what to divide it by.

    mask (B, T, F), noisy X and clean Y complex (B, T, F), valid (B, T): which frames are not padding

Sum and count apart let the mean be the same however a batch is spread over processes.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as nnf
from torch import Tensor

from drnmf.maths import toeplitz
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


def weighted(*, sdr: float, pesq: float, gain: float, limit_db: float) -> Loss:
    """A weighted sum over sequences whose target is not silent.

    Args:
        sdr: weight of the negative SDR in dB.
        pesq: weight of what is missing of the raw PESQ of 4.5.
        gain: weight of the squared change of the speech's level in dB.
        limit_db: the most that the SDR can reach.
    """

    def loss(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        e_BS, r_BS = _waveforms(mask, X, Y, valid)
        cost_B = gain * (20 * torch.log10(speech_gain(e_BS, r_BS).clamp_min(_LEAST_GAIN))).square()
        cost_B = cost_B - sdr * limited_sdr(e_BS, r_BS, limit_db)
        if pesq:
            cost_B = cost_B + pesq * pesq_loss(e_BS, r_BS)
        audible_B = r_BS.square().mean(1) > _SILENT
        return _over_sequences(-cost_B, valid, audible_B)

    return loss


def speech_gain(estimate_BS: Tensor, reference_BS: Tensor) -> Tensor:
    """What the speech has been multiplied by (B,): <e, r> / <r, r>."""
    e_BS, r_BS = estimate_BS.double(), reference_BS.double()
    return (e_BS * r_BS).sum(1) / (r_BS.square().sum(1) + _EPSILON)


def limited_sdr(estimate_BS: Tensor, reference_BS: Tensor, limit_db: float) -> Tensor:
    """10 log10 (T / (R + tau T)) (B,), T the power of the filtered reference t, R of the rest e - t, tau the limit.

    Without the limit, speech that was clean already would outweigh all that is to be mended: the gradient of an error
    grows as the error falls, at 40 dB a hundred times.
    """
    target_BL = filtered_reference(estimate_BS, reference_BS)
    e_BL = nnf.pad(estimate_BS.double(), (0, TAPS - 1))
    # t is a constant here: it is the best of its kind, so that its own change would change nothing to first order.
    # This form of |t|^2 has the right gradient, too.
    target_B = (2 * (e_BL * target_BL).sum(1) - target_BL.square().sum(1)).clamp_min(0)
    rest_B = (e_BL - target_BL).square().sum(1)
    floor_B = _EPSILON * (1 + reference_BS.double().square().sum(1))
    tau = 10 ** (-limit_db / 10)
    return 10 * torch.log10((target_B + floor_B) / (rest_B + tau * target_B + floor_B))


@torch.no_grad()
def filtered_reference(estimate_BS: Tensor, reference_BS: Tensor) -> Tensor:
    """The reference through the filter that brings it nearest to the estimate, as BSS Eval has it (B, S + TAPS - 1).

    Conjugate gradients instead of an exact solution, which a CUDA graph could not hold: they lose about 0.01 dB.
    """
    e_BS, r_BS = estimate_BS.double(), reference_BS.double()
    length = e_BS.shape[1] + TAPS - 1
    n = 1 << (length - 1).bit_length()  # long enough for linear correlations, and fast
    E, R = torch.fft.rfft(e_BS, n), torch.fft.rfft(r_BS, n)
    column_BK = torch.fft.irfft(R.abs().square(), n)[:, :TAPS]
    right_BK = torch.fft.irfft(R.conj() * E, n)[:, :TAPS]
    power_B1 = column_BK[:, :1] + _EPSILON
    one_tap_BK = nnf.pad(right_BK[:, :1] / power_B1, (0, TAPS - 1))
    steady_BK = column_BK / power_B1 + _RIDGE * (torch.arange(TAPS, device=e_BS.device) == 0)
    taps_BK = toeplitz.solve(steady_BK, right_BK / power_B1, one_tap_BK, n_steps=_STEPS)
    target_BL: Tensor = torch.fft.irfft(R * torch.fft.rfft(taps_BK, n), n)[:, :length]
    return target_BL


TAPS = 512  # of BSS Eval's filter
SHORTEST = 16000 // HOP  # frames, a second: what is shorter says little about a ratio and can make it explode
_SILENT = 1e-8  # mean square, -80 dBFS
_LEAST_GAIN = 1e-3
_EPSILON = 1e-9
_STEPS = 10
_RIDGE = 1e-4  # of the reference's power
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
