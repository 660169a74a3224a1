"""PESQ, the wide-band speech quality of ITU-T P.862 and P.862.2, as a training loss: differentiable, batched, 16 kHz.

Both signals are brought to one level, turned into loudness over time and Bark bands, and compared there: what the
estimate adds or lacks is the disturbance, and what it adds counts once more, as the asymmetric disturbance.

    raw = 4.5 - 0.1 symmetric - 0.0309 asymmetric                       P.862, from 4.5 down
    score = 0.999 + 4 / (1 + exp(-1.3669 raw + 3.8224))                 P.862.2, from 4.64 down to 1

It departs from the Recommendation in this: the signals must be aligned in time, for no delay is looked for, neither at
first nor in bad intervals, which at low SNR can cost a few hundredths; filters are applied to spectra of the whole
signal; the level is measured after the fade of both ends; and roots are smoothed at 0, so that gradients are finite.
A reference without sound gives 0.

There is neither indexing by data nor a branch on it, so that a CUDA graph can capture it once it has run outside of a
capture: the first call on a device builds the tables. Names of tensors end in their shape: B signals, S samples,
T frames, F bins, J Bark bands.
"""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as nnf
from torch import Tensor

RATE = 16000
FRAME, HOP = 512, 256
PADDING = 5120  # samples of silence that P.862 appends, and counts, when it averages over a signal
SYLLABLE = 20  # frames
SPEECH_POWER = 1e7  # of a signal after level alignment; also the least audible power of a frame of speech
WINDOW, SOUND = 5, 500.0  # so many samples, if their magnitudes add up to less, are silence at either end
SILENCE = 1e-10  # full scale is 1: power of 16-bit rounding noise, which is not amplified any further
SP, SL = 6.910853e-6, 1.866055e-1  # calibration of power and of loudness
_SMOOTHING = 1e-18


def pesq_score(estimate_BS: Tensor, reference_BS: Tensor) -> Tensor:
    """MOS-LQO (B,) of P.862.2, wide band: 0.999 + 4 / (1 + exp(-1.3669 raw + 3.8224))."""
    raw_B = 4.5 - pesq_loss(estimate_BS, reference_BS)
    return 0.999 + 4 * torch.sigmoid(1.3669 * raw_B - 3.8224)


def pesq_loss(estimate_BS: Tensor, reference_BS: Tensor) -> Tensor:
    """What the disturbances take from the raw score of 4.5 (B,) of P.862: 0 for the reference itself."""
    symmetric_B, asymmetric_B = pesq_disturbance(estimate_BS, reference_BS)
    return 0.1 * symmetric_B + 0.0309 * asymmetric_B


