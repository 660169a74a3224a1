"""Waveform to waveform, file to file: sound of any length in bounded memory. Its beginning is listened to first.

A file keeps its rate, channels, length and encoding. The removed part can be written beside the enhanced one. In the
integer encodings up to 24 bits the two add up to the input exactly, sample by sample; in float to the rounding of one
float32 subtraction; lossy encodings add what they lose.
"""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from drnmf.errors import InputError
from drnmf.files import staged
from drnmf.models.folders import load_ready
from drnmf.progress import Progress, silent
from drnmf.signal import audio, media, tags
from drnmf.signal.arrays import samples_axis
from drnmf.signal.audio import Array, Samples
from drnmf.signal.loudness import Level, Meter, apply, gains
from drnmf.signal.pipes import ENCODINGS, PipeReader, PipeWriter
from drnmf.use.adaptation import adapt, adapted, learned_from_pauses, read_noise, suited
from drnmf.use.streaming import Streamer, block_size, checked

if TYPE_CHECKING:
    from drnmf.models.base import Separator
    from drnmf.models.packed import PackedModel

log = logging.getLogger("drnmf")
_Header = audio.Info | media.Media | PipeReader  # all know rate, channels, subtype, seconds, and samples if any does
_Writer = audio.Writer | media.MediaWriter | PipeWriter

PIPE = "-"  # stdin as a source, stdout as a target
_PART = 2**16  # samples of a channel written at a time
_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24}  # encodings whose samples are exact in float32
_ONE_BYTE = ("PCM_S8", "PCM_U8", "ULAW", "ALAW")
_FINER = ("PCM_32", "FLOAT", "DOUBLE")
_LOSSY = ("VORBIS", "OPUS", "MPEG_LAYER_III", media.LOSSY)
_LARGEST_WAV = 2**32 - 2**20  # bytes; what is longer is written as RF64, WAV's extension to any length


def enhance(
    samples: Array,
    sample_rate: int,
    model: "Separator | PackedModel | str | Path" = "default",
    *,
    strength: float = 1.0,
    max_attenuation: float | None = None,
    separate_channels: bool = False,
    noise: Array | Sequence[Array] | None = None,
    axis: int | None = None,
) -> Array:
    """Remove noise from sound in memory, a numpy array or a torch tensor; the result is of the same kind and shape.

    Args:
        samples: float32 or float64 with full scale 1; (samples,), (channels, samples) or (samples, channels).
        sample_rate: in Hz.
        model: a model, its folder, or the name of one that comes with the package. For many calls load it once.
        strength: how much of the noise to remove, from 0 (nothing) to 1 (all that the mask says).
        max_attenuation: by how many dB a part of the spectrum is lowered at most; None for no limit.
        separate_channels: a mask for each channel, for a microphone each; else one for all keeps voices in their place.
        noise: a sample of the noise at the same rate, or several, from which the model learns it first: `adapt`. Sound
            that is nothing but speech to the model is enhanced without.
        axis: where the samples lie in a 2-dimensional array. It can be left out where the shape leaves no doubt, one
            axis being 1024 or longer and the other 32 or shorter; else it must be given.

    Examples:
        >>> from drnmf import audio, enhance
        >>> noisy, rate = audio.read("noisy.wav")
        >>> audio.write("enhanced.wav", enhance(noisy, rate), rate)
        >>> softly = enhance(noisy, rate, max_attenuation=12)  # leaves some of the noise
        >>> softly.shape == noisy.shape
        True
    """
    x = np.array(checked(samples), order="C")  # a copy: the result is written over the input
    axis = samples_axis(x.shape, axis)
    x = np.moveaxis(x, axis, -1) if x.ndim == 2 else x[None]
    C, N = x.shape
    if N == 0:
        raise InputError("there are no samples to enhance")
    model = load_ready(model) if isinstance(model, str | Path) else model
    model = model if noise is None else adapt(model, noise, sample_rate)
    model = suited(model, lambda before: _heard(x, Streamer(before, sample_rate, channels=C)), sample_rate)
    streamer = Streamer(
        model,
        sample_rate,
        channels=C,
        strength=strength,
        max_attenuation=max_attenuation,
        separate_channels=separate_channels,
    )
    done = 0
    for kept, removed in _heard(x, streamer):
        x[:, done : done + kept.shape[1]] = kept - removed  # in place: the streamer is done with these samples
        done += kept.shape[1]
    return audio.like(samples, np.ascontiguousarray(np.moveaxis(x, -1, axis)) if samples.ndim == 2 else x[0])


