"""What a file gains when the network hears it before it begins: `python -m benchmarks.ahead`.

Ways to listen ahead, scored by SDR on every second mixture of dev, on every third one at 20 dB, 30 dB and without
noise, and on some that begin with three seconds of their noise alone; and whether the way that was chosen
(`use.streaming`) would help the rivals too, on every fifth and sixth. The means go to docs/results/ahead.json.
DRNMF_CORPUS names the corpus, DRNMF_RIVALS the folder of the rivals.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import rivals
from benchmarks.adaptation import before
from benchmarks.measure import commit, machine
from benchmarks.quality import RATE, Sound, Task, sounds, streamed, tasks
from drnmf.models.folders import load_ready
from drnmf.signal.metrics import sdr

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "ahead.json"
SECONDS = (2, 5, 12, 30)
BACK = RATE * 3 // 4
SETS = {"dev": 2, "20 dB": 3, "30 dB": 3, "clean": 3}  # every so-many-th mixture
WAITING = {"dev": 3, "20 dB": 4, "30 dB": 4}
LATER = "3 s later"


def ways(x: Sound) -> dict[str, Sound]:
    """What is heard before the first sample."""
    back = x[:BACK][::-1]
    heard = {"nothing": x[:0], "0.75 s backwards": back}
    heard |= {f"{s} s, then 0.75 s backwards": np.concatenate([x[: s * RATE], back]) for s in SECONDS}
    return {**heard, "30 s": x[: 30 * RATE]}


def score(estimate: Sound, clean: Sound) -> float:
    return sdr(torch.from_numpy(estimate.copy()), torch.from_numpy(clean.copy())).item()


def scores(model: Any, x: Sound, y: Sound) -> dict[str, float]:
    """SDR by each way."""
    return {way: score(streamed(model, np.concatenate([ahead, x]))[len(ahead) :], y) for way, ahead in ways(x).items()}


def waiting(task: Task) -> tuple[Sound, Sound]:
    """A mixture that begins with some of its noise alone."""
    x, y = sounds(task)
    noise = before(task.mixture, len(x), 3)
    noise *= np.sqrt(np.square(x - y).mean() / max(np.square(noise).mean(), 1e-12))
    return np.concatenate([noise, x]), np.concatenate([0 * noise, y])


def of_rivals() -> dict[str, dict[str, list[float]]]:
    """SDR of each rival by set, as published and after it has heard the sound and 0.75 s of it backwards."""
    table: dict[str, dict[str, list[float]]] = {}
    for name, every in (("dev", 5), ("20 dB", 6)):
        for rival in rivals.rivals():
            pairs = []
            for task in tasks([name], every):
                x, y = sounds(task)
                ahead = np.concatenate([x, x[:BACK][::-1]])
                heard = rivals.recording(rival, np.concatenate([ahead, x]))[len(ahead) :]
                pairs.append([score(estimate, y) for estimate in (rivals.recording(rival, x), heard)])
            table.setdefault(rival, {})[name] = np.mean(pairs, 0).round(3).tolist()
    return table


def main() -> None:
    torch.set_num_threads(1)
    about = {"what": "SDR", "commit": commit(), "machine": machine()}
    model = load_ready("default")
    cases = [(name, name, every, sounds) for name, every in SETS.items()]
    cases += [(f"{name}, {LATER}", name, every, waiting) for name, every in WAITING.items()]
    table: dict[str, dict[str, float]] = {}
    for case, name, every, made in cases:
        found = [scores(model, *made(task)) for task in tasks([name], every)]
        for way in found[0]:
            table.setdefault(way, {})[case] = round(float(np.mean([row[way] for row in found])), 3)
        print(case, {way: row[case] for way, row in table.items()}, flush=True)
    RESULTS.write_text(json.dumps({**about, "ways": table, "rivals": of_rivals()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
