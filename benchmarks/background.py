"""What it would be worth to know a background: `python -m benchmarks.background`.

A bound of what a few seconds of a noise can teach. For each background of a set the default is trained further, by
backpropagation, on all of that recording but the stretches that the set's own mixtures use, a minute or two, with
utterances and rooms of the training set; then it is scored on those mixtures. The rates were chosen on dev. Means go to
docs/results/background.json. DRNMF_CORPUS names the corpus.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.adaptation import score
from benchmarks.measure import commit, machine
from benchmarks.quality import RATE, Sound, Task, sounds, tasks
from drnmf import audio, enhance, load_model
from drnmf.data.manifests import read_manifest, write_manifest
from drnmf.data.mixing import Mixture
from drnmf.training.recipe import Recipe
from drnmf.training.run import train

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "background.json"
RECIPE = Path(__file__).parents[1] / "recipes" / "default.toml"
SETS = ("dev", "newhome", "unseen")
VOICES = 5  # every so-many-th utterance of the training set
SHORTEST = 6 * RATE  # samples of a stretch that is worth training on
RATES = {"learning_rate": 1e-3, "recurrent_rate": 5e-5}
EPOCHS = 2


def stretches(background: Path, used: list[tuple[int, int]]) -> list[Sound]:
    """What is left of a background when some of it has been cut out."""
    sound = audio.read_array(background)[0][0]
    is_left = np.ones(len(sound), bool)
    for first, last in used:
        is_left[first:last] = False
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_left.astype(int), [0]])))
    return [sound[first:last] for first, last in edges.reshape(-1, 2) if last - first >= SHORTEST]


def mixed(noises: list[Path], seconds: list[float]) -> list[Mixture]:
    """Utterances and rooms of the training set, with each noise about as often as it is long."""
    often = cycle([noise for noise, s in zip(noises, seconds, strict=True) for _ in range(max(1, round(s / 6)))])
    listed = read_manifest(Path(os.environ["DRNMF_CORPUS"]) / "train.csv")[::VOICES]
    return [replace(mixture, background=next(often), offset=0) for mixture in listed]


def recipe(place: Path) -> Recipe:
    """That of the default's second part, shorter and with smaller steps, on other mixtures."""
    given = Recipe.read(RECIPE)
    assert given.data.endless is not None
    endless = {**given.data.endless.model_dump(), "good_share": 0.1, "clean_share": 0.02, "sample_share": 0.0}
    lists = {name: str(place / f"{name}.csv") for name in ("train", "validation")}
    data = {**lists, "max_frames": 250, "endless": endless}
    training = {"batch_size": 8, "warmup_steps": 30, "average": 0.99, "max_epochs": EPOCHS, "validate_every": EPOCHS}
    return given.replace(data=data, model={"start": "default"}, training={**training, **RATES, "accelerator": "cpu"})


def score_background(listed: list[Task], folder: Path) -> dict[str, Any]:
    """The gain of each mixture of a background."""
    torch.set_num_threads(1)
    mixtures = [sounds(task) for task in listed]
    background = listed[0].mixture.background
    offsets = [task.mixture.offset for task in listed]
    used = [(offset, offset + len(x)) for offset, (x, _) in zip(offsets, mixtures, strict=True)]
    place = folder / f"{listed[0].set}-{background.stem}"
    place.mkdir()
    left = stretches(background, used)
    noises = [place / f"{i}.wav" for i in range(len(left))]
    for noise, sound in zip(noises, left, strict=True):
        audio.write(noise, sound[None], RATE)
    seconds = [len(sound) / RATE for sound in left]
    write_manifest(place / "train.csv", mixed(noises, seconds))
    write_manifest(place / "validation.csv", [task.mixture for task in tasks(["dev"], 20)])  # it decides nothing
    train(recipe(place), place / "run")
    before, after = (load_model(name).freeze() for name in ("default", place / "run"))
    gains = [score(enhance(x, RATE, after), y) - score(enhance(x, RATE, before), y) for x, y in mixtures]
    found = {"background": background.stem, "seconds": round(sum(seconds), 1), "gains": [round(g, 3) for g in gains]}
    print(listed[0].set, background.stem, f"{found['seconds']} s: {fmean(gains):+.2f} dB", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.background", description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"commit": commit(), "machine": machine(), **RATES, "sets": {}}
    with TemporaryDirectory() as folder, ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for name in arguments.sets:
            listed = tasks([name], 1)
            backgrounds = sorted({task.mixture.background for task in listed})
            groups = [[task for task in listed if task.mixture.background == path] for path in backgrounds]
            rows = list(pool.map(partial(score_background, folder=Path(folder)), groups))
            gains = [gain for row in rows for gain in row["gains"]]
            error = stdev(gains) / len(gains) ** 0.5
            summary = {"count": len(gains), "gain": [round(fmean(gains), 3), round(error, 3)]}
            found["sets"][name] = {**summary, "backgrounds": rows}
            arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
