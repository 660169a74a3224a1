"""Pictures: dictionaries, a separation at a glance, learning curves.

Every function returns a matplotlib Figure, to save or to show; nothing touches pyplot or its global state. Frames run
along the horizontal axis in seconds, frequencies upwards in kHz, magnitudes are in dB below the largest one drawn.
"""

import math
from collections.abc import Mapping, Sequence, Set

import numpy as np

from drnmf.errors import InputError
from drnmf.signal import HOP, SAMPLE_RATE, WINDOW
from drnmf.signal.arrays import Samples

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.image import AxesImage
    from matplotlib.patches import Patch
    from matplotlib.ticker import (
        FixedLocator,
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        MultipleLocator,
        NullFormatter,
        StrMethodFormatter,
    )
except ModuleNotFoundError:
    raise InputError(
        "pictures need the package matplotlib, which is not installed: pip install 'drnmf[plot]'"
    ) from None

RANGE_DB = 60.0
"""Depth of the colour scale: what lies further below the largest value is black."""
_BELOW_PEAK = "dB below each atom's peak"
_SMALL = 6  # points: the names of single atoms
_SPEECH, _NOISE, _LEARNED = "tab:orange", "tab:blue", "tab:green"
_FAR = 0.25  # of its length: an atom that has moved so far is marked where names stand
_TOP_KHZ = SAMPLE_RATE / 2000


def layers(
    W: Mapping[str, Samples],
    n_speech: int,
    *,
    title: str,
    learned: Mapping[str, Samples],
    moved: Samples | None = None,
    origin: str = "samples",
) -> Figure:
    """The dictionaries of a network, layer below layer, and what else its layers have learned.

    A column is the same atom in all layers; each source's are sorted by their centre frequency in the last one.

    Args:
        W: the dictionary [W_speech, W_noise] (F, N) of each layer, by the layer's name.
        n_speech: number of speech atoms.
        title: of the whole picture.
        learned: named values of the first K layers, (K, 1) or (K, N), such as step sizes; those of single atoms are
            drawn as their spread.
        moved: how far each noise atom has moved to learn a noise; they get marks of that size.
        origin: from what it was learned.
    """
    heights = [1.9 * len(W) + 0.8, *([2.6] if learned else [])]
    figure = Figure(figsize=(11, sum(heights)), layout="constrained")
    figure.suptitle(title)
    parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    first_row, order = _draw_layers(parts[0], W, n_speech)
    if moved is not None:
        _draw_moved(first_row, moved[order], origin)
    if learned:
        all_axes = parts[1].subplots(1, len(learned), squeeze=False)[0]
        for axes, (name, values) in zip(all_axes, learned.items(), strict=True):
            _draw_learned(axes, values, n_speech, name)
        if any(values.shape[1] > 1 for values in learned.values()):
            colours = Patch(color=_SPEECH, label="speech", alpha=0.6), Patch(color=_NOISE, label="noise", alpha=0.6)
            parts[1].legend(handles=colours, loc="outside lower center", ncols=2, frameon=False)
    return figure


def separation(
    magnitude: Samples,
    mask: Samples,
    W: Samples,
    heard: Mapping[str, Samples],
    n_speech: int,
    *,
    titles: tuple[str, str] = ("Noisy", "Enhanced"),
    moved: Samples | None = None,
    most: int = 12,
) -> Figure:
    """What a model heard, what it made of it, and why: noisy, enhanced, mask; the atoms that were active, and when.

    Atoms are numbered in the order of their frequencies, S1, S2, ... for speech and N1, N2, ... for noise, as in
    `layers`: the rows of what they did over time have the numbers of the spectra above.

    Args:
        magnitude: noisy magnitudes (frames, F).
        mask: the model's mask (frames, F).
        W: its dictionary [W_speech, W_noise] (F, N).
        heard: what its atoms did over time (frames, N), by name: first the activations. Others are drawn as multiples
            of each atom's median, those below it bright.
        n_speech: number of speech atoms.
        titles: those of the noisy and the enhanced spectrogram.
        moved: how far each noise atom has moved to learn a noise; the names of those that did are green.
        most: how many atoms of each source are drawn: those of which most is seen.
    """
    figure = Figure(figsize=(14, 7 + 1.5 * len(heard)), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.1, 1])[0]
    _draw_masking(left, magnitude, mask, titles, scale="dB below the loudest; atoms: below the peak of each")
    (_, activations), *others = heard.items()
    seen = np.maximum(decibels(activations) + RANGE_DB, 0).sum(0)
    speech, speech_names = _chosen(W[:, :n_speech], seen[:n_speech], most, "S")
    noise, noise_names = _chosen(W[:, n_speech:], seen[n_speech:], most, "N")
    noise = noise + n_speech
    above, below = right.subfigures(2, 1, squeeze=False, height_ratios=[0.8, len(heard)])[:, 0]
    sources = {"Speech atoms in use": (W[:, speech], speech_names), "Noise atoms in use": (W[:, noise], noise_names)}
    _draw_sources(above, sources)
    rows, names = np.concatenate([speech, noise]), [*speech_names, *noise_names]
    all_axes = below.subplots(len(heard), 1, sharex=True, squeeze=False)[:, 0]
    _draw_rows(all_axes[0], decibels(activations[:, rows]), -RANGE_DB, 0, names, "Their activations over time")
    for axes, (name, values) in zip(all_axes[1:], others, strict=True):
        _draw_changes(axes, values[:, rows], names, f"Their {name} over time")
    for axes in all_axes[:-1]:
        axes.label_outer()
    if moved is not None:
        far = {name for name, place in zip(noise_names, noise - n_speech, strict=True) if moved[place] > _FAR}
        _mark_learned(figure, far)
    return figure