def _heard(x: Samples, streamer: Streamer) -> Iterator[tuple[Samples, Samples]]:
    """Samples (channels, n) in blocks, and what to remove from them."""
    streamer.listen_ahead(x)
    size = block_size(len(x), streamer.sample_rate)
    for block in chain((x[:, i : i + size] for i in range(0, x.shape[1], size)), [None]):
        yield streamer.advance(block)


def enhance_file(
    source: Path | str,
    target: Path | str,
    model: "Separator | PackedModel | str | Path" = "default",
    *,
    strength: float = 1.0,
    max_attenuation: float | None = None,
    separate_channels: bool = False,
    loudness: float | None = None,
    true_peak: float = -1.0,
    noise_samples: Sequence[Path | str] = (),
    noise_between: tuple[float, float] | None = None,
    learn_noise: bool = False,
    removed: Path | str | None = None,
    overwrite: bool = False,
    raw: tuple[int, int] | None = None,
    progress: Progress = silent,
) -> None:
    """Remove noise from a sound file. What is written appears when it is complete, or not at all.

    Args:
        source: any file that soundfile or ffmpeg reads, or "-" for WAV from stdin.
        target: the file to write, in the format of its suffix, or "-" for WAV to stdout.
        model: as for `enhance`.
        strength: as for `enhance`.
        max_attenuation: as for `enhance`.
        separate_channels: as for `enhance`.
        loudness: of the result, in LUFS (ITU-R BS.1770); None leaves the speech as loud as it is. The sound is enhanced
            twice, first to measure it. The removed part stays as loud as it is.
        true_peak: with `loudness`: the limit of the true peak in dBTP.
        noise_samples: sound files of the noise alone, from which the model learns it first: docs/adaptation.md. The
            sound is enhanced twice, but for a pipe: where it is nothing but speech to the model, what was learned is
            left out.
        noise_between: two times in seconds, between which the source has nothing but the noise; to be learned, too.
        learn_noise: learn it from those parts of the source in which nobody speaks. The sound is enhanced twice, first
            to find them; where there are too few, it is enhanced without, and a warning says so.
        removed: the file to write the removed part to.
        overwrite: replace files that exist.
        raw: rate and channels, if "-" is 16-bit PCM without a header instead of WAV.
        progress: called with the seconds that are done.
    """
    targets = [target] if removed is None else [target, removed]
    _check_targets(source, targets, overwrite)
    level = None if loudness is None else Level(loudness, true_peak)
    if level is not None and str(source) == PIPE:
        raise InputError("the loudness of a pipe is not known before its end: write a file, then enhance that")
    if (noise_between is not None or learn_noise) and str(source) == PIPE:
        raise InputError("a pipe is heard only once: give a file of the noise, --noise-sample (noise_samples=)")
    sound = _open(source, raw)
    subtype = _subtype(target, sound.subtype, raw is not None)
    if isinstance(model, str | Path):
        model = load_ready(model)  # here: what is wrong with it says nothing about the source
    noises = [read_noise(path) for path in noise_samples]
    noises += [] if noise_between is None else [read_noise(source, noise_between)]
    model = _suited(source, sound, adapted(model, noises) if noises else model, progress)
    model = _taught(source, sound, model, progress) if learn_noise else model
    with _about(source):
        streamer = Streamer(
            model,
            sound.rate,
            channels=sound.channels,
            strength=strength,
            max_attenuation=max_attenuation,
            separate_channels=separate_channels,
        )
    curve = None if level is None else _gains(source, sound, streamer, level, progress)
    done = clipped = 0
    with _outputs(source, targets, sound, subtype, raw is not None) as outputs:
        for kept, taken in _enhanced(source, sound, streamer, progress, "file"):
            *parts, beyond = _parts(kept, taken, subtype)
            if curve is not None:
                speech = apply(kept - taken, done, sound.rate, curve)
                parts[0], _, beyond = _parts(speech, np.zeros_like(speech), subtype)
            for output, part in zip(outputs, parts, strict=False):
                output.write(part)
            clipped += beyond
            done += kept.shape[1]
    if clipped:
        log.warning("%s: %d samples beyond full scale were clipped", target, clipped)


