"""The scan's two forms step by step in plain PyTorch, for every device and type of number."""

from collections.abc import Iterable, Iterator
from itertools import repeat

import torch
from torch import Tensor

from drnmf.engines.blocks import BlockEngine
from drnmf.engines.problem import Block, Layers, Problem, drive_


class PlainGram(BlockEngine):
    """a = s A_k + b, where that costs less than the factored form."""

    name = "gram"
    takes = "every problem"
    gram = True

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Always; by itself where W^T W is worth making."""
        return by_name or problem.cheaper_by_gram()

    def forward_block(self, block: Block, layers: Layers, *, keep_e: bool) -> None:
        """As `BlockEngine` has it."""
        drive_(block, layers)
        matrices = list(zip(layers.A_KNN, layers.residual_K, strict=True))
        s = block.H[-1, 0]
        for h_KBN in zip(*block.H[:, 1:], strict=True):
            for h, (A, residual) in zip(h_KBN, matrices, strict=True):
                if residual:
                    h.addmm_(s, A)
                else:
                    h.add_(s)
                s = h.relu_()

    def backward_block(self, G: Tensor, H: Tensor, layers: Layers) -> None:
        """As `BlockEngine` has it."""
        transposed = layers.A_KNN.mT.unbind()
        for k, g, ds in _steps_back(G, H):
            if layers.residual_K[k]:
                ds.addmm_(g, transposed[k])
            else:
                ds.add_(g)


class PlainFactored(BlockEngine):
    """a = s - lambda_k / alpha_k + (x_t - s W_k^T) W_k / alpha_k: for many atoms or few frames, and the last resort."""

    name = "factored"
    takes = "every problem"
    gram = False

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Always."""
        return True

    def forward_block(self, block: Block, layers: Layers, *, keep_e: bool) -> None:
        """As `BlockEngine` has it."""
        drive_(block, layers)
        matrices = list(zip(layers.W_KFN.mT, layers.scaled_KFN, layers.residual_K, strict=True))
        s, e_BF = block.H[-1, 0], block.x_CBF.new_empty(block.x_CBF.shape[1:])
        frames = zip(block.x_CBF.contiguous(), _thresholds(block, layers), *block.H[:, 1:], strict=False)
        for x_BF, threshold_K, *h_KBN in frames:
            for h, threshold, (W_T, scaled, residual) in zip(h_KBN, threshold_K, matrices, strict=True):
                if residual:
                    torch.addmm(x_BF, s, W_T, alpha=-1, out=e_BF)
                    torch.sub(s, threshold, out=h).addmm_(e_BF, scaled)
                else:
                    h.add_(s)
                s = h.relu_()

    def backward_block(self, G: Tensor, H: Tensor, layers: Layers) -> None:
        """As `BlockEngine` has it."""
        matrices = list(zip(layers.W_KFN, layers.scaled_KFN.mT, strict=True))
        for k, g, ds in _steps_back(G, H):
            ds.add_(g)
            if layers.residual_K[k]:
                W, scaled_T = matrices[k]
                ds.addmm_(g @ scaled_T, W, alpha=-1)


def _thresholds(block: Block, layers: Layers) -> Iterable[Iterable[Tensor]]:
    """The lambda / alpha of every frame and layer: always the same, unless frames have their own."""
    added_KCBN = block.thresholds(layers)
    if added_KCBN is None:
        return repeat(layers.threshold_KN.unbind())
    return (added_KCBN + layers.threshold_KN[:, None, None]).unbind(1)


def _steps_back(G: Tensor, H: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """From the last step to the first: its layer, its g, and the gradient of the state before it, to be added to."""
    g_CK, mask_CK = list(zip(*G, strict=True)), list(zip(*H[:, 1:].sign(), strict=True))
    for t in reversed(range(len(mask_CK))):
        g_K = g_CK[t + 1]
        ds_K = (g_CK[t][-1], *g_K)
        for k in reversed(range(len(g_K))):
            yield k, g_K[k].mul_(mask_CK[t][k]), ds_K[k]
