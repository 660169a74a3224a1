"""The DR-NMF recurrence over all frames at once, fast: `ista.unfolded_ista` with its own backward pass.

The state runs through every layer of every frame; s = h^(K)_{t-1} enters layer 1 of frame t, h^(k-1)_t any other. As rows,

    a^(k)_t = s + (x_t W_k - s W_k^T W_k - lambda_k) / alpha_k,        h^(k)_t = max(a^(k)_t, 0),

written so that little is left for the part that cannot run in parallel:

    Gram       a = s A_k + b^(k)_t,  A_k = I - W_k^T W_k / alpha_k,  b^(k) = (x W_k - lambda_k) / alpha_k  for all frames at once
    factored   a = s + (x_t - s W_k^T) W_k / alpha_k - lambda_k / alpha_k

Backward, with g^(k)_t = dL/da^(k)_t and p = g / alpha, runs from the last layer of the last frame to the first:

    g^(k)_t = (what h^(k)_t receives) where h^(k)_t > 0, else 0,       ds = g - p W_k^T W_k = g A_k^T,

and then takes, for each layer, products over all frames t (and sequences) at once:

    dx         = sum_k p W_k^T                         dlambda_k  = -sum_t p
    dW_k       = x^T p - W_k (M + M^T),  M = s^T p     dalpha_k   = -1 / alpha_k * sum_t g (h^(k) - s)
               = (x - s W_k^T)^T p - (p W_k^T)^T s     since a - s = h^(k) - s wherever g is not zero.

Only the activations h^(k)_t are kept: they hold the relu's mask too. Work goes in blocks of frames, so that the gradients g are
never all in memory.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from drnmf.errors import InputError

ROWS = 2048  # frames x sequences in a block: enough for efficient products, small beside the activations


def scan(
    x_BTF: Tensor,
    W_KFN: Tensor,
    *,
    alpha_KN: Tensor,
    sparsity_KN: Tensor,
    h0_BN: Tensor,
    residual_first_layer: bool = True,
    warm_start: bool = True,
    form: Literal["auto", "gram", "factored"] = "auto",
) -> Tensor:
    """What `ista.unfolded_ista` returns, h (B, T, N), differentiable once in all five tensors.

    `form` chooses how a layer is evaluated; the results differ by rounding only.
    """
    _check(x_BTF, W_KFN, alpha_KN, sparsity_KN, h0_BN)
    (B, T, _), (K, _, N) = x_BTF.shape, W_KFN.shape
    gram = _gram_is_cheaper(B * T, W_KFN) if form == "auto" else form == "gram"
    parameters = (W_KFN, alpha_KN.expand(K, N), sparsity_KN.expand(K, N))
    options = (residual_first_layer, gram)
    with torch.autocast(x_BTF.device.type, enabled=False):  # thousands of steps add up bfloat16's rounding
        if warm_start:
            return _run(x_BTF.transpose(0, 1), *parameters, h0_BN, *options).transpose(0, 1)
        # Frames that do not depend on one another are sequences of one frame.
        x_1RF, h0_RN = x_BTF.reshape(1, B * T, -1), h0_BN.repeat_interleave(T, 0)
        blocks = zip(x_1RF.split(ROWS, 1), h0_RN.split(ROWS), strict=True)
        return torch.cat([_run(x, *parameters, h0, *options)[0] for x, h0 in blocks]).view(B, T, N)


def _run(x_TBF: Tensor, W: Tensor, alpha: Tensor, sparsity: Tensor, h0_BN: Tensor, *options: bool) -> Tensor:
    """h (T, B, N), keeping the activations of the other layers only where a gradient will need them."""
    tensors = (x_TBF, W, alpha, sparsity, h0_BN)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _Scan.apply(*tensors, *options)  # type: ignore[no-any-return, no-untyped-call]
    (T, B, _), (K, _, N) = x_TBF.shape, W.shape
    layers = _Layers.make(W, alpha, *options)
    h_BTN = W.new_empty(B, T, N)
    return h_BTN.transpose(0, 1)


class _Layers(NamedTuple):
    """The matrices of all layers, as the recurrence needs them."""

    W_KFN: Tensor
    scaled_KFN: Tensor
    """W / alpha."""
    A_KNN: Tensor | None
    """I - W^T W / alpha, in the Gram form."""
    residual_first_layer: bool
