"""Streams of arrays through a compiled model, without PyTorch: `test_streaming` has more, by PyTorch's definition."""

import threading
from concurrent.futures import Executor, Future

import numpy as np
import pytest

from drnmf import InputError, Streamer, enhance, istft, stft
from drnmf.engines import streams
from drnmf.metrics import si_sdr
from drnmf.models.folders import load_ready
from drnmf.signal.audio import resample
from drnmf.signal.spectra import analyse
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
def test_a_file_is_heard_first_and_back_to_its_beginning(rate, length):
    """Three quarters of a second of it backwards; nothing comes out of what is heard so."""
    model, x = MODELS["default"], np.stack([noisy()[:length], 0.5 * noisy()[:length]])
    ahead = np.concatenate([x, x[:, : rate * 3 // 4][:, ::-1]], 1)
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


@pytest.mark.parametrize(("channels", "block", "heard"), [(1, 2**22, 480000), (2, 20000, 10000)])
def test_no_more_is_heard_than_half_a_minute_or_a_block(channels, block, heard, monkeypatch):
    monkeypatch.setattr("drnmf.use.streaming._BLOCK", block)
    x = np.float32(0.1 * np.random.default_rng(0).standard_normal((channels, heard + 1000)))

    def after(n: int) -> np.ndarray:
        streamer = Streamer(MODELS["default"], channels=channels)
        streamer.listen_ahead(x[:, :n])
        return streamer.feed(x[:, :1000])

    np.testing.assert_array_equal(after(heard), after(heard + 1000))
    ten_hops = 1280  # so that as much comes out
    assert abs(after(heard) - after(heard - ten_hops)).max() > 0


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


def learning(streamer: Streamer, x: np.ndarray, noise: np.ndarray, at: int, block: int = 700) -> np.ndarray:
    """As `streamed`, with a noise learned before sample `at`, a multiple of the block."""
    parts = [streamer.feed(x[..., i : i + block]) for i in range(0, at, block)]
    streamer.learn_noise(noise)
    return np.concatenate([*parts, streamed(streamer, x[..., at:], block)], -1)


def noise_of(name: str, samples: int = 16000) -> np.ndarray:
    return np.float32(recording(f"noise/{name}", samples))


@pytest.fixture
def impatient(monkeypatch):
    """Streams that keep learning take all they hear for pauses, and learn often."""
    monkeypatch.setattr("drnmf.use.learning.KEPT", 10)
    monkeypatch.setattr("drnmf.use.learning.AROUND", 4)
    monkeypatch.setattr("drnmf.use.learning.EVERY", 20)


FORMS = [(16000, {}), (44100, {"channels": 2}), (8000, {"channels": 2, "separate_channels": True})]


@pytest.mark.parametrize(("rate", "form"), FORMS)
@pytest.mark.parametrize("keep", [False, True])
def test_a_stream_that_learns_what_it_knows_gives_the_same_bits(rate, form, keep, monkeypatch, impatient):
    """So the state, the overlap and the timing go on, between two hops and in the middle of one."""
    model, learned = MODELS["default"], []
    monkeypatch.setattr(type(model), "adapted", lambda self, samples: learned.append(samples) or load_ready("default"))
    x = np.tile(noise_of("hum") + noisy(), (form.get("channels", 1), 1))
    expected = streamed(Streamer(model, rate, **form), x, 700)
    given = learning(Streamer(model, rate, **form, keep_learning=keep), x, x, at=7000)
    np.testing.assert_array_equal(given, expected)
    assert max(map(len, learned)) == 1 + keep  # the sample, and pauses


@pytest.mark.parametrize(("rate", "form"), FORMS)
def test_a_noise_is_learned_without_a_click(rate, form):
    x = np.tile(noise_of("hum") + noisy(), (form.get("channels", 1), 1))
    plain, at = streamed(Streamer(sample_rate=rate, **form), x, 700), 7000
    y = learning(Streamer(sample_rate=rate, **form), x, x, at)
    assert y.shape == x.shape
    late = Streamer(sample_rate=rate, **form).latency
    np.testing.assert_array_equal(y[:, : at - late], plain[:, : at - late])
    assert np.abs(y - plain)[:, at:].max() > 0.01
    steps = np.abs(np.diff(y - plain))
    assert steps[:, at - late : at + late].max() <= steps[:, at + late :].max()


def test_what_is_learned_stays_after_flush_until_it_is_forgotten():
    model, x = MODELS["default"], noisy()
    hum, percussion = noise_of("hum"), noise_of("percussion")
    expected = streamed(Streamer(model.adapted([abs(analyse(hum))])), x, 700)
    streamer = Streamer(model)
    streamer.learn_noise(percussion)  # the second sample counts, from the first atoms on
    learning(streamer, x, hum, at=7000)
    np.testing.assert_array_equal(streamed(streamer, x, 700), expected)
    np.testing.assert_array_equal(streamed(streamer, x, 500), expected)
    streamer.forget_noise()
    streamer.flush()
    np.testing.assert_array_equal(streamed(streamer, x, 700), streamed(Streamer(model), x, 700))


def test_a_learned_noise_is_removed_better():
    noise = noise_of("hum", 96000)
    plain, streamer = Streamer(), Streamer()
    streamer.learn_noise(noise[:48000])
    left = [np.square(streamed(s, noise[48000:], 700)[8000:]).mean() for s in (plain, streamer)]
    assert left[1] < left[0] / 2


def test_channels_with_masks_of_their_own_learn_from_themselves():
    x = np.stack([noisy(), noise_of("hum"), noise_of("guitar")])
    noise = np.stack([0 * noisy(), noise_of("hum"), noise_of("guitar")])
    together = learning(Streamer(channels=3, separate_channels=True), x, noise, at=7000)
    np.testing.assert_array_equal(together[0], streamed(Streamer(), x[0], 700))  # it was silent: nothing to learn
    for i in (1, 2):
        np.testing.assert_array_equal(together[i], learning(Streamer(), x[i], noise[i], at=7000))


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (noisy()[:4799], "at least 0.3 s, this one has 0.30 s"),
        (np.zeros(16000), "silent"),
        (np.full(16000, 1e-6), "silent"),
        (np.append(noisy(), np.nan), "NaN"),
        (30000 * noisy(), "divide by 32768"),
        (np.float32(recording("speech/austen_0880")), "this sample of noise: is nothing but speech"),
        (np.stack([noisy(), noisy()]), "blocks of"),
        (np.zeros(16000, np.int16), "float32"),
    ],
)
def test_bad_samples_are_refused_and_do_no_harm(sample, reason):
    streamer, x = Streamer(MODELS["default"]), noisy()
    first = streamer.feed(x[:5000])
    with pytest.raises(InputError, match=reason) as error:
        streamer.learn_noise(sample)
    assert "\n" not in str(error.value)
    y = np.concatenate([first, streamer.feed(x[5000:]), streamer.flush()])
    np.testing.assert_array_equal(y, streamed(Streamer(MODELS["default"]), x, 5000))


def test_models_that_cannot_learn_say_so():
    with pytest.raises(InputError, match="cannot learn a noise"):
        Streamer(MODELS["small"]).learn_noise(noisy())
    for option in ("keep_learning", "learn_aside"):
        with pytest.raises(InputError, match="cannot learn a noise"):
            Streamer(MODELS["small"], **{option: True})
    with pytest.raises(InputError, match="same sizes"):
        MODELS["default"].stream(channels=1, strength=1.0).replace(MODELS["small"].network)


class Later(Executor):
    """Does what it is given when it is told to."""

    def __init__(self) -> None:
        self.waiting = []

    def submit(self, work):
        future = Future()
        self.waiting.append(lambda: future.set_result(work()))
        if len(self.waiting) == 1:  # the trial at the beginning
            self.waiting[0]()
        return future


def test_a_noise_is_learned_aside_while_the_sound_goes_on(monkeypatch):
    monkeypatch.setattr("drnmf.use.streaming._worker", Later)
    x, hum = noisy(), noise_of("hum")
    streamer = Streamer(learn_aside=True)
    parts = [streamer.feed(x[:3500])]
    streamer.learn_noise(noise_of("guitar"))
    streamer.learn_noise(hum)
    old, new = streamer._learners[0]._worker.waiting[1:]
    assert streamer.learning
    parts.append(streamer.feed(x[3500:7000]))
    new()
    old()  # too late
    parts += [streamer.feed(x[7000:]), streamer.flush()]
    assert not streamer.learning
    np.testing.assert_array_equal(np.concatenate(parts), learning(Streamer(), x, hum, at=7000))


def test_a_thread_refuses_speech_while_the_sound_goes_on():
    x, speech = noisy(), np.float32(recording("speech/austen_0880"))
    streamer = Streamer(learn_aside=True)
    streamer.learn_noise(speech)
    streamer._learners[0]._work.result(timeout=60)
    np.testing.assert_array_equal(streamed(streamer, x, 700), streamed(Streamer(), x, 700))
    assert "nothing but speech" in streamer.refusal
    streamer.learn_noise(noise_of("hum"))
    assert streamer.refusal is None


def test_channels_learn_together_or_not_at_all():
    x = np.stack([noise_of("hum", 32000), np.float32(recording("speech/austen_0880", 32000))])
    streamer = Streamer(channels=2, separate_channels=True)
    with pytest.raises(InputError, match="nothing but speech"):
        streamer.learn_noise(x)
    np.testing.assert_array_equal(
        streamed(streamer, x, 700), streamed(Streamer(channels=2, separate_channels=True), x, 700)
    )


def test_a_thread_learns():
    x, hum = noisy(), noise_of("hum")
    streamer = Streamer(learn_aside=True)
    streamer.learn_noise(hum)
    streamer._learners[0]._work.result(timeout=60)
    expected = Streamer()
    expected.learn_noise(hum)
    np.testing.assert_array_equal(streamed(streamer, x, 700), streamed(expected, x, 700))


def conversation(noise: np.ndarray) -> np.ndarray:
    """Speech with pauses of a second, over a noise."""
    names = ("austen_0880", "austen_0890", "austen_0930")
    speech = np.concatenate([np.pad(recording(f"speech/{name}"), (0, 16000)) for name in names])
    return np.float32(speech + np.resize(noise, len(speech)))


def test_a_stream_that_keeps_learning_learns_the_noise_between_words(monkeypatch):
    monkeypatch.setattr("drnmf.use.learning.EVERY", 125)
    noise, speech = noise_of("hum", None), conversation(np.zeros(1))
    plain, streamer = Streamer(), Streamer(keep_learning=True)
    for stream in (plain, streamer):
        streamed(stream, conversation(noise), 700)
    learned = MODELS["default"].adapted([np.stack(streamer._learners[0]._pauses._frames)])
    left = [np.square(streamed(Streamer(model), noise[:48000], 700)).mean() for model in (MODELS["default"], learned)]
    assert left[1] < 0.2 * left[0]
    spoken = [streamed(stream, speech, 700) for stream in (plain, streamer)]
    assert not np.array_equal(*spoken)
    assert si_sdr(spoken[1], speech) > si_sdr(spoken[0], speech) - 1


def test_a_stream_that_keeps_learning_does_not_learn_the_speaker(monkeypatch):
    monkeypatch.setattr("drnmf.use.learning.EVERY", 1)
    speech = np.pad(conversation(np.zeros(1)), (16000, 0))  # nor silence before the first word
    np.testing.assert_array_equal(
        streamed(Streamer(keep_learning=True), speech, 700), streamed(Streamer(), speech, 700)
    )


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_samples_are_heard_at_16_khz_and_replace_what_was_learned(rate, impatient, monkeypatch):
    learned, hum = [], noise_of("hum", 48000)[None]
    monkeypatch.setattr(type(MODELS["default"]), "adapted", lambda self, samples: learned.append(samples) or self)
    streamer = Streamer(sample_rate=rate, keep_learning=True)
    streamer.feed(resample(hum, 16000, rate))
    assert len(learned[-1][0]) > 100  # pauses
    streamer.learn_noise(resample(hum, 16000, rate))
    (heard,) = learned[-1]
    bins = 1 + 256 * min(rate, 16000) // 16000 * 7 // 8  # below what resampling filters away
    expected = abs(analyse(hum[0]))
    assert np.abs(heard - expected)[:, :bins].max() < 0.02 * expected.max()


def test_soft_noise_in_good_recordings_is_not_learned(monkeypatch):
    monkeypatch.setattr("drnmf.use.learning.EVERY", 1)
    x = conversation(0.02 * noise_of("hum", None))
    np.testing.assert_array_equal(streamed(Streamer(keep_learning=True), x, 700), streamed(Streamer(), x, 700))


def test_what_is_learned_on_the_way_does_not_depend_on_the_blocks(impatient):
    x = np.stack([noise_of("hum"), noise_of("guitar")])
    form = {"channels": 2, "keep_learning": True, "separate_channels": True}
    first, second = (streamed(Streamer(**form), x, block) for block in (16000, 333))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - streamed(Streamer(channels=2, separate_channels=True), x, 700)).max() > 1e-3
