"""What a file gains when the network first hears some of its beginning: `python -m benchmarks.ahead`.

Ways to listen ahead, scored by SDR on every second mixture of dev and on every third one at 20 dB, 30 dB and without
noise; and whether the way that was chosen (`use.streaming`) would help the rivals too, on every fifth and sixth. The
means go to docs/results/ahead.json. DRNMF_CORPUS names the corpus, DRNMF_RIVALS the folder of the rivals.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import rivals
from benchmarks.measure import commit, machine
from benchmarks.quality import sounds, tasks
from drnmf import load_model
from drnmf.data.batches import Dataset
from drnmf.data.manifests import read_manifest
from drnmf.signal import SAMPLE_RATE
from drnmf.signal.metrics import sdr
from drnmf.signal.spectra import istft, stft

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "ahead.json"
BACKWARDS, BOTH = (0.5, 0.75, 1.0, 1.25), (0.5, 1.0, 2.0)  # seconds
SNRS_DB: dict[str, tuple[float | None, int]] = {"dev": (None, 2), "20 dB": (20, 3), "30 dB": (30, 3), "clean": (200, 3)}


def ways(x_S: Tensor) -> dict[str, Tensor]:
    """What is heard before the first sample."""
    heard = {"nothing": x_S[:0]}
    for seconds in BACKWARDS:
        heard[f"{seconds:g} s backwards"] = x_S[: round(seconds * SAMPLE_RATE)].flip(0)
    for seconds in BOTH:
        part_S = x_S[: round(seconds * SAMPLE_RATE)]
        heard[f"{seconds:g} s forwards, then backwards"] = torch.cat([part_S, part_S.flip(0)])
    return heard


@torch.inference_mode()
def scores(model: Any, x_S: Tensor, y_S: Tensor) -> dict[str, float]:
    """SDR by each way."""
    found = {}
    for way, ahead_S in ways(x_S).items():
        X = stft(torch.cat([ahead_S, x_S])[None])
        e_S = istft(model.separate(X.abs())[0] * X, len(ahead_S) + len(x_S))[0, len(ahead_S) :]
        found[way] = sdr(e_S, y_S).item()
    return found


def of_rivals() -> dict[str, dict[str, list[float]]]:
    """SDR of each rival by set, as published and after it has heard 0.75 s backwards."""
    table: dict[str, dict[str, list[float]]] = {}
    for name, every in (("dev", 5), ("20 dB", 6)):
        for rival in rivals.rivals():
            pairs = []
            for task in tasks([name], every):
                x, y = sounds(task)
                ahead = x[: SAMPLE_RATE * 3 // 4][::-1]
                heard = rivals.recording(rival, np.concatenate([ahead, x]))[len(ahead) :]
                both = (torch.from_numpy(e.copy()) for e in (rivals.recording(rival, x), heard))
                pairs.append([sdr(e, torch.from_numpy(y.copy())).item() for e in both])
            table.setdefault(rival, {})[name] = np.mean(pairs, 0).round(3).tolist()
    return table


def main() -> None:
    corpus, model = Path(os.environ["DRNMF_CORPUS"]), load_model("default").freeze()
    table: dict[str, dict[str, float]] = {}
    for name, (snr_db, every) in SNRS_DB.items():
        items = read_manifest(corpus / "dev.csv")[::every]
        items = items if snr_db is None else [replace(item, snr_db=snr_db) for item in items]
        dataset = Dataset(items)
        found = [scores(model, *dataset.waveforms(item)) for item in items]
        for way in found[0]:
            table.setdefault(way, {})[name] = round(sum(row[way] for row in found) / len(found), 3)
        print(name, {way: row[name] for way, row in table.items()}, flush=True)
    about = {"what": "SDR", "commit": commit(), "machine": machine()}
    RESULTS.write_text(json.dumps({**about, "ways": table, "rivals": of_rivals()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
