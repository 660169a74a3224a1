"""A model that learns a noise: from samples of it, from a part of a recording, from all of its pauses."""

import io
import json
import logging
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import soundfile

from command import drnmf
from drnmf import InputError, Streamer, adapt, audio, enhance, save_model
from drnmf.cli.sound import _seconds
from drnmf.models.folders import CONFIG, load_ready
from drnmf.signal.metrics import si_sdr
from drnmf.use import adaptation
from drnmf.use.adaptation import adapt_to_files
from drnmf.use.files import enhance_file
from drnmf.use.folders import enhance_tree, plan
from small import recording, small_model, streamed

ROOT = Path(__file__).parents[2]
NOISES = ("guitar", "hum", "percussion", "printer_sauna")


@pytest.fixture(scope="module")
def default():
    return load_ready("default")


def piece(name: str, first: float, last: float) -> np.ndarray:
    return recording(f"noise/{name}")[round(16000 * first) : round(16000 * last)]


def mixture(noise: str, speech: str = "austen_0880") -> tuple[np.ndarray, np.ndarray]:
    """An utterance in as much noise as speech, from its third second on; and the utterance."""
    s = recording(f"speech/{speech}")
    v = recording(f"noise/{noise}")[35200:][: len(s)]
    return s + v * np.sqrt(np.square(s).mean() / np.square(v).mean()), s


def gain(model, other, noise: str, speech: str = "austen_0880") -> float:
    """By how many dB of SI-SDR the first model is better than the other, as streams: files know their noise anyway."""
    x, s = mixture(noise, speech)
    return si_sdr(streamed(x, model=model), s) - si_sdr(streamed(x, model=other), s)


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    """Two seconds of a noise, in stereo at 48 kHz."""
    path = tmp_path_factory.mktemp("samples") / "fan.wav"
    x = piece("hum", 0, 2)
    audio.write(path, audio.resample(np.stack([x, 0.5 * x]), 16000, 48000), 48000)
    return path


@pytest.fixture(scope="module")
def spoken(tmp_path_factory) -> Path:
    """Two utterances in noise: nobody speaks in the first 1.5 s, and from 8.6 to 10.1 s."""
    path = tmp_path_factory.mktemp("spoken") / "spoken.wav"
    pause = np.zeros(24000)
    s = np.concatenate([pause, recording("speech/austen_0870"), pause, recording("speech/austen_0880")])
    v = recording("noise/printer_sauna")[100000:]
    audio.write(path, (s + 0.2 * np.concatenate([v, v[::-1]])[: len(s)]).astype(np.float32), 16000)
    return path


# what it is good for


@pytest.mark.parametrize("noise", ["guitar", "hum", "percussion"])
def test_less_is_left_of_a_noise_that_it_knows(noise, default):
    later = piece(noise, 3, 6)
    before, after = (
        np.square(enhance(later, 16000, model)).sum() for model in (default, adapt(default, piece(noise, 0, 3), 16000))
    )
    assert after < 0.85 * before


@pytest.mark.parametrize("speech", ["austen_0880", "austen_0930"])
def test_speech_gets_clearer_in_a_noise_that_it_knows(speech, default):
    assert gain(adapt(default, piece("guitar", 0, 2), 16000), default, "guitar", speech) > 0.4


def test_another_noise_is_hardly_harmed(default):
    pairs = zip(NOISES, ("hum", "percussion", "printer_sauna", "guitar"), strict=True)
    gains = [gain(adapt(default, piece(learned, 4, 7), 16000), default, heard) for learned, heard in pairs]
    assert np.mean(gains) > -0.2


# what it takes


def distance(first, second) -> float:
    """The largest difference of two models' atoms."""
    W, V = ([*model.spectra().values()][-1] for model in (first, second))
    return float(np.abs(W - V).max() / np.abs(W).max())


