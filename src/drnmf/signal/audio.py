"""Reading and writing sound files: the only module that opens them (soundfile), and the only one that resamples (soxr).

Sound in memory is float32 (channels, samples), full scale = 1: blocks are numpy arrays, `read_array` gives a whole file
as one, `read` as a tensor, and what takes sound takes both. All formats of soundfile can be read: WAV, FLAC, Ogg Vorbis
and Opus, MP3, AIFF and more. Resampling and clipping are logged on "drnmf"; whatever is wrong with a file is an
InputError of one line that names it.

Examples:
    >>> from drnmf import audio
    >>> noisy, rate = audio.read("noisy.wav")
    >>> tuple(noisy.shape), rate
    ((1, 84800), 16000)
    >>> audio.write("noisy.flac", audio.resample(noisy, rate, 48000), 48000)
    >>> audio.info("noisy.flac").seconds
    5.3
"""

import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
import soxr

from drnmf.errors import InputError
from drnmf.files import staged
from drnmf.signal.arrays import Array as Array
from drnmf.signal.arrays import Samples as Samples
from drnmf.signal.arrays import as_array as as_array
from drnmf.signal.arrays import like as like

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("drnmf")

RATES = (1000, 768000)  # lowest and highest sample rate in Hz: beyond, memory would grow without sense
CHANNELS = 1024  # the most, as many as libsndfile reads

_FORMATS = {".oga": "OGG", ".opus": "OGG", ".aif": "AIFF", ".sph": "NIST"}  # where the suffix is not the format's name
_UNCLIPPED = ("FLOAT", "DOUBLE", "VORBIS", "OPUS", "MPEG")  # encodings that keep samples beyond full scale
_BLOCK = 65536  # frames given to the encoder at a time: libsndfile overflows its stack on a long Ogg block
_CUT = re.compile(r"(?:data|Data Size|SSND|riff|Riff size) *: (\d+) \(should be (\d+)\)")  # in libsndfile's log
_FILTER = 4096  # samples read on both sides of a resampled segment, more than soxr's filter is long


def check_form(rate: float, channels: int) -> None:
    """Refuse sound of a rate or a number of channels that nothing here can work with, wherever it comes from."""
    low, high = RATES
    if not low <= rate <= high or rate != int(rate):
        raise InputError(f"the sample rate must be a whole number from {low} to {high} Hz, got {rate}")
    if not 1 <= channels <= CHANNELS:
        raise InputError(f"there must be 1 to {CHANNELS} channels, got {channels}")


def check_file(path: Path | str) -> None:
    """Refuse what is no file."""
    if not Path(path).is_file():
        raise InputError(f"{path}: is a folder, not a sound file" if Path(path).is_dir() else f"{path}: no such file")


@dataclass(frozen=True)
class Info:
    """What a file's header says; `samples` counts one channel."""

    rate: int
    channels: int
    samples: int
    subtype: str

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.samples / self.rate

    def samples_at(self, rate: int) -> int:
        """Number of samples after resampling to `rate`."""
        return resampled_length(self.samples, self.rate, rate)


def info(path: Path | str) -> Info:
    """Rate, channels and length of a sound file, without decoding it; a file that was cut short is logged."""
    with _open(path) as file:
        for announced, there in ((int(a), int(b)) for a, b in _CUT.findall(file.extra_info)):
            is_a_guess = announced % 2**31 >= 2**31 - 2**12  # by a program that did not know the length
            if announced > there + 1 and not is_a_guess:
                log.warning("%s: is cut short, its header announces %d bytes, but %d are there", path, announced, there)
        return Info(file.samplerate, file.channels, file.frames, file.subtype)


def read(path: Path | str, **settings: Any) -> "tuple[Tensor, int]":
    """As `read_array`, but as a tensor; only where there is no PyTorch it is an array."""
    x, rate = read_array(path, **settings)
    try:
        import torch
    except ModuleNotFoundError:
        return x, rate  # type: ignore[return-value]
    return torch.from_numpy(x), rate


