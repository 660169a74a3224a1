"""A training step through the recurrence: `scan` against plain autograd over the readable loop, on all cores.

A step is forward and backward of sum(h) in float32, with gradients for the paper's parameters: W, one alpha per layer
and h0. Both ways run in turn, each time in a process of its own. Time is that of the fastest step, leaving out the
first, whose memory is new to the process. Memory is how much the peak (VmHWM) grew over that of a step of five frames.
"""

import json
import os
import sys

import torch
from torch import Tensor

from benchmarks.measure import Row, best_seconds, in_fresh_process, peak_memory_mb
from drnmf.engines.scan import scan
from drnmf.maths.thresholding import unfolded_ista

WAYS = {"readable loop": unfolded_ista, "scan": scan}
B, K, N, F = 32, 5, 200, 257


def parameters() -> tuple[Tensor, Tensor, Tensor]:
    """Random nonnegative dictionaries of unit norm, their exact step sizes, and a first state."""
    generator = torch.Generator().manual_seed(0)
    W_KFN = torch.rand(K, F, N, generator=generator) ** 4
    W_KFN /= W_KFN.norm(dim=1, keepdim=True)
    alpha_K1 = torch.linalg.matrix_norm(W_KFN, 2).square()[:, None]
    return W_KFN.requires_grad_(), alpha_K1.requires_grad_(), torch.rand(N, generator=generator).requires_grad_()


def measure(way: str, n_frames: int, repeats: int) -> Row:
    W_KFN, alpha_K1, h0_N = parameters()
    x_BTF = torch.rand(B, n_frames, F, generator=torch.Generator().manual_seed(1))
    sparsity_K1 = torch.full((K, 1), 0.1)

    def step(T: int) -> tuple[Tensor, ...]:
        h0_BN = h0_N.expand(B, N)
        h_BTN = WAYS[way](x_BTF[:, :T], W_KFN, alpha_KN=alpha_K1, sparsity_KN=sparsity_K1, h0_BN=h0_BN)
        return torch.autograd.grad(h_BTN.sum(), (W_KFN, alpha_K1, h0_N))

    step(5)
    before = peak_memory_mb()
    step(n_frames)
    return {
        "part": "scan",
        "case": f"{way}, B={B} T={n_frames} K={K} N={N}",
        "threads": torch.get_num_threads(),
        "milliseconds": 1000 * best_seconds(lambda: step(n_frames), repeats=repeats),
        "per": "training step",
        "memory_mb": peak_memory_mb() - before,
    }


def run(*, quick: bool = False) -> list[Row]:
    """Both ways; the row of `scan` says how many times faster it is and what part of the memory it needs."""
    n_frames, repeats, rounds = (50, 1, 1) if quick else (500, 6, 3)
    found = [
        [in_fresh_process("benchmarks.scan", way, str(n_frames), str(repeats)) for way in WAYS] for _ in range(rounds)
    ]
    loop, fast = (min(rows, key=lambda row: row["milliseconds"]) for rows in zip(*found, strict=True))
    fast["times_faster_than_loop"] = loop["milliseconds"] / fast["milliseconds"]
    fast["memory_of_loop"] = fast["memory_mb"] / loop["memory_mb"]
    return [loop, fast]


def main() -> None:
    rows = run()
    for row in rows:
        print(f"{row['case']:40} {row['milliseconds']:8.0f} ms {row['memory_mb']:8.0f} MB   {row['threads']} threads")
    print(
        "scan is {times_faster_than_loop:.2f} times faster, with {memory_of_loop:.0%} of the memory".format(**rows[1])
    )


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        torch.set_num_threads(os.cpu_count() or 1)  # training takes the whole machine
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
