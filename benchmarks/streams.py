"""Streams that keep one waiting, and streams that keep learning: `python -m benchmarks.streams`.

- Waiting: the mixtures of dev as they are, and after three seconds of their noise alone.
- Learning: all mixtures of a background, one after the other in a stream that keeps learning, and in one that does not.

Means of SI-SDR, and the standard error of the difference, go to docs/results/streams.json. DRNMF_CORPUS names the
corpus.
"""

import argparse
import json
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import soundfile

from benchmarks.adaptation import before, score
from benchmarks.measure import commit, machine
from benchmarks.quality import RATE, Sound, Task, sounds, tasks
from drnmf import Streamer
from drnmf.models.folders import load_ready

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "streams.json"
SECONDS = 3
BLOCK = RATE // 10

Pair = tuple[float, float]


def streamed(name: str, parts: list[Sound], **settings: Any) -> list[Sound]:
    """Parts that follow each other, as they come out of one stream."""
    streamer, x = Streamer(load_ready(name), **settings), np.concatenate(parts)
    blocks = [streamer.feed(x[i : i + BLOCK]) for i in range(0, len(x), BLOCK)]
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return np.split(np.concatenate([*blocks, streamer.flush()]), ends)


def waited(task: Task, name: str) -> Pair:
    """SI-SDR of the mixture as it is, and after its noise alone."""
    x, y = sounds(task)
    heard, _ = soundfile.read(task.mixture.background, start=task.mixture.offset, frames=len(x), dtype="float32")
    noise = before(task.mixture, len(x), SECONDS) * np.linalg.norm(x - y) / np.linalg.norm(heard)
    return score(streamed(name, [x])[0], y), score(streamed(name, [noise.astype(np.float32), x])[1], y)


def kept_learning(listed: list[Task], name: str) -> list[Pair]:
    """SI-SDR of mixtures that follow each other, without learning and with it."""
    noisy, clean = zip(*map(sounds, listed), strict=True)
    both = [streamed(name, list(noisy), keep_learning=learns) for learns in (False, True)]
    return [(score(plain, y), score(learned, y)) for plain, learned, y in zip(*both, clean, strict=True)]


def by_background(listed: list[Task]) -> list[list[Task]]:
    """In the order in which their noises were heard."""
    groups: dict[Path, list[Task]] = defaultdict(list)
    for task in sorted(listed, key=lambda task: task.mixture.offset):
        groups[task.mixture.background].append(task)
    return list(groups.values())


def summary(pairs: list[Pair]) -> dict[str, float]:
    changes = [after - plain for plain, after in pairs]
    error = stdev(changes) / len(changes) ** 0.5
    means = {"as it is": fmean(plain for plain, _ in pairs), "change": fmean(changes), "standard error": error}
    return {"count": len(pairs), **{key: round(value, 3) for key, value in means.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="default")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"commit": commit(), "machine": machine(), "learning": {}}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found["waiting"] = summary(
            list(pool.map(partial(waited, name=arguments.model), tasks(["dev"], 1), chunksize=2))
        )
        for name in ("dev", "20 dB", "clean"):
            rows = pool.map(partial(kept_learning, name=arguments.model), by_background(tasks([name], 1)))
            found["learning"][name] = summary(list(chain.from_iterable(rows)))
    print(json.dumps(found, indent=1))
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
