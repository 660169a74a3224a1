"""Noisy speech from its parts.

With s the speech, h a room response, b a background, n = len(s), every mixture of this package is

    y = (s * h)[:n]                          full convolution, cut to the speech's length; without h, y = s
    y = y / rms(y) * 10^(level_dbfs / 20)    the target: reverberant speech
    v = b[offset : offset + n]
    v = v * rms(y) / rms(v) * 10^(-snr_db / 20)
    x = y + v                                the mixture
    if max|x| > 0.99: scale x and y by 0.99 / max|x|

Names of tensors end in their shape: B mixtures, S samples, R samples of a room response.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from drnmf.data.variation import Variation
from drnmf.errors import InputError

PEAK = 0.99
DECIBELS = 200.0
"""The most that a level or an SNR can be: beyond it lie the limits of floating-point numbers, not of sound."""


@dataclass(frozen=True)
class Mixture:
    """One mixture to be made; `offset` counts samples of the background at 16 kHz.

    With a `variation`, the recordings are changed before they are mixed.
    """

    id: str
    speech: Path
    rir: Path | None
    background: Path
    offset: int
    snr_db: float
    level_dbfs: float
    variation: Variation | None = None


@dataclass(frozen=True)
class Pair:
    """One mixture that lies ready with its target; `snr_db` where it is known."""

    id: str
    noisy: Path
    clean: Path
    snr_db: float | None = None


Item = Mixture | Pair


def check_decibels(name: str, *values: float) -> None:
    """Refuse levels and SNRs that are not finite or beyond all sound."""
    for value in values:
        if not -DECIBELS <= value <= DECIBELS:
            raise InputError(f"{name} must lie between -{DECIBELS:g} and {DECIBELS:g} dB, got {value:g}")


def mix_batch(
    speech_BS: Tensor,
    lengths_B: Tensor,
    rir_BR: Tensor | None,
    background_BS: Tensor,
    snr_db_B: Tensor,
    level_dbfs_B: Tensor,
) -> tuple[Tensor, Tensor]:
    """Mix many utterances at once, on any device: mixtures and targets, both (B, S), zero beyond each length.

    Speech and room responses are padded with zeros, the background with anything. A silent signal stays silent: a
    background that is silent just here leaves the speech alone.
    """
    S = speech_BS.shape[1]
    inside_BS = torch.arange(S, device=speech_BS.device) < lengths_B[:, None]
    y_BS = speech_BS if rir_BR is None else convolve(speech_BS, rir_BR)
    y_BS = torch.where(inside_BS, y_BS, 0)
    v_BS = torch.where(inside_BS, background_BS, 0)
    y_BS = _to_level(y_BS, lengths_B, level_dbfs_B)
    v_BS = _to_level(v_BS, lengths_B, level_dbfs_B - snr_db_B)  # rms(y) is now 10^(level_dbfs / 20)
    x_BS = y_BS + v_BS
    scale_B1 = PEAK / x_BS.abs().amax(1, keepdim=True).clamp(min=PEAK)
    return x_BS * scale_B1, y_BS * scale_B1


def convolve(x_BS: Tensor, h_BR: Tensor) -> Tensor:
    """The first S samples of the full convolution, by one FFT."""
    S, R = x_BS.shape[1], h_BR.shape[1]
    size = fast_length(S + R - 1)
    y: Tensor = torch.fft.irfft(torch.fft.rfft(x_BS, size) * torch.fft.rfft(h_BR, size), size)
    return y[:, :S]


def fast_length(n: int) -> int:
    """The smallest 2^a 3^b 5^c (b, c at most 2) that is at least n: FFTs of such lengths are fast everywhere."""
    return min(odd << max(0, (-(-n // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15, 25, 45, 75, 225))


def _to_level(x_BS: Tensor, lengths_B: Tensor, level_dbfs_B: Tensor) -> Tensor:
    # squares are added up in double precision: in single, 200,000 of them are off by 1e-5, and every sample with them
    exact = x_BS.dtype if x_BS.device.type == "mps" else torch.float64
    rms_B = torch.linalg.vector_norm(x_BS, dim=1, dtype=exact) / lengths_B.to(exact).sqrt()
    level_B = 10 ** (level_dbfs_B.to(rms_B) / 20)
    gain_B = torch.where(rms_B > 0, level_B / rms_B, 0)
    return x_BS * gain_B[:, None].to(x_BS.dtype)
