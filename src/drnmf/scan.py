"""The DR-NMF recurrence over all frames, fast: `ista.unfolded_ista` with its own backward pass.

Layer k of frame t takes the state s, which is h^(k-1)_t, or h^(K)_{t-1} for the first layer (rows, one per sequence):

    a^(k)_t = s + (x_t W_k - s W_k^T W_k - lambda_k) / alpha_k,        h^(k)_t = max(a^(k)_t, 0),

evaluated in one of two forms, the smaller of which leaves less work to the steps that must wait for each other:

    Gram        a = s A_k + b^(k)_t   with A_k = I - W_k^T W_k / alpha_k, and b^(k) = (x W_k - lambda_k) / alpha_k of many frames at once
    factored    a = s - lambda_k / alpha_k + (x_t - s W_k^T) W_k / alpha_k

Backward, with g = dL/da and q = (g / alpha_k) W_k^T, the steps are taken in the reverse order:

    g^(k)_t = (dL/dh^(k)_t where h^(k)_t > 0, else 0),                 dL/ds = g A_k^T = g - q W_k,

and the rest are large products over many frames and all sequences, here summed over the rows that they share:

    dL/dx      = sum_k q^(k)                    dL/dW_k = (x^T g - W_k s^T g) / alpha_k - W_k (s^T g / alpha_k)^T     Gram
    dL/dlambda_k = -sum g / alpha_k                     = (x - s W_k^T)^T g / alpha_k - q^T s                         factored
    dL/dalpha_k  = -sum g (h^(k) - s) / alpha_k, because a = h^(k) wherever g is not zero.

Only the activations h^(k)_t are kept from forward to backward; g lives for one block of frames.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from drnmf.errors import InputError

ROWS = 2048  # frames x sequences in a block: enough for an efficient product, little beside the kept activations


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

    `form` says how layers are evaluated, by default by size; the results differ by rounding only.
    """
    (B, T, F), (K, _, N) = x_BTF.shape, W_KFN.shape
    # Multiplications per layer and frame in the steps themselves, and those of W^T W shared by all frames.
    gram = N * N + F * N * N / max(B * T, 1) < 2 * F * N if form == "auto" else form == "gram"
    layers = (W_KFN, alpha_KN.expand(K, N), sparsity_KN.expand(K, N), residual_first_layer, gram)
    with torch.autocast(x_BTF.device.type, enabled=False):  # thousands of steps would add up its roundings
        if warm_start:
            return _run(x_BTF, h0_BN, *layers)
        # Frames that do not depend on each other are sequences of one frame.
        x_blocks, h0_blocks = x_BTF.reshape(B * T, 1, F).split(ROWS), h0_BN.repeat_interleave(T, 0).split(ROWS)
        h_blocks = [_run(x, h0, *layers) for x, h0 in zip(x_blocks, h0_blocks, strict=True)]
        return torch.cat(h_blocks).view(B, T, N)


def _run(x_BTF: Tensor, h0_BN: Tensor, W_KFN: Tensor, alpha_KN: Tensor, sparsity_KN: Tensor, *options: bool) -> Tensor:
    """h (B, T, N), keeping the activations of all layers only where a gradient will ask for them."""
    tensors = (x_BTF, h0_BN, W_KFN, alpha_KN, sparsity_KN)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return cast(Tensor, _Scan.apply(*tensors, *options))  # type: ignore[no-untyped-call]
    return _forward(*tensors, *options, keep=False)[0]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h0: Tensor, W: Tensor, alpha: Tensor, sparsity: Tensor, *options: bool) -> Tensor:
        h_BTN, blocks = _forward(x, h0, W, alpha, sparsity, *options, keep=True)
        ctx.save_for_backward(x, W, alpha, *blocks)
        ctx.options = options
        return h_BTN

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dh_BTN: Tensor) -> tuple[Tensor | None, ...]:
        x_BTF, W_KFN, alpha_KN, *blocks = ctx.saved_tensors
        return *_backward(dh_BTN, x_BTF, W_KFN, alpha_KN, blocks, ctx.options, ctx.needs_input_grad), None, None


