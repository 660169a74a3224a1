"""What a sound file says beside its sound: title, artist, cover and the like, a broadcast's chunks, and its bit rate.

A file that is made from another gets them, by mutagen: ID3 (MP3, AIFF, WAV), Vorbis comments (FLAC, Ogg), the atoms of
MP4; between these only what they have in common. From WAV to WAV chunks are copied: BWF's bext, iXML, LIST, markers.
"""

import io
import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile

log = logging.getLogger("drnmf")

_WAV = ".wav"
_CHUNKS = (b"bext", b"iXML", b"axml", b"LIST", b"id3 ", b"ID3 ", b"cue ", b"smpl", b"inst", b"cart", b"umid")
_MOST = 2**24  # bytes of all of them
_MOST_RIFF = 2**32 - 1
_FORMATS = {"MPEG_LAYER_III": "MP3", "VORBIS": "OGG", "OPUS": "OGG"}


@dataclass(frozen=True)
class BitRate:
    """Of a lossy file."""

    value: float  # bits a second
    is_constant: bool


def bit_rate(path: Path | str) -> BitRate | None:
    """Of a file, if it is lossy."""
    try:
        from mutagen import File
        from mutagen.mp3 import BitrateMode

        info = File(path).info
        mode = getattr(info, "bitrate_mode", BitrateMode.VBR)
        if getattr(info, "lossless", False) or type(info).__name__ not in ("MPEGInfo", "OggVorbisInfo", "OggOpusInfo"):
            return None
        value = getattr(info, "bitrate", 0) or 8 * Path(path).stat().st_size / info.length
        return BitRate(value, mode in (BitrateMode.CBR, BitrateMode.UNKNOWN))
    except Exception:  # a stranger's file may be broken in any way: then the encoder chooses
        return None


def encoder(wanted: BitRate | None, subtype: str, rate: int, channels: int) -> dict[str, Any]:
    """Options of soundfile by which a lossy encoder comes nearest to a bit rate.

    libsndfile knows levels from 0 to 1, and every encoder has its own idea of them. Opus goes evenly from 256 to 6 kb/s
    for each channel. With the others: encode some noise, and look.
    """
    if wanted is None or subtype not in _FORMATS:
        return {}
    if subtype == "OPUS":
        return {"compression_level": float(np.clip(1 - (wanted.value / channels - 6000) / 250_000, 0, 0.99))}
    mode = {"bitrate_mode": "CONSTANT" if wanted.is_constant else "AVERAGE"} if subtype == "MPEG_LAYER_III" else {}
    low, high, tried = 0.0, 0.99, {}
    for _ in range(8):
        level = (low + high) / 2
        try:
            got = _encoded_rate({**mode, "compression_level": level}, subtype, rate, channels)
        except soundfile.LibsndfileError:  # no such rate or channels in this format: whoever writes it will tell
            return {}
        tried[abs(got - wanted.value)] = level
        low, high = (level, high) if got > wanted.value else (low, level)
    return {**mode, "compression_level": tried[min(tried)]}


def _encoded_rate(options: dict[str, Any], subtype: str, rate: int, channels: int) -> float:
    """The bit rate that the header says for half a second of noise."""
    from mutagen import File

    noise = 0.1 * np.random.default_rng(0).standard_normal((rate // 2, channels))
    data = io.BytesIO()
    with soundfile.SoundFile(data, "w", rate, channels, subtype, format=_FORMATS[subtype], **options) as file:
        file.write(noise)
    data.seek(0)
    return float(File(data).info.bitrate)


def copy(source: Path | str, target: Path | str) -> None:
    """Give a finished file what another says beside its sound; what cannot be read or written is logged."""
    try:
        if {Path(source).suffix.lower(), Path(target).suffix.lower()} == {_WAV}:
            _copy_chunks(source, target)
        else:
            _copy_tags(source, target)
    except Exception as error:  # a stranger's tags may be broken in any way, and the sound is done
        log.warning("%s: its tags could not be kept (%s)", source, " ".join(str(error).split()) or type(error).__name__)


def _copy_tags(source: Path | str, target: Path | str) -> None:
    from mutagen import File
    from mutagen._vorbis import VComment
    from mutagen.flac import FLAC
    from mutagen.id3 import ID3

    old, new = File(source), File(target)
    if old is None or new is None:
        return
    pictures = old.pictures if isinstance(old, FLAC) and isinstance(new, FLAC) else []
    for picture in pictures:
        new.add_picture(picture)
    if old.tags:
        if new.tags is None:
            new.add_tags()
        if isinstance(old.tags, ID3) and isinstance(new.tags, ID3):
            _save_id3(old.tags, new)
            return
        if isinstance(old.tags, VComment) and isinstance(new.tags, VComment):
            new.tags.extend(old.tags)
        else:
            new = _common_tags(source, target)
    if new is not None and (old.tags or pictures):
        new.save()


def _save_id3(tags: Any, new: Any) -> None:
    version = tags.version[1]
    for frame in tags.values():
        new.tags.add(frame)
    if version == 3:  # as it was: some players know no other
        new.tags.update_to_v23()
        new.save(v2_version=3)
    else:
        new.save()


def _common_tags(source: Path | str, target: Path | str) -> Any:
    """The target with those tags that both kinds of file have by the same name, not saved."""
    from mutagen import File

    old, new = File(source, easy=True), File(target, easy=True)
    if new.tags is None:
        new.add_tags()
    for key, value in old.items():
        try:
            new[key] = value
        except (KeyError, ValueError, TypeError):
            log.info("%s: the tag %s has no place in %s", source, key, Path(target).suffix)
    return new


def _copy_chunks(source: Path | str, target: Path | str) -> None:
    with open(source, "rb") as file:
        kept = [(kind, file.read(size)) for kind, size in _chunks(file) if kind in _CHUNKS and size <= _MOST]
    added = b"".join(struct.pack("<4sI", kind, len(data)) + data + b"\0" * (len(data) % 2) for kind, data in kept)
    if not added or len(added) > _MOST:
        return
    with open(target, "r+b") as file:
        end = file.seek(0, io.SEEK_END)
        file.seek(0)
        if file.read(4) != b"RIFF" or end + len(added) > _MOST_RIFF:
            log.warning("%s: is too long to keep the chunks %s", target, ", ".join(kind.decode() for kind, _ in kept))
            return
        file.seek(end)
        file.write(b"\0" * (end % 2) + added)
        whole = file.tell() - 8
        file.seek(4)
        file.write(struct.pack("<I", whole))


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Names and sizes of a WAV's chunks, with the file at the start of each one's content."""
    length = file.seek(0, io.SEEK_END)
    place = 12
    while place + 8 <= length:
        file.seek(place)
        kind, size = struct.unpack("<4sI", file.read(8))
        yield kind, size
        place += 8 + size + size % 2