def test_arrays_of_any_form_are_the_same_sample(default):
    x = piece("hum", 9, 11)
    expected = adapt(default, x, 16000)
    assert distance(expected, default) > 0.1
    for form in (x[None], x[:, None], np.stack([x, x]), [x], x.astype(np.float32)):
        assert distance(adapt(default, form, 16000), expected) < 1e-3
    assert distance(adapt(default, audio.resample(x[None], 16000, 44100), 44100), expected) < 0.1


def test_tensors_and_pytorch_s_model(default):
    torch = pytest.importorskip("torch")
    from drnmf import load_model

    x = piece("hum", 0, 1)
    model = adapt(load_model("default"), torch.from_numpy(x), 16000)
    assert isinstance(model, torch.nn.Module)
    W, V = ([*each.spectra().values()][-1] for each in (adapt(default, x, 16000), model))
    np.testing.assert_allclose(V.detach().numpy(), W, atol=1e-5)


def test_several_samples_are_learned_together(default):
    x, y = piece("hum", 0, 2), piece("guitar", 0, 2)
    both = adapt(default, [x, y], 16000)
    assert len(both.adaptation["samples"]) == 2
    for alone in (adapt(default, x, 16000), adapt(default, y, 16000)):
        assert distance(both, alone) > 0.05


def test_the_model_that_was_given_stays_as_it_is(default):
    before = {name: atoms.copy() for name, atoms in default.spectra().items()}
    adapt(default, piece("hum", 0, 1), 16000)
    np.testing.assert_array_equal([*before.values()][-1], [*default.spectra().values()][-1])
    assert default.adaptation is None


def test_enhance_takes_a_sample():
    x, _ = mixture("hum")
    v = piece("hum", 0, 2)
    np.testing.assert_array_equal(enhance(x, 16000, noise=v), enhance(x, 16000, adapt("default", v, 16000)))


def soft(noise: str, decibels: float) -> tuple[np.ndarray, np.ndarray]:
    """An utterance in noise that is so many dB softer than the speech; and the utterance."""
    x, s = mixture(noise)
    return s + (x - s) * 10 ** (-decibels / 20), s


@pytest.mark.parametrize("noise", NOISES)
def test_what_is_nothing_but_speech_is_enhanced_as_if_nothing_had_been_learned(noise, default):
    v = piece(noise, 0, 2)
    for decibels in (40, 200):
        x, _ = soft(noise, decibels)
        np.testing.assert_array_equal(enhance(x, 16000, default, noise=v), enhance(x, 16000, default))
        through = Streamer(adapt(default, v, 16000))
        assert abs(np.concatenate([through.feed(x), through.flush()]) - enhance(x, 16000, default)).max() > 1e-6
    x, _ = soft(noise, 0)
    assert abs(enhance(x, 16000, default, noise=v) - enhance(x, 16000, default)).max() > 1e-4


@pytest.mark.parametrize(("rate", "channels"), [(44100, 2), (8000, 1)])
def test_speech_is_found_at_any_rate_and_in_all_channels(rate, channels, default):
    s, v = (audio.resample(x[None], 16000, rate) for x in (soft("hum", 200)[1], piece("hum", 0, 2)))
    x = np.repeat(s, channels, 0)
    for separate in (False, True):
        settings = {"separate_channels": separate, "axis": 1}
        learned = enhance(x, rate, default, noise=v[0], **settings)
        np.testing.assert_array_equal(learned, enhance(x, rate, default, **settings))


def test_a_model_that_has_learned_twice_remembers_the_first(default):
    once = adapt(default, piece("hum", 0, 2), 16000)
    twice = adapt(once, piece("guitar", 0, 2), 16000)
    assert once.before is default
    assert twice.before is default
    x, _ = soft("hum", 200)
    np.testing.assert_array_equal(enhance(x, 16000, twice), enhance(x, 16000, default))


