"""The GPU: `python -m benchmarks.gpu [--json FILE]` times the scan, forward and backward, and sparse NMF.

Milliseconds by CUDA events, the median of several runs after a warm-up. The scan is timed as PyTorch runs it, step by
step from a CUDA graph, and with the kernels that `scan` chooses by itself, called directly and from a graph. The
floor beside them is what this machine's copies and float32 products need for the bytes and operations that no way can
avoid; a step is one layer of one frame, forward or backward, with its share of all products. Sparse NMF is
compared with the float32 and TF32 products of the same machine.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

if not torch.cuda.is_available():
    raise SystemExit("there is no GPU here")

from drnmf.engines.scan import scan
from drnmf.maths.nmf import sparse_nmf
from drnmf.maths.thresholding import lipschitz

F = 257
CASES = [
    (32, 500, 5, 200),
    (32, 500, 2, 200),
    (32, 100, 5, 200),
    (1, 500, 5, 200),
    (256, 100, 5, 200),
    (32, 500, 5, 512),
    (32, 500, 5, 1000),
    (32, 500, 2, 2000),
    (32, 500, 5, 2000),
]
ATOMS, FRAMES = 2000, 1_000_000  # of sparse NMF


def problem(B: int, T: int, K: int, N: int) -> tuple[list[Tensor], Tensor]:
    """The leaves x, W, alpha, sparsity and h0, and dL/dh, for mixtures of atoms that fade in and out.

    About four atoms in ten are active, as many as in a trained network at most.
    """
    generator = torch.Generator().manual_seed(0)
    W = torch.rand(F, N, generator=generator) ** 20 * torch.rand(K, F, N, generator=generator)
    W /= W.norm(dim=1, keepdim=True)
    gains = torch.randn(B, N, T // 20 + 2, generator=generator) - 1
    gains = torch.nn.functional.interpolate(gains.relu(), T, mode="linear").mT
    alpha = torch.tensor([[lipschitz(W_k)] for W_k in W])
    leaves = [gains @ W[0].mT, W, alpha, torch.full((K, 1), 0.6), torch.zeros(B, N)]
    return [leaf.cuda() for leaf in leaves], torch.randn(B, T, N, generator=generator).cuda()


def milliseconds(function: Callable[[], object], repeats: int = 15) -> float:
    """Median time on the GPU."""
    for _ in range(3):
        function()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


def graphed(function: Callable[[], object]) -> Callable[[], object]:
    """The same work as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def product_rate(tf32: bool) -> float:
    """Operations a second of a large product."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    A, B = torch.randn(2, 8192, 8192, device="cuda")
    rate = 2 * 8192**3 / milliseconds(lambda: A @ B, 7) * 1e3
    torch.backends.cuda.matmul.allow_tf32 = False
    return rate


def copy_rate() -> float:
    """Bytes a second of a large copy, read and written counted."""
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) * 1e3


def floor(B: int, T: int, K: int, N: int, bandwidth: float, rate: float) -> float:
    """Milliseconds for what cannot be avoided.

    Bytes: x read in both directions, h written and dL/dh read, all activations kept and read again. Operations, in the
    cheaper of both forms: the steps both ways and s^T g (N^2 each), x W and x^T g (F N each); or W and its transpose
    both ways, and two products for dL/dW (F N each).
    """
    moved = 4 * B * T * (2 * F + 2 * N + 2 * K * N)
    operations = 2 * B * T * K * min(3 * N * N + 2 * F * N, 6 * F * N)
    return 1e3 * max(moved / bandwidth, operations / rate)


def scan_row(B: int, T: int, K: int, N: int, bandwidth: float, rate: float) -> dict[str, Any]:
    """Training's gradients: of all but x."""
    (x, *leaves), dh = problem(B, T, K, N)
    W, alpha, sparsity, h0 = (leaf.requires_grad_() for leaf in leaves)

    def step(form: Any) -> tuple[Tensor, ...]:
        h = scan(x, W, alpha_KN=alpha, sparsity_KN=sparsity, h0_BN=h0, form=form)
        return torch.autograd.grad(h, leaves, dh)

    @torch.no_grad()
    def forward() -> Tensor:
        return scan(x, W, alpha_KN=alpha, sparsity_KN=sparsity, h0_BN=h0)

    row: dict[str, Any] = {"B": B, "T": T, "K": K, "N": N, "active": float((forward() > 0).float().mean())}
    row["pytorch_graph"] = milliseconds(graphed(lambda: step("gram" if N < 2 * F else "factored")), 3)
    row["forward"] = milliseconds(forward)
    row["kernels"] = milliseconds(lambda: step("auto"))
    row["kernels_graph"] = milliseconds(graphed(lambda: step("auto")))
    row["floor"] = floor(B, T, K, N, bandwidth, rate)
    return row


def sparse_nmf_row(tf32: bool, peak: float) -> dict[str, Any]:
    """One iteration on a million frames: seven products of 2 F N operations a frame."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    generator = torch.Generator("cuda").manual_seed(0)
    V = torch.rand(F, FRAMES, device="cuda", generator=generator)
    W, H = (torch.rand(s, device="cuda", generator=generator) for s in ((F, ATOMS), (ATOMS, FRAMES)))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(6)]
    sparse_nmf(V, ATOMS, init=(W, H), max_iter=len(events), tol=0.0, progress=lambda _, i, of: events[i - 1].record())
    torch.cuda.synchronize()
    torch.backends.cuda.matmul.allow_tf32 = False
    iteration = events[0].elapsed_time(events[-1]) / (len(events) - 1)
    rate = 7 * 2 * F * ATOMS * FRAMES / iteration * 1e3
    return {"tf32": tf32, "iteration": iteration, "rate": rate, "of_peak": rate / peak}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("results-gpu.json"))
    arguments = parser.parse_args()
    bandwidth, rate, tf32_rate = copy_rate(), product_rate(False), product_rate(True)
    machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "bytes_per_second": bandwidth}
    machine |= {"float32_per_second": rate, "tf32_per_second": tf32_rate}
    print(
        f"{machine['device']}, torch {torch.__version__}: copies {bandwidth / 1e12:.2f} TB/s, products "
        f"{rate / 1e12:.0f} TFLOP/s in float32, {tf32_rate / 1e12:.0f} in TF32"
    )
    print("scan, ms                            PyTorch, graph  kernels  graph  forward   floor  us a step")
    rows = []
    for case in CASES:
        rows.append(row := scan_row(*case, bandwidth, rate))
        times = "{pytorch_graph:9.2f}  {kernels:13.2f} {kernels_graph:6.2f} {forward:8.2f} {floor:7.2f}".format(**row)
        per_step = 1e3 * row["kernels_graph"] / (2 * row["T"] * row["K"])
        print(
            "B={B:<4d}T={T:<4d}K={K:<2d}N={N:<5d}{active:4.0%} active".format(**row),
            times,
            f"{per_step:9.2f}",
            flush=True,
        )
    print(f"sparse NMF, {FRAMES:,} frames, {ATOMS} atoms")
    nmf = [sparse_nmf_row(False, rate), sparse_nmf_row(True, tf32_rate)]
    for row in nmf:
        name = "TF32" if row["tf32"] else "float32"
        print(
            f"{name:8s} {row['iteration']:7.1f} ms an iteration, {row['rate'] / 1e12:.0f} TFLOP/s, "
            f"{row['of_peak']:.0%} of a large product's"
        )
    arguments.json.write_text(json.dumps({"machine": machine, "scan": rows, "sparse_nmf": nmf}, indent=1) + "\n")


if __name__ == "__main__":
    main()
