"""Sound on a pipe, WAV or bare 16-bit PCM, where nothing can be looked up twice; files are `audio`'s.

The lengths in the header of a WAV stream are often guesses, because it is written before its end is known. So sound
ends with the stream, or at the announced length if that is a plausible one.
"""

import io
import logging
import os
import re
import struct
import sys
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile

from drnmf.errors import InputError
from drnmf.signal.audio import Samples, check_form

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("drnmf")

# the format tag in a WAV header, and the bytes of a sample
ENCODINGS = {
    "PCM_U8": (1, 1),
    "PCM_16": (1, 2),
    "PCM_24": (1, 3),
    "PCM_32": (1, 4),
    "FLOAT": (3, 4),
    "DOUBLE": (3, 8),
}
_EXTENSIBLE = 0xFFFE  # this tag says that the true one comes later
_UNKNOWN = 0x7FFFF000  # lengths from here on are what programs write that do not know the length
_MOST = 0xFFFFFFFF  # that a field can say
_AT_ONCE = 65536  # bytes
# chunks that may follow sound
_AFTER = (b"LIST", b"id3 ", b"ID3 ", b"bext", b"cue ", b"smpl", b"iXML", b"PEAK", b"fact", b"JUNK")
_CHUNK = re.compile(b"|".join([*_AFTER, *(name[:n] + rb"\Z" for name in _AFTER for n in (1, 2, 3))]))
_LONGEST_AFTER = 2**20  # bytes of all of them: what is longer is sound
_BARE = {"format": "RAW", "endian": "LITTLE"}  # by which soundfile encodes samples without a header


class PipeReader:
    """Sound from a stream: `rate`, `channels`, `subtype`, `samples` (None if not announced), then its `blocks`.

    `raw` is the rate and the number of channels of PCM without header: 16 bits, little endian, channels interleaved.
    """

    def __init__(self, stream: BufferedIOBase, *, raw: tuple[int, int] | None = None) -> None:
        self._stream, self._raw = stream, raw is not None
        known = self._read_header() if raw is None else (*raw, "PCM_16", None)
        self.rate, self.channels, self.subtype, self._bytes = known
        try:
            check_form(self.rate, self.channels)
        except InputError as error:
            raise InputError(f"stdin: {error}") from None
        self._frame = self.channels * ENCODINGS[self.subtype][1]
        self.samples = None if self._bytes is None else self._bytes // self._frame

    @property
    def seconds(self) -> float:
        """How long it is; 0 if that is not announced."""
        return (self.samples or 0) / self.rate

    def blocks(self) -> Iterator[Samples]:
        """Blocks (channels, n) as they arrive."""
        form = {"samplerate": self.rate, "channels": self.channels, "subtype": self.subtype, **_BARE}
        rest, done = b"", 0
        for data in self._sound():
            data = rest + data
            whole = len(data) // self._frame * self._frame
            rest = data[whole:]
            if whole:
                done += whole // self._frame
                samples, _ = soundfile.read(io.BytesIO(data[:whole]), dtype="float32", always_2d=True, **form)
                yield np.ascontiguousarray(samples.T)
        if not done:
            raise InputError("stdin: is empty, it has no samples")
        if self.samples is not None and done < self.samples:
            log.warning("stdin: is cut short, it ends after %d of %d samples", done, self.samples)
        elif rest:
            log.warning("stdin: is cut short, it ends within a sample")

    def _sound(self) -> Iterator[bytes]:
        """The bytes of the sound. Where its length is not known, chunks may follow, which are no sound.

        All that waits is what looks like them, and it waits only until something disproves it.
        """
        if self._bytes is not None or self._raw:
            left = sys.maxsize if self._bytes is None else self._bytes
            while data := self._stream.read1(min(_AT_ONCE, left)):
                left -= len(data)
                yield data
            return
        held, odd = b"", 0  # chunks begin at even bytes
        while data := self._stream.read1(_AT_ONCE):
            held += data
            starts = (found.start() for found in _CHUNK.finditer(held))
            start = next((i for i in starts if (i + odd) % 2 == 0 and _lacking(held[i:]) is not None), len(held))
            yield held[:start]
            held, odd = held[start:], (odd + start) % 2
        if _lacking(held) not in (0, 1):  # 1: not every program fills up an odd chunk
            yield held

    def _read_header(self) -> tuple[int, int, str, int | None]:
        """Rate, channels, encoding, and the number of bytes that follow if it is known."""
        head = self._exactly(12)
        if head[:4] not in (b"RIFF", b"RF64") or head[8:] != b"WAVE":
            raise InputError("stdin: is not WAV; give PCM without header with --raw, --rate and --channels")
        form, length = None, 0
        while True:
            kind, size = struct.unpack("<4sI", self._exactly(8))
            if kind == b"data" and form is not None:
                length = length if size == _MOST else size if size < _UNKNOWN else 0
                return *form, length if 0 < length < 2**62 else None
            content = self._exactly(size + size % 2, keep=40)
            if kind == b"fmt " and size >= 16:
                form = self._format(content)
            if kind == b"ds64" and size >= 16:  # RF64 has its length here
                length = struct.unpack("<Q", content[8:16])[0]

    def _format(self, content: bytes) -> tuple[int, int, str]:
        tag, channels, rate, _, _, bits = struct.unpack("<HHIIHH", content[:16])
        if tag == _EXTENSIBLE and len(content) >= 26:
            (tag,) = struct.unpack("<H", content[24:26])
        for subtype, (its_tag, size) in ENCODINGS.items():
            if (its_tag, 8 * size) == (tag, bits):
                return rate, channels, subtype
        known = ", ".join(ENCODINGS)
        raise InputError(f"stdin: WAV with format {tag} of {bits} bits cannot be read from a pipe, only {known}")

    def _exactly(self, n: int, keep: int = 12) -> bytes:
        """The next n bytes, of which only the first few are kept: a header that lies must not fill the memory."""
        kept, left = b"", n
        while left:
            data = self._stream.read1(min(_AT_ONCE, left))
            if not data:
                raise InputError("stdin: ends before its sound begins")
            kept, left = (kept + data)[:keep], left - len(data)
        return kept


