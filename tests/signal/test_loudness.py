"""pyloudnorm, which takes whole recordings, is the oracle of loudness; soxr at sixteen times the rate that of peaks."""

import numpy as np
import pyloudnorm
import pytest
import soxr

from drnmf.errors import InputError
from drnmf.signal import audio
from drnmf.signal.loudness import Level, Meter, apply, gains, integrated
from small import AUDIO

VOICE = audio.read_array(AUDIO / "speech/austen_0920.flac")[0][0]


def speech(rate: int, channels: int) -> np.ndarray:
    """Speech with a pause of a second, (channels, samples); softer and later from channel to channel."""
    x = np.concatenate([VOICE[:30000], np.zeros(16000, np.float32), 0.4 * VOICE[30000:78000]])
    rows = [soxr.resample(np.roll(x, 900 * c) * 0.6**c, 16000, rate) for c in range(channels)]
    return np.stack(rows)[:, : 5 * rate]


def measured(x: np.ndarray, rate: int, block: int = 7777) -> Meter:
    meter = Meter(rate, len(x))
    for i in range(0, x.shape[1], block):
        meter.feed(x[:, i : i + block])
    meter.close()
    return meter


def expected(x: np.ndarray, rate: int) -> float:
    return pyloudnorm.Meter(rate, filter_class="DeMan").integrated_loudness(x.T.astype(float))  # the standard's filters


def true_peak(x: np.ndarray, rate: int) -> float:
    return 20 * np.log10(np.abs(soxr.resample(x.T, rate, 16 * rate)).max())


@pytest.mark.parametrize(
    ("rate", "channels"), [(8000, 1), (16000, 2), (16000, 5), (44100, 2), (48000, 1), (48000, 2), (192000, 1)]
)
def test_it_is_the_loudness_of_the_whole_recording(rate, channels):
    x = speech(rate, channels)
    meter = measured(x, rate)
    assert len(meter.energies) == len(meter.peaks) == 1000
    assert integrated(meter.energies) == pytest.approx(expected(x, rate), abs=1e-4)
    assert 20 * np.log10(meter.peaks.max()) == pytest.approx(true_peak(x, rate), abs=0.1)


@pytest.mark.parametrize("block", [100, 16000, 10**6])
def test_blocks_make_no_difference(block):
    x = speech(16000, 2)[:, :70123]
    some, other = measured(x, 16000, block), measured(x, 16000)
    np.testing.assert_allclose(some.energies, other.energies, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(some.peaks, other.peaks, rtol=1e-4, atol=1e-7)


def test_bass_of_six_channels_does_not_count():
    x = speech(16000, 6)
    assert integrated(measured(x, 16000).energies) == pytest.approx(expected(np.delete(x, 3, 0), 16000), abs=1e-4)


def test_a_peak_between_two_samples_is_seen():
    x = np.sin(np.pi / 2 * np.arange(32000) + np.pi / 4)[None]  # all its samples are 0.71, its peaks 1
    assert measured(x, 16000).peaks[100:-100].max() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(("loudness", "peak"), [(-30, -1), (-13, -1), (-15, -3)])
@pytest.mark.parametrize("rate", [16000, 44100])
def test_the_wanted_loudness_is_reached_below_the_limit(rate, loudness, peak):
    x = speech(rate, 2)
    curve, reached = gains(measured(x, rate), Level(loudness, peak))
    parts = [apply(x[:, i : i + 6001], i, rate, curve) for i in range(0, x.shape[1], 6001)]
    y = np.concatenate(parts, 1)
    assert y.dtype == np.float32
    assert expected(y, rate) == pytest.approx(loudness, abs=0.05)
    assert reached == pytest.approx(loudness, abs=0.001)
    assert true_peak(y, rate) < peak + 0.05
    is_limited = curve.max() / curve.min() > 1.05
    assert is_limited == (loudness != -30)  # the limiter works where it must, and only there


def test_the_limiter_moves_slowly():
    x = speech(16000, 1)
    curve, _ = gains(measured(x, 16000), Level(-12, -3))
    gain = apply(np.ones_like(x), 0, 16000, curve)[0]
    steps = 20 * np.log10(gain[80:] / gain[:-80])  # dB in 5 ms
    assert 0.5 < np.abs(steps).max() < 4


def test_a_loudness_beyond_the_limit_is_told():
    curve, reached = gains(measured(speech(16000, 1), 16000), Level(-5, -20))
    assert np.isfinite(curve).all()
    assert reached < -20


@pytest.mark.parametrize("x", [np.zeros((1, 16000)), np.ones((1, 5000)), np.zeros((2, 0))])
def test_what_has_no_loudness_gets_no_gain(x):
    curve, reached = gains(measured(x, 16000), Level(-16))
    assert reached == -np.inf
    assert (curve == 1).all()


@pytest.mark.parametrize("values", [(16,), (-70,), (float("nan"),), (-16, 1), (-16, -40)])
def test_levels_that_make_no_sense_are_refused(values):
    with pytest.raises(InputError, match=r"(LUFS|dBTP) can be -\d+ to"):
        Level(*values)
