"""Real trainings of very small models on the bundled recordings."""

import contextlib
import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from command import drnmf, wait_for_file
from drnmf import DRNMF, InputError, load_model
from drnmf.data.batches import Dataset
from drnmf.data.folders import Pool
from drnmf.data.manifests import write_manifest, write_mixtures
from drnmf.data.recordings import Recordings, scan
from drnmf.errors import DivergedError
from drnmf.signal import audio
from drnmf.signal.spectra import stft
from drnmf.training import checkpoints, run
from drnmf.training.backpropagation import Backpropagation, Record
from drnmf.training.recipe import Recipe
from drnmf.training.run import train
from drnmf.training.sections import DataSettings, DictionarySettings, LossWeights, ModelSettings, TrainingSettings

SMALL = DictionarySettings(rank_per_source=8, max_iter=20)


def small_recipe(data, kind="DRNMF", options=None, **training):
    settings = {"max_epochs": 2, "batch_size": 8, "learning_rate": 1e-2, "accelerator": "cpu", **training}
    options = {"n_layers": 2} if options is None else options
    return Recipe(
        data=data,
        dictionary=SMALL,
        model=ModelSettings(kind=kind, options=options),
        training=TrainingSettings(**settings),
    )


@pytest.fixture
def folders(speech_dir, noise_dir):
    """All of the bundled recordings."""
    return DataSettings(speech=str(speech_dir), noise=str(noise_dir), max_frames=100)


@pytest.fixture(scope="session")
def clips(speech_dir, noise_dir, tmp_path_factory):
    """The first one and a half seconds of the speech: enough where only the machinery is tested."""
    folder = tmp_path_factory.mktemp("clips")
    for path in speech_dir.glob("*.flac"):
        audio.write(folder / path.name, audio.read(path, count=24000)[0], 16000)
    return DataSettings(speech=str(folder), noise=str(noise_dir), max_frames=50)


def history(folder):
    with (folder / "history.csv").open() as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def last_weights(folder):
    return checkpoints.read(folder / "last.ckpt")["state_dict"]


