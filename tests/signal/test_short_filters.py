"""The definition, by convolution with the whole filter, is the oracle; so is soxr below where both are flat."""

import numpy as np
import pytest
import soxr

from drnmf.signal import audio
from drnmf.signal.short_filters import ShortResampler, low_pass, takes
from small import AUDIO


def resampled(x: np.ndarray, source: int, target: int, block: int) -> np.ndarray:
    stream = ShortResampler(source, target, len(x))
    parts = [stream.feed(x[:, i : i + block]) for i in range(0, x.shape[1], block)]
    return np.concatenate([*parts, stream.feed(x[:, :0], last=True)], 1)


@pytest.mark.parametrize("block", [1, 37, 441, 5000])
@pytest.mark.parametrize("rate", [8000, 11025, 32000, 44100, 48000])
def test_it_is_the_definition_for_all_blocks(rate, block):
    x = np.random.default_rng(0).standard_normal((2, 700)).astype(np.float32)
    for source, target in ((rate, 16000), (16000, rate)):
        low = min(source, target)
        n, k = np.arange(700), np.arange(-(-700 * target // source))
        g = low / source * low_pass(low * (k[:, None] / target - n / source))
        np.testing.assert_allclose(resampled(x, source, target, block), x @ g.T, atol=1e-5)


@pytest.mark.parametrize("rate", [11025, 44100, 48000])
def test_blocks_of_any_size_give_the_same_samples(rate):
    x = np.random.default_rng(1).standard_normal((2, 20000)).astype(np.float32)
    for rates in ((rate, 16000), (16000, rate)):
        whole = resampled(x, *rates, 20000)
        for block in (128, 777):
            np.testing.assert_array_equal(resampled(x, *rates, block), whole)


def test_it_passes_what_the_lower_rate_holds_and_nothing_else():
    fine = 48
    t = np.arange(-100 * fine, 100 * fine + 1) / fine
    gain = np.abs(np.fft.rfft(low_pass(t) / fine, 2**18))
    frequency = np.linspace(0, fine, len(gain))  # 1: the lower Nyquist frequency
    assert np.abs(gain[frequency < 0.9] - 1).max() < 1e-3
    assert gain[frequency > 1].max() < 10 ** (-90 / 20)


@pytest.mark.parametrize("rate", [44100, 48000])
def test_speech_comes_back_as_by_soxr(rate):
    x = audio.read_array(AUDIO / "speech/austen_0930.flac")[0]
    expected = soxr.resample(x.T, 16000, rate).T
    y = resampled(x, 16000, rate, 777)
    assert np.linalg.norm(y - expected) < 0.03 * np.linalg.norm(expected)


def test_odd_rates_would_need_a_large_matrix():
    assert all(takes(rate, 16000) for rate in (8000, 11025, 22050, 24000, 44100, 48000, 88200, 192000, 768000))
    assert not takes(47999, 16000)
    assert not takes(15999, 16000)
