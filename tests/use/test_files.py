"""Enhancing arrays, files, pipes and trees keeps everything but the noise."""

import importlib
import io
import logging
import os
import resource
import signal
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import drnmf
from drnmf import InputError, enhance
from drnmf.models.folders import bundled_models
from drnmf.pictures import demo
from drnmf.signal import audio, pipes
from drnmf.use.files import _parts, enhance_file
from drnmf.use.folders import Task, enhance_tree, others, plan, shard, suffix_of, summary
from small import recording, small_model, streamed

MODEL = small_model()
module = importlib.import_module("drnmf.use.files")  # `drnmf.enhance` itself is the function


def noisy(rate: int = 16000, channels: int = 1, seconds: float = 1.0) -> np.ndarray:
    """Real speech in real noise (channels, samples), a little different in every channel."""
    n = round(16000 * seconds)
    speech, noise = (recording(name, n) for name in ("speech/austen_0890", "noise/percussion"))
    gains = np.linspace(1, 0.4, channels)[:, None]
    return audio.resample(np.float32(gains * speech + noise), 16000, rate)


def expected(x: np.ndarray, rate: int = 16000, **options) -> np.ndarray:
    """By the streamer, which has tests of its own."""
    return streamed(x, rate, MODEL, ahead=True, **options)


# ---- arrays


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_arrays_of_every_layout(kind):
    x = noisy(channels=2).astype(kind)
    y = expected(x)
    for sound, result in ((x, y), (x.T, y.T), (x[0], expected(x[:1])[0])):
        array = enhance(sound, 16000, MODEL)
        assert type(array) is np.ndarray
        assert array.dtype == kind
        np.testing.assert_allclose(array, result, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_tensors_of_every_layout(kind):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(noisy(channels=2)).to(getattr(torch, kind))
    y = expected(x.numpy())
    for sound, result in ((x, y), (x.T, y.T), (x[0], expected(x[:1].numpy())[0])):
        enhanced = enhance(sound, 16000, MODEL)
        assert enhanced.dtype == x.dtype
        torch.testing.assert_close(enhanced, torch.from_numpy(result), rtol=0, atol=1e-6)


def test_the_axis_of_samples_is_told_or_refused():
    x = noisy(channels=2)[:, :1500]
    short = x[:, :1000]
    for bad in (short, short.T, x[:, :2], np.zeros((2000, 2000)), np.zeros((2000, 33)), np.zeros((0, 2000))):
        with pytest.raises(InputError, match="axis=1 for"):
            enhance(bad, 16000, MODEL)
    np.testing.assert_array_equal(enhance(short, 16000, MODEL, axis=1), expected(short))
    np.testing.assert_array_equal(enhance(short, 16000, MODEL, axis=-1), expected(short))
    np.testing.assert_array_equal(enhance(short.T, 16000, MODEL, axis=0), expected(short).T)
    square = x[:, :2]
    np.testing.assert_array_equal(enhance(square, 16000, MODEL, axis=0), expected(square.T).T)
    for shape, axis, reason in [((2, 3, 4), None, "sound is"), ((5,), 1, "no axis"), ((0,), None, "no samples")]:
        with pytest.raises(InputError, match=reason):
            enhance(np.zeros(shape), 16000, MODEL, axis=axis)


def test_arrays_are_not_changed_and_integers_refused():
    x = noisy()[0]
    before = x.copy()
    enhance(x, 16000, MODEL)
    np.testing.assert_array_equal(x, before)
    with pytest.raises(InputError, match="divide integers"):
        enhance((32767 * x).astype(np.int16), 16000, MODEL)
    with pytest.raises(InputError, match="no such model"):
        enhance(x, 16000, "no such model")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [(0, 0), (1, 7000), (1, 15999)])
def test_samples_that_are_no_numbers_are_refused(bad, at):
    x = noisy(channels=2)
    x[at] = bad
    for rate in (16000, 44100):
        for sound in (x, x.T.astype(np.float64)):
            with pytest.raises(InputError, match="no NaN or infinite"):
                enhance(sound, rate, MODEL)


