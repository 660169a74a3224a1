"""Sound in containers that soundfile cannot read, m4a, mp4, webm and more: the program ffmpeg decodes and encodes it.

Samples come and go through pipes, so that memory is bounded however long the sound is. A file that is made from another
gets what else there is in that one: picture, subtitles, chapters and tags, copied as they are.
"""

import json
import logging
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from drnmf.errors import InputError
from drnmf.files import MEDIA
from drnmf.signal.audio import Samples, check_file, check_form

log = logging.getLogger("drnmf")

LOSSY = "LOSSY"
"""The encoding of such a file where it is none of soundfile's."""

# Only these containers, and only from files: a playlist, whatever its name, could make ffmpeg read other files.
_GUARD = ("-protocol_whitelist", "file,pipe", "-format_whitelist", "mov,mp4,m4a,matroska,webm,aac,asf")
_QUIET = ("-v", "error", "-nostdin")
_ENCODERS = {
    "opus": "libopus",
    "vorbis": "libvorbis",
    "mp3": "libmp3lame",
}  # where the codec's name is not the encoder's
_CODECS = (*_ENCODERS, "aac", "ac3", "eac3", "alac", "flac", "wmav1", "wmav2", "pcm_s16le", "pcm_s24le", "pcm_f32le")
_LOSSLESS = {"16": "PCM_16", "24": "PCM_24"}  # bits of a sample
_BYTES = 4  # of a sample on the pipe


@dataclass(frozen=True)
class Media:
    """What ffprobe says about a file; how many samples there are shows only when they are decoded."""

    path: Path
    rate: int
    channels: int
    subtype: str
    seconds: float
    codec: str
    bit_rate: int | None
    start: float  # of the sound, in seconds after the start of the file
    tracks: int  # of sound
    has_picture: bool
    samples: None = None


def is_media(path: Path | str) -> bool:
    """Whether a file's suffix says that it is ffmpeg's."""
    return Path(path).suffix.lower() in MEDIA


