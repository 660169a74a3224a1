"""What the scan asks of an engine, and what engines share: the layers' matrices, and the large products over many rows.

`scan` has the formulas; rows are frames of all sequences. H (K, 1 + C, B, N) holds the activations of a block of C
frames: H[-1, 0] is the state before it, so that H[-1, :-1] is s for the first layer; the other H[k, 0] are not used. G
holds g in the same places.
"""

from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor


class Problem(NamedTuple):
    """T frames of B sequences, and the K layers that each frame passes."""

    x_BTF: Tensor
    h0_BN: Tensor
    W_KFN: Tensor
    alpha_KN: Tensor
    sparsity_KN: Tensor
    sparsity_KBTN: Tensor | None  # what single frames add to sparsity_KN; its K may be 1: the same for all layers
    residual_first_layer: bool

    def cheaper_by_gram(self) -> bool:
        """Whether a step costs fewer multiplications in the Gram form, which also has to make W^T W for all rows."""
        (B, T, F), N = self.x_BTF.shape, self.h0_BN.shape[1]
        return N * N * (1 + F / max(B * T, 1)) < 2 * F * N


class Needs(NamedTuple):
    """Which tensors of a problem need a gradient."""

    x_BTF: bool
    h0_BN: bool
    W_KFN: bool
    alpha_KN: bool
    sparsity_KN: bool
    sparsity_KBTN: bool

    @property
    def parameters(self) -> bool:
        """Whether sums over all frames are needed."""
        return self.W_KFN or self.alpha_KN or self.sparsity_KN


Gradients = tuple[Tensor | None, ...]  # in the order of `Needs`; None or anything where none is needed


class Engine(Protocol):
    """One way to take all steps."""

    name: ClassVar[str]  # as `scan(form=...)` calls it
    takes: ClassVar[str]  # the problems it is for, as an error message says it

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Whether it can solve the problem and, unless asked for by name, is likely to be fast at it."""

    def forward(self, problem: Problem, needs: Needs | None) -> tuple[Tensor, list[Tensor]]:
        """Return h (B, T, N), and what `backward` will ask for; nothing if no gradient is needed."""

    def backward(self, dh_BTN: Tensor, problem: Problem, kept: list[Tensor], needs: Needs) -> Gradients:
        """The gradients of a problem's tensors from that of h."""


class Layers(NamedTuple):
    """What steps multiply by. A layer that is not `residual` only adds the state."""

    W_KFN: Tensor
    alpha_KN: Tensor
    scaled_KFN: Tensor  # W / alpha
    threshold_KN: Tensor  # lambda / alpha
    residual_K: list[bool]
    gram: bool  # the form
    A_KNN: Tensor  # I - W^T W / alpha, and I where a layer only adds the state; in the factored form there is none

    @classmethod
    def of(cls, problem: Problem, *, gram: bool) -> "Layers":
        """The layers of a problem, in the Gram form or in the factored one."""
        W_KFN, alpha_KN = problem.W_KFN, problem.alpha_KN
        K, _, N = W_KFN.shape
        scaled_KFN, A_KNN = W_KFN / alpha_KN[:, None], W_KFN.new_empty(0)
        if gram:
            identity = torch.eye(N, dtype=W_KFN.dtype, device=W_KFN.device)
            A_KNN = identity - W_KFN.mT @ scaled_KFN
            A_KNN[0] = A_KNN[0] if problem.residual_first_layer else identity
        residual_K = [problem.residual_first_layer] + [True] * (K - 1)
        return cls(W_KFN, alpha_KN, scaled_KFN, problem.sparsity_KN / alpha_KN, residual_K, gram, A_KNN)


class Block(NamedTuple):
    """C frames of all sequences, what they add to the thresholds (K or 1, C, B, N), and their activations."""

    x_CBF: Tensor
    sparsity_KCBN: Tensor | None
    H: Tensor

    def thresholds(self, layers: Layers) -> Tensor | None:
        """What the frames add to lambda / alpha, (K, C, B, N)."""
        return None if self.sparsity_KCBN is None else self.sparsity_KCBN / layers.alpha_KN[:, None, None]


