"""Real trainings of very small models on endless mixtures of the bundled recordings."""

import csv
import math
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from drnmf import LSTMMask, load_model
from drnmf.data.endless import Chunk, Endless
from drnmf.errors import DivergedError, InputError
from drnmf.signal.spectra import HOP, WINDOW, analyse
from drnmf.training import checkpoints
from drnmf.training.endless import HOPELESS, EndlessBackpropagation
from drnmf.training.losses import si_sdr
from drnmf.training.recipe import Recipe
from drnmf.training.run import train
from drnmf.training.sections import (
    DataSettings,
    DictionarySettings,
    EndlessSettings,
    LossWeights,
    ModelSettings,
    TrainingSettings,
)
from examples import DEVICES, noisy, recording, seeded

PRIOR = ModelSettings(kind="PriorDRNMF", options={"n_layers": 2, "n_units": 6})
LSTM = ModelSettings(kind="LSTMMask", options={"n_layers": 1, "n_units": 8})


@pytest.fixture
def recipe(speech_dir, noise_dir):
    return Recipe(
        data=DataSettings(speech=str(speech_dir), noise=str(noise_dir), max_frames=125, endless=EndlessSettings()),
        dictionary=DictionarySettings(rank_per_source=6, max_iter=20, sparsity=0.3),
        model=PRIOR,
        training=TrainingSettings(
            loss=LossWeights(pesq=1.0, gain=0.1),
            batch_size=4,
            learning_rate=4e-2,
            recurrent_rate=2e-3,
            beta2=0.99,
            epsilon=1e-12,
            gradient_clip=1.0,
            schedule="cosine",
            warmup_steps=3,
            average=0.9,
            max_epochs=4,
            accelerator="cpu",
        ),
    )


def history(folder):
    with (folder / "history.csv").open() as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def checkpoint(folder):
    return checkpoints.read(folder / "last.ckpt")


@pytest.mark.parametrize("model", [PRIOR, LSTM], ids=lambda model: model.kind)
def test_training_lowers_the_loss(model, recipe, tmp_path):
    rate = {"learning_rate": 1e-2, "recurrent_rate": None} if model is LSTM else {}
    train(recipe.replace(model=dict(model), training={"max_epochs": 6, **rate}), tmp_path)
    rows = history(tmp_path)
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in rows] == [5 * epoch for epoch in range(7)]
    assert min(row["validation_loss"] for row in rows) < rows[0]["validation_loss"] - 0.5


def test_a_stopped_run_ends_as_if_it_had_not_been(recipe, tmp_path, monkeypatch):
    train(recipe, tmp_path / "unbroken")
    epoch = Endless.epoch

    def stop(self, number):
        if number == 2:
            raise RuntimeError("the power is gone")
        return epoch(self, number)

    monkeypatch.setattr(Endless, "epoch", stop)
    with pytest.raises(RuntimeError, match="the power is gone"):
        train(recipe, tmp_path / "broken")
    monkeypatch.undo()
    assert len(history(tmp_path / "broken")) == 3
    train(recipe, tmp_path / "broken")
    assert history(tmp_path / "broken")[1:] == history(tmp_path / "unbroken")[1:]
    broken, unbroken = (checkpoint(tmp_path / name)["state_dict"] for name in ("broken", "unbroken"))
    for name in unbroken:
        torch.testing.assert_close(broken[name], unbroken[name], rtol=0, atol=1e-6)
    broken, unbroken = (
        safetensors.torch.load_file(tmp_path / name / "model.safetensors") for name in ("broken", "unbroken")
    )
    for name in unbroken:
        torch.testing.assert_close(broken[name], unbroken[name], rtol=0, atol=1e-6)


def test_the_average_is_validated_and_saved(recipe, tmp_path):
    train(recipe.replace(training={"max_epochs": 2, "validate_every": 2, "patience": 1000}), tmp_path)
    rows = history(tmp_path)
    assert [row["epoch"] for row in rows] == [0, 2]
    state = checkpoint(tmp_path)
    averages = [group["average_P"] for group in state["optimizer_states"][0]["state"].values()]
    model = load_model(tmp_path)
    assert rows[1]["validation_loss"] < rows[0]["validation_loss"]  # else the first one would have been kept
    for group, average in zip(model.groups(), averages, strict=True):
        torch.testing.assert_close(torch.cat([p.detach().flatten() for p in group]), average)
    last = {name.removeprefix("model."): value for name, value in state["state_dict"].items()}
    assert not torch.allclose(model.log_W, last["log_W"], atol=1e-4)


def test_rates_rise_and_fall(recipe, tmp_path):
    train(recipe.replace(training={"max_epochs": 1}), tmp_path)  # five steps
    groups = checkpoint(tmp_path)["optimizer_states"][0]["param_groups"]
    assert [group["base"] for group in groups] == [4e-2, 2e-3]
    assert [group["steps"] for group in groups] == [5, 5]
    last = 0.5 + 0.5 * math.cos(math.pi * 4 / 5)
    for group in groups:
        assert group["lr"] == pytest.approx(last * group["base"])


