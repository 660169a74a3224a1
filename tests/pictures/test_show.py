"""Pictures of models and of what they hear: the right dictionaries, values and times, for every kind of model."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import drnmf
from drnmf import InputError, stft
from drnmf.pictures import plots, show
from drnmf.signal import audio
from drnmf.use.adaptation import adapt_to_files
from examples import MODELS, N_SPEECH, build, dictionary, recording, seeded


def drawn(figure: Figure) -> dict[str, np.ndarray]:
    """The drawn arrays by title."""
    return {
        axes.get_title(): np.asarray(axes.get_images()[0].get_array())
        for axes in figure.axes
        if axes.get_title() and axes.get_images()
    }


def images(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.get_images()]


def labels(figure: Figure) -> list[str]:
    """What the rows of dictionaries are called."""
    return [axes.get_ylabel().splitlines()[0] for axes in figure.axes if "\n" in axes.get_ylabel()]


@pytest.fixture(scope="module")
def noisy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seconds of speech and noise in stereo, 44.1 kHz."""
    path, speech = tmp_path_factory.mktemp("show") / "noisy.wav", recording("speech/austen_0880")
    x = (speech + recording("noise/percussion", len(speech))).float()
    audio.write(path, audio.resample(torch.stack([x, 0.5 * x]), 16000, 44100), 44100)
    return path


def trained(**options: object) -> drnmf.DRNMF:
    """Three layers that differ, atoms not in the order of their frequency."""
    model = drnmf.DRNMF.from_dictionary(dictionary().float().flip(1), 3, **options)
    with torch.no_grad():
        model.log_W += 0.5 * torch.randn(model.log_W.shape, generator=seeded())
        model.log_alpha += torch.arange(3.0)[:, None]
    return model


def test_a_model_is_drawn_layer_by_layer_with_columns_that_belong_together() -> None:
    model = trained(alpha_per="atom")
    figure = show.draw_model(model, name="home")
    assert figure.get_suptitle() == "home: DRNMF with 6 speech and 6 noise atoms"
    assert labels(figure) == ["layer 1", "layer 2", "layer 3"]
    W, pictures = model.dictionaries().detach(), images(figure)
    order = plots.by_frequency(W[-1, :, :N_SPEECH].numpy())  # of the last layer, in all
    assert order.tolist() != sorted(order.tolist())
    for layer, picture in zip(W, pictures[::2], strict=True):
        atoms = layer[:, :N_SPEECH][:, order].numpy()
        np.testing.assert_allclose(picture.clip(-60), (20 * np.log10(atoms / atoms.max(0))).clip(-60), atol=1e-3)
    assert pictures[1].shape == (257, 6)


def test_step_sizes_and_sparsities_are_drawn() -> None:
    model = trained()
    by_title = {axes.get_title(): axes for axes in show.draw_model(model, name="home").axes}
    alpha, sparsity = by_title["inverse step size α"], by_title["sparsity λ"]
    np.testing.assert_allclose(alpha.get_lines()[0].get_ydata(), model.alpha()[:, 0].detach())
    np.testing.assert_allclose(sparsity.get_lines()[0].get_ydata(), [1, 1, 1], rtol=1e-6)
    assert [tick.get_text() for tick in alpha.get_xticklabels()] == ["layer 1", "layer 2", "layer 3"]

    per_atom = show.draw_model(trained(alpha_per="atom"), name="home")
    (axes,) = (axes for axes in per_atom.axes if axes.get_title().startswith("inverse"))
    assert axes.get_title() == "inverse step size α"
    assert len(axes.patches) == 6  # a box for each layer and source