def masking(magnitude: Samples, mask: Samples, *, titles: tuple[str, str] = ("Noisy", "Enhanced")) -> Figure:
    """The left half of `separation`, for models without atoms: noisy, enhanced, mask, all (frames, F)."""
    figure = Figure(figsize=(8, 8), layout="constrained")
    _draw_masking(figure, magnitude, mask, titles)
    return figure


def learning_panels(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], *, unit: str = ""
) -> Figure:
    """Losses from epoch 0 on of groups of runs, each group under its title, all on one scale.

    A named run is (training, validation): training is dotted, validation solid. Groups without a run are left out.
    """
    panels = {title: histories for title, histories in panels.items() if histories}
    figure = Figure(figsize=(max(6, 4 * len(panels)), 4.5), layout="constrained")
    all_axes = figure.subplots(1, max(1, len(panels)), sharey=True, squeeze=False)[0]
    for axes, (title, histories) in zip(all_axes, panels.items(), strict=False):
        _draw_curves(axes, histories)
        axes.set_title(title)
    all_axes[0].set_ylabel(f"loss{unit and ' in ' + unit} (dotted: training, solid: validation)")
    _show_ends(all_axes[0], {f"{title}, {name}": c for title, group in panels.items() for name, c in group.items()})
    return figure


def _draw_curves(axes: Axes, histories: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    for name, (training, validation) in histories.items():
        (line,) = axes.plot(range(len(validation)), validation, label=name)
        axes.plot(range(len(training)), training, ":", color=line.get_color(), linewidth=1, zorder=1)  # behind
    axes.set(xlabel="epoch", xlim=(0, None))
    axes.grid(alpha=0.3)
    # below, not over the curves
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False, fontsize="small")


