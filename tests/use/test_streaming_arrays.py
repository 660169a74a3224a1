"""Streams of arrays through a compiled model, without PyTorch: `test_streaming` has more, by PyTorch's definition."""

import threading

import numpy as np
import pytest

from drnmf import InputError, Streamer, enhance, istft, stft
from drnmf.engines import streams
from drnmf.models.folders import load_ready
from small import recording, small_model

if not streams.available():
    pytest.skip("steps.c is not compiled here: there was no C compiler", allow_module_level=True)

MODELS = {"small": small_model(), "double": small_model(np.float64), "default": load_ready("default")}
EVERY = pytest.mark.parametrize("name", MODELS)


def noisy(samples: int = 16000) -> np.ndarray:
    speech, noise = (recording(name, samples) for name in ("speech/austen_0870", "noise/percussion"))
    return np.float32(speech + noise)


def offline(model, x: np.ndarray, least: float = 0.0) -> np.ndarray:
    """The whole signal at once, by the definition."""
    X = stft(x)
    mask, _ = model.look(abs(X))
    return istft(np.maximum(mask, least) * X, len(x))


def streamed(streamer: Streamer, x: np.ndarray, block: int) -> np.ndarray:
    parts = [streamer.feed(x[..., i : i + block]) for i in range(0, x.shape[-1], block)]
    return np.concatenate([*parts, streamer.flush()], -1)


@pytest.mark.parametrize("block", [1, 127, 128, 129, 4096])
@EVERY
def test_streaming_equals_offline(name, block):
    model, x = MODELS[name], noisy(8000)
    y = streamed(Streamer(model), x, block)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, offline(model, x), rtol=0, atol=2e-5)
    assert np.abs(y - x).max() > 0.01


@EVERY
def test_strength_and_limit_act_as_defined(name):
    model, x = MODELS[name], noisy()
    np.testing.assert_array_equal(streamed(Streamer(model, strength=0), x, 500), x)
    half = (x + offline(model, x)) / 2
    np.testing.assert_allclose(streamed(Streamer(model, strength=0.5), x, 500), half, rtol=0, atol=2e-5)
    limited = offline(model, x, least=10 ** (-6 / 20))
    np.testing.assert_allclose(streamed(Streamer(model, max_attenuation=6), x, 500), limited, rtol=0, atol=2e-5)


@pytest.mark.parametrize("rate", [16000, 48000])
@pytest.mark.parametrize("length", [1, 5000, 16000])
def test_a_file_is_heard_backwards_first(rate, length):
    """Three quarters of a second of it, of which nothing comes out."""
    model, x = MODELS["default"], np.stack([noisy()[:length], 0.5 * noisy()[:length]])
    ahead = x[:, : rate * 3 // 4][:, ::-1]
    expected = streamed(Streamer(model, rate, channels=2), np.concatenate([ahead, x], 1), 500)[:, ahead.shape[1] :]
    np.testing.assert_allclose(enhance(x, rate, model, axis=1), expected, rtol=0, atol=1e-6)
    streamer = Streamer(model, rate, channels=2)
    for _ in range(2):
        streamer.listen_ahead(x)
        np.testing.assert_allclose(streamed(streamer, x, 700), expected, rtol=0, atol=1e-6)
    streamer.feed(x)
    with pytest.raises(InputError, match="before the first feed"):
        streamer.listen_ahead(x)
    np.testing.assert_array_equal(enhance(x, rate, model, strength=0, axis=1), x)


def test_a_beginning_that_cannot_be_heard_does_no_harm():
    streamer, x = Streamer(MODELS["small"]), noisy()
    for bad, reason in (
        (np.full(5000, np.nan), "NaN"),
        (np.stack([x, x]), "shape"),
        (np.zeros(9, np.int16), "float32"),
    ):
        with pytest.raises(InputError, match=reason):
            streamer.listen_ahead(bad)
        np.testing.assert_array_equal(streamed(streamer, x, 500), streamed(Streamer(MODELS["small"]), x, 500))
    streamer.listen_ahead(x)  # (samples,), as blocks may be
    np.testing.assert_allclose(streamed(streamer, x, 500), enhance(x, 16000, MODELS["small"]), rtol=0, atol=1e-6)


def test_the_noise_before_the_first_word_is_removed_from_the_first_sample_on():
    noise = np.float32(recording("noise/percussion", 16000))
    left = [np.square(y[:1600]).mean() for y in (streamed(Streamer(), noise, 500), enhance(noise, 16000))]
    assert left[1] < left[0] / 2


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize("length", [1, 127, 512, 5000])
def test_as_many_samples_come_out_as_went_in(rate, length):
    x = np.stack([noisy()[:length], 0.5 * noisy()[:length]])
    streamer = Streamer(MODELS["default"], rate, channels=2)
    first, second = (streamed(streamer, x, 100) for _ in range(2))
    assert first.shape == x.shape
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, second)  # after flush a new stream starts


@pytest.mark.parametrize("block", [np.array([0.0, np.nan]), np.array([0.0, 30000.0]), np.zeros(5, np.int16), [0.0]])
def test_bad_blocks_are_refused_and_do_no_harm(block):
    streamer, x = Streamer(MODELS["small"]), noisy()
    first = streamer.feed(x[:5000])
    with pytest.raises(InputError):
        streamer.feed(block)
    y = np.concatenate([first, streamer.feed(x[5000:]), streamer.flush()])
    np.testing.assert_array_equal(y, streamed(Streamer(MODELS["small"]), x, 5000))


def test_several_streams_at_once_do_not_disturb_each_other():
    """They share a network, each in a thread of its own."""
    model, x = MODELS["default"], noisy()
    expected, results = offline(model, x), [None] * 4

    def work(i: int) -> None:
        results[i] = streamed(Streamer(model), x, 128 * (i + 1))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)
