import logging
import struct
from functools import partial

import numpy as np
import pytest
import soundfile
import soxr

from drnmf.errors import InputError
from drnmf.signal import audio


def utterance(speech_dir) -> np.ndarray:
    return soundfile.read(speech_dir / "austen_0880.flac", dtype="float32")[0]


def test_read_gives_the_files_samples_and_rate(speech_dir):
    path = speech_dir / "austen_0880.flac"
    x, rate = audio.read_array(path)
    assert rate == 16000
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, utterance(speech_dir)[None])
    header = audio.info(path)
    assert (header.rate, header.channels, header.samples, header.subtype) == (16000, 1, x.shape[1], "PCM_16")


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg", "a.opus", "a.mp3"])
def test_every_format_survives_writing_and_reading(tmp_path, speech_dir, name):
    x = np.stack([utterance(speech_dir), -0.5 * utterance(speech_dir)])
    audio.write(tmp_path / name, x, 16000)
    y, rate = audio.read_array(tmp_path / name)
    assert rate == 16000
    assert y.shape == x.shape
    error = 10 * np.log10(np.square(x).sum() / np.square(x - y).sum())
    assert error > (60 if name in ("a.wav", "a.flac") else 8)  # the lossy ones keep the waveform roughly
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]  # no temporary file left


@pytest.mark.parametrize(
    ("name", "subtype"), [("a.wav", "FLOAT"), ("a.wav", "PCM_24"), ("a.flac", "PCM_24"), ("a.ogg", "OPUS")]
)
def test_the_chosen_subtype_is_kept(tmp_path, speech_dir, name, subtype):
    audio.write(tmp_path / name, utterance(speech_dir), 16000, subtype=subtype)
    assert audio.info(tmp_path / name).subtype == subtype


def test_the_subtype_of_another_file_is_kept_where_the_format_can_hold_it():
    assert audio.default_subtype("a.wav", like="FLOAT") == "FLOAT"
    assert audio.default_subtype("a.flac", like="FLOAT") == "PCM_16"
    assert audio.default_subtype("a.opus", like="PCM_16") == "OPUS"


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg", ".mp3", ".opus"])
def test_a_segment_is_that_part_of_the_whole(tmp_path, speech_dir, suffix):
    path = tmp_path / f"a{suffix}"
    audio.write(path, utterance(speech_dir), 16000)
    whole, _ = audio.read_array(path)
    for start, count in [(0, 1), (1, 5000), (12345, 20000), (whole.shape[1] - 3, 3)]:
        part, _ = audio.read_array(path, start=start, count=count)
        tolerance = 2e-3 if suffix == ".opus" else 1e-6  # an Opus decoder remembers: see audio._decode
        np.testing.assert_allclose(part, whole[:, start : start + count], rtol=0, atol=tolerance)


@pytest.mark.parametrize("rate", [8000, 11025, 44100, 48000])
def test_a_resampled_segment_is_that_part_of_the_resampled_whole(tmp_path, speech_dir, rate):
    path = tmp_path / "a.wav"
    audio.write(path, audio.resample(utterance(speech_dir)[None], 16000, rate), rate, subtype="FLOAT")
    whole, got = audio.read_array(path, sample_rate=16000)
    assert got == 16000
    assert whole.shape[1] == audio.info(path).samples_at(16000)
    for start, count in [(0, 100), (777, 5000), (20001, 20000), (whole.shape[1] - 9, 9)]:
        part, _ = audio.read_array(path, sample_rate=16000, start=start, count=count)
        np.testing.assert_allclose(part, whole[:, start : start + count], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("source", "target"), [(32000, 16000), (48000, 16000), (16000, 44100), (47999, 8000)])
def test_the_length_after_resampling_is_known_beforehand(tmp_path, speech_dir, source, target):
    for samples in (1, 2, 3, 5, 1000, 1001, 1002, 1003):
        x = utterance(speech_dir)[None, 9000 : 9000 + samples]
        expected = audio.Info(source, 1, samples, "FLOAT").samples_at(target)
        assert audio.resample(x, source, target).shape == (1, expected)
        assert expected == int(samples * target / source + 0.5)
        audio.write(tmp_path / "a.wav", x, source, subtype="FLOAT")
        if expected:
            assert audio.read_array(tmp_path / "a.wav", sample_rate=target)[0].shape == (1, expected)
        assert resampled_in_blocks(x, source, target, 400).shape == (1, expected)


def resampled_in_blocks(x: np.ndarray, source: int, target: int, size: int) -> np.ndarray:
    resampler = audio.Resampler(source, target, len(x))
    done = [resampler.feed(x[:, i : i + size]) for i in range(0, x.shape[1], size)]
    return np.concatenate([*done, resampler.feed(x[:, :0], last=True)], 1)


