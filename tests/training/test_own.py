"""The example of a model and a loss of one's own: trained, enhanced with, scored, and refused unless asked for."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from command import drnmf
from drnmf import InputError, load_model
from drnmf.models.own import own
from drnmf.signal import audio
from drnmf.training.recipe import Recipe

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def own_module(tmp_path, monkeypatch, speech_dir, noise_dir):
    """The example in the current folder, with its environment; afterwards nothing of it is imported."""
    for path in EXAMPLES.glob("own_model.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "voices").mkdir()
    for path in speech_dir.glob("*.flac"):
        audio.write(tmp_path / "voices" / path.name, audio.read(path, count=24000)[0], 16000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("VOICES", str(tmp_path / "voices"))
    monkeypatch.setenv("NOISES", str(noise_dir))
    monkeypatch.setenv("DRNMF_OWN", "something_else,own_model")
    yield tmp_path
    sys.modules.pop("own_model", None)


def test_it_trains_enhances_and_is_scored(own_module):
    drnmf("train", "own_model.toml", "-o", "mine", "--epochs", 2)
    assert json.loads(Path("mine/config.json").read_text())["model"] == "own_model:GRUMask"
    losses = [float(line.split(",")[3]) for line in Path("mine/history.csv").read_text().splitlines()[1:]]
    assert losses[-1] < losses[0]
    X, Y, mask = (0.5 * torch.ones(1, 4, 257) for _ in range(3))
    total, count = Recipe.read("own_model.toml").training.loss_function()(mask, X, Y, X[..., 0] > 0)
    assert total / count == 0.25
    noisy = next(iter(sorted(Path("voices").iterdir())))
    drnmf("enhance", noisy, "-m", "mine", "-o", "out.flac")
    assert audio.info("out.flac").samples == 24000
    drnmf("mix", "voices", Path(EXAMPLES.parent, "tests/audio/noise"), "-o", "test.csv", "--count", 2)
    assert "si_sdr" in drnmf("evaluate", "mine", "test.csv", "--metric", "si_sdr", "--jobs", 1).stdout


@pytest.mark.parametrize("trusted", ["", "own_models", "own", "own_model:GRUMask"])
def test_nothing_is_imported_unasked(trusted, own_module, monkeypatch):
    drnmf("train", "own_model.toml", "-o", "mine", "--epochs", 1)
    sys.modules.pop("own_model")
    Path("own_model.py").write_text("raise SystemExit('it ran')")
    monkeypatch.setenv("DRNMF_OWN", trusted)
    remedy = "if you trust that module, set the environment variable DRNMF_OWN=own_model"
    with pytest.raises(InputError, match=remedy):
        load_model("mine")
    said = drnmf("train", "own_model.toml", "-o", "other", status=2).stderr
    assert remedy in said
    recipe = Path("own_model.toml").read_text().replace('kind = "own_model:GRUMask"\nn_units = 64', "n_layers = 2")
    Path("own_loss.toml").write_text(recipe)
    assert remedy in drnmf("train", "own_loss.toml", "-o", "other", status=2).stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":GRUMask", ":NoMask", "'own_model:NoMask' cannot be imported"),
        (":GRUMask", ":absolute_error", "is not a class that derives from drnmf.Separator"),
        (":absolute_error", ":__doc__", "is not a function"),
        ("own_model:GRU", "something_else:GRU", "No module named 'something_else'"),
        ("n_units = 64", "n_unit = 64", "has no setting 'n_unit'; known: kind, n_units"),
    ],
)
def test_mistakes_are_one_line(old, new, message, own_module):
    recipe = Path("own_model.toml").read_text()
    assert old in recipe
    Path("own_model.toml").write_text(recipe.replace(old, new))
    said = drnmf("train", "own_model.toml", "-o", "mine", status=2).stderr
    assert message in said
    assert len(said.splitlines()) == 1


def test_a_module_that_is_there_needs_no_current_folder(monkeypatch):
    monkeypatch.setenv("DRNMF_OWN", "json")
    assert own("json:dumps") is json.dumps
