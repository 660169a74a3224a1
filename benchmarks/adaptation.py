"""What a sample of the noise is worth: `python -m benchmarks.adaptation default`.

Every mixture is enhanced by the model as it is, and by the model after it has learned the noise from a sample: so many
seconds of the same background that end where the mixture begins (where there are none before it, those that follow it),
of another mixture's background, or with speech of another mixture in its first third, as loud as the noise; and, to see
what a sample could give at best, from the very noise of the mixture, which nobody has. Sound goes through as a file
and, marked so, as a stream. Means by set of SI-SDR and PESQ go to docs/results/adaptation.json, with the gain over no
sample, its standard error, and the gain in three thirds of the set: backgrounds change, and only in the last third is
the noise of the mixture much like its sample. Each set says of which commit it is. DRNMF_CORPUS names the corpus.
"""

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import soundfile
import torch

from benchmarks.measure import commit, machine
from benchmarks.quality import QUIETER, RATE, SETS, Sound, Task, sounds, streamed, tasks
from drnmf import enhance, stft
from drnmf.data.mixing import Mixture
from drnmf.models.folders import load_ready
from drnmf.signal.metrics import pesq, si_sdr
from drnmf.use.learning import magnitudes

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "adaptation.json"
NONE, USUAL = "nothing", "3 s"
SECONDS = (1, 2, 3, 5, 10)
OTHER, SPOKEN, STREAM = "3 s of another noise", "3 s, a third with speech", "as a stream"
VERY = "the mixture's own noise"
LIKENESS = "likeness"


class Pair(NamedTuple):
    """A mixture, and another one of the same set."""

    task: Task
    other: Task


def before(mixture: Mixture, length: int, seconds: float) -> Sound:
    """Noise that ends where the mixture begins, or else begins where it ends."""
    n = round(seconds * RATE)
    start = mixture.offset - n if mixture.offset >= n else mixture.offset + length
    sound, _ = soundfile.read(mixture.background, start=start, frames=n, dtype="float32")
    return np.asarray(sound)


def samples(pair: Pair, noise: Sound, cases: tuple[str, ...]) -> Iterator[tuple[str, Sound | None]]:
    length = len(noise)
    for case in cases:
        if case == NONE:
            yield case, None
        elif case == VERY:
            yield case, noise
        elif case == OTHER:
            yield case, before(pair.other.mixture, length, 3)
        elif case == SPOKEN:
            sample, speech = before(pair.task.mixture, length, 3), sounds(pair.other)[1][:RATE]
            third = sample[: len(speech)]
            third += speech * np.linalg.norm(third) / max(np.linalg.norm(speech), 1e-9)
            yield case, sample
        else:
            yield case, before(pair.task.mixture, length, float(case.split()[0]))


def score_pair(pair: Pair, name: str) -> dict[str, float]:
    """SI-SDR by case; PESQ with nothing and with the usual sample; how much the sample resembles the noise."""
    model = load_ready(name)
    x, y = sounds(pair.task)
    cases = (NONE, USUAL) if pair.task.set in QUIETER else (NONE, *(f"{s} s" for s in SECONDS), OTHER, SPOKEN, VERY)
    found = {LIKENESS: likeness(x - y, before(pair.task.mixture, len(x), 3))}
    for case, sample in samples(pair, x - y, cases):
        knowing = model if sample is None else model.adapted([magnitudes(sample[None], RATE)])
        enhanced = enhance(x, RATE, knowing)
        found[case] = score(enhanced, y)
        if case in (NONE, USUAL):
            found[f"{case}: PESQ"] = pesq(torch.from_numpy(enhanced), torch.from_numpy(y))
            found[f"{case}, {STREAM}"] = score(streamed(knowing, x), y)
    return found


def score(enhanced: Sound, clean: Sound) -> float:
    return si_sdr(torch.from_numpy(enhanced), torch.from_numpy(clean)).item()


def likeness(first: Sound, second: Sound) -> float:
    """The cosine between mean spectra, in the model's power."""
    a_F, b_F = (np.sqrt(abs(stft(sound))).mean(0) for sound in (first, second))
    return float(a_F @ b_F / max(np.linalg.norm(a_F) * np.linalg.norm(b_F), 1e-9))


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Means, and what the samples changed: with the standard error, and in three parts by likeness."""
    means = {case: round(fmean(row[case] for row in rows), 3) for case in rows[0]}
    gains: dict[str, list[float]] = {}
    for case in rows[0]:
        plain = next((f"{NONE}{end}" for end in (": PESQ", f", {STREAM}") if case.endswith(end)), NONE)
        if case not in (plain, LIKENESS):
            changes = [row[case] - row[plain] for row in rows]
            gains[case] = [round(fmean(changes), 3), round(stdev(changes) / len(changes) ** 0.5, 3)]
    ranked = sorted(rows, key=lambda row: row[LIKENESS])
    ends = [len(rows) * third // 3 for third in range(4)]
    thirds = [
        {
            LIKENESS: round(fmean(row[LIKENESS] for row in ranked[a:b]), 3),
            "gain": round(fmean(row[USUAL] - row[NONE] for row in ranked[a:b]), 3),
        }
        for a, b in pairwise(ends)
    ]
    return {"count": len(rows), "means": means, "gains": gains, "by likeness": thirds}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptation", description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="default")
    parser.add_argument("--sets", nargs="+", default=[*SETS, "20 dB", "30 dB", "clean"])
    parser.add_argument("--every", type=int, default=1, help="only every so-many-th mixture of each SNR")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    assert "DRNMF_CORPUS" in os.environ, "DRNMF_CORPUS must name the corpus"
    found: dict[str, Any] = {"sets": {}}
    if arguments.output.exists():
        found = json.loads(arguments.output.read_text())  # sets that are not scored stay
    origin = {"commit": commit(), "machine": machine(), "every": arguments.every}
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of each process: more get in each other's way
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for name in arguments.sets:
            listed = tasks([name], arguments.every)
            pairs = [Pair(task, listed[(i + 7) % len(listed)]) for i, task in enumerate(listed)]
            rows = list(pool.map(partial(score_pair, name=arguments.model), pairs, chunksize=2))
            found["sets"][name] = {**origin, **summary(rows)}
            print(name, found["sets"][name], flush=True)
            arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
