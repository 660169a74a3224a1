"""A model that knows a noise: from sound in memory, from files, or from the parts of a recording without speech.

A sample is refused if it cannot be what it is meant to be: if it is silent, shorter than 0.3 s, or nothing but speech.
The model itself decides what speech is, by what it would remove: of speech alone, less than a hundredth.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from drnmf.errors import InputError
from drnmf.models.folders import load_ready, weights_digest
from drnmf.signal import audio, media
from drnmf.signal.arrays import Samples, as_array, samples_axis
from drnmf.use.learning import SOFTEST, check_sample, magnitudes
from drnmf.use.streaming import Streamer, check_full_scale, checked

if TYPE_CHECKING:
    from torch import Tensor

    from drnmf.models.base import Separator
    from drnmf.models.packed import PackedModel

log = logging.getLogger("drnmf")

LONGEST = 60.0
"""Seconds of a sample: of more, the first minute tells enough."""
ENOUGH = 0.5
"""Seconds without speech from which noise is learned where nobody has said where it is."""
METHOD = "sparse NMF of the samples around the model's own noise atoms (drnmf.maths.adaptation)"
_SPEECH = 0.01  # of the energy: of clean speech a thousandth is removed, of noises a tenth and more
_HEARD = 2.0  # seconds for which it is heard at least, there and back again: at first a network takes hums for voices
_BLOCK = 0.02  # seconds in which energy is measured
_AROUND = 21  # blocks over which it is smoothed, so that no gap between two syllables counts
_LEAST_RUN = 10  # blocks without speech, at least
_KEPT, _BELOW, _LOUD = 0.1, 0.01, 0.95  # what is kept of no speech: of the energy there, or of the loud parts' speech

Span = tuple[int, int]
"""The first sample, and that after the last."""


@dataclass(frozen=True)
class Noise:
    """Sound to be learned, in one piece or several, (channels, samples) each."""

    pieces: Sequence[Samples]
    rate: int
    name: str  # for errors

    @property
    def seconds(self) -> float:
        """How long it is."""
        return float(sum(piece.shape[1] for piece in self.pieces) / self.rate)


def adapt(
    model: "Separator | PackedModel | str | Path",
    noise: "Tensor | Samples | Sequence[Tensor | Samples]",
    sample_rate: int,
) -> "Separator | PackedModel":
    """A model that knows your noise, from a few seconds of it: its noise atoms have moved towards the sample's spectra.

    Args:
        model: a model, its folder, or the name of one that comes with the package. It stays as it is.
        noise: a sample without speech, of 0.3 s to a minute, as `enhance` takes sound; or several.
        sample_rate: of the samples, in Hz.

    Examples:
        >>> from drnmf import adapt, audio, enhance, save_model
        >>> noisy, rate = audio.read("noisy.wav")
        >>> model = adapt("default", noisy[:, -5000:], rate)  # the last 0.3 s, in which nobody speaks
        >>> enhance(noisy, rate, model).shape == noisy.shape
        True
        >>> save_model(model, "my_noise")
        >>> round(model.adaptation["samples"][0]["seconds"], 1)
        0.3
    """
    given: Sequence[Any] = [noise] if hasattr(noise, "shape") else noise
    noises = [_from_array(x, sample_rate, number) for number, x in enumerate(given, 1)]
    records = [_record(noise, hashlib.sha256(noise.pieces[0].tobytes())) for noise in noises]
    return _adapted_and_recorded(model, noises, records)


def adapt_to_files(
    model: "Separator | PackedModel | str | Path", files: Sequence[Path | str]
) -> "Separator | PackedModel":
    """The same from sound files, of which the first minute is used."""
    noises = [read_noise(path) for path in files]
    records = []
    for path, noise in zip(files, noises, strict=True):
        with open(path, "rb") as file:
            records.append({"file": Path(path).name, **_record(noise, hashlib.file_digest(file, "sha256"))})
    return _adapted_and_recorded(model, noises, records)


def adapted(model: "Separator | PackedModel", noises: Sequence[Noise]) -> "Separator | PackedModel":
    """A model that has learned these noises, each of which is checked."""
    if not noises:
        raise InputError("there is no noise to learn from; give a sample of it")
    for noise in noises:
        _check(noise)
    result = _moved(model, noises)
    for noise in noises:  # after it: what cannot learn a noise need not know speech
        check_for_speech(noise, model)
    return result


def read_noise(path: Path | str, between: tuple[float, float] | None = None) -> Noise:
    """A sample from a sound file: its first minute, or what lies between two times in seconds."""
    sound = _header(path)
    first, last = between or (0.0, sound.seconds if sound.samples else np.inf)
    if not 0 <= first < last:
        raise InputError(f"{path}: noise between {first:g} and {last:g} s: give the earlier time first")
    span = round(first * sound.rate), round(min(last, first + LONGEST) * sound.rate)
    (piece,) = _cut(path, [span])
    seconds = piece.shape[1] / sound.rate
    if between is not None and piece.shape[1] < span[1] - span[0]:
        raise InputError(f"{path}: is {sound.seconds:.3g} s long: there is nothing between {first:g} and {last:g} s")
    if last - first > LONGEST and seconds >= LONGEST:
        log.info("%s: noise is learned from one minute, the first", path)
    return Noise([piece], sound.rate, str(path))


def _header(path: Path | str) -> audio.Info | media.Media:
    return media.probe(path) if media.is_media(path) else audio.info(path)


def _cut(path: Path | str, spans: Sequence[Span]) -> list[Samples]:
    """The samples of a file (channels, n) in each of these spans, as far as it goes."""
    sound = _header(path)
    size = sound.rate  # a second
    blocks = media.read_blocks(sound, size) if isinstance(sound, media.Media) else audio.read_blocks(path, size)
    pieces = [[np.empty((sound.channels, 0), np.float32)] for _ in spans]
    done = 0
    for block in blocks:
        for (first, last), parts in zip(spans, pieces, strict=True):
            part = block[:, max(0, first - done) : max(0, last - done)]
            if part.size:
                parts.append(part.copy())  # no view, which would keep the block
        done += block.shape[1]
        if done >= max(last for _, last in spans):
            break
    return [np.concatenate(parts, 1) for parts in pieces]


def learned_from_pauses(
    model: "Separator | PackedModel", path: Path | str, rate: int, parts: Iterable[tuple[Samples, Samples]]
) -> "Separator | PackedModel":
    """A model that has learned the noise in those parts of a file in which nobody speaks; it says so if there are none.

    `parts` is the file's sound, and what the model would remove from it, from beginning to end.
    """
    spans = pauses(parts, rate)
    seconds = sum(last - first for first, last in spans) / rate
    if seconds < ENOUGH:
        log.warning(
            "%s: noise without speech is there for %.1f s, learning needs %g s; enhanced without",
            path,
            seconds,
            ENOUGH,
        )
        return model
    log.info("%s: the noise is learned from %.1f s without speech", path, seconds)
    return _moved(model, [Noise(_cut(path, spans), rate, str(path))])


def suited(
    model: "Separator | PackedModel",
    parts: "Callable[[Separator | PackedModel], Iterable[tuple[Samples, Samples]]]",
    rate: int,
) -> "Separator | PackedModel":
    """The model, but as it was before it learned a noise where the sound is nothing but speech to it.

    Such a sound cannot gain by what was learned, and would lose a little. `parts` gives it, and what a model would
    remove from it, from beginning to end.
    """
    before = model.before
    if before is None:
        return model
    total, _, removed = _energies(parts(before), _block(rate)).sum(1)
    return before if removed < _SPEECH * total else model


def pauses(parts: Iterable[tuple[Samples, Samples]], rate: int) -> list[Span]:
    """Where there is noise and nobody speaks, a minute of it at most.

    That is where a model keeps almost nothing of what there is; or, since it may keep some of a noise that it does not
    know, where it keeps almost nothing beside what it keeps of the loud parts.
    """
    size = _block(rate)
    total_E, kept_E, removed_E = _energies(parts, size)
    if not len(total_E):
        return []
    total_E, kept_E, removed_E = (_smoothed(energy) for energy in (total_E, kept_E, removed_E))
    is_pause = (kept_E < _KEPT * total_E) | (kept_E < _BELOW * np.quantile(kept_E, _LOUD))
    is_noise = removed_E > _SPEECH * total_E  # which neither silence nor the end of a word is
    is_noise &= total_E > SOFTEST * np.quantile(total_E, _LOUD)  # softer noise does no harm: nor should learning it
    spans, left = [], round(LONGEST * rate)
    for first, last in _runs(is_pause & is_noise):
        length = min(left, size * (last - first))
        if length >= size * _LEAST_RUN:
            spans.append((size * first, size * first + length))
            left -= length
    return spans


def _block(rate: int) -> int:
    """Samples in which energy is measured."""
    return max(1, round(_BLOCK * rate))


def _energies(parts: Iterable[tuple[Samples, Samples]], size: int) -> Samples:
    """Energies of the sound, of what is kept and of what is removed, (3, blocks); what fills no block is left out."""
    rows, rest = [np.empty((3, 0))], np.empty((3, 0))
    for sound, removed in parts:
        signals = (sound, sound - removed, removed)
        powers = np.stack([np.square(x, dtype=np.float64).sum(0) for x in signals])
        rest = np.concatenate([rest, powers], 1)
        whole = rest.shape[1] // size
        rows.append(rest[:, : whole * size].reshape(3, whole, size).sum(2))
        rest = rest[:, whole * size :]
    return np.concatenate(rows, 1)


def _smoothed(energy: Samples) -> Samples:
    """The mean of the blocks around each one."""
    padded = np.pad(energy, _AROUND // 2, mode="edge")
    mean: Samples = np.lib.stride_tricks.sliding_window_view(padded, _AROUND).mean(1)
    return mean


def _runs(is_in: Samples) -> list[Span]:
    """Where a row of truths is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_in.astype(int), [0]])))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def _from_array(x: "Tensor | Samples", rate: int, number: int) -> Noise:
    name = f"noise sample {number}"
    try:
        samples = checked(x)
        axis = _axis(samples.shape)
        piece = np.atleast_2d(np.moveaxis(samples, axis, -1)).astype(np.float32)
        audio.check_form(rate, len(piece))
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if piece.shape[1] > LONGEST * rate:
        log.info("%s: noise is learned from one minute, the first", name)
    return Noise([np.ascontiguousarray(piece[:, : round(LONGEST * rate)])], rate, name)


