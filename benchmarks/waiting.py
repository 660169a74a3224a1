"""Whether speech that keeps one waiting suffers: `python -m benchmarks.waiting`.

The mixtures of dev as streams, as they are and after three seconds of their noise alone. The mean SI-SDR of both, and
the standard error of the difference, go to docs/results/waiting.json. DRNMF_CORPUS names the corpus.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import soundfile

from benchmarks.adaptation import before, score, streamed
from benchmarks.measure import commit, machine
from benchmarks.quality import RATE, Task, sounds, tasks
from drnmf.models.folders import load_ready

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "waiting.json"
SECONDS = 3


def pair(task: Task, name: str) -> tuple[float, float]:
    """SI-SDR of the mixture as it is, and after its noise alone."""
    model = load_ready(name)
    x, y = sounds(task)
    heard, _ = soundfile.read(task.mixture.background, start=task.mixture.offset, frames=len(x), dtype="float32")
    noise = before(task.mixture, len(x), SECONDS) * np.linalg.norm(x - y) / np.linalg.norm(heard)
    waited = streamed(model, np.concatenate([noise, x]).astype(np.float32))[SECONDS * RATE :]
    return score(streamed(model, x), y), score(waited, y)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting", description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="default")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(partial(pair, name=arguments.model), tasks(["dev"], 1), chunksize=2))
    changes = [after - plain for plain, after in rows]
    found = {
        "commit": commit(),
        "machine": machine(),
        "count": len(rows),
        "as it is": round(fmean(plain for plain, _ in rows), 3),
        "after noise alone": round(fmean(after for _, after in rows), 3),
        "standard error": round(stdev(changes) / len(changes) ** 0.5, 3),
    }
    print(found)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
