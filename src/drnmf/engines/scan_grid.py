"""The steps of the factored scan for many atoms, with the dictionaries in the shared memory of the whole GPU.

For N = 2000 the Gram matrices do not even fit into the second-level cache, but the dictionaries fit into the shared
memory of all multiprocessors together, where they stay for all steps. `scan_grid.cu` is the kernel.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from drnmf.engines.blocks import KERNEL_ROWS, BlockEngine
from drnmf.engines.cuda_kernel import SHARED, Kernel, available, layer_rows
from drnmf.engines.problem import Problem
from drnmf.engines.products import Block, Layers

ATOMS, SEQUENCES, WARPS, ROW = 32, 16, 17, 36  # of a block, of a group, and others as in the kernel
LEAST_ATOMS = 256  # of a dictionary: with fewer, a cluster is the better way


class _Size(NamedTuple):
    blocks: int  # of a group
    groups: int
    shared: int  # bytes


class Grid(BlockEngine):
    """The factored form with all steps of a block in one kernel, which makes x - s W^T and q on its way."""

    name = "grid"
    takes = (
        "float32 on a GPU from Hopper on, with one sparsity for all frames and dictionaries that fit into its memory"
    )
    gram = False
    rows = KERNEL_ROWS
    adds = False

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Where the dictionaries fit; by itself for many atoms."""
        if problem.sparsity_KBTN is not None:
            return False
        K, F, N = problem.W_KFN.shape
        return (by_name or N >= LEAST_ATOMS) and usable(problem.x_BTF, len(problem.x_BTF), K, F, N)

    def forward_block(self, block: Block, layers: Layers, *, keep_e: bool) -> Tensor | None:
        """As `BlockEngine` has it."""
        C, B, F = block.x_CBF.shape
        e = block.x_CBF.new_empty(len(layers.W_KFN), C, B, F + 1) if keep_e else None
        if e is not None:
            e[..., F] = 1
        weights = layers.W_KFN, layers.alpha_KN, layers.threshold_KN
        forward_(block.H, block.x_CBF, *weights, residual=layers.residual_K[0], e_KTBF=e)
        return e

    def backward_block(self, G: Tensor, H: Tensor, layers: Layers) -> Tensor | None:
        """As `BlockEngine` has it."""
        K, F, _ = layers.W_KFN.shape
        q_KCBF = G.new_empty(K, G.shape[1] - 1, G.shape[2], F)
        backward_(G, H, layers.W_KFN, layers.alpha_KN, residual=layers.residual_K[0], q_KTBF=q_KCBF)
        return q_KCBF.flatten(1, 2)


def usable(x: Tensor, B: int, K: int, F: int, N: int) -> bool:
    """Whether the kernels can run on tensors like `x`: all dictionaries must fit into the shared memory of the GPU."""
    able = x.dtype == torch.float32 and available(x.device)
    return able and _size(B, K, F, N, _multiprocessors(x.device)) is not None


def forward_(
    H_KTBN: Tensor,
    x_TBF: Tensor,
    W_KFN: Tensor,
    alpha_KN: Tensor,
    threshold_KN: Tensor,
    *,
    residual: bool,
    e_KTBF: Tensor | None = None,
) -> None:
    """Fill H[:, 1:] with the activations, from the state H[-1, 0] and frames x; `residual`: of the first layer.

    Where `e_KTBF` is given, it gets x - s W^T of every step, or x in a first layer without a residual.
    """
    _run(H_KTBN, H_KTBN, x_TBF, W_KFN, alpha_KN, threshold_KN, e_KTBF, backward=False, residual=residual)


def backward_(
    G_KTBN: Tensor, H_KTBN: Tensor, W_KFN: Tensor, alpha_KN: Tensor, *, residual: bool, q_KTBF: Tensor | None = None
) -> None:
    """Turn dL/dh of the last layer in G[-1, 1:] into g in G[:, 1:], in place, and put that of H[-1, 0] into G[-1, 0].

    What later frames send back must already be part of G[-1, -1]; H is what `forward_` left. Where `q_KTBF` is given,
    it gets (g / alpha) W^T of every step.
    """
    _run(G_KTBN, H_KTBN, None, W_KFN, alpha_KN, alpha_KN, q_KTBF, backward=True, residual=residual)


