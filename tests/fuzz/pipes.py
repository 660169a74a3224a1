"""WAV streams on a pipe, with headers that lie, chunks of all kinds and bytes that arrive in parts.

A stream without damage comes out as long as it went in, whatever its header says about lengths.
"""

import io
import struct
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import soundfile

from drnmf.signal import audio
from drnmf.use.files import enhance_file
from examples import recording
from fuzz.sounds import DAMAGES, Random, model

ENCODINGS = {"PCM_U8": (1, 8), "PCM_16": (1, 16), "PCM_24": (1, 24), "PCM_32": (1, 32), "FLOAT": (3, 32)}
SHORT = 100


class Dribble(io.BytesIO):
    """A pipe through which some bytes come at a time."""

    def __init__(self, data: bytes, random: Random) -> None:
        super().__init__(data)
        self._random = random

    def read1(self, n: int = -1) -> bytes:
        return super().read1(min(n, int(self._random.choice([3, 100, 5000, 65536]))))


def chunk(random: Random) -> bytes:
    """Anything that may stand in a WAV file and is no sound."""
    name = random.choice([b"LIST", b"JUNK", b"bext", b"PEAK"])
    content = random.bytes(random.integers(200))
    return bytes(name) + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def stream(random: Random) -> tuple[bytes, int | None]:
    """A stream, and how many samples it holds if nothing is wrong with it."""
    subtype = str(random.choice(list(ENCODINGS)))
    channels, rate = int(random.choice([1, 2, 3, 8])), int(random.choice([1000, 8000, 16000, 44100, 768000]))
    samples = int(random.integers(1, 6000)) * 2  # an even number of bytes: chunks begin at even ones
    sound = io.BytesIO()
    x = recording("speech/austen_0880", 40000).float().numpy()[12000 : 12000 + samples]
    soundfile.write(sound, np.repeat(x[:, None], channels, 1), rate, subtype, format="RAW", endian="LITTLE")
    data = sound.getvalue()
    tag, bits = ENCODINGS[subtype]
    fields = [tag, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits]
    good = True
    if random.random() < 0.3:  # a field that no sound has
        which, value = [(1, 0), (1, 1025), (1, 65535), (2, 0), (2, 1), (2, 2**32 - 1), (0, 7), (5, 13)][
            random.integers(8)
        ]
        fields[which], good = value, False
    length = int(random.choice([len(data), len(data), 0, 0x7FFFF000, 2**32 - 1]))
    chunks = [b"".join(chunk(random) for _ in range(random.integers(3))) for _ in range(3)]
    form = b"fmt " + struct.pack("<IHHIIHH", 16, *fields)
    head = b"RIFF" + random.bytes(4) + b"WAVE" + chunks[0] + form + chunks[1] + b"data" + struct.pack("<I", length)
    return head + data + chunks[2], samples if good else None


def attempt(random: Random, folder: Path) -> None:
    data, samples = stream(random)
    raw = None
    if random.random() < 0.1:
        raw, samples = (int(random.choice([0, 999, 8000, 16000])), int(random.choice([0, 1, 3, 2000]))), None
    elif random.random() < 0.5:
        damage = DAMAGES[random.integers(len(DAMAGES))]
        data, samples = bytes(damage(bytearray(data), random)), None
    target = folder / f"out/a.{random.choice(['wav', 'wav', 'flac'])}"
    target.parent.mkdir()
    stdin = mock.Mock(buffer=Dribble(data, random))
    try:
        with mock.patch.object(sys, "stdin", stdin):
            enhance_file("-", target, model(), raw=raw)
        assert samples is None or audio.info(target).samples == samples, f"{audio.info(target)} instead of {samples}"
    finally:
        assert [path.name for path in target.parent.iterdir()] in ([], [target.name])
