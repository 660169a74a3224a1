"""Steps 1 and 2: what the dictionaries are learned on, and when two recipes share them."""

import pytest
import safetensors.torch
import torch

from drnmf.data.batches import Dataset
from drnmf.data.folders import Pool
from drnmf.errors import InputError
from drnmf.signal.level import running_level
from drnmf.signal.spectra import stft
from drnmf.training.dictionaries import _features, dictionaries_name, make_dictionaries
from drnmf.training.recipe import Recipe
from drnmf.training.sections import DataSettings, ModelSettings

BASE = Recipe(
    data=DataSettings(train="/sets/train.csv", fresh=True),
    model=ModelSettings(options={"n_layers": 2}),
)


@pytest.fixture(scope="module")
def dataset(speech_dir, noise_dir):
    """Utterances of different lengths: in a batch, all but the longest are padded."""
    return Dataset(Pool.from_folders(speech_dir, noise_dir))


def magnitudes(dataset):
    """Clean and noisy magnitudes (T, F) of each utterance."""
    for item in dataset.items():
        noisy, clean = dataset.waveforms(item)
        yield stft(clean).abs(), stft(noisy).abs()


@pytest.mark.parametrize("options", [{}, {"power": 0.5}, {"level": 0.1}, {"level": 0.1, "power": 0.5}])
def test_dictionaries_are_learned_on_the_model_s_features_without_padding(options, dataset):
    def seen(magnitude):
        level, power = options.get("level"), options.get("power", 1.0)
        gain = 1.0 if level is None else level / running_level(magnitude[None])[0][0]
        return (magnitude * gain) ** power

    found = _features(BASE.replace(model={"options": {"n_layers": 2, **options}}), dataset)
    for features, frames in zip(found, zip(*magnitudes(dataset), strict=True), strict=True):
        torch.testing.assert_close(
            features, torch.cat([seen(magnitude) for magnitude in frames]).mT, rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds no dictionary W"),
        (b"\xff" * 100, "holds no dictionary W"),
        (safetensors.torch.save({"V": torch.rand(257, 4)}), r"holds no dictionary W \('W'\)"),
        (safetensors.torch.save({"W": torch.full((257, 4), torch.nan)}), "NaN or infinite"),
        (safetensors.torch.save({"W": torch.rand(4)}), "a dictionary is a float array"),
        (safetensors.torch.save({"W": torch.rand(129, 4)}), "its atoms have 129 values, this model's have 257"),
    ],
)
def test_a_file_that_holds_no_dictionary_is_one_line(content, reason, dataset, tmp_path):
    (tmp_path / "W").write_bytes(content)
    with pytest.raises(InputError, match=rf"W: .*{reason}.*delete it") as error:
        make_dictionaries(BASE, tmp_path / "W", dataset)
    assert "\n" not in str(error.value)


def test_too_many_frames_are_thinned_out_evenly(dataset):
    (all_frames, _), (some, _) = (
        _features(BASE.replace(dictionary={"max_frames": n}), dataset) for n in (2_000_000, 1000)
    )
    step = -(-all_frames.shape[1] // 1000)
    torch.testing.assert_close(some, all_frames[:, ::step])


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