@pytest.mark.parametrize(("warmup_steps", "epochs", "rate"), [(10, 20, 0.5), (99, 20, 0.5), (10, 900, 0.5), (0, 20, 1)])
def test_the_warm_up_is_a_tenth_of_all_steps_at_most(warmup_steps, epochs, rate):
    run = module()
    run.warmup_steps = warmup_steps
    run.trainer = SimpleNamespace(num_training_batches=5, max_epochs=epochs)
    assert run._rate(4) == rate


def module():
    model = LSTMMask(1, 4, generator=seeded())
    with torch.no_grad():
        model.lstm.weight_ih_l0[4:8] = 0
        model.lstm.weight_hh_l0[4:8] = 0
        model.lstm.bias_ih_l0[4:8] = 8  # it hardly forgets, whatever it hears
    adam = {"beta2": 0.99, "epsilon": 1e-8, "clip": 1.0, "average": 0.0}
    run = EndlessBackpropagation(model, si_sdr, 1e-3, recurrent_rate=1e-3, falling=False, warmup_steps=0, adam=adam)
    run.configure_optimizers()
    return run


def pieces(frames, count):
    """Chunks of a real recording that follow each other."""
    x = torch.nn.functional.pad(recording("speech/austen_0870").float(), (WINDOW - HOP, 0))
    size = HOP * (frames - 1) + WINDOW
    return [x[HOP * frames * i :][:size][None] for i in range(count)], x[None, : HOP * (frames * count - 1) + WINDOW]


def test_a_network_is_trained_to_learn_noises(recipe, tmp_path):
    endless = recipe.data.endless.model_copy(update={"sample_share": 0.7})
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"endless": endless})})
    train(recipe, tmp_path / "run")
    losses = [row["validation_loss"] for row in history(tmp_path / "run")]
    assert losses[-1] < losses[0] - 0.2
    with pytest.raises(InputError, match="LSTMMask cannot learn a noise"):
        train(recipe.model_copy(update={"model": LSTM}), tmp_path / "lstm")
    assert not (tmp_path / "lstm").exists()


def test_the_papers_objective_keeps_atoms_to_what_is_heard(recipe, tmp_path):
    explained = {}
    for weight in (0.0, 300.0):
        changed = recipe.replace(training={"loss": LossWeights(objective=weight), "max_epochs": 10})
        train(changed, tmp_path / f"{weight}", dictionaries=tmp_path / "dictionaries.safetensors")
        model = load_model(tmp_path / f"{weight}")
        with torch.no_grad():
            *_, objective = model.separate_and_judge(noisy().float()[None])
        explained[weight] = 1 - float(objective)
    assert explained[300.0] > explained[0.0] + 0.01
    with pytest.raises(InputError, match=r"\[training.loss\] objective: LSTMMask does not give"):
        train(recipe.replace(model=dict(LSTM), training={"loss": LossWeights(objective=1.0)}), tmp_path / "lstm")
    assert not (tmp_path / "lstm").exists()


def test_the_state_is_carried_and_reset():
    run = module()
    chunks, whole = pieces(130, 3)
    run._state = run.model.start(1)
    for i, x in enumerate(chunks):
        run._chunk = Chunk(x, x, torch.tensor([i == 0]), x[:, :0])
        run._gradients()
    _, expected = run.model.separate(analyse(whole).abs())
    for found, state in zip(run._state, expected, strict=True):
        torch.testing.assert_close(found, state.detach(), rtol=0, atol=1e-5)
    run._chunk = Chunk(chunks[2], chunks[2], torch.tensor([True]), x[:, :0])
    run._gradients()
    _, anew = run.model.separate(analyse(chunks[2]).abs())
    torch.testing.assert_close(run._state[1], anew[1].detach(), rtol=0, atol=1e-5)
    assert not torch.allclose(anew[1], expected[1], atol=1e-2)


def test_a_run_without_finite_gradients_ends():
    run = module()
    optimiser = run._optimiser
    (x, *_), _ = pieces(130, 1)
    run._state = run.model.start(1)
    run._chunk = Chunk(x * float("nan"), x, torch.tensor([True]), x[:, :0])
    for _ in range(HOPELESS - 1):
        optimiser.step(run._gradients)
    run._check_finite()
    assert all(state.isfinite().all() for state in run._state)
    assert float(run._sums[1]) == 0
    optimiser.step(run._gradients)
    with pytest.raises(DivergedError, match="no finite gradient"):
        run._check_finite()


@pytest.mark.parametrize("device", DEVICES[1:])
def test_a_gpu_trains_like_the_cpu(device, recipe, tmp_path):
    for name in ("cpu", "gpu"):
        dictionaries = tmp_path / "dictionaries.safetensors"
        train(recipe.replace(training={"accelerator": name}), tmp_path / name, dictionaries=dictionaries)
    cpu, gpu = history(tmp_path / "cpu"), history(tmp_path / "gpu")
    for ours, theirs in zip(gpu[1:], cpu[1:], strict=True):
        assert ours["validation_loss"] == pytest.approx(theirs["validation_loss"], abs=0.05)