def test_arrays_and_tensors_are_the_same_sound(tmp_path, speech_dir):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(utterance(speech_dir)[None])
    assert torch.equal(audio.read(speech_dir / "austen_0880.flac")[0], x)
    resampled = audio.resample(x.numpy(), 16000, 22050)
    assert isinstance(resampled, np.ndarray)
    assert np.array_equal(resampled, audio.resample(x, 16000, 22050))
    for name, sound in (("array.wav", x.numpy().astype(np.float64)), ("tensor.wav", x.double().requires_grad_())):
        audio.write(tmp_path / name, sound, 16000, subtype="FLOAT")
    # not their bytes: in a header of floats stands the second in which it was written
    np.testing.assert_array_equal(*(audio.read_array(tmp_path / name)[0] for name in ("array.wav", "tensor.wav")))


def tone(rate: int) -> np.ndarray:
    """One second of 440 Hz."""
    return np.float32(0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate))


def test_resampling_keeps_a_tone_and_is_said(tmp_path, caplog):
    audio.write(tmp_path / "tone.wav", tone(44100), 44100, subtype="FLOAT")
    with caplog.at_level(logging.INFO, "drnmf"):
        x, _ = audio.read_array(tmp_path / "tone.wav", sample_rate=16000)
    assert "tone.wav: resampling from 44100 to 16000 Hz" in caplog.text
    np.testing.assert_allclose(x[0, 500:-500], tone(16000)[500:-500], rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [1, 999, 16000, 10**9])
def test_blocks_join_to_the_whole(tmp_path, speech_dir, size):
    x = utterance(speech_dir)[:2000]
    audio.write(tmp_path / "a.wav", np.stack([x, x[::-1]]), 16000, subtype="FLOAT")
    blocks = list(audio.read_blocks(tmp_path / "a.wav", size))
    assert all(b.shape[1] <= size for b in blocks)
    assert np.array_equal(np.concatenate(blocks, 1), np.stack([x, x[::-1]]))


@pytest.mark.parametrize("size", [1000, 10**9])
def test_resampled_blocks_join_to_the_resampled_whole(speech_dir, size):
    x = np.tile(utterance(speech_dir), (1, 2))  # longer than a block of soxr's
    whole = audio.resample(x, 16000, 44100)
    np.testing.assert_allclose(resampled_in_blocks(x, 16000, 44100, size), whole, rtol=0, atol=1e-5)


def test_clipping_is_said_and_counted(tmp_path, caplog):
    x = np.array([0.0, 1.5, -2.0, 0.25])
    audio.write(tmp_path / "int.wav", x, 16000)
    assert "2 samples beyond full scale were clipped (peak 2.000)" in caplog.text
    caplog.clear()
    audio.write(tmp_path / "float.wav", x, 16000, subtype="FLOAT")
    assert not caplog.text
    np.testing.assert_array_equal(audio.read_array(tmp_path / "float.wav")[0][0], x)


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, speech_dir):
    path = tmp_path / "a.wav"
    audio.write(path, utterance(speech_dir), 16000)
    before = path.read_bytes()
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(InputError, match="NaN or infinite"):
            audio.write(path, np.array([[0.0, 0.0], [0.0, bad]]), 16000)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_minute_of_stereo_ogg_is_written(tmp_path):
    noise = np.random.default_rng(0).standard_normal((2, 16000 * 60))
    audio.write(tmp_path / "a.ogg", 0.1 * noise, 16000)
    assert audio.info(tmp_path / "a.ogg").samples == 16000 * 60


def test_bad_files_are_named_in_one_line(tmp_path):
    (tmp_path / "text.wav").write_text("this is not sound")
    (tmp_path / "nothing.wav").touch()
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 16000)
    soundfile.write(tmp_path / "nan.wav", np.array([0.0, np.nan]), 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "inf.wav", np.array([0.0, np.inf]), 16000, subtype="FLOAT")
    for name, reason in [
        ("missing.wav", "no such file"),
        ("text.wav", "cannot be read as sound"),
        ("nothing.wav", "cannot be read as sound"),
        ("empty.wav", "no samples"),
        ("nan.wav", "NaN or infinite"),
        ("inf.wav", "NaN or infinite"),
        ("", "is a folder"),
    ]:
        with pytest.raises(InputError, match=reason) as error:
            audio.read_array(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
        assert "\n" not in str(error.value)
    for name in ("nan.wav", "inf.wav"):
        blocks = audio.read_blocks(tmp_path / name, 1)
        assert not next(blocks).any()
        with pytest.raises(InputError, match="NaN or infinite"):
            next(blocks)


def test_a_file_cut_short_is_named(tmp_path, speech_dir):
    data = (speech_dir / "austen_0880.flac").read_bytes()
    (tmp_path / "short.flac").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"short\.flac"):
        audio.read_array(tmp_path / "short.flac")