def test_long_sound_goes_in_blocks(monkeypatch):
    x = np.tile(noisy(seconds=5.0), (1, 12))
    whole = enhance(x, 16000, MODEL)
    np.testing.assert_allclose(whole, expected(x), rtol=0, atol=1e-4)
    monkeypatch.setattr(module, "block_size", lambda *_: 10000)
    assert np.linalg.norm(enhance(x, 16000, MODEL) - whole) < 1e-3 * np.linalg.norm(whole)


def test_the_speech_gets_clearer():
    """Not only plumbing: a dictionary of these very sounds separates them."""
    torch = pytest.importorskip("torch")
    names = ("speech/austen_0880", "noise/percussion")
    speech, noise = (torch.from_numpy(recording(name, 48000)).float() for name in names)
    noise = noise[: len(speech)] * (speech.norm() / noise[: len(speech)].norm())
    V = [drnmf.stft(x).abs().mT for x in (speech, speech + noise)]
    W = drnmf.train_dictionaries(*V, rank_per_source=20, max_iter=60, generator=torch.Generator().manual_seed(0)).W
    model = drnmf.SparseNMFMask.from_dictionary(W, n_iter=50)
    x = (speech + noise).repeat(2, 1)
    for rate in (16000, 44100):
        y = audio.resample(enhance(audio.resample(x, 16000, rate), rate, model), rate, 16000)[0, : len(speech)]
        gain = (x[0] - speech).norm() / (y - speech).norm()
        assert 20 * torch.log10(gain) > 3


# ---- files


def write(path: Path, x: np.ndarray, rate: int, subtype: str | None = None) -> Path:
    audio.write(path, x, rate, subtype=subtype)
    return path


CASES = [
    ("a.wav", "PCM_16", 16000, 1),
    ("a.wav", "PCM_16", 44100, 2),
    ("a.wav", "PCM_24", 48000, 2),
    ("a.wav", "PCM_U8", 8000, 1),
    ("a.wav", "PCM_32", 16000, 1),
    ("a.wav", "FLOAT", 96000, 6),
    ("a.wav", "DOUBLE", 22050, 1),
    ("a.wav", "ULAW", 8000, 1),
    ("a.flac", "PCM_16", 16000, 2),
    ("a.flac", "PCM_24", 44100, 1),
    ("a.ogg", "VORBIS", 44100, 2),
    ("a.opus", "OPUS", 48000, 1),
    ("a.mp3", "MPEG_LAYER_III", 44100, 2),
    ("a.mp3", "MPEG_LAYER_III", 16000, 1),
    ("a.aiff", "PCM_16", 32000, 1),
]


@pytest.mark.parametrize(("name", "subtype", "rate", "channels"), CASES)
def test_files_keep_rate_channels_length_and_encoding(tmp_path, name, subtype, rate, channels):
    source = write(tmp_path / name, noisy(rate, channels, 0.7)[:, :-7], rate, subtype)
    enhance_file(source, tmp_path / f"out_{name}", MODEL)
    before, after = audio.info(source), audio.info(tmp_path / f"out_{name}")
    assert before == after
    assert (before.subtype, before.rate, before.channels) == (subtype, rate, channels)
    y = audio.read_array(tmp_path / f"out_{name}")[0]
    ideal = expected(audio.read_array(source)[0], rate)
    lossy = subtype in ("VORBIS", "OPUS", "MPEG_LAYER_III", "ULAW")
    error = np.linalg.norm(y - ideal) / np.linalg.norm(ideal)
    assert error < (0.35 if lossy else 0.1 if subtype == "PCM_U8" else 1e-3)
    assert sorted(p.name for p in tmp_path.iterdir()) == [name, f"out_{name}"]  # nothing else is left


@pytest.mark.parametrize("name", ["out.wav", "out.flac", "out.ogg", "out.mp3"])
def test_the_format_may_change(tmp_path, name):
    source = write(tmp_path / "in.wav", noisy(44100, 2), 44100, "FLOAT")
    enhance_file(source, tmp_path / name, MODEL)
    before, after = audio.info(source), audio.info(tmp_path / name)
    assert (after.rate, after.channels, after.samples) == (before.rate, before.channels, before.samples)
    depth = {"out.wav": "FLOAT", "out.flac": "PCM_24", "out.ogg": "VORBIS", "out.mp3": "MPEG_LAYER_III"}
    assert after.subtype == depth[name]


