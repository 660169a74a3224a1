"""What training a model further on three seconds of a noise gives: `python -m benchmarks.finetuning`.

For some mixtures of newhome and unseen, `drnmf train --from default --speech A --noise B` is run for three epochs, as a
user would: A are 64 utterances of the training set, B is the sample that `benchmarks.adaptation` uses, repeated until
it is as long as they are. Beside it what learning the same sample gives, with the seconds that both take. The means go
to docs/results/finetuning.json. DRNMF_CORPUS names the corpus.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.adaptation import before, score
from benchmarks.measure import commit, machine
from benchmarks.quality import RATE, Sound, Task, sounds, tasks
from drnmf import adapt, audio, enhance
from drnmf.data.manifests import read_manifest

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "finetuning.json"
SETS, EPOCHS, VOICES, TIMES = ("newhome", "unseen"), 3, 64, 14


def voices(folder: Path) -> None:
    """Utterances of the training set, from its beginning to its end."""
    speech = [mixture.speech for mixture in read_manifest(Path(os.environ["DRNMF_CORPUS"]) / "train.csv")]
    folder.mkdir()
    for path in speech[:: len(speech) // VOICES][:VOICES]:
        shutil.copy(path, folder)


def trained(model: str, sample: Sound, voices: Path, folder: Path) -> str:
    """The folder of a model that was trained further."""
    noise = folder / "noise"
    noise.mkdir(parents=True)
    for part in ("train", "validation"):
        audio.write(noise / f"{part}.wav", np.tile(sample, TIMES)[None], RATE)
    given = ["--from", model, "--speech", voices, "--noise", noise, "--epochs", EPOCHS, "-o", folder / "run", "-q"]
    subprocess.run([sys.executable, "-m", "drnmf.cli", "train", *map(str, given)], check=True, timeout=1800)
    return str(folder / "run")


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def score_task(task: Task, model: str, place: Path) -> dict[str, float]:
    x, y = sounds(task)
    sample = before(task.mixture, len(x), 3)
    knowing, seconds = timed(lambda: adapt(model, sample, RATE))
    further, minutes = timed(lambda: trained(model, sample, place / "voices", place / task.mixture.id))
    return {
        "as it is": score(enhance(x, RATE, model), y),
        "learned": score(enhance(x, RATE, knowing), y),
        "trained": score(enhance(x, RATE, further), y),
        "seconds to learn": seconds,
        "seconds to train": minutes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finetuning", description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="default")
    parser.add_argument("--every", type=int, default=27, help="only every so-many-th mixture of each SNR")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"commit": commit(), "machine": machine(), "epochs": EPOCHS, "voices": VOICES, "sets": {}}
    with TemporaryDirectory() as place, ThreadPoolExecutor(arguments.jobs) as pool:
        voices(Path(place) / "voices")
        for name in SETS:
            listed = tasks([name], arguments.every)
            rows = list(pool.map(partial(score_task, model=arguments.model, place=Path(place)), listed))
            means = {case: round(fmean(row[case] for row in rows), 3) for case in rows[0]}
            found["sets"][name] = {"count": len(rows), **means}
            print(name, found["sets"][name], flush=True)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
