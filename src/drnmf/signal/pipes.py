"""Sound on a pipe, WAV or bare 16-bit PCM, where nothing can be looked up twice; files are `audio`'s.

The lengths in the header of a WAV stream are often guesses, because it is written before its end is known. So sound
ends with the stream, or at the announced length if that is a plausible one.
"""

import io
import struct
import sys
from collections.abc import Iterator
from io import BufferedIOBase
from typing import BinaryIO

import numpy as np
import soundfile

from drnmf.errors import InputError
from drnmf.signal.audio import Samples

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
_AT_ONCE = 65536  # bytes
_BARE = {"format": "RAW", "endian": "LITTLE"}  # by which soundfile encodes samples without a header


class PipeReader:
    """Sound from a stream: `rate`, `channels`, `subtype`, `samples` (None if not announced), then its `blocks`.

    `raw` is the rate and the number of channels of PCM without header: 16 bits, little endian, channels interleaved.
    """

    def __init__(self, stream: BufferedIOBase, *, raw: tuple[int, int] | None = None) -> None:
        self._stream = stream
        known = self._read_header() if raw is None else (*raw, "PCM_16", None)
        self.rate, self.channels, self.subtype, self._bytes = known
        if not 1 <= self.channels <= 1024:
            raise InputError(f"stdin: has {self.channels} channels; 1 to 1024 can be read")
        self._frame = self.channels * ENCODINGS[self.subtype][1]
        self.samples = None if self._bytes is None else self._bytes // self._frame

    def blocks(self) -> Iterator[Samples]:
        """Blocks (channels, n) as they arrive."""
        left = sys.maxsize if self._bytes is None else self._bytes
        rest = b""
        empty = True
        while data := self._stream.read1(min(_AT_ONCE, left)):
            left -= len(data)
            data = rest + data
            whole = len(data) // self._frame * self._frame
            rest = data[whole:]
            if whole:
                empty = False
                form = {"samplerate": self.rate, "channels": self.channels, "subtype": self.subtype, **_BARE}
                samples, _ = soundfile.read(io.BytesIO(data[:whole]), dtype="float32", always_2d=True, **form)
                yield np.ascontiguousarray(samples.T)
        if empty:
            raise InputError("stdin: is empty, it has no samples")

    def _read_header(self) -> tuple[int, int, str, int | None]:
        """Rate, channels, encoding, and the number of bytes that follow if it is known."""
        head = self._exactly(12)
        if head[:4] not in (b"RIFF", b"RF64") or head[8:] != b"WAVE":
            raise InputError("stdin: is not WAV; give PCM without header with --raw, --rate and --channels")
        form = None
        while True:
            kind, size = struct.unpack("<4sI", self._exactly(8))
            if kind == b"data" and form is not None:
                return *form, size if 0 < size < _UNKNOWN else None
            content = self._exactly(size + size % 2, keep=40)
            if kind == b"fmt " and size >= 16:
                form = self._format(content)

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


class PipeWriter:
    """Sound to a stream, block by block. `samples` stands in the header if it is known; `raw` leaves the header out."""

    def __init__(
        self, stream: BinaryIO, rate: int, channels: int, subtype: str, *, samples: int | None = None, raw: bool = False
    ) -> None:
        self._stream, self._rate, self._subtype = stream, rate, subtype
        if raw:
            return
        tag, size = ENCODINGS[subtype]
        length = _UNKNOWN if samples is None else samples * channels * size
        length, riff = (length, 36 + length) if length < _UNKNOWN else (0xFFFFFFFF, 0xFFFFFFFF)
        form = struct.pack("<HHIIHH", tag, channels, rate, rate * channels * size, channels * size, 8 * size)
        self._write(struct.pack("<4sI8sI16s4sI", b"RIFF", riff, b"WAVEfmt ", 16, form, b"data", length))

    def write(self, x: Samples) -> None:
        """Append a block (channels, samples)."""
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
            raise InputError(f"stdout: cannot be written ({error.strerror})") from None