def test_an_mp3_may_become_anything(tmp_path):
    """WAV can hold MP3, but libsndfile does not write it."""
    source = write(tmp_path / "in.mp3", noisy(), 16000)
    for name, subtype in {"a.wav": "PCM_16", "a.flac": "PCM_16", "a.ogg": "VORBIS", "a.mp3": "MPEG_LAYER_III"}.items():
        enhance_file(source, tmp_path / name, MODEL)
        assert audio.info(tmp_path / name).subtype == subtype


@pytest.mark.parametrize("subtype", ["ULAW", "PCM_U8"])
def test_aiff_keeps_odd_lengths(tmp_path, subtype):
    """libsndfile fills up AIFF of one byte a sample to an even length."""
    source = write(tmp_path / "in.wav", noisy()[:, :4001], 16000, subtype)
    enhance_file(source, tmp_path / "out.aiff", MODEL)
    assert audio.info(tmp_path / "out.aiff").samples == 4001


def integers(path: Path) -> np.ndarray:
    return soundfile.read(path, dtype="int32", always_2d=True)[0].astype(np.int64)


@pytest.mark.parametrize(("name", "subtype", "rate", "channels"), CASES[:4] + CASES[8:10] + CASES[-1:])
@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_speech_and_noise_add_up_to_the_input_exactly(tmp_path, name, subtype, rate, channels, strength):
    source = write(tmp_path / name, 3 * noisy(rate, channels), rate, subtype)  # loud: some of it is clipped
    speech, noise = tmp_path / f"speech_{name}", tmp_path / f"noise_{name}"
    enhance_file(source, speech, MODEL, removed=noise, strength=strength)
    assert audio.info(noise) == audio.info(source)
    assert np.array_equal(integers(speech) + integers(noise), integers(source))
    assert np.abs(integers(noise)).max() > 2**24


def test_in_float_they_add_up_to_the_rounding_of_one_subtraction(tmp_path):
    source = write(tmp_path / "a.wav", noisy(), 16000, "FLOAT")
    enhance_file(source, tmp_path / "speech.wav", MODEL, removed=tmp_path / "noise.wav")
    x, speech, noise = (audio.read_array(tmp_path / name)[0] for name in ("a.wav", "speech.wav", "noise.wav"))
    np.testing.assert_array_equal(noise, x - speech)
    np.testing.assert_allclose(speech.astype(float) + noise, x, rtol=0, atol=2**-25)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "PCM_32"])
def test_both_parts_fit_whatever_the_mask_does(subtype):
    x = np.array([[1.0 - 2**-15, 1.0 - 2**-15, -1.0, -1.0, 0.5, 0.0]], np.float32)
    y = np.array([[-0.9, 1.7, 0.8, -1.3, 0.3, -1.0]], np.float32)
    speech, noise, clipped = _parts(x, x - y, subtype)
    np.testing.assert_allclose(speech + noise, x, rtol=0, atol=1e-7 if subtype in ("FLOAT", "PCM_32") else 0)
    if subtype != "FLOAT":
        assert np.abs(speech).max() <= 1
        assert clipped >= 2
    if subtype.endswith(("16", "24")):
        assert min(speech.min(), noise.min()) >= -1
        assert max(speech.max(), noise.max()) < 1


def test_strength_0_copies_and_the_noise_is_silence(tmp_path):
    source = write(tmp_path / "a.wav", noisy(44100, 2), 44100, "PCM_24")
    enhance_file(source, tmp_path / "b.wav", MODEL, removed=tmp_path / "n.wav", strength=0)
    assert np.array_equal(integers(tmp_path / "b.wav"), integers(source))
    assert not integers(tmp_path / "n.wav").any()


def test_what_exists_is_kept_and_folders_are_no_files(tmp_path):
    source = write(tmp_path / "a.wav", noisy(), 16000)
    target = tmp_path / "b.wav"
    target.write_text("mine")
    (tmp_path / "folder").mkdir()
    for output, noise, reason in [
        (target, None, "exists already"),
        (tmp_path / "c.wav", target, "exists already"),
        (tmp_path / "folder", None, "is a folder; name the file"),
        (source, None, "is the input itself"),
        (tmp_path / "c.wav", tmp_path / "c.wav", "two names"),
        (tmp_path / "no" / "c.wav", None, "no does not exist; make it first"),
        (tmp_path / "c.xyz", None, "unknown kind"),
    ]:
        with pytest.raises(InputError, match=reason) as error:
            enhance_file(source, output, MODEL, removed=noise)
        assert "\n" not in str(error.value)
        assert ".drnmf-" not in str(error.value)
    assert target.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.wav", "b.wav", "folder"]
    enhance_file(source, target, MODEL, overwrite=True)
    assert audio.info(target).samples == 16000
    with pytest.raises(InputError, match="is the input itself"):
        enhance_file(source, source, MODEL, overwrite=True)


