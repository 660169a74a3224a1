"""How good the enhanced sound is: `python -m benchmarks.quality default DTLN GTCRN RNNoise DeepFilterNet3`.

Scores models and published enhancers on the home corpus, each mixture once, all systems on the same samples, and
stores the means in docs/results/quality.json; `python -m benchmarks.pages` makes the pages' tables of them. A system is
a bundled model's name, a model's folder, `live`, the default as a stream, which hears nothing ahead, or one of
`benchmarks.rivals` and `benchmarks.wideband`; of these, what is not here is left out by name. What it replaces in the
file is its own entry.

Scored are

    dev, test, newhome, unseen   the corpus's sets, at -6 to 9 dB
    10 dB, 20 dB, 30 dB, clean   the mixtures of dev with less of their noise, or with none
    onset                        the mixtures of dev, cut so that they begin where the speech does

by SDR, SI-SDR, PESQ, STOI, with `--dnsmos` DNSMOS as published, and the gain of the speech: the enhanced sound's
projection on the speech in dB, 0 where the speech is as loud as it was. For `onset` there is only the gain, of the
first 100 ms and of everything later than a second. DRNMF_CORPUS names the corpus, DRNMF_RIVALS the folder of the
rivals, which has DNSMOS's networks in `dnsmos`.
"""

import argparse
import json
import math
import os
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import rivals, wideband
from benchmarks.measure import commit, machine
from drnmf import Streamer, enhance, load_model
from drnmf.data.manifests import read_manifest
from drnmf.data.mixing import Mixture
from drnmf.data.recordings import Recordings, files_of, scan
from drnmf.models.folders import load_ready
from drnmf.signal.dnsmos import Listener
from drnmf.signal.metrics import pesq, sdr, si_sdr, stoi

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "quality.json"
SETS = ("dev", "test", "newhome", "unseen")
QUIETER = {"10 dB": 10.0, "20 dB": 20.0, "30 dB": 30.0, "clean": math.inf}
ONSET = "onset"
AS_IT_IS, LIVE = "noisy", "live"
RATE = 16000
EARLY, LATE = RATE // 10, RATE  # samples: the first 100 ms of speech, and all of it after a second

Sound = np.ndarray[Any, np.dtype[np.float32]]
Scores = dict[str, float]


class Task(NamedTuple):
    """One mixture of one set."""

    set: str
    mixture: Mixture


def tasks(sets: list[str], every: int) -> list[Task]:
    """All mixtures of each set, or a sample of them."""
    corpus = Path(os.environ["DRNMF_CORPUS"])
    listed = []
    for name in sets:
        mixtures = sample(read_manifest(corpus / f"{name if name in SETS else 'dev'}.csv"), every)
        if name in QUIETER:
            mixtures = [replace(mixture, snr_db=QUIETER[name]) for mixture in mixtures]
        listed += [Task(name, mixture) for mixture in mixtures]
    return listed


def sample(mixtures: list[Mixture], every: int) -> list[Mixture]:
    """Every so-many-th mixture of each SNR: manifests go through the SNRs in turn, a plain step would miss some."""
    chosen = []
    seen: Counter[float] = Counter()
    for mixture in mixtures:
        if seen[mixture.snr_db] % every == 0:
            chosen.append(mixture)
        seen[mixture.snr_db] += 1
    return chosen


def sounds(task: Task) -> tuple[Sound, Sound]:
    """The mixture and its speech."""
    snr_db = min(task.mixture.snr_db, 200.0)  # without noise: 200 dB is less than the last bit of a float
    mixture = replace(task.mixture, snr_db=snr_db)
    noisy_BS, clean_BS, _ = Recordings(scan(files_of([mixture])), in_memory=False).waveforms([mixture])
    noisy, clean = noisy_BS[0].numpy(), clean_BS[0].numpy()
    begin = onset(clean) if task.set == ONSET else 0
    return noisy[begin:], clean[begin:]


