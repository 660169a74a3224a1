"""What TensorBoard would show, read from the event file of real trainings in both ways."""

import csv
import io

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from drnmf import istft, load_model, stft
from drnmf.data.batches import Dataset
from drnmf.data.folders import Pool
from drnmf.data.manifests import read_manifest, write_manifest
from drnmf.data.recordings import scan
from drnmf.signal import audio
from drnmf.signal.metrics import sdr
from drnmf.signal.spectra import n_frames
from drnmf.training.board import chosen, spectrograms
from drnmf.training.recipe import Recipe
from drnmf.training.run import train
from drnmf.training.sections import DataSettings, DictionarySettings, EndlessSettings, ModelSettings, TrainingSettings
from examples import recording

EPOCHS = 3
LENGTH = 24000  # samples of an utterance: enough where only the machinery is tested


def history(folder):
    with (folder / "history.csv").open() as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="session")
def manifests(speech_dir, noise_dir, tmp_path_factory):
    """Mixtures to train on, and four to validate on."""
    folder = tmp_path_factory.mktemp("manifests")
    for path in speech_dir.glob("*.flac"):
        audio.write(folder / path.name, audio.read(path, count=LENGTH)[0], 16000)
    pool = Pool.from_folders(folder, noise_dir)
    mixtures = pool.draw(scan(pool.files), seed=0, count=6)
    write_manifest(folder / "train.csv", mixtures[:2])
    write_manifest(folder / "validation.csv", mixtures[2:])
    return {"train": str(folder / "train.csv"), "validation": str(folder / "validation.csv")}


@pytest.fixture(scope="session", params=["ordinary", "endless"])
def run(request, manifests, tmp_path_factory):
    """The way of training, the folder of a run, and its events."""
    folder = tmp_path_factory.mktemp(request.param)
    is_endless = request.param == "endless"
    data = DataSettings(**manifests, max_frames=125, endless=EndlessSettings() if is_endless else None)
    settings = {"batch_size": 4, "learning_rate": 4e-2, "epsilon": 1e-12, "schedule": "cosine", "accelerator": "cpu"}
    if is_endless:
        settings |= {"recurrent_rate": 2e-3, "average": 0.5}
    recipe = Recipe(
        data=data,
        dictionary=DictionarySettings(rank_per_source=6, max_iter=20, sparsity=0.3),
        model=ModelSettings(kind="PriorDRNMF", options={"n_layers": 2, "n_units": 6}),
        training=TrainingSettings(max_epochs=EPOCHS, **settings),
    )
    train(recipe, folder)
    events = EventAccumulator(
        str(folder / "tensorboard"), size_guidance=dict.fromkeys(("images", "audio", "scalars"), 0)
    )
    return request.param, folder, events.Reload()


def curve(events, name):
    return {event.step: event.value for event in events.Scalars(name)}


def test_curves_have_a_finite_value_for_every_epoch(run):
    way, folder, events = run
    rates = ["learning_rate/all"] if way == "ordinary" else ["learning_rate/layers", "learning_rate/recurrent"]
    whole = ["loss/validation", "sdr"]
    names = {*whole, "loss/training", "gradient_norm", *rates}
    assert names <= set(events.Tags()["scalars"])
    for name in names:
        values = curve(events, name)
        assert list(values) == list(
            range(name not in whole, EPOCHS + 1)
        )  # of step 0 only what there is before training
        assert np.isfinite(list(values.values())).all()
    rows = history(folder)
    for key in ("training", "validation"):
        told = curve(events, f"loss/{key}")
        assert told == pytest.approx({int(row["epoch"]): row[f"{key}_loss"] for row in rows if row["epoch"] in told})
    assert all(norm > 1e-6 for norm in curve(events, "gradient_norm").values())
    falling = list(curve(events, rates[0]).values())
    assert falling[0] > falling[1] > falling[2]


def test_sounds_and_pictures_of_three_mixtures(run):
    _, _, events = run
    sounds = {f"mixture {i}/{kind}" for i in (1, 2, 3) for kind in ("noisy", "enhanced", "clean")}
    assert set(events.Tags()["audio"]) == sounds
    assert len(events.Tags()["images"]) == 3
    for name in sounds:
        steps = [event.step for event in events.Audio(name)]
        assert steps == ([0, 1, 2, 3] if name.endswith("enhanced") else [0])  # 3: the last
    image = events.Images("mixture 1: noisy, enhanced, clean")
    assert [event.step for event in image] == [0, 1, 2, 3]
    picture = np.asarray(Image.open(io.BytesIO(image[-1].encoded_image_string)))
    assert picture.shape == (3 * 128 + 2 * 4, n_frames(LENGTH) // 2, 3)


def test_what_is_heard_is_the_model_of_that_epoch(run, manifests):
    _, folder, events = run
    rows = history(folder)
    best = int(min(rows, key=lambda row: row["validation_loss"])["epoch"])
    assert best > 0
    model = load_model(folder)
    estimates, references = [], []
    for number, (noisy, clean) in enumerate(chosen(Dataset(read_manifest(manifests["validation"]))), 1):
        X = stft(noisy)
        expected = istft(model(X.abs()[None])[0][0] * X, len(noisy)).detach()
        estimates.append(expected)
        references.append(clean)
        sound = next(event for event in events.Audio(f"mixture {number}/enhanced") if event.step == best)
        y, rate = soundfile.read(io.BytesIO(sound.encoded_audio_string), dtype="float32")
        assert rate == 16000
        np.testing.assert_allclose(y, expected, atol=1e-4)
    assert curve(events, "sdr")[best] == pytest.approx(
        float(sdr(torch.cat(estimates), torch.cat(references))), abs=1e-3
    )


def test_a_spectrogram_shows_a_tone_where_it_is():
    t = torch.arange(16000) / 16000
    tone = 0.5 * torch.sin(2 * torch.pi * 6000 * t)  # three quarters up
    top, bottom = spectrograms([tone, torch.zeros(16000)])[:128].sum(-1), spectrograms([tone, torch.zeros(16000)])[132:]
    assert abs(int(top.mean(1).argmax()) - 32) <= 1
    assert (bottom == (0, 0, 4)).all()
    assert spectrograms([recording("speech/austen_0880").float()]).dtype == np.uint8