def test_bad_sound_is_named_in_one_line(tmp_path):
    (tmp_path / "text.wav").write_text("this is not sound")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 16000)
    soundfile.write(tmp_path / "nan.wav", np.array([0.0, np.nan]), 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "loud.wav", np.array([0.0, 20000.0]), 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "slow.wav", np.zeros(100), 10)
    for name, reason in [
        ("text.wav", "cannot be read as sound"),
        ("empty.wav", "no samples"),
        ("nan.wav", "NaN"),
        ("loud.wav", "divide by 32768"),
        ("slow.wav", "sample rate"),
        ("missing.wav", "no such file"),
    ]:
        with pytest.raises(InputError, match=reason) as error:
            enhance_file(tmp_path / name, tmp_path / "out.wav", MODEL)
        assert str(error.value).startswith(str(tmp_path / name))
        assert "\n" not in str(error.value)
        assert not [p for p in tmp_path.iterdir() if p.name.startswith((".", "out"))]


def test_a_header_that_lies_does_no_harm(tmp_path):
    write(tmp_path / "a.wav", noisy()[:, :500], 16000)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    data[4:8] = data[40:44] = struct.pack("<I", 2**32 - 9)  # says 4 GiB, holds 1 kB
    (tmp_path / "lie.wav").write_bytes(data)
    enhance_file(tmp_path / "lie.wav", tmp_path / "out.wav", MODEL)
    assert audio.info(tmp_path / "out.wav").samples == 500
    write(tmp_path / "a.flac", noisy()[:, :500], 16000)
    data = bytearray((tmp_path / "a.flac").read_bytes())
    data[21:26] = bytes([data[21] | 0x0F, 255, 255, 255, 255])  # 2^36 samples
    (tmp_path / "lie.flac").write_bytes(data)
    with pytest.raises(InputError, match=r"lie\.flac"):
        enhance_file(tmp_path / "lie.flac", tmp_path / "out.flac", MODEL)
    assert not (tmp_path / "out.flac").exists()


