"""What a hop of a live stream must cost at least: reading the network's weights once from the caches.

The network alone, without Fourier transforms, takes frames one by one, as a stream brings them. Beside it stands the
time to read its dictionaries, K F N numbers, and all numbers that are packed for it, by the fastest way to read memory
that we know of here: the dot product of an array with itself. Only rows of active atoms are read, so the network can be
faster than that. Network and reading take turns.
"""

import ctypes
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
    from drnmf.engines import compiled as steps

    N = CASES[case]
    model = (load_model(case) if N is None else DRNMF.from_dictionary(dictionary(N, 1), 5)).freeze()
    network = model.network
    assert isinstance(model, DRNMF) and network is not None, "steps.c is not compiled here"  # noqa: PT018
    x_TF = (stft(noisy(4.0)).abs() ** model.power).contiguous()
    state_N, struct, run = model.h0().contiguous(), network.struct(), steps.function("activations", x_TF.dtype)
    h_TN = x_TF.new_empty(len(x_TF), len(state_N))
    x_at, state_at, h_at = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (x_TF, state_N, h_TN))

    def frames() -> None:
        run(ctypes.byref(struct), x_at, ctypes.c_int64(len(x_TF)), state_at, h_at)

    packed = sum(array.size for array in network if isinstance(array, np.ndarray))
    arrays = [torch.rand(n).numpy() for n in (model.weights().W_KFN.numel(), packed)]
    seconds, floors = float("inf"), [float("inf")] * 2
    for _ in range(rounds):
        seconds = min(seconds, best_seconds(frames, repeats=2) / len(x_TF))
        floors = [
            min(floor, best_seconds(lambda array=array: array.dot(array), repeats=50))
            for floor, array in zip(floors, arrays, strict=True)
        ]
    return {
        "part": "floor",
        "case": case,
        "milliseconds": 1000 * seconds,
        "per": "frame",
        "real_time_factor": seconds / 0.008,
        "active": float((h_TN > 0).float().mean()),
        "dictionaries_mb": arrays[0].nbytes / 1e6,
        "dictionaries_milliseconds": 1000 * floors[0],
        "packed_mb": arrays[1].nbytes / 1e6,
        "packed_milliseconds": 1000 * floors[1],
    }


def run(*, quick: bool = False) -> list[Row]:
    """All cases, each in a process of its own."""
    rows = []
    for case in list(CASES)[: 1 if quick else None]:
        row = in_fresh_process("benchmarks.floor", case, "1" if quick else "8")
        parts = (row["milliseconds"] / row[f"{name}_milliseconds"] for name in ("dictionaries", "packed"))
        times = "{:.1f} times reading its dictionaries, {:.1f} times reading all that is packed".format(*parts)
        rows.append({**row, "case": f"{case}: {times}"})
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
