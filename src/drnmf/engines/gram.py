"""The scan in the Gram form, a = s A_k + b: its steps in plain PyTorch, for every device and type of number."""

from abc import abstractmethod

from torch import Tensor

from drnmf.engines.blocks import BlockEngine
from drnmf.engines.problem import Problem
from drnmf.engines.products import Block, Layers, drive_


class GramEngine(BlockEngine):
    """An engine that makes b for a whole block at once; its kinds take the steps."""

    gram = True

    @abstractmethod
    def forward_(self, H: Tensor, layers: Layers) -> None:
        """Turn b in H[:, 1:] into the activations h, in place, from the state H[-1, 0]."""

    @abstractmethod
    def backward_(self, G: Tensor, H: Tensor, layers: Layers) -> None:
        """Turn dL/dh of the last layer in G[-1, 1:] into g in G[:, 1:], and put that of H[-1, 0] into G[-1, 0]."""

    def forward_block(self, block: Block, layers: Layers, *, keep_e: bool) -> None:
        """As `BlockEngine` has it; the Gram form has no x - s W^T."""
        drive_(block, layers)
        self.forward_(block.H, layers)

    def backward_block(self, G: Tensor, H: Tensor, layers: Layers) -> None:
        """As `BlockEngine` has it; the Gram form has no q."""
        self.backward_(G, H, layers)


class PlainGram(GramEngine):
    """Step by step, where that costs less than the factored form."""

    name = "gram"
    takes = "every problem"

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Always; by itself where W^T W is worth making."""
        return by_name or problem.cheaper_by_gram()

    def forward_(self, H: Tensor, layers: Layers) -> None:
        """As `GramEngine` has it."""
        assert layers.A_K is not None
        s = H[-1, 0]
        for h_KBN in zip(*H[:, 1:], strict=True):
            for h, A, residual in zip(h_KBN, layers.A_K, layers.residual_K, strict=True):
                if residual:
                    h.addmm_(s, A)
                else:
                    h.add_(s)
                s = h.relu_()

    def backward_(self, G: Tensor, H: Tensor, layers: Layers) -> None:
        """As `GramEngine` has it: each step adds to the gradient of the state before it."""
        assert layers.A_K is not None
        g_CK, mask_CK = list(zip(*G, strict=True)), list(zip(*H[:, 1:].sign(), strict=True))
        transposed = [A.mT if residual else None for A, residual in zip(layers.A_K, layers.residual_K, strict=True)]
        for t in reversed(range(len(mask_CK))):
            g_K = g_CK[t + 1]
            ds_K = (g_CK[t][-1], *g_K)
            for g, ds, mask, A_T in zip(g_K[::-1], ds_K[-2::-1], mask_CK[t][::-1], transposed[::-1], strict=True):
                g.mul_(mask)
                if A_T is None:
                    ds.add_(g)
                else:
                    ds.addmm_(g, A_T)