def drive_(block: Block, layers: Layers) -> None:
    """H[k, 1:] = b = (x W_k - lambda_k) / alpha_k; in the factored form only for a layer that is not residual."""
    x_RF = block.x_CBF.contiguous().flatten(0, 1)
    thresholds_KCBN = block.thresholds(layers)
    for k, b_CBN in enumerate(block.H[:, 1:]):
        if layers.residual_K[k] and not layers.gram:
            continue
        torch.addmm(-layers.threshold_KN[k], x_RF, layers.scaled_KFN[k], out=b_CBN.flatten(0, 1))
        if thresholds_KCBN is not None:
            b_CBN -= thresholds_KCBN[k]


class Sums:
    """Sums over all rows, and the gradients that they make."""

    def __init__(self, layers: Layers) -> None:
        K, F, N = layers.W_KFN.shape
        self.layers = layers
        zeros = layers.W_KFN.new_zeros
        self.eg_KFN = zeros(K, F + 1, N)  # Gram: [x, 1]^T g; factored: [x - s W^T, 1]^T g
        self.sg_K = zeros(K, N if layers.gram else F, N)  # Gram: s^T g; factored: q^T s
        self.lambda_g_KN = zeros(K, N)  # of what frames add to lambda

    def add(self, block: Block, g_KCBN: Tensor, q_KRF: Tensor | None, e_KCBF: Tensor | None) -> None:
        """Add a block's rows; e = [x - s W^T, 1], if a kernel made it."""
        layers, H = self.layers, block.H
        F = layers.W_KFN.shape[1]
        x_RF = torch.nn.functional.pad(block.x_CBF.flatten(0, 1), (0, 1), value=1.0)  # a column of ones sums up g
        s_KRN = [H[-1, :-1].flatten(0, 1), *H[:-1, 1:].flatten(1, 2)]
        for k, (s_RN, g_RN) in enumerate(zip(s_KRN, g_KCBN.flatten(1, 2), strict=True)):
            e_RF = x_RF if e_KCBF is None else e_KCBF[k].flatten(0, 1)
            if layers.residual_K[k] and not layers.gram and e_KCBF is None:
                e_RF = x_RF.clone()
                e_RF[:, :F].addmm_(s_RN, layers.W_KFN[k].mT, alpha=-1)
            self.eg_KFN[k].addmm_(e_RF.mT, g_RN)
            if layers.residual_K[k] and layers.gram:
                self.sg_K[k].addmm_(s_RN.mT, g_RN)
            elif layers.residual_K[k] and q_KRF is not None:
                self.sg_K[k].addmm_(q_KRF[k].mT, s_RN)
        if block.sparsity_KCBN is not None:
            self.lambda_g_KN += (block.sparsity_KCBN * g_KCBN).sum((1, 2))

    def gradients(self, sparsity_KN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """dL/dW, dL/dalpha and dL/dlambda."""
        W_KFN, alpha_KN = self.layers.W_KFN, self.layers.alpha_KN
        F = W_KFN.shape[1]
        eg_KFN, g_KN = self.eg_KFN[:, :F], self.eg_KFN[:, F]
        projection_KN = (W_KFN * eg_KFN).sum(1)  # sum of g (W^T (x - W s))
        explained_KFN = self.sg_K
        if self.layers.gram:
            projection_KN -= (W_KFN.mT @ W_KFN * self.sg_K).sum(1)
            M_KNN = self.sg_K / alpha_KN[:, None]
            explained_KFN = W_KFN @ (M_KNN + M_KNN.mT)
        dW_KFN = eg_KFN / alpha_KN[:, None] - explained_KFN
        dalpha_KN = (sparsity_KN * g_KN + self.lambda_g_KN - projection_KN) / alpha_KN.square()
        return dW_KFN, dalpha_KN, -g_KN / alpha_KN


def by_sparsity(g_KCBN: Tensor, layers: Layers, *, shared: bool) -> Tensor:
    """dL/dlambda of single frames: -g / alpha (K, C, B, N); summed, (1, C, B, N), where all layers share it."""
    gradient_KCBN = -g_KCBN / layers.alpha_KN[:, None, None]
    return gradient_KCBN.sum(0, keepdim=True) if shared else gradient_KCBN