def test_asking_for_what_is_not_there(tmp_path, speech_dir):
    path = speech_dir / "austen_0880.flac"
    with pytest.raises(InputError, match="were asked for, but it has"):
        audio.read_array(path, start=40000, count=100000)
    with pytest.raises(InputError, match="no channel 1"):
        audio.read_array(path, channel=1)
    for name, subtype, reason in [
        ("a.txt", None, "unknown kind"),
        ("a.flac", "FLOAT", "choose one of"),
        ("a.raw", None, "unknown kind"),
        ("no/a.wav", None, "does not exist; make it first"),
    ]:
        with pytest.raises(InputError, match=reason):
            audio.write(tmp_path / name, np.zeros(10), 16000, subtype=subtype)
    with pytest.raises(InputError, match="cannot be written"):
        audio.write(tmp_path / "a.opus", np.zeros(10), 44100)  # Opus knows only a few rates
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rate", "channels", "reason"), [(1, 1, "from 1000 to 768000 Hz, got 1"), (768001, 1, "768001")]
)
def test_rates_that_would_fill_the_memory_are_refused(tmp_path, rate, channels, reason):
    """At 1 Hz, a second of sound becomes 16000 samples for each of its own."""
    soundfile.write(tmp_path / "a.wav", np.full((1000, channels), 0.5), rate)
    for look in (audio.info, audio.read_array, partial(audio.read_array, sample_rate=16000)):
        with pytest.raises(InputError, match=rf"a\.wav: .*{reason}"):
            look(tmp_path / "a.wav")


@pytest.mark.parametrize(
    ("form", "subtype"), [("WAV", "PCM_16"), ("RF64", "FLOAT"), ("AIFF", "PCM_24"), ("AU", "PCM_16")]
)
def test_a_file_that_was_cut_short_is_told(tmp_path, caplog, form, subtype):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.full(10000, 0.5), 16000, subtype=subtype, format=form)
    assert audio.info(path).samples == 10000
    assert caplog.messages == []
    path.write_bytes(path.read_bytes()[:9000])
    assert audio.info(path).samples < 5000
    assert all("a.wav: is cut short, its header announces" in message for message in caplog.messages)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("guess", [0x7FFFF000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_length_that_a_program_did_not_know_is_no_cut(tmp_path, caplog, guess):
    soundfile.write(tmp_path / "a.wav", np.full(10000, 0.5), 16000)
    data = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(data[:40] + struct.pack("<I", guess) + data[44:])
    assert audio.info(tmp_path / "a.wav").samples == 10000
    assert caplog.messages == []


def test_a_length_beyond_all_memory_is_one_line(tmp_path):
    """An MP3 says how long it is; the sound itself is not looked at before."""
    soundfile.write(tmp_path / "a.mp3", np.sin(np.arange(16000) / 9), 16000)
    data = bytearray((tmp_path / "a.mp3").read_bytes())
    at = data.index(b"Info") if b"Info" in data else data.index(b"Xing")
    data[at + 8 : at + 12] = b"\x7f\xff\xff\xff"  # number of MPEG frames
    (tmp_path / "a.mp3").write_bytes(data)
    assert audio.info(tmp_path / "a.mp3").samples > 2**40
    with pytest.raises(InputError, match=r"a\.mp3: \d+ samples, as its header says, do not fit into memory"):
        audio.read_array(tmp_path / "a.mp3")


def test_few_channels_are_resampled_together(speech_dir, monkeypatch):
    """With 1024, libsoxr read up to 4 kB beyond a block's end, and the process was killed now and then."""
    made = []

    class Watched(soxr.ResampleStream):
        def __init__(self, source, target, channels, **options):
            made.append(channels)
            super().__init__(source, target, channels, **options)

    monkeypatch.setattr(soxr, "ResampleStream", Watched)
    x = np.float32(np.linspace(1, 0.1, 20)[:, None] * utterance(speech_dir)[:3000])
    resampler = audio.Resampler(44100, 16000, 20)
    parts = [resampler.feed(x[:, i : i + 1000]) for i in range(0, 3000, 1000)]
    y = np.concatenate([*parts, resampler.feed(x[:, :0], last=True)], 1)
    assert (max(made), sum(made)) == (8, 20)
    expected = [soxr.resample(channel, 44100, 16000) for channel in x]
    assert np.array_equal(y, np.stack(expected))
    assert np.array_equal(audio.resample(x, 44100, 16000), np.stack(expected))
