"""What a model has learned, and what it hears in a file: the two pictures of `drnmf show`."""

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from drnmf.errors import InputError
from drnmf.files import write_atomically
from drnmf.pictures import plots
from drnmf.signal import HOP, SAMPLE_RATE, audio
from drnmf.signal.arrays import Samples, as_array
from drnmf.signal.spectra import stft
from drnmf.use.streaming import heard_ahead

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # else `plots` says what to install

    from drnmf.models.base import Separator
    from drnmf.models.packed import PackedModel

DPI = 150
PIXELS = (200, 20000)
"""The least and the most that a picture is wide and high."""


def draw_model(model: "Separator | PackedModel", *, name: str) -> "Figure":
    """The dictionaries of `model`, layer by layer, with their step sizes and sparsities; `name` goes into the title."""
    spectra = _arrays(model.spectra())
    kind = model.kind
    if not spectra:
        raise InputError(
            f"{name}: there is nothing to see in the weights of this {kind}, it has no dictionaries; "
            "give a sound file too, to see its mask"
        )
    *_, last = spectra.values()
    n_noise = last.shape[1] - model.n_speech
    title = f"{_shown(name)}: {kind} with {model.n_speech} speech and {n_noise} noise atoms"
    learned, moved, origin = _arrays(model.learned()), _moved(model), _origin(model)
    return plots.layers(spectra, model.n_speech, title=title, learned=learned, moved=moved, origin=origin)


def draw_file(
    model: "Separator | PackedModel",
    path: Path | str,
    *,
    name: str,
    start: float = 0.0,
    seconds: float = 60.0,
    titles: tuple[str, str] | None = None,
) -> "Figure":
    """What `model` hears in a file: noisy, mask and enhanced spectrograms, and the active atoms where it has any.

    As when a file is enhanced, its first half minute is heard before it begins.

    Args:
        model: any model.
        path: any sound file, at any sample rate; its channels are averaged.
        name: the model's, for the title.
        start: where in the file to begin, in seconds.
        seconds: how much of it to draw, at most.
        titles: of the noisy and of the enhanced spectrogram, instead of the names of file and model.
    """
    x, part = _part(path, start, seconds)
    magnitude = abs(stft(x))
    ahead = heard_ahead(x[None], SAMPLE_RATE)[0]
    before = len(ahead) // HOP  # frames
    mask, heard = model.ready().look(abs(stft(np.concatenate([ahead[len(ahead) - before * HOP :], x]))))
    mask, heard = mask[before:], {what: values[before:] for what, values in heard.items()}
    titles = titles or (f"Noisy: {_shown(Path(path).name)}{part}", f"Enhanced by {_shown(name)}")
    if not heard:
        return plots.masking(magnitude, mask, titles=titles)
    *_, W = _arrays(model.spectra()).values()
    return plots.separation(magnitude, mask, W, heard, model.n_speech, titles=titles, moved=_moved(model))


def save(figure: "Figure", path: Path | str, *, size: tuple[int, int] | None = None, dpi: float = DPI) -> None:
    """Write a picture of a kind given by the suffix; a reader never sees a half-written one.

    `size` is its width and height in pixels, by default what suits its content. Letters grow and shrink with it:
    none lies over another.
    """
    path = Path(path)
    if size is not None:
        if not all(PIXELS[0] <= side <= PIXELS[1] for side in size):
            raise InputError(f"a picture is {PIXELS[0]} to {PIXELS[1]} pixels wide and high, not {size[0]}x{size[1]}")
        width, height = figure.get_size_inches()
        dpi = min(size[0] / width, size[1] / height)
        figure.set_size_inches(size[0] / dpi, size[1] / dpi)
    kinds = sorted(figure.canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in kinds:
        raise InputError(f"{path}: '{path.suffix}' is not a kind of picture; choose .png, or one of {', '.join(kinds)}")
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=dpi)
    write_atomically(path, content.getvalue())


def _arrays(values: Mapping[str, Any]) -> dict[str, Samples]:
    return {name: as_array(each) for name, each in values.items()}


def _moved(model: "Separator | PackedModel") -> Samples | None:
    """How far each noise atom has moved to learn a noise, if the model's folder says so in numbers that fit it."""
    *_, W = _arrays(model.spectra()).values()
    try:
        moved = np.array((model.adaptation or {}).get("moved"), dtype=np.float64)
    except (TypeError, ValueError):  # whoever wrote that folder
        return None
    fits = moved.shape == (W.shape[1] - model.n_speech,) and np.isfinite(moved).all() and (moved >= 0).all()
    return moved if fits else None


def _origin(model: "Separator | PackedModel") -> str:
    """From what a noise was learned: the name of a file, if there is one only."""
    samples = (model.adaptation or {}).get("samples")
    files = [sample.get("file") for sample in samples if isinstance(sample, dict)] if isinstance(samples, list) else []
    return textwrap.shorten(_shown(str(files[0])), 30) if len(files) == 1 and files[0] else "samples"


def _part(path: Path | str, start: float, seconds: float) -> tuple[Samples, str]:
    """That part of a file (samples,) at the rate the models work at, and which one it is, for the title."""
    if not seconds > 0:
        raise InputError(f"seconds must be positive, got {seconds:g}")
    length, first = audio.info(path).samples_at(SAMPLE_RATE), round(start * SAMPLE_RATE)
    if not 0 <= first < length:
        raise InputError(f"{path}: cannot begin at {start:g} s, it is {length / SAMPLE_RATE:.1f} s long")
    last = min(length, first + max(1, round(seconds * SAMPLE_RATE)))
    x, _ = audio.read_array(path, sample_rate=SAMPLE_RATE, start=first, count=last - first)
    whole = last - first == length
    return x.mean(0), "" if whole else f", {first / SAMPLE_RATE:g} to {last / SAMPLE_RATE:g} s"


def _shown(name: str) -> str:
    """A name as text in a picture: it need not be UTF-8, and a dollar would begin a formula."""
    return name.encode(errors="backslashreplace").decode().replace("$", r"\$")