def run_command(recipe, folder):
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(recipe.to_toml())
    command = [sys.executable, "-m", "drnmf.cli", "train", str(path), "-o", str(folder)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_training_lowers_the_loss(folders, tmp_path):
    train(small_recipe(folders, max_epochs=5), tmp_path)
    rows = history(tmp_path)
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert math.isnan(rows[0]["training_loss"])
    assert rows[5]["training_loss"] < 0.95 * rows[1]["training_loss"]
    assert min(row["validation_loss"] for row in rows) < 0.99 * rows[0]["validation_loss"]


def test_the_run_leaves_everything_behind(clips, tmp_path):
    recipe = small_recipe(clips)
    train(recipe, tmp_path)
    assert Recipe.read(tmp_path / "recipe.toml") == recipe
    assert json.loads((tmp_path / "versions.json").read_text())["torch"] == torch.__version__
    assert safetensors.torch.load_file(tmp_path / "dictionaries.safetensors")["W"].shape == (257, 16)
    assert list((tmp_path / "tensorboard").iterdir())
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["parameters"] == 2 * 257 * 16 + 2 + 16
    best = min(history(tmp_path), key=lambda row: row["validation_loss"])
    assert summary["validation_loss"] == best["validation_loss"]
    assert summary["seconds"] > 0
    mask, _ = load_model(tmp_path)(torch.rand(1, 3, 257))
    assert mask.shape == (1, 3, 257)


def test_a_recipe_that_starts_from_another_runs_that_one_first(clips, tmp_path, monkeypatch):
    first = small_recipe(clips, seed=3)
    (tmp_path / "first.toml").write_text(first.to_toml())
    recipe = small_recipe(clips, seed=5).replace(model={"start": str(tmp_path / "first.toml"), "options": {}})
    train(recipe, tmp_path / "run")
    assert Recipe.read(tmp_path / "run" / "first" / "recipe.toml") == first.replace(training={"seed": 5})
    assert Recipe.read(tmp_path / "run" / "recipe.toml") == recipe
    last_row = min(history(tmp_path / "run" / "first"), key=lambda row: row["validation_loss"])
    assert history(tmp_path / "run")[0]["validation_loss"] == pytest.approx(last_row["validation_loss"], rel=1e-5)
    train(recipe, tmp_path / "run")  # finished: nothing is done anew
    with pytest.raises(InputError, match=r"run: holds a run of another recipe \(\[training\] seed = 5 there, 6 here"):
        train(recipe.replace(training={"seed": 6}), tmp_path / "run")
    (tmp_path / "first.toml").write_text(recipe.to_toml())
    with pytest.raises(InputError, match=r"first.toml: starts from a recipe, too; one before another is the most"):
        train(recipe, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_best_weights_are_kept_or_the_last(keep, clips, tmp_path):
    train(small_recipe(clips, max_epochs=4, learning_rate=5.0, keep=keep), tmp_path)
    rows = history(tmp_path)
    best = min(rows, key=lambda row: row["validation_loss"])
    assert best is not rows[-1]  # such steps are too large
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["epoch"] == (best if keep == "best" else rows[-1])["epoch"]
    last = {name.removeprefix("model."): tensor for name, tensor in last_weights(tmp_path).items()}
    same = all(torch.equal(tensor, last[name]) for name, tensor in load_model(tmp_path).state_dict().items())
    assert same == (keep == "last")


def counting(function, calls):
    """The function, which also adds to a list whenever it is called."""

    def wrapped(*arguments, **options):
        calls.append((arguments, options))
        return function(*arguments, **options)

    return wrapped


def test_killed_and_continued_is_the_same_as_unbroken(clips, tmp_path, monkeypatch):
    recipe = small_recipe(clips.replace(fresh=True), max_epochs=60, schedule="cosine", patience=60)
    train(recipe, tmp_path / "unbroken")
    process = run_command(recipe, tmp_path / "killed")
    wait_for_file(tmp_path / "killed" / "last.ckpt", process)
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert not (tmp_path / "killed" / "summary.json").is_file()
    done = checkpoints.Checkpoints().load_checkpoint(tmp_path / "killed" / "last.ckpt")["epoch"] + 1
    begun = []
    monkeypatch.setattr(Backpropagation, "on_train_epoch_start", counting(Backpropagation.on_train_epoch_start, begun))
    train(recipe, tmp_path / "killed")
    epochs = history(tmp_path / "unbroken")[-1]["epoch"]
    assert len(begun) == epochs - done < epochs  # it was continued, not started again
    assert (tmp_path / "killed" / "history.csv").read_text() == (tmp_path / "unbroken" / "history.csv").read_text()
    killed, unbroken = last_weights(tmp_path / "killed"), last_weights(tmp_path / "unbroken")
    assert all(torch.equal(killed[name], unbroken[name]) for name in unbroken)


def test_a_run_whose_checkpoint_is_damaged_goes_on_from_the_one_before(clips, tmp_path, caplog):
    recipe = small_recipe(clips, max_epochs=3)
    train(recipe, tmp_path)
    last, rows = last_weights(tmp_path), history(tmp_path)[1:]
    (tmp_path / "summary.json").unlink()
    (tmp_path / "last.ckpt").write_bytes(b"")  # what a kill could leave
    train(recipe, tmp_path)
    assert "last.ckpt: this checkpoint is damaged; the one before it is used" in caplog.text
    again = last_weights(tmp_path)
    assert all(torch.equal(again[name], last[name]) for name in last)
    assert history(tmp_path)[1:] == rows


@pytest.mark.parametrize("inside", ["", "runs/", "mine/"])
def test_a_run_that_cannot_begin_leaves_no_folder(inside, clips, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="no such folder"):
        train(small_recipe(clips.replace(noise=str(tmp_path / "nowhere"))), tmp_path / inside / "run")
    with pytest.raises(InputError, match="no such folder"):
        train(small_recipe(clips.replace(noise=str(tmp_path / "nowhere"))), tmp_path / "mine")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_stops_while_it_makes_something_can_go_on(clips, tmp_path, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "initial_model", stop)
    with pytest.raises(KeyboardInterrupt):
        train(small_recipe(clips), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"dictionaries.safetensors", "recipe.toml", "versions.json"}
    with pytest.raises(InputError, match="another recipe"):
        train(small_recipe(clips, batch_size=3), tmp_path)


def test_going_on_from_a_trained_model(clips, tmp_path):
    recipe = Recipe(
        data=clips.replace(fresh=True, varied=True),
        model=ModelSettings(start="default"),
        training=TrainingSettings(learning_rate=2e-3, max_epochs=2, gradient_clip=1.0, accelerator="cpu"),
    )
    train(recipe, tmp_path / "mine")
    before, after = load_model("default"), load_model(tmp_path / "mine")
    assert after.config == before.config
    assert not (tmp_path / "mine" / "dictionaries.safetensors").exists()
    rows = list(csv.DictReader((tmp_path / "mine" / "history.csv").open()))
    assert float(rows[-1]["validation_loss"]) < float(rows[0]["validation_loss"])
    assert not torch.equal(after.log_W, before.log_W)
    with pytest.raises(InputError, match="leave the others out"):
        ModelSettings(start="default", options={"n_layers": 2})
    with pytest.raises(InputError, match="nobody"):
        train(recipe.replace(model={"start": "nobody"}), tmp_path / "other")


def test_a_loss_that_needs_longer_sequences_is_told_before_training(clips, tmp_path):
    with pytest.raises(
        InputError, match=r"loss = 'snr' needs sequences of a second .* the longest to train on has \d+"
    ):
        train(small_recipe(clips, loss="snr"), tmp_path)


def test_a_falling_rate_ends_near_zero(clips, tmp_path):
    train(small_recipe(clips, max_epochs=4, schedule="cosine"), tmp_path)
    rate = small_recipe(clips).training.learning_rate
    state = checkpoints.read(tmp_path / "last.ckpt")
    assert state["lr_schedulers"][0]["_last_lr"][0] == pytest.approx(0, abs=1e-9)
    assert state["lr_schedulers"][0]["base_lrs"] == [rate]


def test_adam_s_memory_can_be_set(clips, tmp_path):
    train(small_recipe(clips, max_epochs=1, beta2=0.99), tmp_path)
    (state,) = checkpoints.read(tmp_path / "last.ckpt")["optimizer_states"]
    assert state["param_groups"][0]["betas"] == (0.9, 0.99)


def test_two_processes_train_like_one(clips, tmp_path):
    one, two = (small_recipe(clips, max_epochs=2, devices=n) for n in (1, 2))
    train(one, tmp_path / "one")
    process = run_command(two, tmp_path / "two")
    _, said = process.communicate(timeout=900)  # two imports of everything, on a machine that may be busy
    assert process.returncode == 0, said
    expected, found = last_weights(tmp_path / "one"), last_weights(tmp_path / "two")
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-4)
    assert history(tmp_path / "two")[-1]["validation_loss"] == pytest.approx(
        history(tmp_path / "one")[-1]["validation_loss"], rel=1e-5
    )


def test_a_run_that_diverges_says_so_and_keeps_the_best_weights(clips, tmp_path):
    with pytest.raises(DivergedError, match=r"best weights .* kept in .*lower learning_rate"):
        train(small_recipe(clips, learning_rate=1e4, max_epochs=20), tmp_path)
    mask, _ = load_model(tmp_path)(torch.rand(1, 3, 257))
    assert torch.isfinite(mask).all()


def test_a_run_that_diverges_ends_with_status_3(clips, tmp_path):
    recipe = small_recipe(clips, learning_rate=1e4, max_epochs=20)
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    said = drnmf("train", tmp_path / "recipe.toml", "-o", tmp_path / "run", status=3).stderr
    assert "the best weights before that are kept in" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("first", "last", "diverged"),
    [
        (1.0, 109.9, False),
        (1.0, 110.1, True),
        (-5.0, 149.9, False),  # a loss in dB can be negative
        (-5.0, 150.1, True),
        (1.0, math.nan, True),
        (1.0, math.inf, True),
    ],
)
def test_a_validation_loss_that_leaves_all_bounds_ends_the_run(first, last, diverged, tmp_path):
    module = SimpleNamespace(validation_loss=first, epoch_loss=lambda: 1.0)
    trainer = SimpleNamespace(current_epoch=0, global_step=0, is_global_zero=False, should_stop=False)
    record = Record(module, tmp_path, patience=50)
    record.on_sanity_check_end(trainer, module)
    module.validation_loss = last
    with pytest.raises(DivergedError, match="left all bounds") if diverged else contextlib.nullcontext():
        record.on_train_epoch_end(trainer, module)


