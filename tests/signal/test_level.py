"""The running level against its definition, frame by frame."""

import math

import pytest
import torch

from drnmf.signal import audio
from drnmf.signal.level import SILENCE, running_level
from drnmf.signal.spectra import stft


def by_definition(magnitude: torch.Tensor) -> list[float]:
    s = p = 0.0
    levels = []
    for x in magnitude:
        s += (float(x.square().mean()) - s) / 10
        p = max(0.999 * p, s)
        levels.append(max(math.sqrt(p), SILENCE))
    return levels


@pytest.fixture
def magnitude(speech_dir) -> torch.Tensor:
    speech = audio.read(sorted(speech_dir.iterdir())[0])[0][0]
    return stft(torch.cat([speech, torch.zeros(16000), 0.1 * speech])).abs()


def test_the_definition(magnitude: torch.Tensor) -> None:
    levels, state = running_level(magnitude[None].double())
    expected = by_definition(magnitude.double())
    assert levels.shape == (1, len(magnitude), 1)
    torch.testing.assert_close(levels[0, :, 0], torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-15)
    assert float(state[0, 1]) == pytest.approx(expected[-1] ** 2)


@pytest.mark.parametrize("block", [1, 100, 257])
def test_in_blocks_as_in_one(magnitude: torch.Tensor, block: int) -> None:
    magnitude = magnitude[:600]
    whole, end = running_level(magnitude[None])
    state, parts = None, []
    for part in torch.split(magnitude[None], block, 1):
        levels, state = running_level(part, state)
        parts.append(levels)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=0)
    torch.testing.assert_close(state, end, rtol=1e-5, atol=0)


def test_levels_follow_the_gain_of_each_sequence(magnitude: torch.Tensor) -> None:
    gains = torch.tensor([0.1, 1.0, 30.0])[:, None, None]
    levels, _ = running_level(gains * magnitude[:700])
    loud = levels[1] > 11 * SILENCE
    for i in (0, 2):
        torch.testing.assert_close(levels[i][loud], float(gains[i]) * levels[1][loud], rtol=1e-5, atol=0)


def test_a_pause_hardly_lowers_it_and_silence_has_a_floor() -> None:
    sound = torch.ones(1, 100, 5)
    levels, state = running_level(torch.cat([sound, torch.zeros(1, 125, 5)], 1))
    assert 0.9 < float(levels[0, -1, 0]) < 1
    assert float(running_level(torch.zeros(1, 3, 5))[0].max()) == pytest.approx(SILENCE)
    assert running_level(torch.zeros(1, 0, 5), state)[0].shape == (1, 0, 1)
