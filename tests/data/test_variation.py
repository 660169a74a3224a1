"""Changes to recordings before they are mixed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drnmf.data.batches import Batches, Dataset
from drnmf.data.folders import Pool
from drnmf.data.variation import NOISE_SPEED, TONE_HZ, Variation, at, draw_variation, filtered, vary_noise, vary_speech

NONE = Variation(
    speech_speed=1.0,
    noise_speed=1.0,
    backwards=False,
    speech_tone_db=(0.0,) * len(TONE_HZ),
    noise_tone_db=(0.0,) * len(TONE_HZ),
    other=None,
    other_offset=0,
    other_db=0.0,
)


def tone(hz: float, samples: int = 16000) -> torch.Tensor:
    return torch.sin(2 * torch.pi * hz * torch.arange(samples) / 16000)[None]


def pitch(x: torch.Tensor) -> float:
    return float(torch.fft.rfft(x[0]).abs().argmax()) * 16000 / x.shape[1]


def test_no_change_changes_nothing() -> None:
    x = torch.randn(2, 5000, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([5000, 3000])
    x[1, 3000:] = 0
    assert torch.allclose(vary_speech(x, [NONE] * 2)[:, :-1], x[:, :-1], atol=1e-5)
    varied = vary_noise(x, torch.zeros_like(x), lengths, [NONE] * 2)
    assert torch.allclose(varied[0, :4998], x[0, :4998], atol=1e-5)
    assert torch.allclose(varied[1, :2998], x[1, :2998], atol=1e-5)


def test_speed_changes_the_pitch() -> None:
    assert pitch(vary_speech(tone(1000), [replace(NONE, speech_speed=1.1)])) == pytest.approx(1100, abs=5)
    noise = vary_noise(tone(1000), torch.zeros(1, 16000), torch.tensor([16000]), [replace(NONE, noise_speed=0.8)])
    assert pitch(noise) == pytest.approx(800, abs=5)


def test_fast_noise_starts_again_and_does_not_run_out() -> None:
    x = torch.ones(2, 8000)
    x[1, 4000:] = 0
    fast = [replace(NONE, noise_speed=NOISE_SPEED)] * 2
    varied = vary_noise(x, torch.zeros_like(x), torch.tensor([8000, 4000]), fast)
    assert (varied[0] > 0.9).all()
    assert (varied[1, :4000] > 0.9).all()


def test_backwards() -> None:
    x = torch.arange(100.0)[None].repeat(2, 1)
    x[1, 60:] = 0
    varied = vary_noise(x, torch.zeros_like(x), torch.tensor([100, 60]), [replace(NONE, backwards=True)] * 2)
    assert torch.allclose(varied[0, :99], torch.arange(99.0, 0, -1), atol=1e-3)
    assert torch.allclose(varied[1, :59], torch.arange(59.0, 0, -1), atol=1e-3)


def test_a_second_noise_has_its_level() -> None:
    first, second = tone(500), 30 * tone(2000)
    both = vary_noise(first, second, torch.tensor([16000]), [replace(NONE, other_db=-6.0)])
    spectrum = torch.fft.rfft(both[0]).abs()
    assert 20 * torch.log10(spectrum[2000] / spectrum[500]) == pytest.approx(-6, abs=0.1)


@pytest.mark.parametrize(("hz", "db"), [(250, -5.0), (1000, 3.0), (3000, 0.0)])
def test_tone_has_the_gain_it_was_given(hz: float, db: float) -> None:
    x = tone(hz)
    y = filtered(x, [(8.0, -5.0, 3.0, 0.0, -8.0)])
    middle = slice(2000, -2000)
    assert 20 * torch.log10(y[0, middle].norm() / x[0, middle].norm()) == pytest.approx(db, abs=0.2)


def test_between_two_samples_lies_a_straight_line() -> None:
    between = at(torch.tensor([[0.0, 2.0, 4.0]]), torch.tensor([[0.5, 1.25, 2.0]]))
    assert torch.equal(between, torch.tensor([[1, 2.5, 4]]))


def test_drawing_is_reproducible_and_stays_inside_the_recording() -> None:
    draws = [draw_variation(np.random.default_rng(seed), Path("b.wav"), 7) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert all(0 <= draw_variation(np.random.default_rng(s), Path("b.wav"), 3).other_offset <= 3 for s in range(50))


def test_a_varied_dataset_differs_from_epoch_to_epoch_and_repeats(clips_pool: Pool) -> None:
    plain, varied, twin = (Dataset(clips_pool, fresh=True, varied=v, seed=3) for v in (False, True, True))
    first, again, other = (next(iter(Batches(d, e))) for d, e in ((varied, 0), (twin, 0), (varied, 1)))
    assert torch.equal(first.noisy, again.noisy)
    assert first.noisy.shape != other.noisy.shape or not torch.equal(first.noisy, other.noisy)
    assert not torch.equal(first.noisy, next(iter(Batches(plain, 0))).noisy)
    assert torch.isfinite(first.noisy).all()
    levels = [first.clean[i, :].norm() for i in range(len(first.clean))]
    assert min(levels) > 0


@pytest.fixture
def clips_pool() -> Pool:
    folder = Path(__file__).parents[1] / "audio"
    return Pool.from_folders(folder / "speech", folder / "noise")
