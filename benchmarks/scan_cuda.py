"""The scan on a GPU, forward and backward: `python -m benchmarks.scan_cuda [--tune] [--json FILE]`.

Milliseconds by CUDA events, the median of several runs after a warm-up, each way both called directly and replayed from
a CUDA graph. Rows tell how many activations are not zero, because the kernels skip what multiplies a zero; in the last
one there is nothing to skip. Two floors stand beside the times: what this machine's copies and float32 products need
for the bytes and operations that no way can avoid, and what one multiprocessor needs to stream every matrix each step.
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

from drnmf import scan_triton
from drnmf.ista import lipschitz
from drnmf.scan import scan

F = 257
CASES = [
    (32, 500, 5, 200),
    (32, 500, 2, 200),
    (32, 100, 5, 200),
    (1, 500, 5, 200),
    (256, 100, 5, 200),
    (32, 100, 5, 512),
]
STREAM = 64 * 1.98e9  # bytes a second: what one multiprocessor of an H200 can take from the second-level cache


def problem(B: int, T: int, K: int, N: int, *, dense: bool = False) -> tuple[list[Tensor], Tensor]:
    """The leaves x, W, alpha, sparsity and h0, and dL/dh, for mixtures of atoms that fade in and out.

    About four atoms in ten are active, as many as in a trained network at most; all of them if `dense`.
    """
    generator = torch.Generator().manual_seed(0)
    W = torch.rand(F, N, generator=generator) ** 20 * torch.rand(K, F, N, generator=generator)
    W /= W.norm(dim=1, keepdim=True)
    gains = torch.randn(B, N, T // 20 + 2, generator=generator) - 1
    gains = torch.nn.functional.interpolate(gains.abs() if dense else gains.relu(), T, mode="linear").mT
    alpha = torch.tensor([[lipschitz(W_k)] for W_k in W])
    leaves = [
        gains @ W[0].mT,
        W,
        20 * alpha if dense else alpha,
        torch.full((K, 1), 0.0 if dense else 0.6),
        torch.ones(B, N) if dense else torch.zeros(B, N),
    ]
    return [leaf.cuda().requires_grad_() for leaf in leaves], torch.randn(B, T, N, generator=generator).cuda()


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


def ceilings() -> tuple[float, float]:
    """Bytes a second of a large copy, read and written counted, and float32 operations a second of a large product."""
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    bandwidth = 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) * 1e3
    A, B = torch.randn(2, 8192, 8192, device="cuda")
    return bandwidth, 2 * 8192**3 / milliseconds(lambda: A @ B, 5) * 1e3


def floor(B: int, T: int, K: int, N: int, bandwidth: float, rate: float) -> float:
    """Milliseconds for what cannot be avoided.

    Bytes: x read in both directions and dx written, h written and dL/dh read, all activations kept and read again.
    Operations: the steps both ways and s^T g (N^2 each), x W, x^T g and g W^T (F N each).
    """
    moved = 4 * B * T * (3 * F + 2 * N + 2 * K * N)
    operations = 2 * B * T * K * (3 * N * N + 3 * F * N)
    return 1e3 * max(moved / bandwidth, operations / rate)


def measure(B: int, T: int, K: int, N: int, *, dense: bool, bandwidth: float, rate: float) -> dict[str, Any]:
    """One row of the table."""
    leaves, dh = problem(B, T, K, N, dense=dense)
    x, W, alpha, sparsity, h0 = leaves

    def step(form: Any) -> tuple[Tensor, ...]:
        h = scan(x, W, alpha_KN=alpha, sparsity_KN=sparsity, h0_BN=h0, form=form)
        return torch.autograd.grad(h, leaves, dh)

    row: dict[str, Any] = {"B": B, "T": T, "K": K, "N": N}
    row["pytorch"] = milliseconds(lambda: step("gram"), 3)
    row["pytorch_graph"] = milliseconds(graphed(lambda: step("gram")), 5)
    row["kernel"] = milliseconds(lambda: step("kernel"))
    row["kernel_graph"] = milliseconds(graphed(lambda: step("kernel")))
    row["forward_steps"], row["backward_steps"], row["active"] = steps_alone(leaves, dh)
    row["floor"] = floor(B, T, K, N, bandwidth, rate)
    row["stream"] = 1e3 * 2 * T * K * 4 * N * N / STREAM
    return row


@torch.no_grad()
def steps_alone(leaves: list[Tensor], dh: Tensor) -> tuple[float, float, float]:
    """Milliseconds of the two kernels, without the products before and after, and the fraction of active atoms."""
    x, W, alpha, sparsity, h0 = leaves
    A = torch.eye(W.shape[2], device=W.device) - W.mT @ (W / alpha[:, None])
    b = (x.transpose(0, 1) @ W[:, None] - sparsity[:, None, None]) / alpha[:, None, None]
    H = torch.cat([h0.expand(len(W), 1, -1, -1), b], 1)
    G = torch.zeros_like(H)
    dh_TBN = dh.transpose(0, 1).contiguous()

    def reset() -> None:  # the kernels work in place
        H[:, 1:], G[-1, 1:] = b, dh_TBN

    def forward() -> None:
        reset()
        scan_triton.forward_(H, A)

    def both() -> None:
        forward()
        scan_triton.backward_(G, H, A)

    times = [milliseconds(function) for function in (reset, forward, both)]
    return times[1] - times[0], times[2] - times[1], float((H[:, 1:] > 0).float().mean())


def tune(B: int, T: int, K: int, N: int) -> None:
    """Microseconds a step for other shapes of the kernels, forward and backward."""
    before = scan_triton.WARPS, scan_triton.DEPTH, scan_triton.REGISTERS
    print(f"\ntuning at {(B, T, K, N)}: us a step forward and backward, with 4 in 10 active and with all")
    for warps, registers in ((16, 128), (8, 128), (8, 255), (4, 255)):
        for depth in (8, 16, 32):
            scan_triton.WARPS, scan_triton.DEPTH, scan_triton.REGISTERS = warps, depth, registers
            runs = [steps_alone(*problem(B, T, K, N, dense=dense))[:2] for dense in (False, True)]
            times = "".join(f"{1e3 * time / (T * K):8.2f}" for run in runs for time in run)
            print(f"warps {warps:2d} loads in flight {depth:2d} registers {registers:3d} {times}", flush=True)
    scan_triton.WARPS, scan_triton.DEPTH, scan_triton.REGISTERS = before


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scan_cuda", description=__doc__)
    parser.add_argument("--tune", action="store_true", help="time other shapes of the kernels too")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    bandwidth, rate = ceilings()
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}: copies {bandwidth / 1e12:.2f} TB/s, float32 {rate / 1e12:.0f} TFLOP/s")
    print(
        "forward + backward in ms"
        + " " * 19
        + "PyTorch    graph   kernels    graph |  steps alone, us |   floor  stream"
    )
    rows = []
    for case, dense in [*((case, False) for case in CASES), (CASES[0], True)]:
        row = measure(*case, dense=dense, bandwidth=bandwidth, rate=rate)
        rows.append(row)
        per_step = [1e3 * row[key] / (row["T"] * row["K"]) for key in ("forward_steps", "backward_steps")]
        times = "".join(f"{row[key]:9.2f}" for key in ("pytorch", "pytorch_graph", "kernel", "kernel_graph"))
        print(
            f"B={row['B']:<4d}T={row['T']:<4d}K={row['K']:<2d}N={row['N']:<4d} {row['active']:4.0%} active {times} | "
            f"{per_step[0]:7.2f} {per_step[1]:7.2f}  | {row['floor']:7.2f} {row['stream']:7.2f}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": device, "rows": rows}, indent=1) + "\n")
    if arguments.tune:
        tune(*CASES[0])
        tune(*CASES[4])


if __name__ == "__main__":
    main()
