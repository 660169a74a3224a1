"""Sound on pipes: the same samples as in files, whatever the header says and however the bytes arrive."""

import io
import struct

import numpy as np
import pytest
import soundfile

from drnmf.errors import InputError
from drnmf.signal import audio, pipes
from drnmf.signal.pipes import ENCODINGS, PipeReader, PipeWriter
from small import recording

UNKNOWN = 0x7FFFF000  # what programs announce that do not know the length, or more


def noisy(channels: int = 1, samples: int = 1001) -> np.ndarray:
    speech, noise = (recording(name)[8000 : 8000 + samples] for name in ("speech/austen_0930", "noise/hum"))
    return np.linspace(1, 0.5, channels, dtype=np.float32)[:, None] * np.float32(speech) + np.float32(noise)


def wav(tmp_path, x: np.ndarray, rate: int = 16000, subtype: str = "PCM_16", format: str = "WAV") -> bytes:
    soundfile.write(tmp_path / "a.wav", x.T, rate, subtype=subtype, format=format)
    return (tmp_path / "a.wav").read_bytes()


def read(data: bytes) -> np.ndarray:
    return np.concatenate(list(PipeReader(io.BytesIO(data)).blocks()), 1)


@pytest.mark.parametrize("subtype", ENCODINGS)
@pytest.mark.parametrize("channels", [1, 3])
def test_wav_on_a_pipe_is_what_soundfile_reads_and_writes(tmp_path, subtype, channels):
    data = wav(tmp_path, 0.9 * noisy(channels), 22050, subtype)
    reader = PipeReader(io.BytesIO(data))
    assert (reader.rate, reader.channels, reader.subtype, reader.samples) == (22050, channels, subtype, 1001)
    y = np.concatenate(list(reader.blocks()), 1)
    assert np.array_equal(y, audio.read(tmp_path / "a.wav")[0])
    out = io.BytesIO()
    PipeWriter(out, 22050, channels, subtype, samples=1001).write(y)
    (tmp_path / "b.wav").write_bytes(out.getvalue())
    assert audio.info(tmp_path / "b.wav") == audio.info(tmp_path / "a.wav")
    assert np.array_equal(audio.read(tmp_path / "b.wav")[0], y)


@pytest.mark.parametrize("guess", [0, UNKNOWN, 2**31 - 1, 2**32 - 1])
def test_a_length_that_nobody_knows_ends_with_the_stream(tmp_path, guess):
    data = wav(tmp_path, noisy())
    lie = data[:40] + struct.pack("<I", guess) + data[44:]
    assert PipeReader(io.BytesIO(lie)).samples is None
    assert read(lie).shape == (1, 1001)


def test_the_largest_length_that_is_believed(tmp_path):
    data = wav(tmp_path, noisy())
    largest = PipeReader(io.BytesIO(data[:40] + struct.pack("<I", UNKNOWN - 2) + data[44:]))
    assert largest.samples == (UNKNOWN - 2) // 2
    assert sum(block.shape[1] for block in largest.blocks()) == 1001  # the stream ends before