def pesq_disturbance(estimate_BS: Tensor, reference_BS: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric and asymmetric disturbance (B,) of signals at 16 kHz, of one second or more, aligned in time."""
    with torch.autocast(estimate_BS.device.type, enabled=False):  # powers exceed the range and precision of 16 bits
        return _disturbance(estimate_BS, reference_BS, _bands(estimate_BS.device, estimate_BS.dtype))


def _disturbance(estimate_BS: Tensor, reference_BS: Tensor, bands: "_Bands") -> tuple[Tensor, Tensor]:
    """The whole of the model, in its order: align, hear, compensate, compare, average."""
    estimate_BS, reference_BS = _aligned(estimate_BS), _aligned(reference_BS)
    estimate_BTJ, reference_BTJ = _bark_power(estimate_BS, bands), _bark_power(reference_BS, bands)
    first_B1, last_B1 = _ends(reference_BS)
    speech_BT = _speech(reference_BTJ, bands) & (_frames(reference_BTJ) <= last_B1)
    reference_BTJ = reference_BTJ * _response(estimate_BTJ, reference_BTJ, speech_BT, bands)[:, None]
    power_BT = _audible(reference_BTJ, bands.threshold_J).sum(2)
    estimate_BTJ = estimate_BTJ * _gain(power_BT, _audible(estimate_BTJ, bands.threshold_J).sum(2))[..., None]
    difference_BTJ = _masked(_loudness(estimate_BTJ, bands), _loudness(reference_BTJ, bands))
    symmetric_BT = _weighted(_l2_over_bands(difference_BTJ, bands), power_BT)
    asymmetric_BTJ = difference_BTJ * _asymmetry(estimate_BTJ, reference_BTJ)
    asymmetric_BT = _weighted(_l1_over_bands(asymmetric_BTJ, bands), power_BT)
    return _over_time(symmetric_BT, first_B1, last_B1), _over_time(asymmetric_BT, first_B1, last_B1)


def _aligned(signal_BS: Tensor) -> Tensor:
    """Level alignment to a power of 1e7 within 350 to 3250 Hz, and the wide-band input filter of P.862.2."""
    n_samples = signal_BS.shape[1]
    n_fft = -(-(n_samples + FRAME) // 1024) * 1024
    spectrum_BF = torch.fft.rfft(signal_BS * _fade(signal_BS), n_fft)
    hertz_F = torch.arange(n_fft // 2 + 1, device=signal_BS.device).to(signal_BS) * (RATE / n_fft)
    power_B1 = (_power(spectrum_BF) * _speech_band(hertz_F)).sum(1, keepdim=True) * (2 / n_fft / (n_samples + PADDING))
    scale_B1 = (SPEECH_POWER / power_B1.clamp_min(SILENCE)).sqrt()
    filtered_BS = torch.fft.irfft(spectrum_BF * _input_filter(hertz_F), n_fft)[:, :n_samples]
    return nnf.pad(filtered_BS * scale_B1, (0, WINDOW - 1))  # the end is looked for with so much silence behind it


def _fade(signal_BS: Tensor) -> Tensor:
    """Gain (S,) that rises within the first 15 samples and falls within the last 15."""
    position_S = torch.arange(signal_BS.shape[1], device=signal_BS.device)
    to_the_end_S = torch.minimum(position_S, position_S.flip(0))
    return ((to_the_end_S + 1).to(signal_BS) / 16).clamp_max(1)


def _speech_band(hertz_F: Tensor) -> Tensor:
    """Power gain of the filter for level alignment: 350 to 3250 Hz, 10 dB per Hz below and 2 dB per Hz above."""
    decibel_F = -10 * (350 - hertz_F).clamp_min(0) - 2 * (hertz_F - 3250).clamp_min(0)
    return 10 ** (decibel_F / 10)


def _input_filter(hertz_F: Tensor) -> Tensor:
    """Response of the high-pass of P.862.2: 2.7408 (1 - z^-1)^2 / (1 - 1.9445 z^-1 + 0.9460 z^-2)."""
    delay_F = torch.polar(torch.ones_like(hertz_F), hertz_F * (-2 * torch.pi / RATE))
    return 2.740826 * (1 - delay_F).square() / (1 - 1.9444777 * delay_F + 0.94597794 * delay_F.square())


def _ends(reference_BS: Tensor) -> tuple[Tensor, Tensor]:
    """First and last frame (B, 1) of the reference that are no silence: five samples in a row of 500 together."""
    sum_BS = reference_BS.abs().unfold(1, WINDOW, 1).sum(2)
    position_S = torch.arange(sum_BS.shape[1], device=sum_BS.device)
    first_B1 = torch.where(sum_BS >= SOUND, position_S, reference_BS.shape[1]).amin(1, keepdim=True)
    last_B1 = torch.where(sum_BS >= SOUND, position_S + WINDOW - 1, -1).amax(1, keepdim=True)
    return first_B1 // HOP, (last_B1 + 1) // HOP - 1


def _frames(signal_BTJ: Tensor) -> Tensor:
    """Indices (T,) of frames."""
    return torch.arange(signal_BTJ.shape[1], device=signal_BTJ.device)


def _bark_power(signal_BS: Tensor, bands: "_Bands") -> Tensor:
    """Pitch power density: spectra of Hann windows, every 256 samples, summed over Bark bands."""
    n_frames = signal_BS.shape[1] // HOP
    padded_BS = nnf.pad(signal_BS, (0, (n_frames + 1) * HOP - signal_BS.shape[1]))
    spectrum_BTF = torch.fft.rfft(padded_BS.unfold(1, FRAME, HOP) * bands.window_S)
    return _power(spectrum_BTF) @ bands.warping_FJ


def _power(spectrum_BF: Tensor) -> Tensor:
    """Squared magnitude, with a gradient at 0."""
    return torch.view_as_real(spectrum_BF).square().sum(-1)


def _audible(power_BTJ: Tensor, threshold_J: Tensor) -> Tensor:
    """Power in the cells that exceed a threshold, 0 in the others."""
    return torch.where(power_BTJ > threshold_J, power_BTJ, 0)


def _speech(reference_BTJ: Tensor, bands: "_Bands") -> Tensor:
    """Which frames (B, T) are speech: 20 dB above the threshold of hearing, the power is 1e7 or more."""
    return _audible(reference_BTJ, 100 * bands.threshold_J).sum(2) >= SPEECH_POWER


def _response(estimate_BTJ: Tensor, reference_BTJ: Tensor, speech_BT: Tensor, bands: "_Bands") -> Tensor:
    """Compensation of a linear response: ratio (B, J) of average powers in speech, within 20 dB."""
    n_frames = reference_BTJ.shape[1] + PADDING // HOP - 1
    estimate_BJ, reference_BJ = (
        torch.where(speech_BT[..., None], _audible(power_BTJ, 100 * bands.threshold_J), 0).sum(1) / n_frames
        for power_BTJ in (estimate_BTJ, reference_BTJ)
    )
    return ((estimate_BJ + 1000) / (reference_BJ + 1000)).clamp(0.01, 100)


def _gain(reference_BT: Tensor, estimate_BT: Tensor) -> Tensor:
    """Compensation of the gain: g_t = 0.2 g_{t-1} + 0.8 ratio of audible powers, as a sum over 12 frames."""
    ratio_BT = (reference_BT + 5e3) / (estimate_BT + 5e3)
    past_BT = torch.cat([ratio_BT[:, :1].expand(-1, 11), ratio_BT], 1)
    weight_12 = 0.8 * 0.2 ** torch.arange(11, -1, -1, device=ratio_BT.device).to(ratio_BT)
    return (past_BT.unfold(1, 12, 1) * weight_12).sum(2).clamp(3e-4, 5)


def _loudness(power_BTJ: Tensor, bands: "_Bands") -> Tensor:
    """Zwicker's law: (p0 / 0.5)^c ((0.5 + 0.5 p / p0)^c - 1), and 0 below the threshold of hearing p0."""
    above_BTJ = (power_BTJ / bands.threshold_J).clamp_min(1)
    return SL * (2 * bands.threshold_J) ** bands.exponent_J * ((0.5 + 0.5 * above_BTJ) ** bands.exponent_J - 1)


def _masked(estimate_BTJ: Tensor, reference_BTJ: Tensor) -> Tensor:
    """Difference in loudness, drawn towards 0 by a quarter of the smaller one: so much goes unheard."""
    difference_BTJ = estimate_BTJ - reference_BTJ
    unheard_BTJ = 0.25 * torch.minimum(estimate_BTJ, reference_BTJ)
    return (difference_BTJ - unheard_BTJ).clamp_min(0) - (-difference_BTJ - unheard_BTJ).clamp_min(0)


def _asymmetry(estimate_BTJ: Tensor, reference_BTJ: Tensor) -> Tensor:
    """Asymmetry factor: ((p + 50) / (p_reference + 50))^1.2, at most 12, and 0 if below 3."""
    factor_BTJ = ((estimate_BTJ + 50) / (reference_BTJ + 50)) ** 1.2
    return torch.where(factor_BTJ < 3, 0, factor_BTJ.clamp_max(12))


def _l2_over_bands(difference_BTJ: Tensor, bands: "_Bands") -> Tensor:
    """Symmetric disturbance (B, T) of frames: L2 norm over bands."""
    total = bands.width_J.sum()
    return total * _root((difference_BTJ * bands.width_J).square().sum(2) / total, 2)


def _l1_over_bands(difference_BTJ: Tensor, bands: "_Bands") -> Tensor:
    """Asymmetric disturbance (B, T) of frames: L1 norm over bands."""
    return (difference_BTJ * bands.width_J).abs().sum(2)


def _weighted(disturbance_BT: Tensor, power_BT: Tensor) -> Tensor:
    """Disturbance that counts more where the reference is soft: d / ((p + 1e5) / 1e7)^0.04, at most 45."""
    return (disturbance_BT / ((power_BT + 1e5) / 1e7) ** 0.04).clamp_max(45)


def _over_time(disturbance_BT: Tensor, first_B1: Tensor, last_B1: Tensor) -> Tensor:
    """Average: L6 norm over 20 frames, then L2 norm over these syllables, which start every 10.

    In signals of more than 1000 frames, the beginning counts less.
    """
    n_frames = disturbance_BT.shape[1]
    age_BT = torch.arange(n_frames, device=disturbance_BT.device) - first_B1
    inside_BT = (age_BT >= 0) & (age_BT <= last_B1 - first_B1)
    sixth_BT = nnf.pad(torch.where(inside_BT, disturbance_BT, 0) ** 6, (0, SYLLABLE - 1))
    syllable_BT = _root(sixth_BT.unfold(1, SYLLABLE, 1).mean(2), 6)
    recency = min(max(n_frames - 1001, 0) / 5500, 0.5)
    weight_BT = (1 - recency + recency * age_BT / max(n_frames - 1, 1)).square()
    weight_BT = torch.where(inside_BT & (age_BT % (SYLLABLE // 2) == 0), weight_BT, 0)
    return _root((weight_BT * syllable_BT.square()).sum(1) / weight_BT.sum(1).clamp_min(_SMOOTHING), 2)


def _root(x: Tensor, p: int) -> Tensor:
    """x^(1 / p), smoothed: 0 at 0, where its slope is finite."""
    smoothing: float = _SMOOTHING ** (1 / p)
    return (x + _SMOOTHING) ** (1 / p) - smoothing


class _Bands(NamedTuple):
    """The tables of P.862 for 16 kHz as tensors; the first of its 49 bands holds nothing but DC and is left out."""

    window_S: Tensor
    warping_FJ: Tensor
    width_J: Tensor
    threshold_J: Tensor
    exponent_J: Tensor


@functools.cache
def _bands(device: torch.device, dtype: torch.dtype) -> _Bands:
    """Built once, and never as tensors of inference mode, which could not be trained with."""
    with torch.inference_mode(False):
        width_J, factor_J = torch.tensor(_WIDTH_BARK).double(), torch.tensor(_FACTOR).double()
        bark_J = 0.157344 + width_J.cumsum(0) - width_J / 2
        band_F = torch.repeat_interleave(torch.arange(len(_N_BINS)), torch.tensor(_N_BINS))
        warping_FJ = torch.zeros(FRAME // 2 + 1, len(_N_BINS)).double()
        warping_FJ[1 + torch.arange(len(band_F)), band_F] = SP * factor_J[band_F]
        tables = (
            torch.hann_window(FRAME, dtype=torch.float64),
            warping_FJ,
            width_J,
            10 ** (torch.tensor(_THRESHOLD_DB).double() / 10),
            0.23 * (6 / (bark_J + 2)).clamp(1, 2) ** 0.15,
        )
        return _Bands(*(table.to(device, dtype) for table in tables))


# fmt: off
_N_BINS = (
    1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 3, 4, 5, 4, 5, 6, 6, 7, 8,
    9, 9, 12, 12, 15, 16, 18, 21, 25, 20,
)
"""Bins of the spectrum in a band."""
_WIDTH_BARK = (
    0.317994, 0.322441, 0.326934, 0.331474, 0.336061, 0.340697, 0.345381, 0.350114, 0.354897, 0.359729, 0.364611,
    0.369544, 0.374529, 0.379565, 0.384653, 0.389794, 0.394989, 0.400236, 0.405538, 0.410894, 0.416306, 0.421773,
    0.427297, 0.432877, 0.438514, 0.444209, 0.449962, 0.455774, 0.461645, 0.467577, 0.473569, 0.479621, 0.485736,
    0.491912, 0.498151, 0.504454, 0.510819, 0.517250, 0.523745, 0.530308, 0.536934, 0.543629, 0.550390, 0.557220,
    0.564119, 0.571085, 0.578125, 0.585232,
)
"""Width of a band in Bark; bands lie next to one another."""
_FACTOR = (
    99.999992, 100.0, 100.000008, 100.000008, 100.000015, 99.999992, 99.999969, 50.000027, 100.0, 99.999969,
    100.000015, 99.999947, 100.000061, 53.047077, 110.000046, 117.991989, 65.0, 68.760147, 69.999931, 71.428818,
    75.000038, 76.843384, 80.968781, 88.646126, 63.864388, 68.15535, 72.547775, 75.584831, 58.379192, 80.950836,
    64.135651, 54.384785, 73.821884, 64.437073, 59.176456, 65.521278, 61.399822, 58.144047, 57.004543, 64.126297,
    54.311001, 61.114979, 55.077751, 56.849335, 55.628868, 53.137054, 54.985844, 79.546974,
)
"""What makes the sum over bins a density: width in Hz / width in Bark / number of bins."""
_THRESHOLD_DB = (
    63.9, 48.5, 36.9, 30.7, 25.9, 20.2, 16.6, 12.5, 9.9, 6.9, 4.9, 2.8, 1.0, -0.1, -1.4, -2.5, -3.4, -4.1, -4.8, -5.3,
    -5.7, -5.9, -6.0, -6.0, -6.0, -6.0, -5.8, -5.4, -5.1, -4.7, -4.3, -4.0, -3.6, -3.3, -3.1, -3.0, -3.0, -2.9, -2.8,
    -2.8, -2.8, -2.9, -3.2, -3.7, -4.3, -4.4, -3.8, -2.7,
)
"""Threshold of hearing, dB."""
