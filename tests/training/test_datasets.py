"""Which mixtures a recipe trains on, and which it is validated on."""

import pytest

from drnmf import InputError
from drnmf.data.folders import Pool
from drnmf.data.manifests import write_manifest
from drnmf.data.recordings import scan
from drnmf.progress import silent
from drnmf.training.datasets import datasets
from drnmf.training.recipe import Recipe
from drnmf.training.sections import DataSettings as Data
from drnmf.training.sections import ModelSettings, TrainingSettings


@pytest.fixture(scope="module")
def manifests(speech_dir, noise_dir, tmp_path_factory):
    """Twelve mixtures to train on, and two to validate on."""
    folder = tmp_path_factory.mktemp("manifests")
    pool = Pool.from_folders(speech_dir, noise_dir)
    sizes = scan(pool.files)
    for name, count, seed in (("train", 12, 1), ("dev", 2, 2)):
        write_manifest(folder / f"{name}.csv", pool.draw(sizes, seed=seed, count=count))
    return {"train": str(folder / "train.csv"), "validation": str(folder / "dev.csv")}


def sets(data, **training):
    settings = TrainingSettings(accelerator="cpu", **training)
    return datasets(Recipe(data=data, model=ModelSettings(options={"n_layers": 2}), training=settings), silent)


def drawn(dataset, epoch=0):
    return [(item.speech, item.background, item.offset, item.snr_db) for item in dataset.items(epoch)]


def test_every_nth_utterance_from_the_first_on(manifests):
    (whole, validation), (half, same) = (sets(Data(**manifests, subset=n)) for n in (1, 2))
    assert len(whole) == 12
    assert drawn(half) == drawn(whole)[::2]
    assert drawn(same) == drawn(validation)
    assert len(validation) == 2


def test_what_is_held_out_is_not_trained_on(manifests, speech_dir, noise_dir):
    for data in (Data(train=manifests["train"]), Data(speech=str(speech_dir), noise=str(noise_dir), fresh=True)):
        training, validation = sets(data)
        assert {item.speech for item in validation.items()}
        assert not {item.speech for item in training.items()} & {item.speech for item in validation.items()}


def test_only_training_mixtures_are_fresh(manifests):
    training, validation = sets(Data(**manifests, fresh=True))
    assert drawn(training, 0) != drawn(training, 1)
    assert drawn(validation, 0) == drawn(validation, 1)


def test_levels_of_fresh_mixtures_can_be_set(manifests, speech_dir, noise_dir):
    for source in (manifests, {"speech": str(speech_dir), "noise": str(noise_dir)}):
        training, validation = sets(Data(**source, fresh=True, levels_dbfs=[-60, -50]))
        levels = [item.level_dbfs for epoch in range(5) for item in training.items(epoch)]
        assert all(-60 <= level <= -50 for level in levels)
        assert max(levels) - min(levels) > 5
        assert all(-33 <= item.level_dbfs <= -25 for item in validation.items())


def test_a_gpu_that_is_not_there(manifests, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    recipe = Recipe(
        data=Data(**manifests),
        model=ModelSettings(options={"n_layers": 2}),
        training=TrainingSettings(accelerator="gpu"),
    )
    with pytest.raises(InputError, match=r"\[training\] accelerator = 'gpu': PyTorch finds no GPU here"):
        datasets(recipe, silent)