@pytest.mark.parametrize(
    ("kind", "options", "settings", "expected"),
    [
        ("DRNMF", {"n_layers": 2}, {}, (1e-3, None)),
        ("LSTMMask", {"n_layers": 1, "n_units": 8}, {}, (1e-4, 1.0)),
        ("LSTMMask", {"n_layers": 1, "n_units": 8}, {"learning_rate": 2e-3, "gradient_clip": 0.0}, (2e-3, None)),
        ("DRNMF", {"n_layers": 2}, {"learning_rate": 2e-3, "gradient_clip": 0.5}, (2e-3, 0.5)),
    ],
)
def test_rate_and_clipping_are_the_paper_s_or_the_recipe_s(
    kind, options, settings, expected, clips, tmp_path, monkeypatch
):
    made = []
    monkeypatch.setattr(run.L, "Trainer", counting(run.L.Trainer, made))
    settings = {"learning_rate": None, "max_epochs": 1, **settings}
    train(small_recipe(clips, kind, options, **settings), tmp_path)
    (optimizer,) = checkpoints.read(tmp_path / "last.ckpt")["optimizer_states"]
    ((_, given),) = made
    assert (optimizer["param_groups"][0]["lr"], given["gradient_clip_val"]) == expected


def test_patience_ends_a_run_and_keeps_its_best(clips, tmp_path):
    train(small_recipe(clips, learning_rate=0.1, max_epochs=50, patience=2), tmp_path)
    rows = history(tmp_path)
    best = min(rows, key=lambda row: row["validation_loss"])
    assert rows[-1]["epoch"] == best["epoch"] + 2 < 50