class _Layer(NamedTuple):
    """What a step of one layer multiplies by. With neither `A_NN` nor `residual`, it only adds the state."""

    W_FN: Tensor
    scaled_FN: Tensor  # W / alpha
    A_NN: Tensor | None
    residual: bool


def _layers(W_KFN: Tensor, alpha_KN: Tensor, residual_first_layer: bool, gram: bool) -> list[_Layer]:
    layers = []
    for k, (W, alpha) in enumerate(zip(W_KFN, alpha_KN, strict=True)):
        scaled, residual = W / alpha, residual_first_layer or k > 0
        A = torch.eye(len(alpha), dtype=W.dtype, device=W.device) - W.mT @ scaled if gram and residual else None
        layers.append(_Layer(W, scaled, A, residual))
    return layers


def _blocks_of_frames(x_BTF: Tensor) -> tuple[Tensor, ...]:
    """x (T, B, F) cut into blocks of C frames."""
    B, T, _ = x_BTF.shape
    return x_BTF.transpose(0, 1).split(max(1, ROWS // max(B, 1))) if T else ()


def _forward(
    x_BTF: Tensor, h0_BN: Tensor, W_KFN: Tensor, alpha_KN: Tensor, sparsity_KN: Tensor, *options: bool, keep: bool
) -> tuple[Tensor, list[Tensor]]:
    """h (B, T, N) and, if they are to be kept, the activations H (K, 1 + C, B, N) of every block of C frames.

    H[-1, 0] is the state before the block, so that s is H[-1, :-1] for the first layer; the other H[k, 0] are unused.
    """
    (B, T, _), (K, _, N) = x_BTF.shape, W_KFN.shape
    layers, threshold_KN = _layers(W_KFN, alpha_KN, *options), sparsity_KN / alpha_KN
    h_TBN = x_BTF.new_empty(B, T, N).transpose(0, 1)
    kept, s = [], h0_BN
    for x_CBF, h_CBN in zip(_blocks_of_frames(x_BTF), _blocks_of_frames(h_TBN.transpose(0, 1)), strict=True):
        H = x_BTF.new_empty(K, 1 + len(x_CBF), B, N)
        H[-1, 0] = s
        _forward_block(x_CBF.contiguous(), H, layers, threshold_KN)
        h_CBN.copy_(H[-1, 1:])
        s = H[-1, -1]
        if keep:
            kept.append(H)
    return h_TBN.transpose(0, 1), kept


def _forward_block(x_CBF: Tensor, H: Tensor, layers: list[_Layer], threshold_KN: Tensor) -> None:
    """Fill H[:, 1:] from the state H[-1, 0] and the frames x."""
    steps = list(zip(layers, threshold_KN, strict=True))
    for h_CBN, (layer, threshold) in zip(H[:, 1:], steps, strict=True):
        if layer.A_NN is not None or not layer.residual:
            torch.addmm(-threshold, x_CBF.flatten(0, 1), layer.scaled_FN, out=h_CBN.flatten(0, 1))
    s, e_BF = H[-1, 0], torch.empty_like(x_CBF[0])
    for x_BF, *h_KBN in zip(x_CBF, *H[:, 1:], strict=True):
        for h, (layer, threshold) in zip(h_KBN, steps, strict=True):
            if layer.A_NN is not None:
                h.addmm_(s, layer.A_NN)
            elif layer.residual:
                torch.addmm(x_BF, s, layer.W_FN.mT, alpha=-1, out=e_BF)
                torch.sub(s, threshold, out=h).addmm_(e_BF, layer.scaled_FN)
            else:
                h.add_(s)
            s = h.relu_()


def _backward(
    dh_BTN: Tensor,
    x_BTF: Tensor,
    W_KFN: Tensor,
    alpha_KN: Tensor,
    kept: list[Tensor],
    options: tuple[bool, bool],
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of x, h0, W, alpha and sparsity; None for x where it is not needed."""
    needs_x, _, needs_W, needs_alpha, needs_sparsity, *_ = needs
    (K, F, N), (_, gram) = W_KFN.shape, options
    layers = _layers(W_KFN, alpha_KN, *options)
    dx_BTF = torch.zeros_like(x_BTF) if needs_x else None
    xg_KFN, second = W_KFN.new_zeros(K, F, N), W_KFN.new_zeros(K, N if gram else F, N)
    dalpha_KN, dsparsity_KN = W_KFN.new_zeros(K, N), W_KFN.new_zeros(K, N)
    ds_BN = dh_BTN.new_zeros(len(dh_BTN), N)
    t = x_BTF.shape[1]
    for H in reversed(kept):
        C = H.shape[1] - 1
        t -= C
        x_RF = x_BTF[:, t : t + C].transpose(0, 1).flatten(0, 1)
        G, Q = _backward_block(dh_BTN[:, t : t + C].transpose(0, 1), ds_BN, H, layers)
        ds_BN = G[-1, 0]
        dx_RF = torch.zeros_like(x_RF) if needs_x else None
        for k, layer in enumerate(layers):
            s, h, g = (H[k - 1, 1:] if k else H[-1, :-1]).flatten(0, 1), H[k, 1:].flatten(0, 1), G[k, 1:].flatten(0, 1)
            q = Q[k].flatten(0, 1) if layer.residual and not gram else None
            if needs_x:
                dx_RF = dx_RF.addmm_(g, layer.scaled_FN.mT) if q is None else dx_RF.add_(q)
            if needs_W and q is None:
                xg_KFN[k].addmm_(x_RF.mT, g)
                if layer.residual:
                    second[k].addmm_(s.mT, g)
            elif needs_W:
                xg_KFN[k].addmm_(torch.addmm(x_RF, s, layer.W_FN.mT, alpha=-1).mT, g)
                second[k].addmm_(q.mT, s)
            if needs_alpha:
                dalpha_KN[k] -= (h - s).mul_(g).sum(0)
            if needs_sparsity:
                dsparsity_KN[k] -= g.sum(0)
        if needs_x:
            dx_BTF[:, t : t + C] = dx_RF.view(C, -1, F).transpose(0, 1)
    dW_KFN = xg_KFN / alpha_KN[:, None]
    if gram:
        second /= alpha_KN[:, None]
        second = W_KFN @ (second + second.mT)
    dW_KFN -= second
    return dx_BTF, ds_BN, dW_KFN, dalpha_KN / alpha_KN, dsparsity_KN / alpha_KN


def _backward_block(dh_CBN: Tensor, ds_BN: Tensor, H: Tensor, layers: list[_Layer]) -> tuple[Tensor, Tensor]:
    """G."""
    (K, _, B, N), F = H.shape, len(layers[0].W_FN)
    gram = any(layer.A_NN is not None for layer in layers)
    G, Q = torch.zeros_like(H), H.new_empty(0 if gram else K, len(dh_CBN), B, F)
    G[-1, 1:] = dh_CBN
    G[-1, -1] += ds_BN
    steps = [(None if l.A_NN is None else l.A_NN.mT, l.scaled_FN.mT, l.W_FN, l.residual) for l in layers][::-1]
    Gs = list(zip(*G.unbind()))
    masks = list(zip(*H[:, 1:].sign()))
    for t in reversed(range(len(dh_CBN))):
        gs = Gs[t + 1][::-1]
        for k, g, mask, ds, (A_T, scaled_T, W, residual) in zip(
            range(K - 1, -1, -1), gs, masks[t][::-1], (*gs[1:], Gs[t][-1]), steps
        ):
            g.mul_(mask)
            if A_T is not None:
                ds.addmm_(g, A_T)
            elif residual:
                q = torch.mm(g, scaled_T, out=Q[k, t])
                ds.add_(g).addmm_(q, W, alpha=-1)
            else:
                ds.add_(g)
    return G, Q
