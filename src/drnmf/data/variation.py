"""Random changes to recordings before they are mixed, so that a network cannot memorise them.

Recordings are played slower or faster, backwards, through another frequency response, over a second noise. A mixture's
`Variation` holds what was drawn for it; `vary_speech` and `vary_noise` apply it to many at once, on any device.
Names of tensors end in their shape: B mixtures, S samples.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SPEECH_SPEED, NOISE_SPEED = 1.1, 1.33  # largest factor by which one is played slower or faster
SPEECH_TONE_DB, NOISE_TONE_DB = 4.0, 8.0  # largest gain or loss at each point of the frequency response
TONE_HZ = (0.0, 250.0, 1000.0, 3000.0, 8000.0)  # the response is interpolated between these, on the mel scale
OTHER_DB = (-12.0, 0.0)  # level of a second noise against the first


@dataclass(frozen=True)
class Variation:
    """How one mixture's recordings are changed; a second noise starts at `other_offset` and has `other_db`."""

    speech_speed: float
    noise_speed: float
    backwards: bool
    speech_tone_db: tuple[float, ...]
    noise_tone_db: tuple[float, ...]
    other: Path | None
    other_offset: int
    other_db: float


def draw_variation(rng: np.random.Generator, other: Path, last_offset: int) -> Variation:
    """Draw one; every second mixture gets the `other` noise, from anywhere up to `last_offset`."""
    return Variation(
        speech_speed=float(SPEECH_SPEED ** rng.uniform(-1, 1)),
        noise_speed=float(NOISE_SPEED ** rng.uniform(-1, 1)),
        backwards=bool(rng.random() < 0.5),
        speech_tone_db=tuple(rng.uniform(-SPEECH_TONE_DB, SPEECH_TONE_DB, len(TONE_HZ))),
        noise_tone_db=tuple(rng.uniform(-NOISE_TONE_DB, NOISE_TONE_DB, len(TONE_HZ))),
        other=other if rng.random() < 0.5 else None,
        other_offset=int(rng.integers(last_offset + 1)),
        other_db=float(rng.uniform(*OTHER_DB)),
    )


def vary_speech(speech_BS: Tensor, variations: list[Variation]) -> Tensor:
    """Speech (B, S) at other speeds and through other frequency responses; what would be longer is cut."""
    S = speech_BS.shape[1]
    speed_B = speech_BS.new_tensor([v.speech_speed for v in variations], dtype=torch.float64)
    place_BS = torch.arange(S, device=speech_BS.device) * speed_B[:, None]
    played_BS = torch.where(place_BS < S - 1, at(speech_BS, place_BS), 0)
    return filtered(played_BS, [v.speech_tone_db for v in variations])


def vary_noise(noise_BS: Tensor, other_BS: Tensor, lengths_B: Tensor, variations: list[Variation]) -> Tensor:
    """Noise (B, S), a second one added to it, at other speeds, backwards, through other frequency responses.

    `other_BS` is silent where there is no second noise. What is played too fast to last starts again.
    """
    gain_B1 = 10 ** (noise_BS.new_tensor([[v.other_db] for v in variations]) / 20)
    level_B1, other_B1 = (x.norm(dim=1, keepdim=True) for x in (noise_BS, other_BS))
    noise_BS = noise_BS + other_BS * torch.where(other_B1 > 0, gain_B1 * level_B1 / other_B1.clamp_min(1e-9), 0)
    speed_B = noise_BS.new_tensor([v.noise_speed for v in variations], dtype=torch.float64)
    last_B1 = (lengths_B[:, None] - 1).clamp_min(1)
    place_BS = (torch.arange(noise_BS.shape[1], device=noise_BS.device) * speed_B[:, None]) % last_B1
    backwards_B1 = torch.tensor([[v.backwards] for v in variations], device=noise_BS.device)
    played_BS = at(noise_BS, torch.where(backwards_B1, last_B1 - place_BS, place_BS))
    return filtered(played_BS, [v.noise_tone_db for v in variations])


def at(x_BS: Tensor, place_BS: Tensor) -> Tensor:
    """Signals (B, S) at places between their samples, by a straight line from one to the next."""
    below_BS = place_BS.floor()
    index_BS, last = below_BS.long(), x_BS.shape[1] - 1
    first, second = (x_BS.gather(1, (index_BS + i).clamp_max(last)) for i in (0, 1))
    return first + (place_BS - below_BS).to(x_BS) * (second - first)


def filtered(x_BS: Tensor, tone_db_B: list[tuple[float, ...]], sample_rate: int = 16000) -> Tensor:
    """Signals (B, S) through smooth frequency responses without delay, given in dB at `TONE_HZ`."""
    S = x_BS.shape[1]
    size = -(-S // 4096) * 4096  # transforms of such lengths are fast
    frequency_F = torch.fft.rfftfreq(size, 1 / sample_rate, device=x_BS.device)
    gain_BF = response(x_BS.new_tensor(tone_db_B), frequency_F)
    y: Tensor = torch.fft.irfft(torch.fft.rfft(x_BS, size) * gain_BF, size)
    return y[:, :S]


def response(tone_db_BP: Tensor, frequency_F: Tensor) -> Tensor:
    """Gains (B, F) of responses that are given in dB at `TONE_HZ`."""
    place = _mel(frequency_F)
    points = _mel(torch.tensor(TONE_HZ, device=place.device))
    i = torch.searchsorted(points, place).clamp(1, len(points) - 1)
    share = ((place - points[i - 1]) / (points[i] - points[i - 1])).clamp(0, 1)
    return 10 ** ((tone_db_BP[:, i - 1] * (1 - share) + tone_db_BP[:, i] * share) / 20)


def _mel(frequency: Tensor) -> Tensor:
    return torch.log1p(frequency / 700)
