"""`drnmf corpus`, from public folders to a model that was trained on them."""

import pytest

import public
from command import drnmf
from drnmf.data.manifests import read_manifest
from drnmf.models.folders import load_model

RECIPE = """
[data]
train = "corpus/train.csv"
validation = "corpus/dev.csv"
[dictionary]
rank_per_source = 4
max_iter = 5
[model]
n_layers = 2
[training]
max_epochs = 1
accelerator = "cpu"
"""


@pytest.fixture
def sources(tmp_path):
    """Options that name LibriSpeech, ESC-50 and other noise."""
    return [
        *("--librispeech", public.librispeech(tmp_path), "--esc50", public.esc50(tmp_path)),
        *("--noise", public.games(tmp_path), "--track-seconds", 4, "--rooms", 4, "--seed", 7),
    ]


def test_from_public_folders_to_a_trained_model(sources, tmp_path):
    done = drnmf("corpus", *sources, "-o", tmp_path / "corpus")
    first, last = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert first.startswith("1 recordings of noise are copies of others and left out, such as ")
    assert last.endswith("train.csv with 4 mixtures, dev.csv with 2 mixtures, test.csv with 2 mixtures")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    drnmf("train", tmp_path / "recipe.toml", "-o", tmp_path / "model")
    assert load_model(tmp_path / "model").config["n_layers"] == 2
    scored = drnmf("evaluate", tmp_path / "model", tmp_path / "corpus" / "test.csv", "--metric", "sdr", "--jobs", 1)
    assert scored.stdout.splitlines()[-1].split()[:2] == ["all", "2"]


def test_options_are_those_of_the_mixtures(sources, tmp_path):
    drnmf("corpus", *sources, "--snr", 20, "--level", -20, -19, "--rooms", 0, "-o", tmp_path / "corpus", "--quiet")
    mixtures = read_manifest(tmp_path / "corpus" / "train.csv")
    assert {m.snr_db for m in mixtures} == {20}
    assert all(-20 <= m.level_dbfs <= -19 for m in mixtures)
    assert {m.rir for m in mixtures} == {None}


@pytest.mark.parametrize(
    ("left_out", "message"),
    [(slice(2, 6), "give noise, too: --esc50, --noise, or both"), (slice(0, 2), "Missing option '--librispeech'")],
)
def test_a_source_that_is_missing_is_told(sources, tmp_path, left_out, message):
    del sources[left_out]
    assert message in drnmf("corpus", *sources, "-o", tmp_path / "corpus", status=2).stderr
    assert not (tmp_path / "corpus").exists()