def test_a_dictionary_for_the_mask_and_powers_are_shown_as_magnitudes() -> None:
    model = trained(reconstruction="separate", power=0.5)
    W = model.spectra()
    assert list(W) == ["layer 1", "layer 2", "layer 3", "mask"]
    torch.testing.assert_close(W["mask"], model.reconstruction() ** 2)
    torch.testing.assert_close(W["layer 2"], model.dictionaries()[1] ** 2)
    assert labels(show.draw_model(model, name="home"))[-1] == "mask"


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_is_drawn(name: str, noisy_file: Path) -> None:
    model = build(name)
    if name.startswith("lstm"):
        with pytest.raises(InputError, match="home: there is nothing to see in the weights of this LSTMMask"):
            show.draw_model(model, name="home")
    else:
        assert len(images(show.draw_model(model, name="home"))) == 2 * len(model.spectra())
    before = next(iter(model.state_dict().values())).dtype
    assert "Mask" in drawn(show.draw_file(model, noisy_file, name="home"))
    assert next(iter(model.state_dict().values())).dtype == before  # the caller's model is not converted


@pytest.mark.parametrize("has_atoms", [True, False])
def test_the_picture_of_a_file_shows_the_model_s_mask(has_atoms: bool, noisy_file: Path) -> None:
    model = trained(sparsity=0.1, power=0.5) if has_atoms else build("lstm").float()
    pictures = drawn(show.draw_file(model, noisy_file, name="home"))
    x = audio.read(noisy_file, sample_rate=16000)[0].mean(0)
    heard = torch.cat([x, x[:12000].flip(0)])  # before it begins, as a file that is enhanced
    frames = len(heard) // 128
    with torch.no_grad():
        mask = model(stft(torch.cat([heard[len(heard) % 128 :], x])).abs()[None])[0][0, frames:]
    np.testing.assert_allclose(pictures["Mask"], mask.mT, atol=1e-5)
    X = stft(x).abs().numpy()
    enhanced = plots.decibels(mask.numpy() * X, X.max()).T.clip(-plots.RANGE_DB)
    np.testing.assert_allclose(pictures["Enhanced by home"].clip(-plots.RANGE_DB), enhanced, atol=1e-3)
    assert "Noisy: noisy.wav" in pictures
    assert ("Speech atoms in use" in pictures) == has_atoms


@pytest.mark.parametrize("name", ["snmf", "ista", "ista_cold", "drnmf"])
def test_activations_are_those_the_mask_is_made_of(name: str) -> None:
    model, X = build(name), stft(recording("speech/austen_0880", 16000)).abs()
    with torch.no_grad():
        h, mask = model.heard(X)["activations"], model(X[None])[0][0]
    *_, W = model.spectra().values()
    speech, noise = h[:, :N_SPEECH] @ W[:, :N_SPEECH].mT, h[:, N_SPEECH:] @ W[:, N_SPEECH:].mT
    torch.testing.assert_close(drnmf.ratio_mask(speech, noise), mask, atol=1e-6, rtol=0)


def test_a_part_of_a_file(noisy_file: Path) -> None:
    pictures = drawn(show.draw_file(build("lstm"), noisy_file, name="home", start=1, seconds=0.5))
    assert "Noisy: noisy.wav, 1 to 1.5 s" in pictures
    assert pictures["Mask"].shape[1] == (8000 + 512) // 128 + 1
    with pytest.raises(InputError, match=r"noisy\.wav: cannot begin at 9 s, it is 3\.0 s long"):
        show.draw_file(build("lstm"), noisy_file, name="home", start=9)
    with pytest.raises(InputError, match="seconds must be positive"):
        show.draw_file(build("lstm"), noisy_file, name="home", seconds=0)


def test_pictures_are_written(noisy_file: Path, tmp_path: Path) -> None:
    model = trained(alpha_per="atom")
    show.save(show.draw_model(model, name="home"), tmp_path / "model.png", dpi=40)
    show.save(show.draw_file(model, noisy_file, name="home"), tmp_path / "file.png", dpi=40)
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import drnmf.pictures.show"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert answer.stderr.strip().splitlines()[-1].endswith("not installed: pip install 'drnmf[plot]'")


