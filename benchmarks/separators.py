"""Inference of all separators on one thread: a mask for the bundled noisy recording, all its frames at once.

The dictionaries are spectra of the training sound, drawn at random and scaled to unit norm: speed does not depend on
how well they separate.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Row, best_seconds, in_fresh_process, peak_memory_mb, training_sound
from drnmf import DRNMF, DeepNMF, ISTAMask, LSTMMask, Separator, SistaRNN, SparseNMFMask, istft, load_model, stft
from drnmf.maths.nmf import unit_norm
from drnmf.models.deep_nmf import stack_context
from drnmf.pictures.demo import recording
from drnmf.signal.spectra import SAMPLE_RATE

FRONT_END = "STFT and inverse"
SIZES = (200, 2000)


Case = tuple[int | None, Callable[[], Separator]]
"""Number of atoms, where a model has them, and how it is made."""


def cases() -> dict[str, Case]:
    """All models by name."""

    def unfolded(kind: Any, N: int, **options: Any) -> Case:
        return N, lambda: kind.from_dictionary(dictionary(N, options.get("context", 1)), **options)

    made: dict[str, Case] = {}
    made["default"] = 200, lambda: load_model("default")
    for N in SIZES:
        made[f"sparse NMF, 200 updates, N={N}"] = unfolded(SparseNMFMask, N)
        made[f"DR-NMF K=2 N={N}"] = unfolded(DRNMF, N, n_layers=2)
        made[f"DR-NMF K=5 N={N}"] = unfolded(DRNMF, N, n_layers=5)
    made["ISTA, 5 iterations, N=200"] = unfolded(ISTAMask, 200, n_iter=5, warm_start=False)
    made["warm-start ISTA, 5 iterations, N=200"] = unfolded(ISTAMask, 200, n_iter=5)
    made["deep NMF, 25 updates, 9 frames, N=200"] = unfolded(DeepNMF, 200, n_layers=25, n_untied=3, context=9)
    made["SISTA-RNN K=5 N=200"] = unfolded(SistaRNN, 200, n_layers=5)
    made["LSTM 2x54"] = None, lambda: LSTMMask(2, 54)
    made["LSTM 2x244"] = None, lambda: LSTMMask(2, 244)
    made["LSTM 5x250"] = None, lambda: LSTMMask(5, 250)
    return made


def dictionary(N: int, n_frames: int) -> Tensor:
    """Half speech, half noise: random frames of the tests' recordings, or runs of several, oldest on top."""
    generator = torch.Generator().manual_seed(1)
    halves = []
    for kind in ("speech", "noise"):
        runs = stack_context(stft(training_sound(kind)).abs(), n_frames)
        runs = runs[runs.norm(dim=1) > 1e-3]
        halves.append(runs[torch.randint(len(runs), (N // 2,), generator=generator)].mT)
    return unit_norm(torch.cat(halves, 1))


@torch.inference_mode()
def measure(case: str, repeats: int) -> Row:
    noisy = torch.from_numpy(recording("noisy"))
    X = stft(noisy)[None]
    magnitude = X.abs()
    istft(X * (magnitude @ magnitude.mT).mean(), len(noisy))  # whatever is set up at first use is not the model's
    before = peak_memory_mb()
    if case == FRONT_END:
        N, parameters = None, 0
        seconds = best_seconds(lambda: istft(stft(noisy), len(noisy)), repeats=10 * repeats)
    else:
        N, make = cases()[case]
        model = make().freeze()  # as enhancing does: what depends on the weights alone is computed once
        parameters = sum(p.numel() for p in model.parameters())
        # the baseline of the comparison is measured as often as what is compared with it, however long it takes
        seconds = best_seconds(lambda: model(magnitude), repeats=repeats)
    return {
        "part": "separators",
        "case": case,
        "atoms": N,
        "parameters": parameters,
        "frames": magnitude.shape[1],
        "milliseconds": 1000 * seconds,
        "per": f"{len(noisy) / SAMPLE_RATE:.1f} s",
        "real_time_factor": seconds * SAMPLE_RATE / len(noisy),
        "memory_mb": peak_memory_mb() - before,
    }


def run(*, quick: bool = False) -> list[Row]:
    """All cases, each in a process of its own, with their speed beside that of sparse NMF of as many atoms."""
    names = [FRONT_END, *(name for name in cases() if not quick or "N=2000" not in name)]
    rows = [in_fresh_process("benchmarks.separators", name, "1" if quick else "5") for name in names]
    baseline = {row["atoms"]: row["milliseconds"] for row in rows if row["case"].startswith("sparse NMF")}
    for row in rows:
        if row["atoms"] in baseline:
            row["times_faster_than_sparse_nmf"] = baseline[row["atoms"]] / row["milliseconds"]
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
