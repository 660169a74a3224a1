"""The recurrence of `scan` where every sequence has a dictionary of its own, shared by its layers.

On clusters (`scan_cluster`) all sequences take their steps at the same time, elsewhere one after the other. There, in
the Gram form,

    h^(k)_t = max(s A_k + b, 0),   A_k = I - W^T W / alpha_k,   b = (x_t W - lambda_k - what the frame adds) / alpha_k

A and b are made of tensors by ordinary operations, whose gradients PyTorch knows; what is written here is the walk
through the steps. Backward, with g = dL/da, dL/db = g and dL/dA_k = sum over frames of s^T g.

Names end in their shapes: B sequences, T frames, F bins, N atoms, K layers.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from drnmf.engines.cuda_kernel import available
from drnmf.engines.scan import scan
from drnmf.engines.scan_cluster import Cluster, fits


def scan_own(
    x_BTF: Tensor,
    W_BFN: Tensor,
    *,
    alpha_BKN: Tensor,
    sparsity_KN: Tensor,
    h0_BN: Tensor,
    sparsity_KBTN: Tensor | None = None,
) -> Tensor:
    """As `scan`: h (B, T, N), differentiable once in all its tensors."""
    tensors = (x_BTF, W_BFN, alpha_BKN, sparsity_KN, h0_BN, sparsity_KBTN)
    K, N = sparsity_KN.shape
    if x_BTF.dtype == torch.float32 and available(x_BTF.device) and fits(K, N):
        return _on_clusters(*tensors)
    return _one_by_one(*tensors)


def _one_by_one(
    x_BTF: Tensor, W_BFN: Tensor, alpha_BKN: Tensor, sparsity_KN: Tensor, h0_BN: Tensor, sparsity_KBTN: Tensor | None
) -> Tensor:
    sequences = []
    for b, (x_TF, W_FN, alpha_KN, h0_N) in enumerate(zip(x_BTF, W_BFN, alpha_BKN, h0_BN, strict=True)):
        of_frames = None if sparsity_KBTN is None else sparsity_KBTN[:, b : b + 1]
        W_KFN = W_FN.expand(len(sparsity_KN), -1, -1)
        layers = {"alpha_KN": alpha_KN, "sparsity_KN": sparsity_KN, "sparsity_KBTN": of_frames}
        sequences.append(scan(x_TF[None], W_KFN, h0_BN=h0_N[None], **layers))
    return torch.cat(sequences)


def _on_clusters(
    x_BTF: Tensor, W_BFN: Tensor, alpha_BKN: Tensor, sparsity_KN: Tensor, h0_BN: Tensor, sparsity_KBTN: Tensor | None
) -> Tensor:
    identity_NN = torch.eye(W_BFN.shape[2], dtype=W_BFN.dtype, device=W_BFN.device)
    A_BKNN = identity_NN - (W_BFN.mT @ W_BFN)[:, None] / alpha_BKN[:, :, None]
    heard_1BTN = (x_BTF @ W_BFN)[None]
    threshold = sparsity_KN[:, None, None] if sparsity_KBTN is None else sparsity_KN[:, None, None] + sparsity_KBTN
    b_KBTN = (heard_1BTN - threshold) / alpha_BKN.transpose(0, 1)[:, :, None]
    return cast(Tensor, _Steps.apply(A_BKNN, b_KBTN.transpose(1, 2), h0_BN))  # type: ignore[no-untyped-call]


class _Steps(torch.autograd.Function):
    """From A (B, K, N, N), b (K, T, B, N) and the state before the first frame to h (B, T, N)."""

    @staticmethod
    def forward(ctx: Any, A_BKNN: Tensor, b_KTBN: Tensor, h0_BN: Tensor) -> Tensor:
        K, T, B, N = b_KTBN.shape
        H = b_KTBN.new_empty(K, 1 + T, B, N)
        H[:, 1:] = b_KTBN
        H[-1, 0] = h0_BN
        Cluster().steps_(H, H, A_BKNN, backward=False)
        ctx.save_for_backward(A_BKNN, H)
        return H[-1, 1:].transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh_BTN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        A_BKNN, H = ctx.saved_tensors
        G = torch.zeros_like(H)
        G[-1, 1:] = dh_BTN.transpose(0, 1)
        Cluster().steps_(G, H, A_BKNN, backward=True)
        before = (H[-1, :-1], *H[:-1, 1:])
        dA_KBNN = [
            s_TBN.permute(1, 2, 0) @ g_TBN.transpose(0, 1) for s_TBN, g_TBN in zip(before, G[:, 1:], strict=True)
        ]
        return torch.stack(dA_KBNN, 1), G[:, 1:], G[-1, 0].clone()