def _run(
    rows_KTBN: Tensor, H_KTBN: Tensor, x_TBF: Tensor | None, W_KFN: Tensor, alpha_KN: Tensor, threshold_KN: Tensor,
    kept_KTBF: Tensor | None, *, backward: bool, residual: bool,
) -> None:  # fmt: skip
    K, T, B, N = len(H_KTBN), H_KTBN.shape[1] - 1, *H_KTBN.shape[2:]
    F = W_KFN.shape[1]
    if not B or not T:
        return
    size = _size(B, K, F, N, _multiprocessors(H_KTBN.device))
    if size is None:
        raise ValueError(f"{K} dictionaries of {F} x {N} do not fit into the shared memory of the GPU")
    at_once, nothing = size.groups * SEQUENCES, W_KFN.new_empty(0)
    weights = W_KFN.contiguous(), alpha_KN.contiguous(), threshold_KN.contiguous()
    rows = rows_KTBN, layer_rows(rows_KTBN), H_KTBN, layer_rows(H_KTBN)
    kept = (nothing, 0) if kept_KTBF is None else (kept_KTBF, _row(kept_KTBF))
    with torch.cuda.device(H_KTBN.device):
        kernel = _kernel(K, N, F, size.blocks, backward, residual, H_KTBN.device)
        for first in range(0, B, at_once):
            x = nothing if x_TBF is None else _grouped(x_TBF[:, first : first + at_once], size.groups)
            partial, error = (  # the last bits are not those of the first step
                torch.full((n, -(-F // 8), 8 * SEQUENCES), -1, dtype=torch.int32, device=W_KFN.device)
                for n in (size.groups * size.blocks, size.groups)
            )
            kernel(
                *weights, x, *rows, *kept, partial, error, first, B, T,
                blocks=size.groups * size.blocks, threads=32 * WARPS, shared=size.shared, cooperative=True,
            )  # fmt: skip


def _row(kept_KTBF: Tensor) -> int:
    """Numbers from a row of F to the next one; there may be more of them, which are left alone."""
    _, T, B, _ = kept_KTBF.shape
    layer, frame, row, bin = kept_KTBF.stride()
    if (layer, frame, bin) != (T * B * row, B * row, 1):
        raise ValueError(f"the kernels need rows at equal distances, got strides {kept_KTBF.stride()}")
    return row


def _grouped(x_TBF: Tensor, groups: int) -> Tensor:
    """Frames as the kernel's lanes read them, with zeros where a group has fewer sequences or a tile fewer bins.

    The order is (T, groups, tiles, 8 sequences, 4 pairs of bins, the sequence and the one 8 after it, the two bins).
    """
    T, B, F = x_TBF.shape
    tiles = -(-F // 8)
    x_TBF = torch.nn.functional.pad(x_TBF, (0, 8 * tiles - F, 0, groups * SEQUENCES - B))
    return x_TBF.view(T, groups, 2, 8, tiles, 4, 2).permute(0, 1, 4, 3, 5, 2, 6).contiguous()


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _size(B: int, K: int, F: int, N: int, multiprocessors: int) -> _Size | None:
    """None if the dictionaries are too large."""
    blocks = -(-N // ATOMS)
    groups = min(multiprocessors // blocks, -(-B // SEQUENCES))
    eights = -(-F // 8)
    stride = 8 * (eights | 1)
    floats = K * ATOMS * stride + (1 + WARPS) * SEQUENCES * ROW + 2 * K * ATOMS
    return _Size(blocks, groups, 4 * floats) if groups and 4 * floats <= SHARED else None


@cache
def _kernel(K: int, N: int, F: int, blocks: int, backward: bool, residual: bool, device: torch.device) -> Kernel:
    """Compiled for one size and device."""
    sizes = {"K": K, "N": N, "F": F, "BLOCKS": blocks, "BACKWARD": backward, "RESIDUAL": residual}
    return Kernel("scan_grid.cu", **sizes)