def read_array(
    path: Path | str,
    *,
    sample_rate: int | None = None,
    channel: int | None = None,
    start: int = 0,
    count: int | None = None,
    announce: bool = True,
) -> tuple[Samples, int]:
    """The waveform (channels, samples) of a file and its rate: samples [start, start + count), by default all.

    What lies elsewhere is not decoded.

    Args:
        path: any file soundfile reads.
        sample_rate: resample to this rate; `start` and `count` are then samples at this rate.
        channel: only this channel (0 is the left one); None for all.
        start: first sample.
        count: number of samples; None for all up to the end.
        announce: log that the file is resampled; False where the caller has logged it for many files at once.
    """
    with _open(path) as file:
        source, target = file.samplerate, sample_rate or file.samplerate
        total = resampled_length(file.frames, source, target)
        stop = total if count is None else start + count
        if not 0 <= start < stop <= total:
            raise InputError(f"{path}: samples {start} to {stop} were asked for, but it has {total} at {target} Hz")
        if source == target:
            return _decode(file, path, start, stop, channel), target
        if announce:
            log.info("%s: resampling from %d to %d Hz", path, source, target)
        # Both rates tick together every target / gcd samples: starting there makes a segment the same samples as in
        # the whole file.
        tick = target // gcd(source, target)
        first = max(0, start - _FILTER) // tick * tick
        last = min(file.frames, -(-(stop + _FILTER) * source // target))
        x = resample(_decode(file, path, first * source // target, last, channel), source, target)
        return np.ascontiguousarray(x[:, start - first : stop - first]), target


def read_blocks(path: Path | str, size: int) -> Iterator[Samples]:
    """Read a file of any length in bounded memory: blocks (channels, at most `size` samples)."""
    with _open(path) as file:
        for start in range(0, file.frames, size):
            yield _decode(file, path, start, min(start + size, file.frames), None)


def resample(x: Array, source: int, target: int) -> Array:
    """Resample (channels, samples) from one rate to another."""
    if source == target:
        return x
    y = as_array(x)
    return like(x, _together([soxr.resample(y[some].T, source, target) for some in _groups(len(y))]))


def _groups(channels: int) -> list[slice]:
    """Channels that are resampled together, few: libsoxr reads beyond the end of a short block, the more the more."""
    return [slice(i, min(i + 8, channels)) for i in range(0, channels, 8)]


def _together(groups: list[Samples]) -> Samples:
    """Groups (samples, channels) as one array (channels, samples), channel by channel in memory."""
    whole = np.empty((sum(group.shape[1] for group in groups), len(groups[0])), groups[0].dtype)
    return np.concatenate([group.T for group in groups], out=whole)


def resampled_length(samples: int, source: int, target: int) -> int:
    """Number of samples `resample` makes of `samples`."""
    return (2 * samples * target + source) // (2 * source)


class Resampler:
    """Resampling block by block: the same samples as `resample`, some of them a little later."""

    def __init__(self, source: int, target: int, channels: int) -> None:
        self._streams = {
            (some.start, some.stop): soxr.ResampleStream(source, target, some.stop - some.start, dtype="float32")
            for some in _groups(channels)
        }

    def feed(self, x: Samples, *, last: bool = False) -> Samples:
        """The next samples (channels, any number) in, those that are ready out; `last` flushes the rest."""
        return _together([self._feed(stream, x[slice(*some)], last) for some, stream in self._streams.items()])

    def _feed(self, stream: Any, x: Samples, last: bool) -> Samples:
        # in parts: soxr keeps as much memory as the largest block that it was given
        frames = np.ascontiguousarray(x.T)
        parts = [stream.resample_chunk(frames[i : i + _BLOCK]) for i in range(0, len(frames), _BLOCK)]
        parts.append(stream.resample_chunk(frames[:0], last=last))
        return np.concatenate([part.reshape(-1, len(x)) for part in parts])


class Writer:
    """A file written block by block under a temporary name and given its own name when complete.

    Use it in a `with`; if the block inside fails, no file is left. `peak` is the largest sample; `clipped` counts the
    samples beyond full scale; a warning is logged when there were any. `format` is the suffix's unless given.
    A caller that stages several files together names the `temporary` file, and renames it. `encoder` has options of
    soundfile, for lossy formats.
    """

    def __init__(
        self,
        path: Path | str,
        rate: int,
        channels: int,
        *,
        subtype: str | None = None,
        format: str | None = None,
        temporary: Path | None = None,
        encoder: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self.peak = 0.0
        self.clipped = self.samples = 0
        format = format or _format(self.path)
        subtype = subtype or default_subtype(self.path)
        if not soundfile.check_format(format, subtype):
            known = ", ".join(sorted(soundfile.available_subtypes(format)))
            raise InputError(f"{path}: {format} cannot hold {subtype}; choose one of {known}")
        self._clips = not subtype.startswith(_UNCLIPPED)
        self._what = f"{path}: cannot be written as {subtype} at {rate} Hz"
        with ExitStack() as stack:
            self._temporary = temporary or stack.enter_context(staged(self.path))[0]
            with self._trouble():
                self._file = soundfile.SoundFile(
                    _name(self._temporary), "w", rate, channels, subtype, format=format, **(encoder or {})
                )
            stack.push(self._close)
            self._stack = stack.pop_all()

    def write(self, x: "Tensor | Samples") -> None:
        """Append a block (channels, samples)."""
        x = as_array(x)
        if not np.isfinite(x).all():
            raise InputError(f"{self.path}: not written, the sound contains NaN or infinite samples")
        self.peak = max(self.peak, float(np.abs(x).max(initial=0)))
        if self._clips:
            self.clipped += int((np.abs(x) > 1).sum())
        samples = x.T.astype(np.float32, copy=False)
        self.samples += len(samples)
        with self._trouble():
            for i in range(0, len(samples), _BLOCK):
                self._file.write(samples[i : i + _BLOCK])

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _close(self, kind: type[BaseException] | None, *error: Any) -> None:
        """Close the file and see that nothing is missing: a disk can be full without any write having failed."""
        with self._trouble():
            self._file.close()
            arrived = self.samples if kind else soundfile.info(_name(self._temporary)).frames
            if not self.samples <= arrived < self.samples + _BLOCK:  # some encodings fill up their last block
                raise OSError("the end is missing")
        if kind is None and self.clipped:
            log.warning("%s: %d samples beyond full scale were clipped (peak %.3f)", self.path, self.clipped, self.peak)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:  # soundfile's errors are RuntimeErrors
            full = shutil.disk_usage(self.path.parent).free < 2**20
            raise InputError(f"{self._what}: {'the disk is full' if full else _reason(error)}") from error


def write(path: Path | str, x: "Tensor | Samples", rate: int, *, subtype: str | None = None) -> None:
    """Write (channels, samples) or (samples,) as the format of the file's suffix, `subtype` one of its encodings."""
    x = x[None] if x.ndim == 1 else x
    with Writer(path, rate, x.shape[0], subtype=subtype) as writer:
        writer.write(x)


def default_subtype(path: Path | str, like: str | None = None) -> str:
    """The encoding of a new file: `like` (that of another file) where the format can hold it, else the format's own."""
    path = Path(path)
    if path.suffix.lower() == ".opus":
        return "OPUS"
    format_ = _format(path)
    is_mp3_elsewhere = like is not None and like.startswith("MPEG") and format_ != "MP3"  # WAV with it can only be read
    if like is not None and soundfile.check_format(format_, like) and not is_mp3_elsewhere:
        return like
    return str(soundfile.default_subtype(format_))


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    format_ = _FORMATS.get(suffix, suffix[1:].upper())
    if format_ == "RAW" or format_ not in soundfile.available_formats():
        raise InputError(f"{path}: unknown kind of sound file '{suffix}'; use .wav, .flac, .ogg or .mp3")
    return format_


def _open(path: Path | str) -> soundfile.SoundFile:
    check_file(path)
    try:
        file = soundfile.SoundFile(_name(path))
    except (soundfile.LibsndfileError, OSError, TypeError) as error:  # TypeError: a raw format has no header to read
        raise InputError(f"{path}: cannot be read as sound: {_reason(error)}") from error
    try:
        if file.frames <= 0:
            raise InputError("is empty, it has no samples")
        check_form(file.samplerate, file.channels)
    except InputError as error:
        file.close()
        raise InputError(f"{path}: {error}") from None
    return file


def _name(path: Path | str) -> bytes | str:
    """A path as soundfile takes it: names need not be UTF-8, which it would encode them to."""
    return os.fsencode(path) if os.name == "posix" else str(path)


def _decode(file: soundfile.SoundFile, path: Path | str, start: int, stop: int, channel: int | None) -> Samples:
    """Samples [start, stop) of an open file at its own rate, checked."""
    if channel is not None and channel >= file.channels:
        raise InputError(f"{path}: has no channel {channel}, only {file.channels}")
    try:
        run_up = 0
        if file.tell() != start:
            # An Ogg decoder needs a run-up: libsndfile lands wrongly in a Vorbis stream's last page, and Opus predicts
            # from what came before (an Opus segment may still differ from the whole file's samples by up to 1e-3).
            run_up = min(start, file.samplerate) if file.format == "OGG" else 0
            file.seek(start - run_up)
        samples = file.read(run_up + stop - start, dtype="float32", always_2d=True)[run_up:]
    except (soundfile.LibsndfileError, OSError) as error:
        raise InputError(f"{path}: cannot be decoded: {_reason(error)}") from error
    except (MemoryError, ValueError):  # ValueError: more than an array can have
        raise InputError(f"{path}: {stop - start} samples, as its header says, do not fit into memory") from None
    if len(samples) < stop - start:
        raise InputError(f"{path}: is cut short, {start + len(samples)} of {file.frames} samples could be read")
    if channel is not None:
        samples = samples[:, channel : channel + 1]
    if not np.isfinite(samples).all():
        raise InputError(f"{path}: contains NaN or infinite samples")
    return np.ascontiguousarray(samples.T)


def _reason(error: Exception) -> str:
    return str(getattr(error, "error_string", error)).rstrip(".")