def _show_ends(axes: Axes, histories: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """The first epochs fall from far above: they may leave the picture."""
    curves = [[value for value in curve[2:] if math.isfinite(value)] for pair in histories.values() for curve in pair]
    if any(curves):
        low, high = min(min(c) for c in curves if c), max(c[-1] for c in curves if c)
        margin = 0.1 * (high - low) or 0.1
        axes.set_ylim(low - margin, high + margin)


def decibels(values: Samples, reference: float | None = None) -> Samples:
    """20 log10 of nonnegative values over `reference`, by default the largest of them; silence is far below."""
    reference = float(values.max()) if reference is None and values.size else reference
    floor = 1e-10
    below: Samples = 20 * np.log10(np.maximum(values, floor) / max(reference or 1.0, floor))
    return below


def by_frequency(W: Samples) -> Samples:
    """The order of the columns of W (F, N) by their centre frequency, lowest first."""
    energy = np.square(W)
    order: Samples = np.argsort((np.arange(len(W)) @ energy) / np.maximum(energy.sum(0), 1e-20), kind="stable")
    return order


def _chosen(W: Samples, weight: Samples, most: int, letter: str) -> tuple[Samples, list[str]]:
    """Indices of the `most` columns of W with the largest weight, in the order of their frequency, and their names."""
    order = by_frequency(W)
    places = np.sort(np.argsort(-weight[order], kind="stable")[:most])
    return order[places], [f"{letter}{place + 1}" for place in places.tolist()]


def _mark_learned(figure: Figure, names: Set[str]) -> None:
    """The names of these atoms in green, and a word that says why."""
    for axes in figure.axes:
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            if label.get_text() in names:
                label.set(color=_LEARNED, fontweight="bold")
        if axes.get_title().startswith("Noise atoms") and names:
            axes.set_title(f"{axes.get_title()}; green: learned")


def _draw_masking(
    figure: FigureBase,
    magnitude: Samples,
    mask: Samples,
    titles: tuple[str, str],
    scale: str = "dB below the loudest",
) -> None:
    """Noisy, enhanced and mask, one below the other, on one time axis; both spectrograms on one scale."""
    noisy_axes, enhanced_axes, mask_axes = figure.subplots(3, 1, sharex=True)
    loudest = float(magnitude.max())
    _draw_frames(noisy_axes, decibels(magnitude, loudest), titles[0], -RANGE_DB, 0)
    image = _draw_frames(enhanced_axes, decibels(mask * magnitude, loudest), titles[1], -RANGE_DB, 0)
    figure.colorbar(image, ax=[noisy_axes, enhanced_axes], label=scale, aspect=40)
    image = _draw_frames(mask_axes, mask, "Mask", 0, 1, colours="viridis")
    figure.colorbar(image, ax=mask_axes, label="share of speech")
    for axes in (noisy_axes, enhanced_axes):
        axes.label_outer()


def _draw_sources(figure: FigureBase, sources: Mapping[str, tuple[Samples, list[str]]]) -> None:
    """Atoms (F, n) of each source beside each other, with their names."""
    all_axes = figure.subplots(1, len(sources), sharey=True, squeeze=False)[0]
    for axes, (title, (atoms, names)) in zip(all_axes, sources.items(), strict=True):
        _draw_atoms(axes, atoms, title)
        axes.set_xticks(range(1, len(names) + 1), names, fontsize=_SMALL, rotation=90)
        axes.label_outer()


def _draw_rows(
    axes: Axes, values: Samples, low: float, high: float, names: list[str], title: str, colours: str = "magma"
) -> AxesImage:
    """Values (frames, n) against time and atom, noise above speech."""
    image = _draw(axes, values.T, (*_seconds(len(values)), 0.5, len(names) + 0.5), low, high, colours)
    n_speech = sum(name.startswith("S") for name in names)
    axes.axhline(n_speech + 0.5, color="white", linewidth=1.5)
    axes.set(xlabel="time (s)", ylabel="atom", title=title)
    axes.set_yticks(range(1, len(names) + 1), names, fontsize=_SMALL)
    return image


def _draw_changes(axes: Axes, values: Samples, names: list[str], title: str) -> None:
    """Positive values (frames, n) as multiples of each atom's median, on a logarithmic scale around 1."""
    # atoms differ by orders of magnitude, which would hide what changes in time
    octaves = np.log2(np.maximum(values, 1e-10) / np.maximum(np.median(values, 0), 1e-10))
    reach = min(6, max(1, round(float(np.quantile(np.abs(octaves), 0.98)))))
    image = _draw_rows(axes, octaves, -reach, reach, names, title, "magma_r")
    ticks = range(-reach, reach + 1)
    bar = axes.figure.colorbar(image, ax=axes, label="times each atom's median; low: expected", ticks=ticks)
    bar.ax.set_yticklabels([f"{2**tick}" if tick >= 0 else f"1/{2**-tick}" for tick in ticks])


def _draw_moved(row: Sequence[Axes], moved: Samples, origin: str) -> None:
    """A mark above each column of noise, the larger the further it has moved."""
    speech_axes, axes = row
    sizes = 40 * np.square(moved / max(float(moved.max()), 1e-10))
    above = axes.get_xaxis_transform()
    places, heights = np.arange(1, len(moved) + 1), np.full(len(moved), 1.035)
    axes.scatter(places, heights, s=sizes, c=_LEARNED, marker="v", transform=above, clip_on=False, linewidths=0)
    axes.set_title(f"Noise atoms; green: moved to learn {origin}", pad=12)
    speech_axes.set_title(speech_axes.get_title(), pad=12)


def _draw_layers(figure: FigureBase, W: Mapping[str, Samples], n_speech: int) -> tuple[Sequence[Axes], Samples]:
    """A row for each layer, speech on the left and noise on the right; the first row, and the order of noise atoms."""
    *_, last = W.values()
    speech, noise = by_frequency(last[:, :n_speech]), by_frequency(last[:, n_speech:]) + n_speech
    all_axes = figure.subplots(len(W), 2, sharex="col", sharey=True, squeeze=False)
    for row, (name, atoms) in zip(all_axes, W.items(), strict=True):
        for axes, order in zip(row, (speech, noise), strict=True):
            image = _draw_atoms(axes, atoms[:, order], "")
            axes.label_outer()
        row[0].set_ylabel(f"{name}\nfrequency (kHz)")
    for column, source in zip(all_axes.T, ("Speech", "Noise"), strict=True):
        column[0].set_title(f"{source} atoms")
        column[-1].xaxis.set_major_formatter(StrMethodFormatter(source[0] + "{x:.0f}"))
    for axes in all_axes[-1]:
        axes.set_xlabel("atom, in the order of their frequencies" + (" in the last row" if len(W) > 1 else ""))
    figure.colorbar(image, ax=all_axes, label=_BELOW_PEAK, aspect=10 + 10 * len(W))
    return all_axes[0], noise - n_speech


def _draw_learned(axes: Axes, values: Samples, n_speech: int, title: str) -> None:
    """Values (K, 1) as dots; (K, N) as boxes: median, quartiles, 5th and 95th percentile of each source's atoms."""
    places = np.arange(1.0, len(values) + 1)
    if values.shape[1] == 1:
        axes.plot(places, values[:, 0], "o", color="black")
    else:
        sources = (values[:, :n_speech], -0.17, _SPEECH), (values[:, n_speech:], 0.17, _NOISE)
        for atoms, shift, colour in sources:
            axes.boxplot(
                atoms.T,
                positions=places + shift,
                widths=0.28,
                whis=(5, 95),
                showfliers=False,
                patch_artist=True,
                boxprops={"facecolor": colour, "alpha": 0.6},
                medianprops={"color": "black"},
            )
    axes.set(title=title, xlim=(0.5, len(values) + 0.5))
    axes.set_xticks(places, [f"layer {k + 1}" for k in range(len(values))])
    if values.min() > 0:
        axes.set_yscale("log")  # step sizes and thresholds act by their ratios
        low, high = axes.get_ylim()
        if high < 4 * low:  # values that are all but equal would have ticks that read the same
            middle = math.sqrt(low * high)
            low, high = middle / 2, middle * 2
            axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3, axis="y")


