"""Engines that go through the frames in blocks: their kinds only say how the steps of one block are taken."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

import torch
from torch import Tensor

from drnmf.engines.problem import Block, Engine, Gradients, Layers, Needs, Problem, Sums, by_sparsity, drive_

ROWS = 1024  # frames x sequences in a block: enough for efficient products, few enough to stay in cache
KERNEL_ROWS = 2**16  # for the GPU kernels: few launches; so many rows of g are in memory at once


class BlockEngine(Engine):
    """An engine in the Gram form or in the factored one."""

    gram: ClassVar[bool]
    rows: ClassVar[int] = ROWS

    @abstractmethod
    def forward_block(self, block: Block, layers: Layers, *, keep_e: bool) -> Tensor | None:
        """Fill H[:, 1:] from the state H[-1, 0].

        To `keep_e`, a kernel that has it returns e = [x - s W^T, 1] (K, C, B, F + 1).
        """

    @abstractmethod
    def backward_block(self, G: Tensor, H: Tensor, layers: Layers) -> Tensor | None:
        """Turn dL/dh in G[-1, 1:] into g in G[:, 1:], and put dL/ds of the state before the block into G[-1, 0].

        All else in G is zeros before. A kernel that has it returns q (K, C B, F).
        """

    def forward(self, problem: Problem, needs: Needs | None) -> tuple[Tensor, list[Tensor]]:
        """Return h (B, T, N); for gradients also H of every block and, if a kernel has it, then e of every block."""
        (B, T, _), (K, _, N) = problem.x_BTF.shape, problem.W_KFN.shape
        layers = Layers.of(problem, gram=self.gram)
        h_BTN = problem.x_BTF.new_empty(B, T, N)
        state = problem.h0_BN
        kept, kept_e = [], []
        h_blocks = self._split(h_BTN)
        new_H = (h_BTN.new_empty(K, 1 + len(h_CBN), B, N) for h_CBN in h_blocks)
        for block, h_CBN in zip(self._blocks(problem, new_H), h_blocks, strict=True):
            block.H[-1, 0] = state
            if h_CBN.numel():
                e = self.forward_block(block, layers, keep_e=needs is not None and needs.parameters)
                kept_e += [] if e is None else [e]
            h_CBN.copy_(block.H[-1, 1:])
            state = block.H[-1, -1]
            kept += [] if needs is None else [block.H]
        return h_BTN, kept + kept_e

    def backward(self, dh_BTN: Tensor, problem: Problem, kept: list[Tensor], needs: Needs) -> Gradients:
        """The gradients of a problem's tensors from that of h, from the last block to the first."""
        layers = Layers.of(problem, gram=self.gram)
        sums = Sums(layers)
        ds_BN = dh_BTN.new_zeros(problem.h0_BN.shape)
        dx: list[Tensor] = []
        dsparsity: list[Tensor] = []
        dh_blocks = self._split(dh_BTN)
        n = len(dh_blocks)
        blocks = list(self._blocks(problem, kept[:n]))
        kept_e: list[Tensor | None] = [*kept[n:]] or [None] * n
        for block, dh_CBN, e_KCBF in zip(blocks[::-1], dh_blocks[::-1], kept_e[::-1], strict=True):
            G = torch.zeros_like(block.H)
            G[-1, 1:] = dh_CBN
            G[-1, -1] += ds_BN
            q_KRF = self.backward_block(G, block.H, layers) if dh_CBN.numel() else None
            ds_BN, g_KCBN = G[-1, 0], G[:, 1:]
            if q_KRF is None and (needs.x_BTF or not self.gram):
                q_KRF = g_KCBN.flatten(1, 2) @ layers.scaled_KFN.mT
            if needs.x_BTF and q_KRF is not None:
                dx.append(q_KRF.sum(0).view_as(block.x_CBF))
            if needs.sparsity_KBTN and problem.sparsity_KBTN is not None:
                dsparsity.append(by_sparsity(g_KCBN, layers, shared=len(problem.sparsity_KBTN) == 1))
            if needs.parameters:
                sums.add(block, g_KCBN, q_KRF, e_KCBF)
        # a copy of ds: a view would hold all of G
        return _joined(dx), ds_BN.clone(), *sums.gradients(problem.sparsity_KN), _joined(dsparsity)

    def _split(self, x_BTF: Tensor) -> tuple[Tensor, ...]:
        """Frames (..., B, T, F) in blocks, each (..., C, B, F)."""
        n = max(1, self.rows // max(1, x_BTF.shape[-3]))
        return torch.split(x_BTF.transpose(-3, -2), n, -3)

    def _blocks(self, problem: Problem, H: Iterable[Tensor]) -> Iterator[Block]:
        x, more = self._split(problem.x_BTF), problem.sparsity_KBTN
        return map(Block, x, [None] * len(x) if more is None else self._split(more), H)


def _joined(blocks: list[Tensor]) -> Tensor | None:
    """Blocks (..., C, B, N), the last one first, as (..., B, T, N)."""
    return torch.cat(blocks[::-1], -3).transpose(-3, -2) if blocks else None


class GramKernels(BlockEngine):
    """The Gram form with all steps of a block in one GPU kernel."""

    gram = True
    rows = KERNEL_ROWS

    @abstractmethod
    def steps_(self, rows: Tensor, H: Tensor, A_KNN: Tensor, *, backward: bool) -> None:
        """Turn b in H[:, 1:] into the activations, where `rows` are H too; backward, as `backward_block`, rows are G.

        A_k maps a state s to s A_k. The zeros in G need not be there.
        """

    def forward_block(self, block: Block, layers: Layers, *, keep_e: bool) -> None:
        """As `BlockEngine` has it; the Gram form has no x - s W^T."""
        drive_(block, layers)
        self.steps_(block.H, block.H, layers.A_KNN, backward=False)

    def backward_block(self, G: Tensor, H: Tensor, layers: Layers) -> None:
        """As `BlockEngine` has it; the Gram form has no q."""
        self.steps_(G, H, layers.A_KNN, backward=True)