def onset(speech: Sound) -> int:
    """Where the speech begins: the first 10 ms that come within 20 dB of its loudest."""
    size = RATE // 100
    power = np.square(speech[: len(speech) // size * size].reshape(-1, size)).mean(1)
    return size * int(np.argmax(power > power.max() / 100))


@cache
def system(name: str) -> Callable[[Sound], Sound]:
    """What enhances a recording and keeps its length and its time."""
    if name == AS_IT_IS:
        return lambda x: x
    if name == LIVE:
        return partial(streamed, load_ready("default"))
    if name in rivals.rivals():
        return partial(rivals.recording, name)
    if name in wideband.SYSTEMS:
        return partial(wideband.recording, name)
    model = load_model(name)
    return lambda x: enhance(x, RATE, model)


def streamed(model: Any, x: Sound) -> Sound:
    """What comes out live, in its time."""
    stream = Streamer(model)
    return np.concatenate([stream.feed(x), stream.flush()])


def score_onset(estimate: Sound, reference: Sound) -> Scores:
    """How loud the first and the later speech is."""
    return {
        "early_gain_db": gain_db(estimate[:EARLY], reference[:EARLY]),
        "late_gain_db": gain_db(estimate[LATE:], reference[LATE:]),
    }


def score(estimate: Sound, reference: Sound) -> Scores:
    """All scores of one enhanced mixture; nan where one has no answer."""
    e, r = torch.from_numpy(estimate), torch.from_numpy(reference)
    return {
        "sdr": sdr(e, r).item(),
        "si_sdr": si_sdr(e, r).item(),
        "pesq": pesq(e, r),
        "stoi": stoi(e, r),
        "gain_db": gain_db(estimate, reference),
    }


def gain_db(estimate: Sound, reference: Sound) -> float:
    """How loud the reference is in the estimate, by projection, against itself."""
    e, r = estimate.astype(np.float64), reference.astype(np.float64)
    gain = float(e @ r) / float(r @ r)
    return 20 * math.log10(max(gain, 1e-6))


listener = cache(Listener)


def dnsmos(estimate: Sound) -> Scores:
    """DNSMOS: `dnsmos_sig`, `dnsmos_bak`, `dnsmos_ovrl`, `dnsmos_p808`."""
    folder = rivals.folder()
    assert folder is not None
    return {f"dnsmos_{name}": value for name, value in listener(folder / "dnsmos").score(estimate).items()}


def score_task(task: Task, systems: list[str], with_dnsmos: bool) -> dict[str, Scores]:
    """One mixture by every system."""
    noisy, clean = sounds(task)
    found = {}
    for name in systems:
        estimate = system(name)(noisy)
        if task.set == ONSET:
            found[name] = score_onset(estimate, clean)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a score that is not defined is nan, and is counted
            found[name] = score(estimate, clean)
        if with_dnsmos:
            found[name] |= dnsmos(estimate)
    return found


def in_parallel(
    listed: list[Task], systems: list[str], *, with_dnsmos: bool, jobs: int
) -> Iterator[tuple[Task, dict[str, Scores]]]:
    """Every mixture's scores, in order."""
    scorer = partial(score_task, systems=systems, with_dnsmos=with_dnsmos)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        yield from zip(listed, pool.map(scorer, listed, chunksize=4), strict=True)


def _one_thread() -> None:
    torch.set_num_threads(1)


def summary(found: list[tuple[Task, Scores]]) -> dict[str, Any]:
    """One system's figures for each set; by SNR where a set has several."""
    lines: dict[str, Any] = {}
    for name in dict.fromkeys(task.set for task, _ in found):
        here = [(task.mixture.snr_db, scores) for task, scores in found if task.set == name]
        if name == ONSET:
            medians = {key: statistics.median(scores[key] for _, scores in here) for key in here[0][1]}
            lines[name] = {"count": len(here), **{f"median_{key}": round(value, 2) for key, value in medians.items()}}
            continue
        lines[name] = means([scores for _, scores in here])
        snrs = sorted({snr for snr, _ in here})
        if len(snrs) > 1:
            lines[name]["by_snr"] = {f"{snr:g}": means([s for at, s in here if at == snr]) for snr in snrs}
    return lines


def means(rows: list[Scores]) -> dict[str, Any]:
    line: dict[str, Any] = {"count": len(rows)}
    for key in rows[0]:
        values = [row[key] for row in rows if not math.isnan(row[key])]
        line[key] = round(statistics.fmean(values), 4) if values else None
        if len(values) < len(rows):
            line[f"{key}_undefined"] = len(rows) - len(values)
    return line


def store(path: Path, about: dict[str, Any], summaries: dict[str, dict[str, Any]]) -> None:
    """Put each system's sets into the file, each with where it comes from, in place of older scores of that set."""
    stored = json.loads(path.read_text()) if path.is_file() else {}
    for name, sets in summaries.items():
        before = stored.get(name, {"sets": {}})["sets"]
        stored[name] = {"sets": {**before, **{set: {**about, **scores} for set, scores in sets.items()}}}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(stored, indent=1) + "\n")
    temporary.replace(path)


def present(systems: list[str]) -> list[str]:
    """Those that can be run; of each other one, say why it is left out."""
    found = []
    for name in systems:
        reason = None
        if name in rivals.RIVALS and name not in rivals.rivals():
            reason = f"DRNMF_RIVALS names no folder with {rivals.FILES[name]}"
        elif name in wideband.SYSTEMS:
            reason = wideband.missing(name)
        if reason is None:
            found.append(name)
        else:
            print(f"{name} is left out: {reason}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.split("\n")[0])
    every_set = [*SETS, *QUIETER, ONSET]
    parser.add_argument("systems", nargs="+", help="bundled models, models' folders, rivals")
    parser.add_argument("--sets", nargs="+", choices=every_set, default=every_set)
    parser.add_argument("--every", type=int, default=1, help="only every so-many-th mixture of each SNR")
    parser.add_argument("--dnsmos", action="store_true", help="also DNSMOS, from DRNMF_RIVALS/dnsmos")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    systems = [AS_IT_IS, *present(arguments.systems)]
    listed = tasks(arguments.sets, arguments.every)
    about = {"commit": commit(), "date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
    about |= {"data": "home corpus", "every": arguments.every}
    start = time.monotonic()
    found: list[tuple[Task, dict[str, Scores]]] = []
    results = in_parallel(listed, systems, with_dnsmos=arguments.dnsmos, jobs=arguments.jobs)
    for done, result in enumerate(results, 1):
        found.append(result)
        if done < len(listed) and listed[done].set == result[0].set:
            continue
        # a set is complete
        sets = {Path(name).name: summary([(task, scores[name]) for task, scores in found]) for name in systems}
        store(arguments.output, about, sets)
        print(f"{result[0].set}: {done} of {len(listed)} mixtures, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