def test_a_finished_run_is_left_alone_and_another_recipe_refused(clips, tmp_path):
    train(small_recipe(clips), tmp_path)
    before = (tmp_path / "last.ckpt").stat().st_mtime_ns
    train(small_recipe(clips), tmp_path)
    assert (tmp_path / "last.ckpt").stat().st_mtime_ns == before


def test_a_finished_run_goes_on_for_more_epochs_as_if_it_had_never_ended(clips, tmp_path):
    train(small_recipe(clips, max_epochs=2), tmp_path / "run")
    train(small_recipe(clips, max_epochs=4), tmp_path / "run")
    train(small_recipe(clips, max_epochs=4), tmp_path / "unbroken")
    assert (tmp_path / "run/history.csv").read_text() == (tmp_path / "unbroken/history.csv").read_text()
    longer, unbroken = last_weights(tmp_path / "run"), last_weights(tmp_path / "unbroken")
    assert all(torch.equal(longer[name], unbroken[name]) for name in unbroken)
    assert json.loads((tmp_path / "run/summary.json").read_text())["epochs"] == 4
    assert Recipe.read(tmp_path / "run/recipe.toml").training.max_epochs == 4


@pytest.mark.parametrize(
    ("changes", "options", "difference"),
    [
        ({"batch_size": 3}, {}, "([training] batch_size = 8 there, 3 here)"),
        ({}, {"n_layers": 3}, "([model] n_layers = 2 there, 3 here)"),
        ({"max_epochs": 1}, {}, "([training] max_epochs = 2 there, 1 here)"),
        ({"loss": LossWeights(pesq=1.0)}, {}, "there, None here; [training.loss] si_sdr = None there, 1.0 here; "),
        ({"beta2": 0.5, "seed": 1, "patience": 3, "devices": 2}, {}, "; and 1 more)"),
    ],
)
def test_another_recipe_is_refused_with_the_difference(changes, options, difference, clips, tmp_path):
    (tmp_path / "recipe.toml").write_text(small_recipe(clips).to_toml())
    other = small_recipe(clips, options={"n_layers": 2, **options}, **changes)
    with pytest.raises(InputError, match=re.escape(difference)):
        train(other, tmp_path)


def test_a_rate_that_falls_to_the_end_has_one_end(clips, tmp_path):
    (tmp_path / "recipe.toml").write_text(small_recipe(clips, schedule="cosine").to_toml())
    with pytest.raises(InputError, match="max_epochs = 2 there, 3 here, which sets how the rate falls"):
        train(small_recipe(clips, schedule="cosine", max_epochs=3), tmp_path)


def test_a_run_goes_on_though_the_package_has_learned_new_settings(clips, tmp_path):
    train(small_recipe(clips), tmp_path)
    (tmp_path / "summary.json").unlink()
    path = tmp_path / "recipe.toml"
    before = path.read_text()
    path.write_text(before.replace("beta2 = 0.999\n", ""))  # as a version before it wrote it
    train(small_recipe(clips), tmp_path)
    assert (tmp_path / "summary.json").is_file()
    assert path.read_text() == before
    for other in (before.replace("beta2 = 0.999\n", "beta2 = 0.99\n"), "not a recipe"):
        path.write_text(other)
        with pytest.raises(InputError, match="another recipe"):
            train(small_recipe(clips), tmp_path)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTMMask", {"n_layers": 1, "n_units": 8}),
        ("DeepNMF", {"n_layers": 3, "n_untied": 2, "context": 2}),
        ("SistaRNN", {"n_layers": 2}),
        (
            "DRNMF",
            {"n_layers": 1, "power": 0.5, "alpha_range": "weighted", "alpha_per": "atom", "train_sparsity": True},
        ),
    ],
)
def test_every_kind_of_model_trains(kind, options, clips, tmp_path):
    train(small_recipe(clips, kind, options, max_epochs=3), tmp_path)
    rows = history(tmp_path)
    assert rows[-1]["training_loss"] < rows[1]["training_loss"]