def _lacking(data: bytes) -> int | None:
    """How many bytes the last of these chunks still lacks; None where they are no chunks."""
    place = 0
    while place < len(data):
        if not _CHUNK.match(data, place):
            return None
        if len(data) < place + 8:
            return 8
        (size,) = struct.unpack("<I", data[place + 4 : place + 8])
        place += 8 + size + size % 2
        if place > _LONGEST_AFTER:
            return None
    return place - len(data)


class PipeWriter:
    """Sound to a stream, block by block. `raw` leaves the header out; errors are about `name`.

    `samples` stands in the header if it is known. If it was not, or was wrong, and the stream is a file after all, the
    header is written again at the end of the `with`: as RF64 if the file has become too long for WAV.
    """

    def __init__(
        self,
        stream: BinaryIO,
        rate: int,
        channels: int,
        subtype: str,
        *,
        samples: int | None = None,
        raw: bool = False,
        name: Path | str = "stdout",
    ) -> None:
        self._name = name
        self._stream, self._rate, self._channels, self._subtype = stream, rate, channels, subtype
        self._frame = channels * ENCODINGS[subtype][1]
        is_sure = samples is not None and samples * self._frame < _UNKNOWN
        self._announced = samples if is_sure else None
        self._written = 0
        self._start = None if raw or not _can_go_back(stream) else stream.tell()
        self._room = (
            b"" if is_sure or self._start is None else struct.pack("<4sI28x", b"JUNK", 28)
        )  # for RF64's lengths
        if not raw:
            self._write(self._header(self._announced))

    def __enter__(self) -> "PipeWriter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._start is not None and self._written != self._announced:
            end = self._stream.tell()
            self._stream.seek(self._start)
            self._write(self._header(self._written))
            self._stream.seek(end)

    def _header(self, samples: int | None) -> bytes:
        tag, size = ENCODINGS[self._subtype]
        a_second = min(self._rate * self._frame, _MOST)
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, tag, self._channels, self._rate, a_second, self._frame, 8 * size)
        length = _MOST if samples is None else samples * self._frame
        whole = 36 + len(self._room) + length
        kind, room = b"RIFF", self._room
        if room and samples is not None and whole > _MOST:
            kind, room = b"RF64", struct.pack("<4sIQQQI", b"ds64", 28, whole, length, samples, 0)
            length = _MOST
        start, data = struct.pack("<4sI4s", kind, min(whole, _MOST), b"WAVE"), struct.pack("<4sI", b"data", length)
        return start + room + form + data

    def write(self, x: Samples) -> None:
        """Append a block (channels, samples)."""
        self._written += x.shape[1]
        encoded = io.BytesIO()
        soundfile.write(encoded, x.T, self._rate, self._subtype, **_BARE)
        self._write(encoded.getvalue())

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._stream.write(view) :]
            self._stream.flush()
        except OSError as error:
            raise InputError(f"{self._name}: cannot be written ({error.strerror})") from None


def _can_go_back(stream: BinaryIO) -> bool:
    """Whether what was written can be written over: in a file, unless all is appended to it (>>)."""
    try:
        return stream.seekable() and not fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_APPEND
    except (OSError, AttributeError):  # no file at all; Windows has no fcntl
        return False
