"""What a hop of a live stream must cost at least: reading the network's weights once from the caches.

The network alone, without Fourier transforms, takes frames one by one, as a stream brings them. Beside it stands the
time to read all numbers that are packed for it, by the fastest way to read memory that we know of here: the dot product
of an array with itself. Only rows of active atoms and units are read, so the network can be faster than that. Network
and reading take turns.
"""

import json
import sys

import numpy as np
import torch

from benchmarks.measure import Row, best_seconds, in_fresh_process

CASES = {"default": None, "DR-NMF K=5 N=200": 200, "DR-NMF K=5 N=2000": 2000}


def measure(case: str, rounds: int) -> Row:
    from benchmarks.enhance import noisy
    from benchmarks.separators import dictionary
    from drnmf import DRNMF, load_model, stft
    from drnmf.engines.streams import frames

    N = CASES[case]
    model = (load_model(case) if N is None else DRNMF.from_dictionary(dictionary(N, 1), 5)).freeze()
    network = model.network
    assert network is not None, "steps.c is not compiled here"
    x_BTF = model.features(stft(noisy(4.0)).abs()[None], model.config)
    state_BS, T = torch.from_numpy(network.silent)[None], x_BTF.shape[1]
    h_BTN, _ = frames(network, x_BTF, state_BS)
    packed = torch.rand(sum(array.size for array in network if isinstance(array, np.ndarray))).numpy()
    seconds = floor = float("inf")
    for _ in range(rounds):
        seconds = min(seconds, best_seconds(lambda: frames(network, x_BTF, state_BS), repeats=2) / T)
        floor = min(floor, best_seconds(lambda: packed.dot(packed), repeats=50))
    return {
        "part": "floor",
        "case": case,
        "milliseconds": 1000 * seconds,
        "per": "frame",
        "real_time_factor": seconds / 0.008,
        "active": float((h_BTN > 0).float().mean()),
        "packed_mb": packed.nbytes / 1e6,
        "packed_milliseconds": 1000 * floor,
    }


def run(*, quick: bool = False) -> list[Row]:
    """All cases, each in a process of its own."""
    rows = []
    for case in list(CASES)[: 1 if quick else None]:
        row = in_fresh_process("benchmarks.floor", case, "1" if quick else "8")
        times = row["milliseconds"] / row["packed_milliseconds"]
        rows.append({**row, "case": f"{case}: {times:.1f} times reading all that is packed"})
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