def test_sound_ends_where_it_is_announced_and_with_a_whole_sample(tmp_path):
    data = wav(tmp_path, noisy())
    assert read(data + b"LIST" + struct.pack("<I", 4) + b"abcd").shape == (1, 1001)
    for cut in (1, 2, 3):
        assert read(data[:-cut]).shape == (1, 1001 - (cut + 1) // 2)


def test_rf64_has_its_length_in_a_chunk_of_its_own(tmp_path):
    data = wav(tmp_path, noisy(2), format="RF64")
    assert data[:4] == b"RF64"
    assert (PipeReader(io.BytesIO(data)).channels, PipeReader(io.BytesIO(data)).samples) == (2, 1001)
    assert np.array_equal(read(data + b"what follows"), audio.read(tmp_path / "a.wav")[0])
    for unknown in (0, 2**64 - 1):
        at = data.index(b"ds64") + 16
        assert PipeReader(io.BytesIO(data[:at] + struct.pack("<Q", unknown) + data[at + 8 :])).samples is None


def test_a_stream_that_ends_too_early_is_told(tmp_path, caplog):
    data = wav(tmp_path, noisy(2))
    read(data)
    assert caplog.messages == []
    read(data[:-40])
    read(data[:40] + struct.pack("<I", 0) + data[44:-1])
    first, second = caplog.messages
    assert first == "stdin: is cut short, it ends after 991 of 1001 samples"
    assert second == "stdin: is cut short, it ends within a sample"


def chunk(name: bytes, size: int) -> bytes:
    return name + struct.pack("<I", size) + b"INFO" + bytes(size - 4 + size % 2)


@pytest.mark.parametrize("guess", [0, 2**32 - 1])
@pytest.mark.parametrize(
    "after", [chunk(b"LIST", 26), chunk(b"LIST", 5) + chunk(b"id3 ", 200000), chunk(b"LIST", 5)[:-1]]
)
def test_chunks_after_sound_of_unknown_length_are_no_sound(tmp_path, guess, after):
    data = wav(tmp_path, noisy(3), subtype="PCM_24")
    data = data[:-1] if len(data) % 2 else data
    data = data[:40] + struct.pack("<I", guess) + data[44:]
    assert np.array_equal(read(data + after), read(data))
    dribbled = list(PipeReader(Dribble(data + after)).blocks())
    assert np.array_equal(np.concatenate(dribbled, 1), read(data))


@pytest.mark.parametrize(
    "like", [chunk(b"LIST", 26) + b"x", chunk(b"LIST", 26)[:-8], b"LIST" + b"\xff" * 8, b"LIS", b"xLIST\4\0\0\0abcd"]
)
def test_sound_that_looks_like_chunks_is_sound(like):
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    head = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<I", 16) + form + b"data\xff\xff\xff\xff"
    for after in (like, like + b"LI" + like[:1]):
        expected = np.frombuffer(b"abcdef" + after, np.uint8).astype(np.float32) / 128 - 1
        for stream in (io.BytesIO, Dribble):
            y = np.concatenate(list(PipeReader(stream(head + b"abcdef" + after)).blocks()), 1)
            assert np.array_equal(y[0], expected)


def test_what_looks_like_chunks_for_ever_is_sound(tmp_path):
    """It must not be kept until the memory is full."""
    data = wav(tmp_path, noisy())
    chunks = chunk(b"JUNK", 65528) * 40
    stream = io.BytesIO(data[:40] + struct.pack("<I", 0) + data[44:] + chunks)
    done = 0
    for block in PipeReader(stream).blocks():
        done += block.shape[1]
        assert stream.tell() - 44 - 2 * done < 2**20 + 2**17
    assert done > 1001 + 2**19


def test_sound_waits_for_nothing_but_what_looks_like_a_chunk(tmp_path):
    """A live stream must not be held up."""
    data = wav(tmp_path, noisy())
    stream = Dribble(data[:40] + struct.pack("<I", 0) + data[44:])
    reader = PipeReader(stream)
    done = 0
    for block in reader.blocks():
        done += block.shape[1]
        assert 44 + 2 * done >= stream.tell() - 4


@pytest.mark.parametrize("samples", [None, 5000])
def test_the_header_in_a_file_has_the_true_length_in_the_end(tmp_path, samples):
    x = noisy(2)
    with (tmp_path / "a.wav").open("wb", buffering=0) as file:
        file.write(b"before")
        with PipeWriter(file, 16000, 2, "PCM_24", samples=samples) as writer:
            writer.write(x[:, :500])
            writer.write(x[:, 500:])
        file.write(b"after")
    data = (tmp_path / "a.wav").read_bytes()
    assert (data[:6], data[-5:]) == (b"before", b"after")
    (tmp_path / "b.wav").write_bytes(data[6:-5])
    assert audio.info(tmp_path / "b.wav") == audio.Info(16000, 2, 1001, "PCM_24")
    assert PipeReader(io.BytesIO(data[6:])).samples == 1001
    assert np.abs(audio.read_array(tmp_path / "b.wav")[0] - x).max() < 2**-22


def test_a_file_too_long_for_wav_becomes_rf64(tmp_path, monkeypatch):
    monkeypatch.setattr(pipes, "_MOST", 3000)  # instead of 4 GB
    with (tmp_path / "a.wav").open("wb", buffering=0) as file, PipeWriter(file, 16000, 2, "PCM_16") as writer:
        writer.write(noisy(2))
    data = (tmp_path / "a.wav").read_bytes()
    assert data[:4] == b"RF64"
    (tmp_path / "a.wav").write_bytes(data.replace(struct.pack("<I", 3000), struct.pack("<I", 2**32 - 1)))
    assert audio.info(tmp_path / "a.wav") == audio.Info(16000, 2, 1001, "PCM_16")
    assert soundfile.info(tmp_path / "a.wav").format == "RF64"


def test_what_is_appended_or_raw_is_not_written_over(tmp_path):
    for mode, raw in (("ab", False), ("wb", True)):
        (tmp_path / "a.wav").write_bytes(b"before")
        with (tmp_path / "a.wav").open(mode, buffering=0) as file:
            with PipeWriter(file, 16000, 1, "PCM_16", raw=raw) as writer:
                writer.write(noisy())
            size = file.tell()
        data = (tmp_path / "a.wav").read_bytes()
        assert size == len(data) == 2002 + (0 if raw else 6 + 44)
        assert raw or data.startswith(b"before")


def test_the_bytes_of_a_second_may_be_more_than_a_header_can_say():
    PipeWriter(io.BytesIO(), 768000, 1024, "DOUBLE").write(np.zeros((1024, 1), np.float32))


@pytest.mark.parametrize("size", [0, 1, 2, 5, 70000])
def test_other_chunks_are_passed_over_and_odd_ones_are_padded(tmp_path, size):
    data = wav(tmp_path, noisy())
    chunk = b"LIST" + struct.pack("<I", size) + b"fmt " * (size // 4) + b"x" * (size % 4) + b"\0" * (size % 2)
    for place in (12, 36):  # before the format, and before the sound
        assert np.array_equal(read(data[:place] + chunk + data[place:]), read(data))


class Dribble(io.BytesIO):
    """A pipe through which a few bytes come at a time."""

    def read1(self, n: int = -1) -> bytes:
        return super().read1(min(n, 7))


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "DOUBLE"])
def test_samples_may_arrive_in_parts(tmp_path, subtype):
    data = wav(tmp_path, noisy(3), subtype=subtype)
    reader = PipeReader(Dribble(data))
    assert np.array_equal(np.concatenate(list(reader.blocks()), 1), read(data))


