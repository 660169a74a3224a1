"""The recurrence with matrices of any kind between its steps: `ista.unfolded_ista` with a transition or momentum.

Layer k of frame t takes a state s to h^(k)_t = max(s A_k + b^(k)_t, 0), where A_k = I - W_k^T W_k / alpha_k and
b = (x W_k - lambda_k) / alpha_k, as in `scan`. The two options only change A:

    transition   s = h_{t-1} P before the first layer:  A_1 <- P A_1
    momentum     z = h^(k) + beta_k (h^(k) - h^(k-1)) instead of h^(k): two vectors are carried, [h^(k), h^(k-1)], by

                     [(1 + beta_{k-1}) A_k    I]
                     [    -beta_{k-1} A_k     0]        (max(h, 0) = h, so the copy passes unchanged)

A and b are made by ordinary differentiable operations; only the steps, each of which waits for the one before, have
their own backward pass: dL/ds = g A_k^T, dL/dA_k = s^T g, dL/db = g, with g = dL/dh where h > 0 and 0 elsewhere. All
activations and b are kept whole, which `scan` avoids: this is for experiments, not for the network everybody runs.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from drnmf.engines.scan import gram_kernels
from drnmf.maths.thresholding import fista_momentum


def gram_scan(
    x_BTF: Tensor,
    W_KFN: Tensor,
    *,
    alpha_KN: Tensor,
    sparsity_KN: Tensor,
    h0_BN: Tensor,
    residual_first_layer: bool = True,
    warm_start: bool = True,
    transition_NN: Tensor | None = None,
    momentum: bool = False,
) -> Tensor:
    """What `ista.unfolded_ista` returns, h (B, T, N), differentiable once in all its tensors."""
    (B, T, F), N = x_BTF.shape, h0_BN.shape[1]
    with torch.autocast(x_BTF.device.type, enabled=False):  # thousands of dependent steps would add up its rounding
        if not warm_start:  # frames that do not depend on each other are sequences of one frame
            x_BTF, h0_BN = x_BTF.reshape(B * T, 1, F), h0_BN.repeat_interleave(T, 0)
        A_KNN = _matrices(W_KFN, alpha_KN, residual_first_layer, transition_NN)
        b_KTBN = (x_BTF.transpose(0, 1) @ W_KFN[:, None] - sparsity_KN[:, None, None]) / alpha_KN[:, None, None]
        if momentum:
            A_KNN, b_KTBN, h0_BN = _with_momentum(A_KNN), _twice(b_KTBN), _twice(h0_BN)
        h_TBN = cast(Tensor, _Steps.apply(b_KTBN, A_KNN, h0_BN))  # type: ignore[no-untyped-call]
        return h_TBN[..., :N].transpose(0, 1).reshape(B, T, N)


def _matrices(W_KFN: Tensor, alpha_KN: Tensor, residual_first_layer: bool, transition_NN: Tensor | None) -> Tensor:
    N = W_KFN.shape[2]
    eye_NN = torch.eye(N, dtype=W_KFN.dtype, device=W_KFN.device)
    first, *others = eye_NN - W_KFN.mT @ (W_KFN / alpha_KN[:, None])
    first = first if residual_first_layer else eye_NN
    return torch.stack([first if transition_NN is None else transition_NN @ first, *others])


def _with_momentum(A_KNN: Tensor) -> Tensor:
    """The block matrices (K, 2N, 2N) above."""
    beta_K = A_KNN.new_tensor([0.0, *fista_momentum(len(A_KNN) - 1)])[:, None, None]
    copy = torch.eye(A_KNN.shape[1], dtype=A_KNN.dtype, device=A_KNN.device).expand_as(A_KNN)
    return torch.cat([torch.cat([(1 + beta_K) * A_KNN, -beta_K * A_KNN], 1), torch.cat([copy, 0 * copy], 1)], 2)


def _twice(values: Tensor) -> Tensor:
    """Room for the vector before: zeros."""
    return torch.nn.functional.pad(values, (0, values.shape[-1]))


class _Steps(torch.autograd.Function):
    """h of the last layer (T, B, N) from b (K, T, B, N), A (K, N, N) and the state (B, N) before the first frame."""

    @staticmethod
    def forward(ctx: Any, b_KTBN: Tensor, A_KNN: Tensor, h0_BN: Tensor) -> Tensor:
        H = torch.nn.functional.pad(b_KTBN, (0, 0, 0, 0, 1, 0))  # frame 0 is the state before
        H[-1, 0] = h0_BN
        _forward_(H, A_KNN)
        ctx.save_for_backward(H, A_KNN)
        return H[-1, 1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh_TBN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        H, A_KNN = ctx.saved_tensors
        G = torch.zeros_like(H)
        G[-1, 1:] = dh_TBN
        _backward_(G, H, A_KNN)
        s_KRN = torch.cat([H[-1:, :-1], H[:-1, 1:]]).flatten(1, 2)
        return G[:, 1:], s_KRN.mT @ G[:, 1:].flatten(1, 2), G[-1, 0]


def _forward_(H: Tensor, A_KNN: Tensor) -> None:
    """Turn b in H[:, 1:] into activations, from the state H[-1, 0]."""
    kernels = gram_kernels(H)
    if kernels is not None:
        kernels.forward_(H, A_KNN)
        return
    s = H[-1, 0]
    for h_KBN in H[:, 1:].unbind(1):
        for h, A in zip(h_KBN, A_KNN, strict=True):
            s = h.addmm_(s, A).relu_()


def _backward_(G: Tensor, H: Tensor, A_KNN: Tensor) -> None:
    """Turn dL/dh in G[-1, 1:] into g in G[:, 1:], and that of the state into G[-1, 0]."""
    kernels = gram_kernels(H)
    if kernels is not None:
        kernels.backward_(G, H, A_KNN)
        return
    K, T = H.shape[0], H.shape[1] - 1
    for t in range(T, 0, -1):
        for k in range(K - 1, -1, -1):
            before = G[k - 1, t] if k else G[-1, t - 1]
            before.addmm_(G[k, t].mul_(H[k, t] > 0), A_KNN[k].mT)