def test_pytorch_s_model_remembers_what_it_was_and_has_no_more_weights():
    pytest.importorskip("torch")
    from drnmf import load_model

    model = load_model("default")
    learned = adapt(model, piece("hum", 0, 2), 16000)
    assert learned.before is model
    assert set(learned.state_dict()) == set(model.state_dict())
    x, _ = soft("hum", 200)
    np.testing.assert_array_equal(enhance(x, 16000, learned), enhance(x, 16000, model))


def test_the_page_s_python_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adaptation.md").read_text(), re.DOTALL)
    audio.write(tmp_path / "noisy.wav", np.concatenate([piece("hum", 0, 1), mixture("hum")[0]]), 16000)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert (tmp_path / "my_noise" / CONFIG).is_file()
    assert (tmp_path / "enhanced.wav").is_file()


# what it refuses

BAD = {
    "silence": (lambda: np.zeros(16000), "this sample of noise is silent: there is nothing to learn from it"),
    "an offset": (lambda: np.full(16000, 0.1), "this sample of noise is silent"),
    "NaN": (lambda: np.append(piece("hum", 0, 1), np.nan), "a sample of noise must hold no NaN or infinite values"),
    "infinite": (
        lambda: np.append(piece("hum", 0, 1), -np.inf),
        "a sample of noise must hold no NaN or infinite values",
    ),
    "short": (lambda: piece("hum", 0, 0.29), "a sample of noise must last at least 0.3 s, this one has 0.29 s"),
    "speech": (lambda: recording("speech/austen_0920"), "is nothing but speech to the model; give a sample in which"),
    "integers": (lambda: np.zeros(16000, np.int16), "samples must be float32 or float64"),
    "loud": (lambda: 32768 * piece("hum", 0, 1), "full scale is 1; divide by 32768"),
    "a cube": (lambda: np.zeros((2, 2, 16000)), "sound is (samples,), (channels, samples) or (samples, channels)"),
    "in doubt": (lambda: np.zeros((100, 100)), "of 1 to 32 channels; this is (100, 100)"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_samples_are_refused_by_their_number(make, message, default):
    with pytest.raises(InputError) as error:
        adapt(default, [piece("hum", 0, 1), make()], 16000)
    assert str(error.value).startswith("noise sample 2: ")
    assert message in str(error.value)


def test_no_sample_and_a_rate_that_cannot_be(default):
    with pytest.raises(InputError, match="there is no noise to learn from"):
        adapt(default, [], 16000)
    with pytest.raises(InputError, match="the sample rate must be"):
        adapt(default, piece("hum", 0, 1), 0)


@pytest.mark.parametrize("name", ["silence", "short", "speech"])
def test_bad_files_are_refused_by_their_name(name, tmp_path):
    make, message = BAD[name]
    path = tmp_path / "bad.wav"
    audio.write(path, make().astype(np.float32), 16000, subtype="FLOAT")
    error = drnmf("adapt", "default", "--noise", path, "-o", tmp_path / "out", status=2).stderr
    assert error.startswith(f"drnmf: {path}: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("speech", ["0870", "0880", "0890", "0920", "0930"])
def test_speech_is_refused(speech, default):
    with pytest.raises(InputError, match="nothing but speech"):
        adapt(default, recording(f"speech/austen_{speech}"), 16000)


@pytest.mark.parametrize("name", NOISES)
def test_no_noise_is_refused(name, default):
    """By far, even in parts of 0.3 s: the beginning of a hum is much like a voice."""
    x = recording(f"noise/{name}").astype(np.float32)
    starts = range(0, len(x) - 4800, 9600)
    shares = np.sort([adaptation._removed(x[None, i : i + 4800], 16000, default) for i in starts])
    assert shares[0] > 3 * adaptation._SPEECH
    assert shares[1] > 10 * adaptation._SPEECH


def test_speech_in_noise_is_a_sample(default):
    """A third of speech: one of three seconds has some."""
    x = piece("hum", 0, 3)
    x[16000:32000] += recording("speech/austen_0880")[16000:32000]
    assert adapt(default, x, 16000).adaptation["moved"]


def test_other_kinds_of_models_say_that_they_cannot():
    with pytest.raises(InputError, match="a DRNMF cannot learn a noise from a sample: that needs a PriorDRNMF"):
        adapt(small_model(), piece("hum", 0, 1), 16000)


# files and the folder that comes of them


def test_of_a_long_file_the_first_minute_is_used_and_that_is_said(tmp_path, default, caplog, monkeypatch):
    monkeypatch.setattr(adaptation, "LONGEST", 2.0)  # the test's minute
    x = piece("hum", 0, 2)
    audio.write(tmp_path / "long.flac", np.append(x, recording("noise/guitar")), 16000)
    audio.write(tmp_path / "minute.flac", x, 16000)
    with caplog.at_level(logging.INFO, "drnmf"):
        long = adapt_to_files(default, [tmp_path / "long.flac"])
    assert caplog.messages == [f"{tmp_path}/long.flac: noise is learned from one minute, the first"]
    assert long.adaptation["samples"][0]["seconds"] == 2
    caplog.clear()
    assert distance(adapt_to_files(default, [tmp_path / "minute.flac"]), long) == 0
    assert caplog.messages == []


def test_the_command_writes_a_model_that_says_what_it_learned(tmp_path, sample, noise_dir):
    guitar, folder = noise_dir / "guitar.flac", tmp_path / "fan_model"
    drnmf("adapt", "default", "--noise", sample, "--noise", guitar, "-o", folder)
    adaptation = json.loads((folder / CONFIG).read_text())["adaptation"]
    bundled = Path(adapt.__code__.co_filename).parents[1] / "bundled" / "default" / CONFIG
    assert adaptation["from"] == {"model": "default", "sha256": json.loads(bundled.read_text())["sha256"]}
    assert adaptation["samples"] == [
        {"file": "fan.wav", "seconds": 2.0, "sha256": sha256(sample.read_bytes()).hexdigest()},
        {"file": "guitar.flac", "seconds": 12.55, "sha256": sha256(guitar.read_bytes()).hexdigest()},
    ]
    assert "sparse NMF" in adaptation["method"]
    assert len(adaptation["moved"]) == 100
    assert load_ready(folder).adaptation == adaptation


def test_the_same_sample_gives_the_same_bytes(tmp_path, sample, default):
    for name in ("one", "two"):
        drnmf("adapt", "default", "--noise", sample, "-o", tmp_path / name)
    save_model(adapt_to_files("default", [sample]), tmp_path / "three")
    contents = [
        {path.name: path.read_bytes() for path in sorted((tmp_path / n).iterdir())} for n in ("one", "two", "three")
    ]
    assert contents[0] == contents[1] == contents[2]
    assert sorted(contents[0]) == ["config.json", "model.safetensors"]


def test_what_exists_is_replaced_only_if_one_says_so(tmp_path, sample):
    folder, arguments = tmp_path / "model", ("adapt", "default", "--noise", sample, "-o")
    drnmf(*arguments, folder)
    assert (
        "model: exists already; choose another name, or use --overwrite" in drnmf(*arguments, folder, status=2).stderr
    )
    drnmf(*arguments, folder, "--overwrite")
    error = drnmf("adapt", folder, "--noise", sample, "-o", folder, "--overwrite", status=2).stderr
    assert "is the input itself" in error
    assert "is a file; a model is a folder" in drnmf(*arguments, sample, status=2).stderr


def test_an_entry_of_somebody_else_is_refused_in_one_line(tmp_path, sample, default):
    save_model(adapt_to_files(default, [sample]), tmp_path / "model")
    config = json.loads((tmp_path / "model" / CONFIG).read_text())
    (tmp_path / "model" / CONFIG).write_text(json.dumps(config | {"adaptation": [1, 2]}))
    with pytest.raises(InputError, match=r"config.json: adaptation is \[1, 2\], not a table"):
        load_ready(tmp_path / "model")


def test_it_can_be_trained_further_and_saved_again(tmp_path, sample, default):
    """As `train --from` does."""
    torch = pytest.importorskip("torch")
    from drnmf import load_model

    learned = adapt_to_files(default, [sample])
    save_model(learned, tmp_path / "learned")
    model = load_model(tmp_path / "learned").float().train()
    mask, _ = model(torch.rand(1, 20, 257))
    mask.sum().backward()
    assert model.log_W.grad.abs().max() > 0
    save_model(model, tmp_path / "again")
    assert load_ready(tmp_path / "again").adaptation == learned.adaptation


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_a_sample_and_a_recording_in_a_container(tmp_path, sample, spoken):
    command = ["ffmpeg", "-v", "error", "-nostdin", "-i"]
    subprocess.run([*command, sample, "-c:a", "alac", tmp_path / "fan.m4a"], timeout=60, check=True)
    subprocess.run([*command, spoken, "-c:a", "alac", tmp_path / "spoken.m4a"], timeout=60, check=True)
    settings = {"noise_between": (0, 1.5), "learn_noise": True}
    enhance_file(spoken, tmp_path / "a.wav", noise_samples=[sample], **settings)
    enhance_file(tmp_path / "spoken.m4a", tmp_path / "b.wav", noise_samples=[tmp_path / "fan.m4a"], **settings)
    a, b = (audio.read_array(tmp_path / name)[0] for name in ("a.wav", "b.wav"))
    np.testing.assert_allclose(b[:, :200000], a[:, :200000], rtol=0, atol=1e-3)  # its last block is filled up


# enhancing


def enhanced(source: Path, target: Path, **settings) -> bytes:
    enhance_file(source, target, overwrite=True, **settings)
    return target.read_bytes()


def test_a_sample_on_the_way_is_the_same_as_a_model_of_it(tmp_path, sample, spoken):
    drnmf("adapt", "default", "--noise", sample, "-o", tmp_path / "model")
    drnmf("enhance", spoken, "-o", tmp_path / "a.wav", "-m", tmp_path / "model")
    drnmf("enhance", spoken, "-o", tmp_path / "b.wav", "--noise-sample", sample)
    drnmf("enhance", spoken, "-o", tmp_path / "c.wav")
    a, b, c = ((tmp_path / f"{name}.wav").read_bytes() for name in "abc")
    assert a == b != c


def test_noise_between_two_times_of_the_recording(tmp_path, spoken):
    x, _ = audio.read_array(spoken)
    audio.write(tmp_path / "part.wav", x[:, 4000:20000], 16000)
    expected = enhanced(spoken, tmp_path / "a.wav", noise_samples=[tmp_path / "part.wav"])
    drnmf("enhance", spoken, "-o", tmp_path / "b.wav", "--noise-between", "0:00.25", "1.25")
    assert (tmp_path / "b.wav").read_bytes() == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3), ("0:03", 3), ("1:02.5", 62.5), ("1:00:00", 3600), ("83.25", 83.25), ("90", 90)]
)
def test_times(text, seconds):
    assert _seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "1:60", "1:2:3:4", "nan", "inf", "1e3", ":3", "٣"])
