"""Damaged sound files of every format.

They are made from real sound. What is enhanced is as long as what its header says, and nothing half is left.
"""

import functools
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from drnmf import InputError
from drnmf.signal import audio
from drnmf.use.files import enhance_file
from examples import build, recording

Random = np.random.Generator
SHORT = 300
FORMATS = [  # name, format, encoding, rate, channels
    ("pcm.wav", "WAV", "PCM_16", 16000, 1),
    ("float.wav", "WAV", "FLOAT", 22050, 2),
    ("a.flac", "FLAC", "PCM_16", 16000, 2),
    ("vorbis.ogg", "OGG", "VORBIS", 16000, 1),
    ("opus.ogg", "OGG", "OPUS", 16000, 1),
    ("a.mp3", "MP3", "MPEG_LAYER_III", 16000, 1),
    ("adpcm.wav", "WAV", "IMA_ADPCM", 16000, 1),
    ("law.wav", "WAV", "ULAW", 8000, 1),
    ("rf64.wav", "RF64", "PCM_24", 16000, 1),
    ("a.aiff", "AIFF", "PCM_24", 48000, 2),
    ("a.au", "AU", "PCM_16", 16000, 1),
    ("a.w64", "W64", "PCM_32", 16000, 1),
    ("a.caf", "CAF", "ALAC_16", 16000, 2),
    ("a.sph", "NIST", "PCM_16", 16000, 1),
]


def cut(data: bytearray, random: Random) -> bytearray:
    return data[: random.integers(len(data))]


def flip(data: bytearray, random: Random) -> bytearray:
    for _ in range(random.integers(1, 20)):
        data[random.integers(len(data))] ^= 1 << random.integers(8)
    return data


def lie(data: bytearray, random: Random) -> bytearray:
    """Fields of the header become small, huge or anything."""
    for _ in range(random.integers(1, 4)):
        at, size = random.integers(4, 100), random.choice([1, 2, 4])
        data[at : at + size] = random.choice([b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", random.bytes(4)])[:size]
    return data


def hole(data: bytearray, random: Random) -> bytearray:
    at = random.integers(len(data))
    return data[:at] + data[at + random.integers(1, 3000) :]


def garbage(data: bytearray, random: Random) -> bytearray:
    at = random.integers(len(data))
    return data[:at] + random.bytes(random.integers(1, 500)) + data[at:]


def end_lost(data: bytearray, random: Random) -> bytearray:
    """As after a crash: the length is right, the end is zeros."""
    at = random.integers(len(data))
    return data[:at] + bytes(len(data) - at)


DAMAGES: list[Callable[[bytearray, Random], bytearray]] = [cut, flip, lie, hole, garbage, end_lost]


def damaged(data: bytes, random: Random) -> bytes:
    """Any file's content with one of them."""
    return bytes(pick(random, DAMAGES)(bytearray(data), random))


def pick(random: Random, choices: Sequence[Any]) -> Any:
    """One of them, as it is: numpy's choice would make them all of one type."""
    return choices[random.integers(len(choices))]


@functools.cache
def whole(format: str, subtype: str, rate: int, channels: int) -> bytes:
    """A second of speech as a file."""
    speech = recording("speech/austen_0880", 28000).float()[12000:]
    content = io.BytesIO()
    content.name = "a"
    soundfile.write(content, speech.repeat(channels, 1).T.numpy(), rate, subtype=subtype, format=format)
    return content.getvalue()


@functools.cache
def model():
    """A small one."""
    return build("drnmf").float()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Whatever is refused inside, the reason names this file."""
    try:
        yield
    except InputError as error:
        if str(path) not in str(error):
            raise AssertionError(f"does not name {path.name}: {error}") from error
        raise


def attempt(random: Random, folder: Path) -> None:
    name, *form = FORMATS[random.integers(len(FORMATS))]
    damage = DAMAGES[random.integers(len(DAMAGES))]
    path, target = (
        folder / f"{damage.__name__}_{name}",
        folder / f"out/a.{random.choice(['wav', 'flac', 'ogg', 'aiff'])}",
    )
    path.write_bytes(damage(bytearray(whole(*form)), random))
    target.parent.mkdir()
    try:
        with naming(path):
            enhance_file(path, target, model())
        assert audio.info(target).samples == audio.info(path).samples
        x, _ = audio.read(path, sample_rate=16000, channel=0, announce=False)
        assert x.shape == (1, audio.info(path).samples_at(16000))
    finally:
        assert [path.name for path in target.parent.iterdir()] in ([], [target.name])