def _short(value: float) -> str:
    return f"{value:g}" if 1e-4 < value < 1e5 else f"$10^{{{math.log10(value):.0f}}}$"


def _draw_frames(
    axes: Axes, values: Samples, title: str, low: float, high: float, *, colours: str = "magma"
) -> AxesImage:
    """Values (frames, F) against time and frequency."""
    extent = (*_seconds(len(values)), 0, _TOP_KHZ)
    image = _draw(axes, values.T, extent, low, high, colours)
    axes.set(xlabel="time (s)", ylabel="frequency (kHz)", title=title)
    axes.yaxis.set_major_locator(MultipleLocator(2))
    return image


def _draw_atoms(axes: Axes, W: Samples, title: str) -> AxesImage:
    """Columns of W (F, n), each in dB below its own largest value."""
    peaks = np.maximum(W.max(0, keepdims=True), 1e-10)
    image = _draw(axes, decibels(W / peaks), (0.5, W.shape[1] + 0.5, 0, _TOP_KHZ), -RANGE_DB, 0)
    axes.set(xlabel="atom", ylabel="frequency (kHz)", title=title)
    axes.yaxis.set_major_locator(MultipleLocator(2))
    n = W.shape[1]
    axes.xaxis.set_major_locator(FixedLocator(range(1, n + 1)) if n <= 20 else MaxNLocator(nbins=5, integer=True))
    return image


def _draw(
    axes: Axes,
    values: Samples,
    extent: tuple[float, float, float, float],
    low: float,
    high: float,
    colours: str = "magma",
) -> AxesImage:
    return axes.imshow(
        values, extent=extent, vmin=low, vmax=high, cmap=colours, origin="lower", aspect="auto", interpolation="none"
    )


def _seconds(n_frames: int) -> tuple[float, float]:
    """When the first frame begins and the last one ends: frames are a hop wide, drawn around their centres."""
    first_centre = WINDOW / 2 - WINDOW  # the signal is extended by one window before its start
    begin = (first_centre - HOP / 2) / SAMPLE_RATE
    return begin, begin + n_frames * HOP / SAMPLE_RATE