def test_what_is_no_time(text):
    with pytest.raises(InputError, match="is no time; write seconds, m:ss or h:mm:ss"):
        _seconds(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SPOKEN", "--noise-between", "2", "1"], "spoken.wav: noise between 2 and 1 s: give the earlier time first"),
        (
            ["SPOKEN", "--noise-between", "1:00", "1:02"],
            "spoken.wav: is 13.1 s long: there is nothing between 60 and 62",
        ),
        (
            ["SPOKEN", "--noise-between", "1", "1.1"],
            "spoken.wav: a sample of noise must last at least 0.3 s, this one has 0.10 s",
        ),
        (["FOLDER", "--noise-between", "1", "2"], "--noise-between is for one recording; for several, use"),
        (["SPOKEN", "SPOKEN", "--noise-between", "1", "2"], "--noise-between is for one recording; for several, use"),
        (["-", "--noise-between", "1", "2"], "a pipe is heard only once: give a file of the noise, --noise-sample"),
        (["-", "--learn-noise"], "a pipe is heard only once: give a file of the noise, --noise-sample"),
        (["SPOKEN", "--noise-sample", "none.wav"], "none.wav: no such file"),
        (["FOLDER", "--noise-sample", "none.wav"], "none.wav: no such file"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, spoken):
    paths = {"SPOKEN": spoken, "FOLDER": spoken.parent}
    out = tmp_path / ("out.wav" if len(arguments) < 5 and arguments[0] != "FOLDER" else "out")
    error = drnmf("enhance", *(paths.get(a, a) for a in arguments), "-o", out, status=2).stderr
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def heard(x: np.ndarray, rate: int = 16000) -> list[tuple[float, float]]:
    """Where no speech is found, in seconds."""
    streamer = Streamer("default", rate, channels=len(x))
    streamer.listen_ahead(x)
    spans = adaptation.pauses((streamer.advance(block) for block in (x, None)), rate)
    return [(first / rate, last / rate) for first, last in spans]


def test_pauses_are_found_where_they_are(spoken):
    x, _ = audio.read_array(spoken)
    spans = heard(x)
    where = np.zeros(1310, bool)  # in steps of 10 ms
    for first, last in spans:
        where[round(100 * first) : round(100 * last)] = True
    truth = np.zeros_like(where)
    truth[:150] = truth[860:1010] = True
    assert (where & truth).sum() > 200  # most of 3 s
    assert (where & ~truth).sum() < 100  # utterances begin and end with some, and have some inside


def test_in_speech_and_in_silence_there_is_no_noise():
    assert heard(recording("speech/austen_0870").astype(np.float32)[None]) == []
    assert heard(np.zeros((1, 32000), np.float32)) == []
    assert heard(np.zeros((1, 10), np.float32)) == []


@pytest.mark.parametrize(("decibels", "is_learned"), [(-20, True), (-40, False)])
def test_noise_that_does_no_harm_is_left_alone(decibels, is_learned):
    s = np.concatenate([np.zeros(24000), recording("speech/austen_0870")])
    v = recording("noise/printer_sauna")[100000:][:24000]
    s[:24000] = v * np.sqrt(np.square(s).max() / np.square(v).max()) * 10 ** (decibels / 20)
    seconds = sum(last - first for first, last in heard(s.astype(np.float32)[None]))
    assert (seconds >= adaptation.ENOUGH) == is_learned


def test_noise_alone_is_found_at_any_rate():
    x = piece("printer_sauna", 9, 12).astype(np.float32)
    for rate in (16000, 44100):
        spans = heard(audio.resample(np.stack([x, x]), 16000, rate), rate)
        assert sum(last - first for first, last in spans) > 2


def test_learning_from_pauses_is_learning_from_what_they_hold(tmp_path, spoken, caplog):
    with caplog.at_level(logging.INFO, "drnmf"):
        learned = enhanced(spoken, tmp_path / "a.wav", learn_noise=True)
    (message,) = caplog.messages
    assert message.startswith(f"{spoken}: the noise is learned from ")
    x, _ = audio.read_array(spoken)
    pieces = [x[:, round(16000 * first) : round(16000 * last)] for first, last in heard(x)]
    model = adaptation._moved(load_ready("default"), [adaptation.Noise(pieces, 16000, "")])
    assert enhanced(spoken, tmp_path / "b.wav", model=model) == learned
    assert enhanced(spoken, tmp_path / "c.wav") != learned


def test_where_there_is_no_pause_it_says_so_and_goes_on_without(tmp_path, speech_dir):
    source = speech_dir / "austen_0870.flac"
    said = drnmf("enhance", source, "-o", tmp_path / "a.wav", "--learn-noise").stderr
    assert said == ""  # in this process, pytest has what is logged
    drnmf("enhance", source, "-o", tmp_path / "b.wav")
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


def test_the_warning_names_the_file(tmp_path, speech_dir, caplog):
    enhance_file(speech_dir / "austen_0870.flac", tmp_path / "a.wav", learn_noise=True)
    expected = "austen_0870.flac: noise without speech is there for 0.0 s, learning needs 0.5 s; enhanced without"
    assert [message.endswith(expected) for message in caplog.messages] == [True]


@pytest.mark.parametrize("jobs", [1, 2])
def test_in_a_folder_each_file_has_its_own_noise(tmp_path, spoken, jobs):
    (tmp_path / "in").mkdir()
    x, _ = audio.read_array(spoken)
    for name, y in (("a", x[:, :80000]), ("b", x[:, 110000:190000][:, ::-1])):
        audio.write(tmp_path / "in" / f"{name}.wav", np.ascontiguousarray(y), 16000)
    result = enhance_tree(plan([tmp_path / "in"], tmp_path / "out"), learn_noise=True, jobs=jobs)
    assert not result.failures
    for name in "ab":
        source, together = tmp_path / "in" / f"{name}.wav", (tmp_path / "out" / f"{name}.wav").read_bytes()
        assert together == enhanced(source, tmp_path / "alone.wav", learn_noise=True)
        assert together != enhanced(source, tmp_path / "alone.wav")


def test_a_folder_and_one_sample_for_all(tmp_path, spoken, sample):
    drnmf("enhance", spoken.parent, "-o", tmp_path / "out", "--noise-sample", sample)
    expected = enhanced(spoken, tmp_path / "alone.wav", noise_samples=[sample])
    assert (tmp_path / "out" / "spoken.wav").read_bytes() == expected


@pytest.mark.parametrize("jobs", [1, 2])
def test_in_a_folder_only_what_is_noisy_is_enhanced_with_the_sample(tmp_path, spoken, sample, speech_dir, jobs):
    (tmp_path / "in").mkdir()
    shutil.copy(spoken, tmp_path / "in" / "noisy.wav")
    shutil.copy(speech_dir / "austen_0870.flac", tmp_path / "in" / "speech.flac")
    enhance_tree(plan([tmp_path / "in"], tmp_path / "out"), noise_samples=[sample], jobs=jobs)
    is_as_without = {
        name: (tmp_path / "out" / name).read_bytes() == enhanced(tmp_path / "in" / name, tmp_path / f"alone-{name}")
        for name in ("noisy.wav", "speech.flac")
    }
    assert is_as_without == {"noisy.wav": False, "speech.flac": True}


def test_it_is_said_that_a_sample_was_not_used(tmp_path, sample, speech_dir, caplog):
    source = speech_dir / "austen_0870.flac"
    with caplog.at_level(logging.INFO, "drnmf"):
        enhance_file(source, tmp_path / "a.wav", noise_samples=[sample])
    expected = "is nothing but speech to the model; enhanced without the noise that it learned"
    assert caplog.messages == [f"{source}: {expected}"]


def test_a_pipe_with_a_sample(spoken, sample, default):
    command = [sys.executable, "-m", "drnmf.cli", "enhance", "-", "--noise-sample", sample]
    done = subprocess.run(command, input=spoken.read_bytes(), capture_output=True, timeout=120, check=True)
    y = soundfile.read(io.BytesIO(done.stdout))[0]
    x, _ = audio.read_array(spoken)
    streamer = Streamer(adapt_to_files(default, [sample]))
    expected = np.concatenate([streamer.feed(x[0]), streamer.flush()])
    np.testing.assert_allclose(y, expected, rtol=0, atol=2**-15)