@pytest.mark.parametrize("subtype", ENCODINGS)
def test_what_is_too_loud_is_clipped_and_never_wraps(tmp_path, subtype):
    x = np.array([[0.0, 1.0, -1.0, 1.5, -1.5, 100.0, -100.0]], np.float32)
    out = io.BytesIO()
    PipeWriter(out, 16000, 1, subtype, samples=x.shape[1]).write(x)
    if subtype in ("FLOAT", "DOUBLE"):
        assert np.array_equal(read(out.getvalue()), x)
    else:
        step = 2.0 ** (1 - 8 * ENCODINGS[subtype][1])
        assert np.array_equal(read(out.getvalue()), x.clip(-1, 1 - step).astype(np.float32))


@pytest.mark.parametrize(
    ("samples", "announced"),
    [(None, 2**32 - 1), (0, 0), (1001, 4004), (UNKNOWN // 4 - 1, UNKNOWN - 4), (UNKNOWN // 4, 2**32 - 1)],
)
def test_the_length_in_a_written_header(samples, announced):
    out = io.BytesIO()
    PipeWriter(out, 44100, 2, "PCM_16", samples=samples)
    riff, data = struct.unpack("<I", out.getvalue()[4:8])[0], struct.unpack("<I", out.getvalue()[40:44])[0]
    assert data == announced
    assert riff == (announced if announced == 2**32 - 1 else announced + 36)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"fLaC" + data[4:], "is not WAV"),
        (lambda data: data[:30], "ends before"),
        (lambda data: b"", "ends before"),
        (lambda data: data[:44], "is empty"),
        (lambda data: data[:22] + b"\0\0" + data[24:], "1 to 1024 channels, got 0"),
        (lambda data: data[:22] + b"\x01\x04" + data[24:], "1 to 1024 channels, got 1025"),
        (lambda data: data[:22] + b"\xff\xff" + data[24:], "1 to 1024 channels, got 65535"),
        (lambda data: data[:24] + struct.pack("<I", 999) + data[28:], "from 1000 to 768000 Hz, got 999"),
        (lambda data: data[:24] + struct.pack("<I", 768001) + data[28:], "from 1000 to 768000 Hz, got 768001"),
        (lambda data: data[:20] + b"\x02\0" + data[22:], "format 2 of 16 bits"),
        (lambda data: data[:12] + b"junk\xf0\xff\xff\xff" + data[12:], "ends before"),
        (lambda data: data[:12] + data[36:], "ends before"),
    ],
)
def test_what_is_no_wav_stream_is_refused(tmp_path, change, reason):
    with pytest.raises(InputError, match=reason):
        read(change(wav(tmp_path, noisy())))
