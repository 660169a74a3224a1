"""A new model is one file (toy.py) and one entry in one list; everything else of the package then knows it."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch

import drnmf
from drnmf import Streamer, load_model, save_model, stft
from drnmf.models.kinds import MODELS
from drnmf.pictures import show
from drnmf.signal import audio
from drnmf.training import checkpoints
from drnmf.training.recipe import Recipe
from drnmf.training.run import train
from drnmf.use import export
from examples import AUDIO, recording
from models.toy import ToyMask


@pytest.fixture(scope="module", autouse=True)
def entry() -> Iterator[None]:
    """The one line that a new model needs outside its file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "ToyMask", ToyMask)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny training of it, on one second of each recording."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "speech").mkdir()
    for path in (AUDIO / "speech").glob("*.flac"):
        audio.write(folder / "speech" / path.name, audio.read(path, count=16000)[0], 16000)
    tables = {
        "data": {"speech": str(folder / "speech"), "noise": str(AUDIO / "noise"), "max_frames": 50},
        "dictionary": {"rank_per_source": 4, "max_iter": 5},
        "model": {"kind": "ToyMask", "decay": 0.25},
        "training": {"max_epochs": 2, "accelerator": "cpu"},
    }
    train(Recipe.from_tables(tables, "toy.toml"), folder / "run")
    return folder / "run"


def mixture() -> torch.Tensor:
    speech = recording("speech/austen_0880", 16000).float()
    return speech + recording("noise/percussion", 16000).float()


def mask_of(model: drnmf.Separator, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(stft(x).abs()[None])[0][0]


def names_in(node: ast.AST) -> set[str]:
    """What a piece of code imports, names or compares with."""
    match node:
        case ast.ImportFrom():
            return {alias.name for alias in node.names}
        case ast.Name():
            return {node.id}
        case ast.Attribute():
            return {node.attr}
        case ast.Compare() | ast.match_case():
            return {str(inner.value) for inner in ast.walk(node) if isinstance(inner, ast.Constant)}
    return set()


def test_nothing_outside_the_models_asks_which_one_it_has() -> None:
    """The name of a model may stand in data, such as the paper's table; no code compares it or takes its class."""
    source, kinds = Path(drnmf.__file__).parent, {*MODELS, "OracleMask"}
    others = [path for path in source.rglob("*.py") if path.parent.name != "models" and path.parent != source]
    assert len(others) > 30
    for path in others:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            assert not names_in(node) & kinds, f"{path.relative_to(source)}, line {getattr(node, 'lineno', 0)}"


def test_it_trains_from_its_dictionary_and_is_a_model_s_folder(run: Path) -> None:
    model = load_model(run)
    assert isinstance(model, ToyMask)
    assert (model.n_speech, model.decay) == (4, 0.25)
    assert json.loads((run / "summary.json").read_text())["epochs"] == 2
    W = safetensors.torch.load_file(run / "dictionaries.safetensors")["W"]
    trained = model.log_W.detach().exp() - 1e-3
    assert W.shape == trained.shape == (257, 8)
    assert 1e-4 < (trained - W).abs().max() < 0.1  # it started there, and moved


def test_its_dictionary_is_learned_on_its_features_at_its_learning_rate(run: Path, monkeypatch) -> None:
    seen = {}

    def stop(*data: torch.Tensor, **_: object) -> None:
        seen["clean"], seen["noisy"] = data
        raise KeyboardInterrupt

    monkeypatch.setattr("drnmf.training.dictionaries.train_dictionaries", stop)
    with pytest.raises(KeyboardInterrupt):
        train(Recipe.read(run / "recipe.toml"), run.parent / "features")
    monkeypatch.setattr(ToyMask, "features", classmethod(lambda cls, magnitude, options: magnitude))
    roots = seen["noisy"]
    with pytest.raises(KeyboardInterrupt):
        train(Recipe.read(run / "recipe.toml"), run.parent / "magnitudes")
    torch.testing.assert_close(roots, seen["noisy"].sqrt())

    (state,) = checkpoints.read(run / "last.ckpt")["optimizer_states"]
    assert state["param_groups"][0]["lr"] == ToyMask.learning_rate


def test_it_is_saved_and_loaded(run: Path, tmp_path: Path) -> None:
    model = load_model(run)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.config == model.config
    assert torch.equal(mask_of(again, mixture()), mask_of(model, mixture()))


def test_it_enhances_and_streams(run: Path) -> None:
    x = mixture()
    enhanced = drnmf.istft(mask_of(load_model(run), x) * stft(x), len(x))
    streamer = Streamer(run)
    parts = [streamer.feed(x[i : i + 129]) for i in range(0, len(x), 129)]
    torch.testing.assert_close(torch.cat([*parts, streamer.flush()]), enhanced, atol=1e-5, rtol=0)
    assert (enhanced - x).abs().max() > 0.01
    assert (drnmf.enhance(x, 16000, load_model(run))[8000:] - enhanced[8000:]).abs().max() < 0.01


def test_it_is_exported(run: Path, tmp_path: Path) -> None:
    model, X = load_model(run), stft(mixture()).abs()
    export.export(model, tmp_path / "toy.onnx")
    network = onnxruntime.InferenceSession(tmp_path / "toy.onnx")
    state, masks = np.zeros((1, 8), np.float32), []
    for x in X.numpy():
        mask, state = network.run(None, {"magnitude": x[None], "state_0": state})
        masks.append(mask)
    np.testing.assert_allclose(np.concatenate(masks), mask_of(model, mixture()), atol=1e-5)


def test_it_is_shown(run: Path, tmp_path: Path) -> None:
    model = load_model(run)
    figure = show.draw_model(model, name="toy")
    assert figure.get_suptitle() == "toy: ToyMask with 4 speech and 4 noise atoms"
    assert figure.axes[0].get_ylabel().startswith("the only layer")
    audio.write(tmp_path / "noisy.wav", mixture(), 16000)
    titles = [axes.get_title() for axes in show.draw_file(model, tmp_path / "noisy.wav", name="toy").axes]
    assert "Their activations over time" in titles