@pytest.mark.parametrize("kind", ["SparseNMFMask", "ISTAMask"])
def test_models_without_trained_weights_need_only_dictionaries(kind, clips, tmp_path):
    train(small_recipe(clips, kind, {"n_iter": 3}), tmp_path)
    assert type(load_model(tmp_path)).__name__ == kind


@pytest.mark.parametrize("loss", ["phase_sensitive", "si_sdr", "sdr"])
def test_other_losses_are_lowered_too(loss, clips, tmp_path):
    train(small_recipe(clips.replace(max_frames=200), loss=loss, max_epochs=4, batch_size=4), tmp_path)
    rows = history(tmp_path)
    assert rows[-1]["training_loss"] < rows[1]["training_loss"]


def test_mixed_precision_trains(clips, tmp_path):
    train(small_recipe(clips, precision="bf16-mixed", max_epochs=3), tmp_path)
    rows = history(tmp_path)
    assert rows[-1]["training_loss"] < rows[1]["training_loss"]


def test_reading_from_disk_changes_nothing(clips, tmp_path):
    for name, in_memory in (("memory", True), ("disk", False)):
        train(small_recipe(clips.replace(in_memory=in_memory, workers=0)), tmp_path / name)
    assert history(tmp_path / "disk")[1:] == history(tmp_path / "memory")[1:]


@pytest.fixture
def mixtures(clips):
    pool = Pool.from_folders(clips.speech, clips.noise)
    sizes = scan(pool.files)
    return pool.draw(sizes, seed=1), Recordings(sizes)


def test_from_a_manifest_and_from_pairs(mixtures, tmp_path):
    items, recordings = mixtures
    write_manifest(tmp_path / "train.csv", items)
    write_mixtures(tmp_path, items, recordings, suffix=".wav", subtype="FLOAT")
    manifest = DataSettings(train=str(tmp_path / "train.csv"), max_frames=50)
    pairs = DataSettings(noisy=str(tmp_path / "noisy"), clean=str(tmp_path / "clean"), max_frames=50)
    for name, data in (("manifest", manifest), ("pairs", pairs)):
        train(small_recipe(data), tmp_path / name)
    # different files are held out (the pairs lie in order of name), so only the kind of result is compared
    assert history(tmp_path / "pairs")[-1].keys() == history(tmp_path / "manifest")[-1].keys()


def test_the_validation_loss_is_that_of_the_validation_set(mixtures, tmp_path):
    items, _ = mixtures
    write_manifest(tmp_path / "train.csv", items[:3])
    write_manifest(tmp_path / "validation.csv", items[3:])
    files = {name: str(tmp_path / f"{name}.csv") for name in ("train", "validation")}
    train(small_recipe(DataSettings(**files), max_epochs=1), tmp_path / "run")
    W = safetensors.torch.load_file(tmp_path / "run" / "dictionaries.safetensors")["W"]
    untrained, dataset = DRNMF.from_dictionary(W, n_layers=2), Dataset(items[3:])
    error = []
    for item in items[3:]:
        X, Y = (stft(waveform) for waveform in dataset.waveforms(item))
        mask, _ = untrained(X.abs()[None])
        error.append((mask[0] * X.abs() - Y.abs()).square())
    expected = torch.cat(error).mean().item()
    assert history(tmp_path / "run")[0]["validation_loss"] == pytest.approx(expected, rel=1e-4)


def test_from_a_chime2_tree(mixtures, tmp_path):
    items, recordings = mixtures
    write_mixtures(tmp_path, items, recordings, suffix=".wav")
    for part, which in (("isolated", "noisy"), ("scaled", "clean")):
        for name in ("si_tr_s", "si_dt_05"):
            folder = tmp_path / part / name / "0dB" / "wsj0" / name / "01a"
            folder.mkdir(parents=True)
            for i, path in enumerate(sorted((tmp_path / which).iterdir())):
                if (i < 3) == (name == "si_tr_s"):
                    (folder / path.name).write_bytes(path.read_bytes())
    train(small_recipe(DataSettings(chime2=str(tmp_path), max_frames=50)), tmp_path / "run")
    assert len(history(tmp_path / "run")) == 3


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("DRNMFF", {}, "unknown kind of model"),
        ("DRNMF", {"layers": 5}, "layers"),
        ("DRNMF", {"n_layers": 2, "alpha_range": "wild"}, "alpha_range"),
    ],
)
def test_a_wrong_model_is_told_before_the_data_are_read(kind, options, message, tmp_path):
    nowhere = DataSettings(train=str(tmp_path / "missing.csv"))
    with pytest.raises(InputError, match=message):
        train(small_recipe(nowhere, kind, options), tmp_path / "run")