def test_a_picture_has_the_size_asked_for(tmp_path: Path) -> None:
    figure = plots.masking(np.ones((3, 257)), np.ones((3, 257)))
    show.save(figure, tmp_path / "model.png", size=(640, 480))
    header = (tmp_path / "model.png").read_bytes()[16:24]  # width and height
    assert (int.from_bytes(header[:4]), int.from_bytes(header[4:])) == (640, 480)
    with pytest.raises(InputError, match="200 to 20000 pixels wide and high, not 640x10"):
        show.save(figure, tmp_path / "other.png", size=(640, 10))
    assert not (tmp_path / "other.png").exists()


def test_what_a_network_expected_is_drawn_beside_what_it_heard(noisy_file: Path) -> None:
    pictures = drawn(show.draw_file(build("prior_drnmf"), noisy_file, name="home"))
    expected = pictures["Their expected sparsity λ over time"]
    assert expected.shape == pictures["Their activations over time"].shape
    assert expected.std() > 0.01


def test_where_a_picture_cannot_go_is_one_line(tmp_path: Path) -> None:
    figure = plots.masking(np.ones((3, 257)), np.ones((3, 257)))
    with pytest.raises(InputError, match=r"model\.docx: '\.docx' is not a kind of picture; choose \.png"):
        show.save(figure, tmp_path / "model.docx")
    with pytest.raises(InputError, match=r"model\.png: cannot be written, the folder .* does not exist"):
        show.save(figure, tmp_path / "nowhere" / "model.png")
    show.save(figure, tmp_path / "model.SVG")
    assert "<svg" in (tmp_path / "model.SVG").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["model.SVG"]


def test_atoms_that_have_learned_a_noise_are_marked(noisy_file: Path) -> None:
    model = drnmf.adapt("default", recording("noise/percussion", 48000), 16000)
    moved = np.array(model.adaptation["moved"])
    figure = show.draw_model(model, name="fan")
    (axes,) = (axes for axes in figure.axes if axes.collections and axes.get_title().startswith("Noise"))
    assert axes.get_title() == "Noise atoms; green: moved to learn samples"
    order = plots.by_frequency(model.spectra()["all layers"][:, 100:])
    sizes = axes.collections[0].get_sizes()
    assert np.argmax(sizes) == np.argmax(moved[order])
    np.testing.assert_allclose(sizes, 40 * (moved[order] / moved.max()) ** 2)

    figure = show.draw_file(model, noisy_file, name="fan", seconds=1)
    (axes,) = (axes for axes in figure.axes if axes.get_title().startswith("Noise atoms"))
    assert axes.get_title() == "Noise atoms in use; green: learned"
    green = {label.get_text() for label in axes.get_xticklabels() if label.get_color() == "tab:green"}
    far = {f"N{place + 1}" for place in np.flatnonzero(moved[order] > 0.25)}
    shown = {label.get_text() for label in axes.get_xticklabels()}
    assert green == far & shown
    assert green not in (set(), shown)


def test_the_file_that_was_learned_is_named(tmp_path: Path) -> None:
    audio.write(tmp_path / "fan $1.wav", recording("noise/hum", 16000).float(), 16000)
    model = adapt_to_files("default", [tmp_path / "fan $1.wav"])
    assert any(
        axes.get_title().endswith(r"moved to learn fan \$1.wav") for axes in show.draw_model(model, name="m").axes
    )


@pytest.mark.parametrize("moved", [None, 3, "far", [1.0], ["x"] * 100, [-1.0] * 100, [float("nan")] * 100])
def test_marks_that_fit_no_atoms_are_not_drawn(moved: object) -> None:
    model = drnmf.models.folders.load_ready("default")
    model.adaptation = {"moved": moved, "samples": 5}
    assert not any("green" in axes.get_title() for axes in show.draw_model(model, name="m").axes)
