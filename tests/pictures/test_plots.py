"""Pictures: the right values at the right places, with units, and nothing global touched."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from PIL import Image

from drnmf import stft
from drnmf.pictures import plots, show
from drnmf.signal.spectra import SAMPLE_RATE


def tone(frequency: float, seconds: float = 1.0) -> np.ndarray:
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return np.sin(2 * np.pi * frequency * time)


def images(figure: Figure) -> list:
    """The drawn arrays, without the colour bars' own."""
    return [image for axes in figure.axes for image in axes.get_images()]


def saved(figure: Figure, path: Path) -> bytes:
    figure.savefig(path, dpi=50)
    return path.read_bytes()


def test_a_tone_stands_at_its_frequency_and_time(tmp_path: Path) -> None:
    # silence, then 2 kHz from 0.5 s on
    x = np.concatenate([np.zeros(SAMPLE_RATE // 2), tone(2000, 0.5)])
    X = abs(stft(x))
    figure = plots.masking(X, np.ones_like(X), titles=("a tone", "the same"))
    image = images(figure)[0]
    values, (left, right, bottom, top) = np.asarray(image.get_array()), image.get_extent()
    assert values.max() == 0
    row = values.max(1).argmax()
    assert bottom + (row + 0.5) / len(values) * (top - bottom) == pytest.approx(2.0, abs=0.02)
    seconds = left + (np.arange(values.shape[1]) + 0.5) / values.shape[1] * (right - left)
    loud = seconds[values.max(0) > -20]
    assert loud.min() == pytest.approx(0.5, abs=0.02)
    assert loud.max() == pytest.approx(1.0, abs=0.02)
    axes = figure.axes[0]
    assert (axes.get_ylabel(), axes.get_title()) == ("frequency (kHz)", "a tone")
    assert figure.axes[2].get_xlabel() == "time (s)"  # of the lowest picture, for all three
    assert saved(figure, tmp_path / "tone.png").startswith(b"\x89PNG")


def test_silence_is_drawn(tmp_path: Path) -> None:
    figure = plots.masking(np.zeros((10, 257)), np.zeros((10, 257)))
    assert np.isfinite(np.asarray(images(figure)[0].get_array())).all()
    saved(figure, tmp_path / "silence.png")


def test_decibels() -> None:
    np.testing.assert_allclose(plots.decibels(np.array([10.0, 1.0, 0.1])), [0.0, -20.0, -40.0], atol=1e-12)
    assert plots.decibels(np.array([1.0, 0.0]), 0.1)[0] == pytest.approx(20.0)


def test_atoms_are_sorted_by_frequency_within_their_source() -> None:
    W = np.zeros((257, 5))
    for column, bin_ in enumerate((200, 10, 100, 250, 30)):  # three of speech, two of noise
        W[bin_, column] = 1
    assert plots.by_frequency(W).tolist() == [1, 4, 2, 0, 3]
    speech, noise = images(plots.layers({"layer 1": W}, 3, title="", learned={}))
    assert np.asarray(speech.get_array()).argmax(0).tolist() == [10, 100, 200]
    assert np.asarray(noise.get_array()).argmax(0).tolist() == [30, 250]


def test_all_that_a_model_heard_is_drawn_row_by_row_in_the_order_of_the_atoms() -> None:
    W = np.eye(257)[:, :4]
    h, expected = np.zeros((7, 4)), np.tile([1.0, 10.0, 100.0, 1e-3], (7, 1))
    h[2, 3] = 1
    expected[5, 1] *= 0.25
    heard = {"activations": h, "expectations": expected}
    figure = plots.separation(np.ones((7, 257)), np.ones((7, 257)), W, heard, 2)
    axes = {axes.get_title(): axes for axes in figure.axes}
    active, changes = (axes[f"Their {name} over time"] for name in heard)
    values = np.asarray(active.get_images()[0].get_array())
    assert values.shape == (4, 7)
    assert np.unravel_index(values.argmax(), values.shape) == (3, 2)
    octaves = np.zeros((4, 7))
    octaves[1, 5] = -2  # a quarter of that atom's median; how far the atoms lie apart is not shown
    np.testing.assert_allclose(changes.get_images()[0].get_array(), octaves, atol=1e-5)


def test_rows_and_spectra_have_the_same_names_in_all_pictures(tmp_path: Path) -> None:
    """Numbers count by frequency in each source, as in the picture of the model."""
    W = np.zeros((257, 6))
    for column, bin_ in enumerate((200, 10, 100, 250, 30, 40)):  # three of speech, three of noise
        W[bin_, column] = 1
    h = np.ones((7, 6))
    h[:, [1, 4]] = 0.5  # the lowest of each source is active the least
    figure = plots.separation(np.ones((7, 257)), np.ones((7, 257)), W, {"activations": h}, 3, most=2)
    axes = {axes.get_title(): axes for axes in figure.axes}

    def names(labels: list) -> list[str]:
        return [label.get_text() for label in labels]

    assert names(axes["Speech atoms in use"].get_xticklabels()) == ["S2", "S3"]
    assert names(axes["Noise atoms in use"].get_xticklabels()) == ["N2", "N3"]
    assert names(axes["Their activations over time"].get_yticklabels()) == ["S2", "S3", "N2", "N3"]
    spectra = np.asarray(axes["Speech atoms in use"].get_images()[0].get_array())
    assert spectra.argmax(0).tolist() == [100, 200]
    whole = plots.layers({"layer 1": W}, 3, title="", learned={})
    saved(whole, tmp_path / "layers.png")
    assert "S3" in names(whole.axes[-3].get_xticklabels())


def test_one_colour_bar_for_each_kind() -> None:
    figure = plots.separation(
        np.ones((7, 257)), np.ones((7, 257)), np.eye(257)[:, :4], {"activations": np.ones((7, 4))}, 2
    )
    bars = [axes.get_ylabel() for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert sorted(bars) == ["dB below the loudest; atoms: below the peak of each", "share of speech"]
    scales = {axes.get_title(): axes.get_images()[0].get_clim() for axes in figure.axes if axes.get_images()}
    assert scales.pop("Mask") == (0, 1)
    assert set(scales.values()) == {(-plots.RANGE_DB, 0)}  # all others share the first bar


def letters(figure: Figure) -> list[tuple[str, Bbox]]:
    """Where each text of a picture stands, ticks and all."""
    figure.set_dpi(50)
    figure.draw_without_rendering()
    texts = []
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            texts += [tick.label1 for tick in ticks] + [tick.label2 for tick in ticks]
    shown = [text for text in texts if text.get_visible() and text.get_text()]
    return [(text.get_text(), text.get_window_extent()) for text in shown]


def example(kind: str, n_speech: int = 12) -> Figure:
    """A picture that is as full as it gets."""
    rng = np.random.default_rng(0)
    X, h, W = rng.random((30, 257)), rng.random((30, 24)), rng.random((257, 24))
    if kind == "separation":
        return plots.separation(X, X, W, {"activations": h, "expected sparsity λ": h}, n_speech)
    if kind == "layers":
        learned = {"inverse step size α": 10 ** (10 * rng.random((3, 24))), "sparsity λ": np.full((3, 24), 0.3)}
        return plots.layers({"layer 1": W, "layer 2": W}, n_speech, title="a model", learned=learned)
    curves = {f"DR-NMF, N = {n}": (rng.random(30).tolist(), rng.random(30).tolist()) for n in (1, 2, 3, 4)}
    return plots.learning_panels({f"{size} % of the training set": curves for size in (1, 2, 3)})


@pytest.mark.parametrize(
    ("kind", "size"), [("separation", None), ("separation", (600, 400)), ("layers", None), ("curves", None)]
)
def test_no_letters_lie_over_others_or_leave_the_picture(
    kind: str, size: tuple[int, int] | None, tmp_path: Path
) -> None:
    figure = example(kind)
    if size is not None:
        show.save(figure, tmp_path / "a.png", size=size)
    found = letters(figure)
    assert len(found) > 15
    width, height = figure.canvas.get_width_height()
    for name, box in found:
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -1, name
    for (name, box), (other, beside) in itertools.combinations(found, 2):
        overlap = Bbox.intersection(box, beside)
        assert overlap is None or min(overlap.width, overlap.height) < 2, f"{name} and {other}"


def test_pictures_are_opaque_so_that_dark_pages_show_them(tmp_path: Path) -> None:
    show.save(example("curves"), tmp_path / "a.png", dpi=30)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)


def test_legends_lie_beside_the_curves() -> None:
    figure = example("curves")
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend = axes.get_legend().get_window_extent()
        assert Bbox.intersection(legend, axes.get_window_extent()) is None


def test_there_is_no_panel_without_curves() -> None:
    curve = [3.0, 2.0, 1.0], [4.0, 3.0, 2.0]
    figure = plots.learning_panels({"none": {}, "one": {"a": curve}}, unit="dB")
    (axes,) = figure.axes
    assert axes.get_title() == "one"
    assert axes.get_ylabel().startswith("loss in dB")
    assert not plots.learning_panels({"none": {}}).axes[0].get_lines()


@pytest.mark.parametrize("n_speech", [1, 23])
def test_ticks_name_each_atom_once(n_speech: int) -> None:
    figure = example("layers", n_speech)
    figure.draw_without_rendering()
    for axes in figure.axes[:4]:
        names = [label.get_text() for label in axes.get_xticklabels()]
        assert len(names) == len(set(names))


def test_equal_values_have_ticks_that_differ() -> None:
    figure = example("layers")
    figure.draw_without_rendering()
    (axes,) = (axes for axes in figure.axes if axes.get_title() == "sparsity λ")
    low, high = axes.get_ylim()
    seen = [tick.get_text() for tick in axes.get_yticklabels() if low <= tick.get_position()[1] <= high]
    assert 2 <= len(seen) == len(set(seen))


def test_separation_draws_the_active_atoms(tmp_path: Path) -> None:
    X = abs(stft(tone(1000)))
    W = np.eye(257)[:, :40]
    h = np.full((len(X), 40), 1e-3)
    h[:, [7, 3, 31]] = 1.0
    mask, heard = np.full_like(X, 0.25), {"activations": h}
    figure = plots.separation(X, mask, W, heard, 20, titles=("before", "after"), most=2)
    drawn = {axes.get_title(): np.asarray(axes.get_images()[0].get_array()) for axes in figure.axes if axes.get_title()}
    assert next(iter(drawn)) == "before"
    np.testing.assert_allclose(drawn["after"].max(), 20 * np.log10(0.25), atol=1e-4)  # on the noisy one's scale
    assert drawn["Speech atoms in use"].argmax(0).tolist() == [3, 7]
    assert 31 in drawn["Noise atoms in use"].argmax(0)
    assert drawn["Mask"].max() == 0.25
    saved(figure, tmp_path / "separation.png")


def test_learning_curves_are_dotted_for_training_and_solid_for_validation(tmp_path: Path) -> None:
    figure = plots.learning_panels({"one": {"a": ([3, 2, 1], [4, 3.5, 3.2]), "b": ([2, 1], [2, 1.5])}})
    (axes,) = figure.axes
    lines = axes.get_lines()
    assert [line.get_linestyle() for line in lines] == ["-", ":", "-", ":"]
    assert lines[0].get_color() == lines[1].get_color() != lines[2].get_color()
    assert list(lines[1].get_ydata()) == [3, 2, 1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert axes.get_xlabel() == "epoch"
    saved(figure, tmp_path / "curves.png")


@pytest.mark.parametrize("shift", [0.0, -12.0])
def test_the_ends_of_learning_curves_are_in_the_picture(shift: float) -> None:
    """Losses in dB are negative."""
    training, validation = ([v + shift for v in curve] for curve in ([9.0, 4.0, 3.5, 2.0], [8.0, 5.0, 3.4, 3.3]))
    (axes,) = plots.learning_panels({"one": {"a": (training, validation)}}).axes
    low, high = axes.get_ylim()
    for line in axes.get_lines():
        assert low < min(line.get_ydata())
        assert line.get_ydata()[-1] < high


@pytest.mark.parametrize("decades", [1, 2, 4, 10])
def test_step_sizes_have_a_scale_however_far_apart_they_are(decades: int) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    plots._draw_learned(axes, np.tile(np.logspace(0, decades, 200), (3, 1)), 100, "alpha")
    figure.draw_without_rendering()
    low, high = axes.get_ylim()
    seen = [tick.get_text() for tick in axes.get_yticklabels() if low <= tick.get_position()[1] <= high]
    assert 2 <= len([text for text in seen if text]) <= 9


def test_only_plots_imports_matplotlib_and_never_pyplot() -> None:
    code = (
        "import sys, drnmf; assert 'matplotlib' not in sys.modules, 'import drnmf';"
        "import drnmf.pictures.plots; assert 'matplotlib.pyplot' not in sys.modules, 'pyplot'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_without_matplotlib_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import drnmf.pictures.plots"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert answer.stderr.strip().splitlines()[-1].endswith("not installed: pip install 'drnmf[plot]'")
