"""The definition, by convolution with the whole filter, is the oracle; so is soxr below where both are flat."""

import numpy as np
import pytest
import soxr

from drnmf.signal import audio
from drnmf.signal.short_filters import ShortResampler, low_pass, takes
from examples import AUDIO


def resampled(x: np.ndarray, source: int, target: int, block: int) -> np.ndarray:
    stream = ShortResampler(source, target, len(x))
    parts = [stream.feed(x[:, i : i + block]) for i in range(0, x.shape[1], block)]
    return np.concatenate([*parts, stream.feed(x[:, :0], last=True)], 1)


@pytest.mark.parametrize("block", [1, 37, 128, 5000])
@pytest.mark.parametrize("R", [2, 3, 6])
def test_it_is_the_definition_for_all_blocks(R, block):
    x = np.random.default_rng(0).standard_normal((2, 700)).astype(np.float32)
    g, half = low_pass(R).astype(float), 80 * R
    down = np.stack([np.convolve(row, g)[half : half + 700 : R] for row in x])
    y = resampled(x, 16000 * R, 16000, block)
    assert y.shape[1] >= down.shape[1]
    np.testing.assert_allclose(y[:, : down.shape[1]], down, atol=1e-5)
    between = np.zeros((2, 700 * R))
    between[:, ::R] = R * x
    up = np.stack([np.convolve(row, g)[half : half + 700 * R] for row in between])
    np.testing.assert_allclose(resampled(x, 16000, 16000 * R, block), up, atol=1e-5)


@pytest.mark.parametrize("R", [2, 3, 6, 48])
def test_it_passes_what_the_lower_rate_holds_and_nothing_else(R):
    gain = np.abs(np.fft.rfft(low_pass(R), 2**18))
    frequency = np.linspace(0, R, len(gain))  # 1: the lower Nyquist frequency
    assert np.abs(gain[frequency < 0.9] - 1).max() < 1e-3
    assert gain[frequency > 1].max() < 10 ** (-90 / 20)


def test_speech_comes_back_as_by_soxr():
    x = audio.read(AUDIO / "speech/austen_0930.flac")[0].numpy()
    expected = soxr.resample(x.T, 16000, 48000).T
    y = resampled(x, 16000, 48000, 777)
    assert np.linalg.norm(y - expected) < 0.03 * np.linalg.norm(expected)


def test_only_whole_factors():
    assert takes(48000, 16000)
    assert takes(8000, 16000)
    assert not takes(44100, 16000)