def _axis(shape: tuple[int, ...]) -> int:
    try:
        return samples_axis(shape, None)
    except InputError:  # which speaks of an argument that is not there
        form = "(samples,), (channels, samples) or (samples, channels), of 1 to 32 channels"
        raise InputError(f"sound is {form}; this is {shape}") from None


def _check(noise: Noise) -> None:
    """Refuse what holds nothing to learn from."""
    (piece,) = noise.pieces
    try:
        check_sample(piece, noise.rate)
        check_full_scale(piece)
    except InputError as error:
        raise InputError(f"{noise.name}: {error}") from None


def check_for_speech(noise: Noise, model: "Separator | PackedModel") -> None:
    """Refuse what is no noise."""
    (piece,) = noise.pieces
    if _removed(piece, noise.rate, model) < _SPEECH:
        raise InputError(f"{noise.name}: is nothing but speech to the model; give a sample in which nobody speaks")


def _removed(x: Samples, rate: int, model: "Separator | PackedModel") -> float:
    """The energy of what the model would remove, as a share of all there is."""
    there_and_back = np.concatenate([x, x[:, ::-1]], 1)
    times = -(-round(_HEARD * rate) // there_and_back.shape[1])
    x = x if x.shape[1] >= _HEARD * rate else np.tile(there_and_back, times)
    streamer = Streamer(model, rate, channels=len(x))
    streamer.listen_ahead(x)
    total, _, removed = _energies((streamer.advance(block) for block in (x, None)), _block(rate)).sum(1)
    return float(removed / total)


def _moved(model: "Separator | PackedModel", noises: Sequence[Noise]) -> "Separator | PackedModel":
    result = model.adapted([_magnitudes(noise) for noise in noises])
    before, after = _noise_atoms(model), _noise_atoms(result)
    distance_R = np.sqrt(np.square(after - before).sum(0))
    result.adaptation = {"moved": [round(float(distance), 4) for distance in distance_R]}
    return result


def _magnitudes(noise: Noise) -> Samples:
    """Its spectra (T, F) at 16 kHz."""
    return np.concatenate([magnitudes(piece, noise.rate) for piece in noise.pieces])


def _noise_atoms(model: "Separator | PackedModel") -> Samples:
    """Spectra (F, R) of unit norm."""
    *_, spectra = model.spectra().values()
    W_FR = as_array(spectra)[:, model.n_speech :]
    unit: Samples = W_FR / np.sqrt(np.square(W_FR).sum(0))
    return unit


def _record(noise: Noise, digest: Any) -> dict[str, Any]:
    return {"seconds": round(noise.seconds, 3), "sha256": digest.hexdigest()}


def _adapted_and_recorded(
    model: "Separator | PackedModel | str | Path", noises: Sequence[Noise], records: Sequence[Mapping[str, Any]]
) -> "Separator | PackedModel":
    """A model whose folder will say what it has learned, and from what."""
    is_name = isinstance(model, str | Path)
    before = load_ready(model) if isinstance(model, str | Path) else model
    result = adapted(before, noises)
    origin = {**({"model": Path(str(model)).name} if is_name else {}), "sha256": weights_digest(before)}
    result.adaptation = {"method": METHOD, "from": origin, "samples": list(records), **(result.adaptation or {})}
    return result
