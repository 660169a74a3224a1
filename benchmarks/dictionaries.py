"""Training of sparse NMF dictionaries: time for one iteration, on the bundled training sound."""

import json
import sys

import torch
from torch import Tensor

from benchmarks.measure import Row, best_seconds, in_fresh_process, peak_memory_mb, training_sound
from drnmf import sparse_nmf, stft

CASES = {f"N={rank} beta={beta}": (rank, float(beta)) for rank in (200, 2000) for beta in (2, 1)}


def training_frames(count: int = 3000) -> Tensor:
    """Magnitudes (F, count) of speech and noise, one after the other."""
    sound = torch.cat([training_sound("speech"), training_sound("noise")])
    return stft(sound).abs().mT[:, :count].contiguous()


def measure(case: str, repeats: int) -> Row:
    rank, beta = CASES[case]
    V = training_frames()
    _ = V @ V.mT  # whatever is set up at the first product is not the algorithm's
    before = peak_memory_mb()
    n_iter = 3
    seconds = best_seconds(
        lambda: sparse_nmf(V, rank, beta=beta, max_iter=n_iter, tol=0, generator=torch.Generator().manual_seed(1)),
        repeats=repeats,
    )
    return {
        "part": "dictionaries",
        "case": case,
        "frames": V.shape[1],
        "milliseconds": 1000 * seconds / n_iter,
        "per": "iteration",
        "memory_mb": peak_memory_mb() - before,
    }


def run(*, quick: bool = False) -> list[Row]:
    """All cases, each in a process of its own."""
    cases = [case for case in CASES if not quick or "N=200 " in case]
    return [in_fresh_process("benchmarks.dictionaries", case, "1" if quick else "3") for case in cases]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