def _suited(
    source: Path | str, sound: _Header, model: "Separator | PackedModel", progress: Progress
) -> "Separator | PackedModel":
    """The model, but as it was before it learned a noise where a file is nothing but speech to it."""
    if str(source) == PIPE:  # which is heard only once
        return model

    def heard(before: "Separator | PackedModel") -> Iterator[tuple[Samples, Samples]]:
        listener = Streamer(before, sound.rate, channels=sound.channels)
        return _enhanced(source, sound, listener, progress, "listen")

    chosen = suited(model, heard, sound.rate)
    if chosen is not model:
        log.info("%s: is nothing but speech to the model; enhanced without the noise that it learned", source)
    return chosen


def _taught(
    source: Path | str, sound: _Header, model: "Separator | PackedModel", progress: Progress
) -> "Separator | PackedModel":
    """A model that has learned the noise of a file from its pauses, which are found by what it would remove."""
    listener = Streamer(model, sound.rate, channels=sound.channels)
    return learned_from_pauses(model, source, sound.rate, _enhanced(source, sound, listener, progress, "listen"))


def _enhanced(
    source: Path | str, sound: _Header, streamer: Streamer, progress: Progress, what: str
) -> Iterator[tuple[Samples, Samples]]:
    """Samples in small parts, and what to remove from them."""
    done, begun = 0, str(source) == PIPE  # of a pipe, nobody knows how it goes on
    for block in chain(_blocks(source, sound), [None]):
        with _about(source):
            if not begun and block is not None:
                streamer.listen_ahead(block)
            begun = True
            kept, taken = streamer.advance(block)
        for i in range(0, kept.shape[1], _PART):
            yield kept[:, i : i + _PART], taken[:, i : i + _PART]
        done += kept.shape[1]
        progress(f"{what}, {Path(source).name}", round(done / sound.rate), round(sound.seconds))


def _gains(source: Path | str, sound: _Header, streamer: Streamer, level: Level, progress: Progress) -> Samples | None:
    """The gains that give the enhanced sound its level, if it has one."""
    meter = Meter(sound.rate, sound.channels)
    for kept, taken in _enhanced(source, sound, streamer, progress, "measure"):
        meter.feed(kept - taken)
    meter.close()
    curve, reached = gains(meter, level)
    if reached == -np.inf:
        log.warning("%s: is silent, or shorter than 0.4 s: there is no loudness to change", source)
        return None
    if abs(reached - level.loudness) > 0.1:
        log.warning("%s: %.1f LUFS is all that the limit of the true peak allows", source, reached)
    return curve


def _open(source: Path | str, raw: tuple[int, int] | None) -> _Header:
    if str(source) == PIPE:
        return PipeReader(sys.stdin.buffer, raw=raw)  # type: ignore[arg-type]
    return media.probe(source) if media.is_media(source) else audio.info(source)


def _blocks(source: Path | str, sound: _Header) -> Iterator[Samples]:
    """All the sound, from its beginning."""
    if isinstance(sound, PipeReader):
        return sound.blocks()
    size = block_size(sound.channels, sound.rate)
    return media.read_blocks(sound, size) if isinstance(sound, media.Media) else audio.read_blocks(source, size)


@contextmanager
def _about(source: Path | str) -> Iterator[None]:
    """Name the source in errors about its sound."""
    try:
        yield
    except InputError as error:
        name = "stdin" if str(source) == PIPE else source
        raise InputError(f"{name}: {error}") from None


def _check_targets(source: Path | str, targets: Sequence[Path | str], overwrite: bool) -> None:
    for target in map(Path, targets):
        if str(target) == PIPE:
            if sys.stdout.isatty():
                raise InputError("stdout is a terminal; send it to a file or into a pipe, or name a file with -o")
        elif target.is_dir():
            raise InputError(f"{target}: is a folder; name the file to write, such as {target / Path(source).name}")
        elif target.exists() and Path(source).exists() and target.samefile(source):
            raise InputError(f"{target}: is the input itself; choose another output")
        elif target.exists() and not overwrite:
            raise InputError(f"{target}: exists already; choose another name, or use --overwrite (overwrite=True)")
    if len(targets) > len(set(map(_place, targets))):
        raise InputError(f"{targets[0]}: cannot hold both what is kept and what is removed; choose two names")


def _place(target: Path | str) -> str:
    """Where a file will lie, however it is named: a link in its own place is replaced, not followed."""
    return os.path.join(os.path.realpath(Path(target).parent), Path(target).name)