def probe(path: Path | str) -> Media:
    """Rate, channels and more of a file's first track of sound."""
    check_file(path)
    command = (_program("ffprobe", path), "-v", "error", *_GUARD, "-show_streams", "-show_format", "-of", "json")
    done = subprocess.run([*command, _name(path)], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise InputError(f"{path}: cannot be read by ffmpeg: {_reason(done.stderr)}")
    found = json.loads(done.stdout)
    tracks = [stream for stream in found["streams"] if stream.get("codec_type") == "audio"]
    if not tracks:
        raise InputError(f"{path}: has no sound")
    try:
        media = _described(Path(path), found, tracks)
        check_form(media.rate, media.channels)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if media.tracks > 1:
        log.warning("%s: has %d tracks of sound; only the first is enhanced", path, media.tracks)
    return media


def _described(path: Path, found: Mapping[str, Any], tracks: list[dict[str, Any]]) -> Media:
    first, whole = tracks[0], found.get("format", {})
    pictures = [stream for stream in found["streams"] if stream.get("codec_type") == "video"]
    # of the whole file only where it is nothing but sound: Matroska does not say it of a track
    bit_rate = first.get("bit_rate") or (None if pictures else whole.get("bit_rate"))
    bits = str(first.get("bits_per_raw_sample") or first.get("bits_per_sample") or "")
    return Media(
        path=path,
        rate=int(first["sample_rate"]),
        channels=int(first["channels"]),
        subtype=_LOSSLESS.get(bits, LOSSY),
        seconds=float(first.get("duration") or whole.get("duration") or 0),
        codec=first.get("codec_name", ""),
        bit_rate=None if bit_rate is None else int(bit_rate),
        start=float(first.get("start_time") or 0) - float(whole.get("start_time") or 0),
        tracks=len(tracks),
        has_picture=bool(pictures),
    )


def read_blocks(media: Media, size: int) -> Iterator[Samples]:
    """The first track's sound in blocks (channels, at most `size` samples)."""
    # where there is a picture, gaps in the sound are filled, or all that follows would come too early
    gaps = ("-af", "aresample=async=1") if media.has_picture else ()
    form = ("-map", "0:a:0", *gaps, "-ar", str(media.rate), "-ac", str(media.channels), "-f", "f32le", "pipe:1")
    command = (_program("ffmpeg", media.path), *_QUIET, *_GUARD, "-i", _name(media.path), *form)
    frame, done = _BYTES * media.channels, 0
    with _running(command, f"{media.path}: cannot be decoded by ffmpeg", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while data := process.stdout.read(frame * size):
            samples = np.frombuffer(data[: len(data) // frame * frame], "<f4").reshape(-1, media.channels)
            done += len(samples)
            yield np.ascontiguousarray(samples.T)
    if not done:
        raise InputError(f"{media.path}: is empty, it has no samples")


class MediaWriter:
    """A file written block by block, under the name `temporary`; use it in a `with`.

    What else is in `source` is copied, and its codec and bit rate are used, where both are of the same kind.
    """

    def __init__(self, path: Path | str, rate: int, channels: int, *, temporary: Path, source: Media | None) -> None:
        sound = ("-f", "f32le", "-ar", str(rate), "-ac", str(channels))
        command = [_program("ffmpeg", path), *_QUIET, "-y", *_offset(source), *sound, "-i", "pipe:0"]
        if source is not None:
            command += [*_GUARD, "-i", _name(source.path), *_copied(path, source)]
        command += [_name(temporary)]
        self._running = _running(command, f"{path}: cannot be written by ffmpeg", stdin=subprocess.PIPE)

    def __enter__(self) -> "MediaWriter":
        self._process = self._running.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._running.__exit__(*error)

    def write(self, x: Samples) -> None:
        """Append a block (channels, samples)."""
        assert self._process.stdin is not None
        self._process.stdin.write(np.ascontiguousarray(x.T, "<f4").tobytes())


def _offset(source: Media | None) -> tuple[str, ...]:
    return () if source is None or source.start <= 0 else ("-itsoffset", f"{source.start:.6f}")


def _copied(path: Path | str, source: Media) -> list[str]:
    """The options that take everything but the sound from the second input, `source`."""
    same_kind = Path(path).suffix.lower() == source.path.suffix.lower()
    options = ["-map", "1:v?", "-map", "0:a", "-c:v", "copy", "-map_metadata", "1", "-map_chapters", "1"]
    options += ["-map_metadata:s:a:0", "1:s:a:0"]
    if not same_kind:
        return options
    for track in range(1, source.tracks):
        options += ["-map", f"1:a:{track}", f"-c:a:{track}", "copy"]
    options += ["-map", "1:s?", "-c:s", "copy"]
    if source.codec in _CODECS:
        options += ["-c:a:0", _ENCODERS.get(source.codec, source.codec)]
    if source.bit_rate is not None and source.subtype == LOSSY:
        options += ["-b:a:0", str(source.bit_rate)]
    return options


@contextmanager
def _running(command: Any, trouble: str, **pipes: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A program while it works; if it fails, `trouble` and its own words are the error."""
    # a session of its own: Ctrl-C is for us, and we end it
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, **pipes)
    assert process.stderr is not None
    said: deque[bytes] = deque(maxlen=100)
    listener = Thread(target=said.extend, args=(process.stderr,), daemon=True)  # or a full pipe would stop it
    listener.start()
    ended_early = False
    try:
        yield process
        if process.stdin is not None:
            process.stdin.close()
    except BrokenPipeError:
        ended_early = True
    except BaseException:
        process.kill()
        raise
    finally:
        _end(process)
        listener.join()
        process.stderr.close()
    words = b"".join(said).decode(errors="replace")
    if process.returncode or ended_early:
        raise InputError(f"{trouble}: {_reason(words)}")
    if words.strip():
        log.warning("%s: ffmpeg says: %s", command[command.index("-i") + 1].removeprefix("file:"), _reason(words))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Close the pipes, which lets it end, and wait."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    process.wait()


def _program(name: str, path: Path | str) -> str:
    found = shutil.which(name)
    if found is None:
        raise InputError(
            f"{path}: needs the program {name}, which is not installed: apt-get install ffmpeg, or ffmpeg.org"
        )
    return found


def _name(path: Path | str) -> str:
    return f"file:{path}"  # whatever the name begins with


def _reason(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
