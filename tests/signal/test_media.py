"""Containers and videos through ffmpeg; its own decoder and its own checksums are the oracles."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from drnmf import InputError
from drnmf.signal import audio, media
from drnmf.use.files import enhance_file
from small import AUDIO, small_model

needs_ffmpeg = pytest.mark.skipif(
    shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None, reason="ffmpeg is not installed"
)
SPEECH = AUDIO / "speech/austen_0930.flac"
MODEL = small_model()


def ffmpeg(*options: object) -> bytes:
    command = ["ffmpeg", "-v", "error", "-nostdin", *map(str, options)]
    return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


def sound(path: Path) -> np.ndarray:
    """On the file's time line, at 16 kHz: what starts late begins with silence."""
    form = ("-af", "aresample=async=1:first_pts=0", "-ar", 16000, "-ac", 1, "-f", "f32le", "-")
    return np.frombuffer(ffmpeg("-i", path, "-map", "0:a:0", *form), np.float32)


def make(path: Path) -> Path:
    """Two seconds of speech, with a picture in mp4, mov and mkv; there the speech begins 0.3 s late."""
    start = ("-t", 2, "-metadata", "title=A talk", "-b:a", "64k")
    if path.suffix not in (".mp4", ".mov", ".mkv"):
        ffmpeg("-i", SPEECH, *start, path)
        return path
    picture = ("-f", "lavfi", "-i", "testsrc=s=64x48:r=10:d=2", "-itsoffset", 0.3)
    ffmpeg(*picture, "-i", SPEECH, "-map", "0:v", "-map", "1:a", "-c:v", "mpeg4", "-c:a", "aac", *start, path)
    return path


def lag(x: np.ndarray, y: np.ndarray) -> tuple[int, float]:
    """By how many samples y is late, and how alike they are then."""
    n = 2**17
    products = np.fft.irfft(np.fft.rfft(y, n) * np.fft.rfft(x, n).conj())
    place = int(products.argmax())
    return (place + n // 2) % n - n // 2, float(products.max() / np.linalg.norm(x) / np.linalg.norm(y))


@needs_ffmpeg
@pytest.mark.parametrize("suffix", [".m4a", ".webm", ".wma", ".aac", ".mp4", ".mov", ".mkv"])
def test_sound_stays_where_it_was_and_all_else_as_it_was(tmp_path, suffix):
    source, target, enhanced = make(tmp_path / f"in{suffix}"), tmp_path / f"out{suffix}", tmp_path / f"clean{suffix}"
    enhance_file(source, target, MODEL, strength=0)
    enhance_file(source, enhanced, MODEL, removed=tmp_path / f"noise{suffix}")
    before, after = media.probe(source), media.probe(target)
    assert (after.rate, after.channels, after.codec) == (before.rate, before.channels, before.codec)
    late, alike = lag(sound(source), sound(target))
    # a bare AAC stream has no place to say by how much the encoder is late; WMA's decoder leaves out half a block
    assert late == {".aac": 1024, ".wma": -512}.get(suffix, 0)
    assert alike > 0.99
    assert lag(sound(source), sound(enhanced))[1] < 0.98
    assert (tmp_path / f"noise{suffix}").is_file()
    if before.bit_rate is not None and before.codec != "opus":  # which takes the rate as advice
        assert after.bit_rate == pytest.approx(before.bit_rate, rel=0.1)
    if suffix != ".aac":
        assert b"title=A talk" in ffmpeg("-i", target, "-f", "ffmetadata", "-")
    if before.has_picture:
        pictures = [
            ffmpeg("-i", path, "-map", "0:v", "-c", "copy", "-f", "framemd5", "-") for path in (source, enhanced)
        ]
        assert pictures[0] == pictures[1]


@needs_ffmpeg
def test_blocks_are_small_and_all_of_the_sound(tmp_path):
    found = media.probe(make(tmp_path / "a.m4a"))
    blocks = list(media.read_blocks(found, 1000))
    assert {block.shape for block in blocks[:-1]} == {(1, 1000)}
    np.testing.assert_array_equal(np.concatenate(blocks, 1)[0], sound(found.path))
    for _ in media.read_blocks(found, 1000):  # who stops listening leaves no process
        break


@needs_ffmpeg
def test_between_containers_and_sound_files(tmp_path):
    source = make(tmp_path / "in.mp4")
    enhance_file(source, tmp_path / "a.wav", MODEL, strength=0)
    x, rate = audio.read_array(tmp_path / "a.wav")
    assert rate == 16000
    assert audio.info(tmp_path / "a.wav").subtype == "PCM_16"
    decoded = np.concatenate(list(media.read_blocks(media.probe(source), 10**6)), 1)
    np.testing.assert_allclose(x, decoded, rtol=0, atol=2**-15)
    enhance_file(SPEECH, tmp_path / "b.m4a", MODEL, strength=0)
    assert lag(audio.read_array(SPEECH)[0][0], sound(tmp_path / "b.m4a"))[0] == 0


@needs_ffmpeg
def test_what_is_no_sound_is_one_line_and_leaves_nothing(tmp_path):
    wrong = {
        "text.mp4": (b"not a film", "cannot be read by ffmpeg"),
        "playlist.m4a": (f"#EXTM3U\n#EXTINF:3,\n{SPEECH}\n".encode(), "cannot be read by ffmpeg"),
        "cut.m4a": (make(tmp_path / "whole.m4a").read_bytes()[:5000], "cannot be read by ffmpeg"),
    }
    for name, (content, message) in wrong.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}: {message}"):
            enhance_file(tmp_path / name, tmp_path / "out.m4a", MODEL)
    ffmpeg("-f", "lavfi", "-i", "testsrc=s=64x48:r=10:d=1", "-c:v", "mpeg4", tmp_path / "silent.mp4")
    with pytest.raises(InputError, match=r"silent\.mp4: has no sound"):
        enhance_file(tmp_path / "silent.mp4", tmp_path / "out.mp4", MODEL)
    with pytest.raises(InputError, match=r"out\.webm: cannot be written by ffmpeg"):  # WebM holds no such picture
        enhance_file(make(tmp_path / "film.mp4"), tmp_path / "out.webm", MODEL)
    assert not list(tmp_path.glob("*out*"))


def test_without_ffmpeg_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (tmp_path / "a.m4a").touch()
    with pytest.raises(InputError, match=r"a\.m4a: needs the program ffprobe, .*apt-get install ffmpeg"):
        enhance_file(tmp_path / "a.m4a", tmp_path / "a.wav", MODEL)
    with pytest.raises(InputError, match=r"b\.m4a: needs the program ffmpeg"):
        enhance_file(SPEECH, tmp_path / "b.m4a", MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["a.m4a"]
