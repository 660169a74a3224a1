"""Steps 1 and 2: what the dictionaries are learned on, and when two recipes share them."""

import pytest

from drnmf.training.dictionaries import dictionaries_name
from drnmf.training.recipe import DataSettings, ModelSettings, Recipe

BASE = Recipe(
    data=DataSettings(train="/sets/train.csv", fresh=True),
    model=ModelSettings(options={"n_layers": 2}),
)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("data", {"train": "/sets/other.csv"}),
        ("data", {"subset": 10}),
        ("data", {"fresh": False}),
        ("data", {"varied": True}),
        ("data", {"levels_dbfs": [-40, -20]}),
        ("data", {"held_out": 0.2}),
        ("data", {"validation": "/sets/dev.csv"}),  # now nothing is held out
        ("dictionary", {"rank_per_source": 8}),
        ("dictionary", {"beta": 1.0}),
        ("dictionary", {"sparsity": 0.3}),
        ("dictionary", {"max_iter": 20}),
        ("dictionary", {"tol": 0.0}),
        ("dictionary", {"max_frames": 1000}),
        ("dictionary", {"random": True}),
        ("model", {"options": {"n_layers": 2, "power": 0.5}}),
        ("model", {"options": {"n_layers": 2, "level": 0.1}}),
        ("model", {"kind": "DeepNMF", "options": {"n_layers": 2, "n_untied": 1, "context": 2}}),
        ("training", {"seed": 1}),
    ],
)
def test_what_decides_dictionaries_is_in_their_name(section, change):
    assert dictionaries_name(BASE.replace(**{section: change})) != dictionaries_name(BASE)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("data", {"max_frames": 50}),
        ("data", {"in_memory": False, "workers": 0}),
        ("model", {"options": {"n_layers": 5, "alpha_per": "atom", "sparsity": 0.3, "power": 1.0}}),
        ("model", {"kind": "SparseNMFMask", "options": {}}),
        ("model", {"kind": "DeepNMF", "options": {"n_layers": 2, "n_untied": 1, "context": 1}}),
        ("training", {"loss": "sdr", "learning_rate": 0.1, "max_epochs": 3, "batch_size": 4}),
    ],
)
def test_what_does_not_is_not(section, change):
    assert dictionaries_name(BASE.replace(**{section: change})) == dictionaries_name(BASE)


def test_files_held_out_matter_only_without_a_validation_set():
    validated = BASE.replace(data={"validation": "/sets/dev.csv"})
    other = BASE.replace(data={"validation": "/sets/other.csv", "held_out": 0.3})
    assert dictionaries_name(validated) == dictionaries_name(other)


def test_random_atoms_depend_on_their_number_and_the_seed_alone():
    random = BASE.replace(dictionary={"random": True})
    assert dictionaries_name(random) == dictionaries_name(random.replace(data={"train": "/sets/other.csv"}))
    for change in ({"dictionary": {"rank_per_source": 8}}, {"training": {"seed": 1}}):
        assert dictionaries_name(random) != dictionaries_name(random.replace(**change))