def _subtype(target: Path | str, like: str, raw: bool = False) -> str:
    """The encoding to write: that of the input, or the nearest that the target's format can hold."""
    if str(target) == PIPE:
        return like if like in ENCODINGS and not raw else "PCM_16"
    if media.is_media(target):
        return media.LOSSY
    is_filled_up = Path(target).suffix.lower() in (".aif", ".aiff") and like in _ONE_BYTE  # to an even length
    if like not in (*_BITS, *_FINER, *_LOSSY, *_ONE_BYTE) or is_filled_up:
        log.warning("%s: is written as 16-bit PCM, because %s cannot keep every length", target, like)
        like = "PCM_16"
    subtype = audio.default_subtype(target, like)
    return audio.default_subtype(target, "PCM_24") if like in _FINER and subtype != like else subtype


def _parts(kept: Samples, removed: Samples, subtype: str) -> tuple[Samples, Samples, int]:
    """Speech and noise as the encoding can hold them, and how many samples had to be clipped."""
    speech = kept - removed
    if subtype not in _BITS:
        limit = np.inf if subtype in (*_FINER[1:], *_LOSSY) else 1.0
        clipped = speech.clip(-limit, limit)
        return clipped, kept - clipped, int((clipped != speech).sum())
    scale = 2.0 ** (_BITS[subtype] - 1)
    x, y = (np.round(part * scale) for part in (kept, speech))
    whole = x.clip(-scale, scale - 1)
    # Both the speech and the rest must fit. The rest does not when input and speech are loud and of opposite sign.
    low, high = np.maximum(whole - (scale - 1), -scale), np.minimum(whole + scale, scale - 1)
    clipped = np.minimum(np.maximum(y, low), high)
    return clipped / scale, (whole - clipped) / scale, int(((whole != x) | (clipped != y)).sum())


@contextmanager
def _outputs(
    source: Path | str, targets: Sequence[Path | str], sound: _Header, subtype: str, raw: bool
) -> Iterator[list[_Writer]]:
    """Writers for the targets; files come to their places together, after all are complete."""
    outputs: list[_Writer] = []
    form = sound.rate, sound.channels
    with ExitStack() as stack:
        staged_files = stack.enter_context(staged(*(target for target in targets if str(target) != PIPE)))
        if str(source) != PIPE:
            stack.push(partial(_copy_tags, source, staged_files))  # after the files are closed
        temporaries = iter(staged_files)
        for target in targets:
            own = _subtype(target, subtype)
            writer: _Writer
            if str(target) == PIPE:
                stdout = open(sys.stdout.fileno(), "wb", buffering=0, closefd=False)  # noqa: SIM115
                writer = PipeWriter(stdout, *form, subtype, samples=sound.samples, raw=raw)
            elif media.is_media(target):
                like = sound if isinstance(sound, media.Media) else None
                writer = media.MediaWriter(target, *form, temporary=next(temporaries), source=like)
            elif sound.samples is None and Path(target).suffix.lower() == ".wav":
                file = stack.enter_context(next(temporaries).open("wb", buffering=0))
                writer = PipeWriter(file, *form, own, name=target)  # becomes RF64 if it gets too long for WAV
            else:
                kind, encoder = _format(target, sound, own), tags.encoder(_bit_rate(source, sound), own, *form)
                writer = audio.Writer(
                    target, *form, subtype=own, format=kind, temporary=next(temporaries), encoder=encoder
                )
            stack.enter_context(writer)
            outputs.append(writer)
        yield outputs


def _bit_rate(source: Path | str, sound: _Header) -> tags.BitRate | None:
    """Of the source, if it is lossy."""
    if isinstance(sound, media.Media):
        return None if sound.bit_rate is None or sound.subtype != media.LOSSY else tags.BitRate(sound.bit_rate, True)
    return tags.bit_rate(source) if sound.subtype in _LOSSY else None


def _copy_tags(source: Path | str, files: Sequence[Path], error: type[BaseException] | None, *_: object) -> None:
    """At the end of a `with`, if nothing went wrong: ffmpeg has copied those of its own."""
    for file in files if error is None else ():
        if not media.is_media(file):
            tags.copy(source, file)


def _format(target: Path | str, sound: _Header, subtype: str) -> str | None:
    """RF64 for a WAV that could not hold all the sound, else the suffix's."""
    size = (sound.samples or 0) * sound.channels * ENCODINGS.get(subtype, (0, 1))[1]
    return "RF64" if size > _LARGEST_WAV and Path(target).suffix.lower() == ".wav" else None
