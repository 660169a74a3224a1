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
from drnmf.engines.problem import Block, Layers, Problem

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

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Where the dictionaries fit; by itself for many atoms."""
        x, (K, F, N) = problem.x_BTF, problem.W_KFN.shape
        able = problem.sparsity_KBTN is None and x.dtype == torch.float32 and available(x.device)
        fits = able and _size(len(x), K, F, N, _multiprocessors(x.device)) is not None
        return fits and (by_name or N >= LEAST_ATOMS)

    def forward_block(self, block: Block, layers: Layers, *, keep_e: bool) -> Tensor | None:
        """As `BlockEngine` has it."""
        C, B, F = block.x_CBF.shape
        e = block.x_CBF.new_ones(len(layers.W_KFN), C, B, F + 1) if keep_e else None
        steps_(block.H, block.H, block.x_CBF, layers, e)
        return e

    def backward_block(self, G: Tensor, H: Tensor, layers: Layers) -> Tensor | None:
        """As `BlockEngine` has it."""
        K, F, _ = layers.W_KFN.shape
        q_KCBF = G.new_empty(K, G.shape[1] - 1, G.shape[2], F)
        steps_(G, H, None, layers, q_KCBF)
        return q_KCBF.flatten(1, 2)


def steps_(rows: Tensor, H: Tensor, x_TBF: Tensor | None, layers: Layers, kept_KTBF: Tensor | None) -> None:
    """All steps of frames x, where `rows` are H too; without x those back, where rows are G.

    `kept_KTBF` gets x - s W^T of every step, or x in a first layer without a residual; backward, q. Its rows may be
    longer than F: what follows is left alone.
    """
    (K, F, _), (T, B, N) = layers.W_KFN.shape, H[0, 1:].shape
    size = _size(B, K, F, N, _multiprocessors(H.device))
    assert size is not None, "usable() has seen that they fit"
    at_once, nothing = size.groups * SEQUENCES, H.new_empty(0)
    weights = [weight.contiguous() for weight in (layers.W_KFN, layers.alpha_KN, layers.threshold_KN)]
    rows_of = rows, layer_rows(rows), H, layer_rows(H)
    kept = (nothing, 0) if kept_KTBF is None else (kept_KTBF, kept_KTBF.shape[-1])
    with torch.cuda.device(H.device):
        kernel = _kernel(K, N, F, size.blocks, x_TBF is None, layers.residual_K[0], H.device)
        for first in range(0, B, at_once):
            x = nothing if x_TBF is None else _grouped(x_TBF[:, first : first + at_once], size.groups)
            partial, error = (  # the last bits are not those of the first step
                torch.full((n, -(-F // 8), 8 * SEQUENCES), -1, dtype=torch.int32, device=H.device)
                for n in (size.groups * size.blocks, size.groups)
            )
            kernel(
                *weights, x, *rows_of, *kept, partial, error, first, B, T,
                blocks=size.groups * size.blocks, threads=32 * WARPS, shared=size.shared, cooperative=True,
            )  # fmt: skip


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
