"""The steps of the Gram form as two GPU kernels in Triton; `scan_triton` is the engine that calls them.

One program walks one sequence through all frames t and layers k, which depend on each other (`scan` has the maths):

    forward     h^(k)_t = max(s A_k + b^(k)_t, 0),               s the h before: of layer k - 1, or of the last frame
    backward    g^(k)_t = (u where h^(k)_t > 0, else 0),         u = g A^T of the step after, plus dL/dh_t for k = K

The vector of a step is written to memory, which needs it anyway, and read back from the first-level cache as the
factors of the rows of A. The matrices (K N^2 floats, shared by all sequences) stay in the second-level cache, and a row
whose factor is exactly zero is not read: most of them, because h is sparse and g is zero wherever h is. A step takes
the time to stream the active rows into one multiprocessor, plus a fixed wait for memory and barriers.

All sums are float32 on the ordinary units: nothing here uses TF32. The products before and after follow
`torch.backends.cuda.matmul.allow_tf32`, which is off unless the caller turns it on.
"""

# Triton has no types, and is not installed where there is no GPU.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-not-found, import-untyped"

import torch
import triton
import triton.language as tl
from torch import Tensor

from drnmf.engines.cuda_kernel import layer_rows

WARPS = 16  # of a multiprocessor, for all its sequences together: with 128 registers a thread they fill it
REGISTERS = 128
DEPTH = 16  # 16-byte loads a thread starts before it waits for the first: the way to the second-level cache is long


def steps_(rows_KTBN: Tensor, H_KTBN: Tensor, A_KNN: Tensor, *, backward: bool) -> None:
    """As `GramKernels` has it."""
    K, T, B, N = len(H_KTBN), H_KTBN.shape[1] - 1, *H_KTBN.shape[2:]
    sizes = _sizes(B, N, H_KTBN.device)
    with torch.cuda.device_of(H_KTBN):
        if backward:
            last, steps = (rows_KTBN[-1, -1], H_KTBN[-1, -1]), (*_steps(rows_KTBN), *_steps(H_KTBN))
            _backward[(B,)](*last, _padded(A_KNN.mT), T, K, *steps, **sizes)
        else:
            _forward[(B,)](H_KTBN[-1, 0], H_KTBN[0, 1], _padded(A_KNN), T, K, *_steps(H_KTBN), **sizes)


def _steps(H_KTBN: Tensor) -> tuple[int, int]:
    """Rows of N from a layer to the next one, and from the last layer of a frame to the first of the next frame."""
    K, _, B, _ = H_KTBN.shape
    layer = layer_rows(H_KTBN)
    return layer, B - (K - 1) * layer


def _padded(A_KNN: Tensor) -> Tensor:
    """Rows of a multiple of four floats, so that each starts where a 16-byte load may."""
    return torch.nn.functional.pad(A_KNN, (0, -A_KNN.shape[2] % 4)).contiguous()


def _sizes(B: int, N: int, device: torch.device) -> dict[str, int]:
    """What the kernels are compiled for: tiles of R rows by C columns, a thread holding 4 columns and R / D rows."""
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else B
    sequences = triton.next_power_of_2(triton.cdiv(B, multiprocessors))  # side by side on a multiprocessor
    C = max(8, triton.next_power_of_2(N))
    num_warps = max(1, C // 128, min(C // 16, WARPS // sequences))
    D = 32 * num_warps * 4 // C
    R = max(D, min(D * DEPTH, C))
    sizes = {"N": N, "P": N + -N % 4, "C": C, "D": D, "R": R}
    return {**sizes, "num_warps": num_warps, "num_stages": 1, "maxnreg": REGISTERS}


@triton.jit
def _product(row, A, N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, D: tl.constexpr, R: tl.constexpr):
    """D partial sums (D, C) of row @ A: the threads are D groups, each of which takes every D-th row of A."""
    column = tl.arange(0, C)[None, :]
    total = tl.zeros((D, C), tl.float32)
    for first in tl.range(0, N, R, loop_unroll_factor=2):
        i = first + tl.arange(0, R)[:, None]
        factor = tl.load(row + i, mask=i < N, other=0.0)
        tile = tl.load(A + i * P + column, mask=(factor != 0.0) & (column < P), other=0.0)
        total += tl.sum(tl.reshape(factor * tile, (R // D, D, C)), 0)
    return total


# In both kernels a vector is a tile (D, C), the same in all groups, or only in the first where it is added or written
# once: its columns then lie with the same threads as those of A, and no vector has to change hands.


@triton.jit(do_not_specialize=["T", "K", "layer", "wrap"])
def _forward(
    state, row, A, T, K, layer, wrap,
    N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """`row` is b of the first step, `state` the row before it; both then walk through H."""
    column = tl.broadcast_to(tl.arange(0, C)[None, :], (D, C))
    once = (column < N) & (tl.arange(0, D)[:, None] == 0)
    state += tl.program_id(0) * N
    row += tl.program_id(0) * N
    b = tl.load(row + column, mask=once, other=0.0)
    for t in range(T):
        for k in range(K):
            following = row + tl.where(k + 1 < K, layer, wrap).to(tl.int64) * N
            # Asked for one step ahead, because it comes from device memory, far slower than A.
            b_following = tl.load(following + column, mask=once & ((k + 1 < K) | (t + 1 < T)), other=0.0)
            a = tl.sum(b + _product(state, A + k * N * P, N, P, C, D, R), 0)[None, :]
            h = tl.where(a < 0.0, 0.0, a)  # keeps NaN, unlike a maximum
            tl.store(row + column, tl.broadcast_to(h, (D, C)), mask=once)
            tl.debug_barrier()  # the next step reads the whole row in every thread
            state = row
            row = following
            b = b_following


@triton.jit(do_not_specialize=["T", "K", "G_layer", "G_wrap", "H_layer", "H_wrap"])
def _backward(
    G, H, A, T, K, G_layer, G_wrap, H_layer, H_wrap,
    N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """`G` and `H` are rows of the last step and walk back to the first; A is transposed."""
    column = tl.broadcast_to(tl.arange(0, C)[None, :], (D, C))
    once = (column < N) & (tl.arange(0, D)[:, None] == 0)
    G += tl.program_id(0) * N
    H += tl.program_id(0) * N
    u = tl.load(G + column, mask=once, other=0.0)
    h = tl.load(H + column, mask=column < N, other=0.0)
    for t in range(T):
        for j in range(K):
            k = K - 1 - j
            g = tl.where(h <= 0.0, 0.0, tl.sum(u, 0)[None, :])
            tl.store(G + column, g, mask=once)
            tl.debug_barrier()  # the product reads the whole row in every thread
            # What the step before needs is asked for here, ahead of the product that hides the wait.
            more = (k > 0) | (t + 1 < T)
            H -= tl.where(k > 0, H_layer, H_wrap).to(tl.int64) * N
            h = tl.load(H + column, mask=(column < N) & more, other=0.0)
            G_before = G - tl.where(k > 0, G_layer, G_wrap).to(tl.int64) * N
            dh = tl.load(G_before + column, mask=once & more & (k == 0), other=0.0)
            u = dh + _product(G, A + k * N * P, N, P, C, D, R)
            G = G_before
    tl.store(G + column, tl.broadcast_to(tl.sum(u, 0)[None, :], (D, C)), mask=once)
