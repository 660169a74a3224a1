"""The scan in the factored form, a = s - lambda_k / alpha_k + (x_t - s W_k^T) W_k / alpha_k, in plain PyTorch.

For many atoms and for few frames, where W^T W would cost more than it saves.
"""

from collections.abc import Iterable
from itertools import repeat

import torch
from torch import Tensor

from drnmf.engines.blocks import BlockEngine
from drnmf.engines.problem import Problem
from drnmf.engines.products import Block, Layers, drive_


class PlainFactored(BlockEngine):
    """Step by step: the last resort, for every device and type of number."""

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
        """As `BlockEngine` has it: each step adds to the gradient of the state before it."""
        g_CK, mask_CK = list(zip(*G, strict=True)), list(zip(*H[:, 1:].sign(), strict=True))
        matrices = list(zip(layers.W_KFN, layers.scaled_KFN.mT, layers.residual_K, strict=True))
        for t in reversed(range(len(mask_CK))):
            g_K = g_CK[t + 1]
            ds_K = (g_CK[t][-1], *g_K)
            steps = zip(g_K[::-1], ds_K[-2::-1], mask_CK[t][::-1], matrices[::-1], strict=True)
            for g, ds, mask, (W, scaled_T, residual) in steps:
                g.mul_(mask)
                ds.add_(g)
                if residual:
                    ds.addmm_(g @ scaled_T, W, alpha=-1)


def _thresholds(block: Block, layers: Layers) -> Iterable[Iterable[Tensor]]:
    """The lambda / alpha of every frame and layer: always the same, unless frames have their own."""
    added_KCBN = block.thresholds(layers)
    if added_KCBN is None:
        return repeat(layers.threshold_KN.unbind())
    return (added_KCBN + layers.threshold_KN[:, None, None]).unbind(1)