@pytest.mark.parametrize("name", ["out.wav", "out.flac", "out.ogg", "out.mp3"])
@pytest.mark.parametrize("room", [0, 3000, 10000])
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, name, room):
    source = write(tmp_path / "a.wav", noisy(seconds=5.0), 16000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))  # no file may grow beyond: writing fails
        with pytest.raises(InputError, match=f"{name}: cannot be written"):
            enhance_file(source, tmp_path / name, MODEL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [p.name for p in tmp_path.iterdir()] == ["a.wav"]


@pytest.mark.parametrize("missing", [1, 100, 1500])
def test_a_disk_that_fills_up_at_the_very_end(tmp_path, missing):
    source = write(tmp_path / "a.flac", noisy(seconds=1.0), 16000)
    enhance_file(source, tmp_path / "whole.flac", MODEL)
    size = (tmp_path / "whole.flac").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - missing, before[1]))
        with pytest.raises(InputError, match=r"out\.flac: cannot be written"):
            enhance_file(source, tmp_path / "out.flac", MODEL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not (tmp_path / "out.flac").exists()


def test_an_interruption_leaves_nothing(tmp_path):
    source = write(tmp_path / "a.wav", noisy(), 16000)

    def interrupt(what: str, done: int, total: int) -> None:
        assert (what, total) == ("file, a.wav", 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        enhance_file(source, tmp_path / "b.wav", MODEL, removed=tmp_path / "n.wav", progress=interrupt)
    assert [p.name for p in tmp_path.iterdir()] == ["a.wav"]


def test_a_wav_beyond_4_gib_is_written_as_rf64(tmp_path, monkeypatch):
    source = write(tmp_path / "a.wav", noisy(), 16000)
    monkeypatch.setattr(module, "_LARGEST_WAV", 10000)
    enhance_file(source, tmp_path / "b.wav", MODEL)
    assert (tmp_path / "b.wav").read_bytes()[:4] == b"RF64"
    assert audio.info(tmp_path / "b.wav") == audio.info(source)


@pytest.mark.parametrize("most", [2**32 - 1, 9000])
def test_a_stream_of_unknown_length_becomes_a_wav_of_the_right_one(tmp_path, monkeypatch, most):
    source = write(tmp_path / "a.wav", noisy(), 16000)
    data = source.read_bytes()
    stream = io.TextIOWrapper(io.BytesIO(data[:40] + struct.pack("<I", 0) + data[44:]))
    monkeypatch.setattr(sys, "stdin", stream)
    monkeypatch.setattr(pipes, "_MOST", most)
    enhance_file("-", tmp_path / "b.wav", MODEL, removed=tmp_path / "c.wav")
    for name in ("b.wav", "c.wav"):
        written = (tmp_path / name).read_bytes()
        assert written[:4] == (b"RF64" if most == 9000 else b"RIFF")
        (tmp_path / name).write_bytes(written.replace(struct.pack("<I", 9000), struct.pack("<I", 2**32 - 1)))
        assert audio.info(tmp_path / name) == audio.info(source)
    b = audio.read_array(tmp_path / "b.wav")[0]
    np.testing.assert_allclose(b, streamed(audio.read_array(source)[0], 16000, MODEL), rtol=0, atol=2**-15)


def test_a_full_disk_and_a_stream_of_unknown_length(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    data = write(tmp_path / "a.wav", noisy(), 16000).read_bytes()
    stream = io.TextIOWrapper(io.BytesIO(data[:40] + struct.pack("<I", 0) + data[44:]))
    monkeypatch.setattr(sys, "stdin", stream)
    monkeypatch.setattr(Path, "open", lambda *_, **__: Full())
    with pytest.raises(InputError, match=r"b\.wav: cannot be written \(No space left on device\)"):
        enhance_file("-", tmp_path / "b.wav", MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]


@pytest.mark.parametrize(
    ("seconds", "name", "kind"),
    [(4 * 3600, "a.wav", None), (7 * 3600, "a.wav", "RF64"), (7 * 3600, "a.flac", None)],
)
def test_the_true_limit_of_wav_lies_at_4_gib(seconds, name, kind):
    sound = audio.Info(48000, 2, 48000 * seconds, "PCM_16")  # 2.8 and 4.8 GB
    assert (48000 * 4 * seconds > 2**32) == (seconds == 7 * 3600)
    assert 2**32 - 2**24 < module._LARGEST_WAV < 2**32 - 2**12  # a header must fit, too
    assert module._format(name, sound, "PCM_16") == kind


def test_clipping_and_other_encodings_are_said(tmp_path, caplog):
    caplog.set_level(logging.INFO, "drnmf")
    source = write(tmp_path / "a.wav", 5 * noisy(), 16000, "FLOAT")
    enhance_file(source, tmp_path / "a.flac", MODEL)
    assert "samples beyond full scale were clipped" in caplog.text
    source = write(tmp_path / "b.wav", 20 * noisy(), 16000, "PCM_32")
    enhance_file(source, tmp_path / "speech.wav", MODEL, removed=tmp_path / "noise.wav")
    assert f"{tmp_path / 'noise.wav'}: " in caplog.text  # by its name, not by that of the temporary file
    soundfile.write(tmp_path / "adpcm.wav", noisy()[0], 16000, subtype="IMA_ADPCM")
    enhance_file(tmp_path / "adpcm.wav", tmp_path / "out.wav", MODEL)
    assert "is written as 16-bit PCM" in caplog.text
    assert audio.info(tmp_path / "out.wav").samples == audio.info(tmp_path / "adpcm.wav").samples


# ---- trees


@pytest.fixture
def tree(tmp_path) -> Path:
    """Five small files of three formats in three folders, and a text."""
    root = tmp_path / "in"
    for name in ("a.wav", "b.flac", "sub/c.ogg", "sub/d.wav", "sub/deep/e.wav"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write(root / name, noisy(seconds=0.3), 16000)
    (root / "notes.txt").write_text("not sound")
    return root


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


NAMES = ["a.wav", "b.flac", "sub/c.ogg", "sub/d.wav", "sub/deep/e.wav"]


def test_a_tree_is_mirrored_and_done_once(tree, tmp_path):
    out = tmp_path / "out"
    tasks = plan([tree], out, removed=tmp_path / "noise")
    heard = []
    first = enhance_tree(tasks, MODEL, progress=lambda *step: heard.append(step))
    assert files(out) == files(tmp_path / "noise") == NAMES
    assert (len(first.done), len(first.skipped), first.failures) == (5, 0, ())
    assert ("files", 5, 5) in heard
    assert any(what == "file, e.wav" for what, _, _ in heard)
    times = {name: (out / name).stat().st_mtime_ns for name in NAMES}
    (out / "sub/d.wav").unlink()
    (tmp_path / "noise/sub/d.wav").unlink()
    second = enhance_tree(tasks, MODEL)
    assert ([task.target for task in second.done], len(second.skipped)) == ([out / "sub/d.wav"], 4)
    assert "1 enhanced, 4 skipped because they exist" in summary(second)
    assert all((out / name).stat().st_mtime_ns == times[name] for name in NAMES if name != "sub/d.wav")
    third = enhance_tree(tasks, MODEL, overwrite=True)
    assert len(third.done) == 5
    (tmp_path / "noise/a.wav").unlink()  # half of a pair: neither done nor ours to replace
    fourth = enhance_tree(tasks, MODEL)
    assert len(fourth.failures) == 1
    assert "a.wav: exists already" in fourth.failures[0]


def test_names_of_several_inputs_and_formats(tree, tmp_path):
    out = tmp_path / "out"
    other = write(tmp_path / "single.wav", noisy(), 16000)
    targets = [task.target.relative_to(out).as_posix() for task in plan([tree, other], out, suffix=suffix_of("FLAC"))]
    assert sorted(targets) == sorted([f"in/{name.rpartition('.')[0]}.flac" for name in NAMES] + ["single.flac"])
    write(tree / "a.flac", noisy(), 16000)
    with pytest.raises(InputError, match=r"would both become .*a\.mp3"):
        plan([tree], out, suffix=".mp3")
    with pytest.raises(InputError, match="unknown format 'xyz'"):
        suffix_of("xyz")
    with pytest.raises(InputError, match="is a file"):
        plan([tree], other)
    with pytest.raises(InputError, match="one stream"):
        plan([tree, Path("-")], out)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="no sound files"):
        plan([tree, tmp_path / "nothing"], out)


def test_results_below_the_input_are_not_enhanced_again(tree):
    out = tree / "enhanced"
    enhance_tree(plan([tree], out), MODEL)
    assert len(enhance_tree(plan([tree], out), MODEL).skipped) == 5
    assert files(out) == NAMES
    with pytest.raises(InputError, match="holds all the input"):
        plan([tree], tree)


def test_every_file_that_is_skipped_is_named_and_why(tree, tmp_path):
    out = tree / "enhanced"
    (tree / "sub/cover.JPG").touch()
    (tree / "._a.wav").touch()
    result = enhance_tree(plan([tree], out), MODEL)
    (out / "old.txt").touch()  # lies below the output: none of the input
    lines = summary(result, others([tree, tree / "a.wav"], out)).splitlines()
    assert lines == [
        f"skipped: {tree / '._a.wav'}: is hidden",
        f"skipped: {tree / 'notes.txt'}: is no sound file, by its suffix '.txt'",
        f"skipped: {tree / 'sub/cover.JPG'}: is no sound file, by its suffix '.jpg'",
        "5 enhanced, 3 skipped",
    ]


def test_one_bad_file_does_not_stop_the_others(tree, tmp_path):
    (tree / "b.flac").write_bytes(b"fLaC and then nothing")
    result = enhance_tree(plan([tree, tmp_path / "missing.wav"], tmp_path / "out"), MODEL)
    assert len(result.done) == 4
    assert len(result.failures) == 2
    assert "b.flac: cannot be read" in summary(result)
    assert "missing.wav: no such file" in summary(result)
    assert summary(result).endswith("4 enhanced, 2 failed")
    assert len(files(tmp_path / "out")) == 4


def test_a_second_run_takes_one_look_at_each_file(tmp_path, monkeypatch):
    """Comparing every task with every other took 40 s for 10,000 files."""
    tasks = [Task(Path(f"{i}.wav"), tmp_path) for i in range(200)]
    compared = []
    monkeypatch.setattr(Task, "__hash__", lambda task: compared.append(task) or id(task))
    monkeypatch.setattr(Task, "__eq__", lambda task, other: compared.append(task) or task is other)
    assert list(enhance_tree(tasks, MODEL).skipped) == tasks
    assert len(compared) <= 2 * len(tasks)


def test_no_output_replaces_another(tree, tmp_path):
    (tmp_path / "sub").mkdir()
    for same in (tmp_path / "sub/../x.flac", tmp_path / "here/x.flac"):
        (tmp_path / "here").is_symlink() or (tmp_path / "here").symlink_to(".")
        with pytest.raises(InputError, match=r"x\.flac: cannot hold both"):
            enhance_file(tree / "a.wav", tmp_path / "x.flac", MODEL, removed=same)
    with pytest.raises(InputError, match="out: cannot hold both"):
        plan([tree], tmp_path / "out", removed=tmp_path / "sub/../out")
    write(tree / "sub/a.wav", noisy(seconds=0.3), 16000)
    with pytest.raises(InputError, match=r"in/sub/a\.wav and .*in/a\.wav would both become .*out/sub/a\.wav"):
        plan(
            [tree], tmp_path / "out", removed=tmp_path / "out/sub"
        )  # what is kept of one, what is removed from another
    assert len(plan([tree / "a.wav", tree / "a.wav"], tmp_path / "out")) == 1


def test_a_link_that_leads_nowhere_is_one_failure(tree, tmp_path):
    for name, target in {"loop.wav": "loop.wav", "nowhere.wav": "missing"}.items():
        (tree / name).symlink_to(target)
    result = enhance_tree(plan([tree], tmp_path / "out"), MODEL)
    assert [len(result.done), len(result.failures)] == [5, 2]
    assert all("no such file" in failure for failure in result.failures)


def test_shards_do_every_task_once():
    tasks = [Task(Path(f"{i}.wav"), Path(f"out/{i}.wav")) for i in range(10)]
    parts = [shard(tasks, f"{i}/3") for i in (1, 2, 3)]
    assert sorted((task for part in parts for task in part), key=tasks.index) == tasks
    assert {len(part) for part in parts} == {3, 4}
    assert shard(tasks[:1], "2/2") == []
    for bad in ("0/3", "4/3", "1", "a/b", "1/0", "-1/3", ""):
        with pytest.raises(InputError, match="I/N"):
            shard(tasks, bad)


def test_several_processes_give_the_same(tree, tmp_path):
    (tree / "b.flac").write_bytes(b"fLaC and then nothing")
    results = [enhance_tree(plan([tree], tmp_path / f"out{jobs}"), MODEL, jobs=jobs) for jobs in (1, 2)]
    assert [len(r.done) for r in results] == [4, 4]
    assert [len(r.failures) for r in results] == [1, 1]
    for name in (n for n in NAMES if n != "b.flac" and not n.endswith(".ogg")):  # an Ogg file has a random number
        assert (tmp_path / "out1" / name).read_bytes() == (tmp_path / "out2" / name).read_bytes()
    with pytest.raises(InputError, match="jobs"):
        enhance_tree([], MODEL, jobs=0)


def test_a_folder_that_cannot_be_written(tree, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "out").mkdir(mode=0o500)
    result = enhance_tree(plan([tree], tmp_path / "out"), MODEL)
    assert len(result.failures) == 5
    assert all("cannot be written" in failure for failure in result.failures)


@pytest.mark.parametrize("model", bundled_models())
@pytest.mark.parametrize("gain", [0.03, 0.1, 3.0])
def test_the_bundled_models_do_not_depend_on_the_level(gain, model):
    sound = demo.recording("noisy")  # at 0.02 its softest frame counts as silence
    louder = enhance(gain * sound, 16000, model)
    np.testing.assert_allclose(louder / gain, enhance(sound, 16000, model), rtol=0, atol=1e-4)
