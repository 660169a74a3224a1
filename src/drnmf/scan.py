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
        gradients = _backward(dh_BTN, x_BTF, W_KFN, alpha_KN, blocks, *ctx.options, needs=ctx.needs_input_grad)
        return *gradients, None, None


class _Layer(NamedTuple):
    """What the steps of one layer multiply by; without `A_NN` and `residual`, the state is only added."""

    W_FN: Tensor
    scaled_FN: Tensor  # W / alpha
    A_NN: Tensor | None
    residual: bool


def _layers(W_KFN: Tensor, alpha_KN: Tensor, residual_first_layer: bool, gram: bool) -> list[_Layer]:
    layers = []
    for k, (W, scaled) in enumerate(zip(W_KFN, W_KFN / alpha_KN[:, None], strict=True)):
        residual = residual_first_layer or k > 0
        A = torch.eye(W.shape[1], dtype=W.dtype, device=W.device) - W.mT @ scaled if gram and residual else None
        layers.append(_Layer(W, scaled, A, residual))
    return layers


def _frames_by_block(x_BTF: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The first frame of every block, and its frames x (C, B, F), always in the same memory."""
    B, T, F = x_BTF.shape
    size = min(T, max(1, ROWS // max(B, 1)))

def _forward(
    x_BTF: Tensor,
    h0_BN: Tensor,
    W_KFN: Tensor,
    alpha_KN: Tensor,
    sparsity_KN: Tensor,
    residual_first_layer: bool,
    gram: bool,
    *,
    keep: bool,
) -> tuple[Tensor, list[Tensor]]:
    """h (B, T, N), and the activations H (K, 1 + C, B, N) of all layers; H[-1, 0] is h0, the other H[k, 0] are unused."""
    (B, T, F), (K, _, N) = x_BTF.shape, W_KFN.shape
    layers = _layers(W_KFN, alpha_KN, residual_first_layer, gram)
    thresholds = (sparsity_KN / alpha_KN).unbind()
    size = min(T, max(1, ROWS // max(B, 1)))
    h_BTN = x_BTF.new_empty(B, T, N)
    x_CBF = x_BTF.new_empty(size, B, F)
    H = x_BTF.new_empty(K, 1 + size, B, N)
    s = h0_BN
    blocks = []
    for t in range(0, T, size or 1):
        C = min(size, T - t)
        x = x_CBF[:C].copy_(x_BTF[:, t : t + C].transpose(0, 1))
        H = x_BTF.new_empty(K, 1 + C, B, N) if keep else H[:, : 1 + C]
        H[-1, 0] = s
        _forward_block(x, H, layers, thresholds)
        s = H[-1, -1]
        h_BTN[:, t : t + C] = H[-1, 1:].transpose(0, 1)
        if keep:
            blocks.append(H)
    return h_BTN, blocks


def _forward_block(x_TBF: Tensor, H_KTBN: Tensor, layers: list[_Layer], thresholds: tuple[Tensor, ...]) -> None:
    """Fill H[:, 1:] from the state H[-1, 0] and the frames x."""
    for h_TBN, layer, threshold in zip(H_KTBN[:, 1:], layers, thresholds, strict=True):
        if layer.A_NN is not None or not layer.residual:
            torch.addmm(-threshold, x_TBF.flatten(0, 1), layer.scaled_FN, out=h_TBN.view(-1, h_TBN.shape[-1]))
    e_BF = torch.empty_like(x_TBF[0])
    s = H_KTBN[-1, 0]
    for x_BF, *h_KBN in zip(x_TBF, *H_KTBN[:, 1:], strict=True):
        for h, layer, threshold in zip(h_KBN, layers, thresholds, strict=True):
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
    blocks: list[Tensor],
    residual_first_layer: bool,
    gram: bool,
    *,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of x, h0, W, alpha and sparsity, None where not needed."""
    needs_x, _, needs_W, needs_alpha, needs_sparsity, *_ = needs
    (B, T, F), (K, _, N) = x_BTF.shape, W_KFN.shape
    layers = _layers(W_KFN, alpha_KN, residual_first_layer, gram)
    size = min(T, max(1, ROWS // max(B, 1)))
    G_KTBN = W_KFN.new_zeros(K, 1 + size, B, N)  # G[-1, 0] is the gradient of the state before the block
    mask_KTBN = W_KFN.new_empty(K, size, B, N)
    Q_KTBF = x_BTF.new_empty(0 if gram else K, min(size, T), B, F)
    x_CBF = x_BTF.new_empty(size, B, F)
    dx_BTF = torch.empty_like(x_BTF) if needs_x else None
    dW_KFN, dA_KNN = torch.zeros_like(W_KFN), W_KFN.new_zeros(K, N, N)
    dalpha_KN, dsparsity_KN = torch.zeros_like(alpha_KN), torch.zeros_like(alpha_KN)
    end = T
    for H in reversed(blocks):
        n = H.shape[1] - 1
        t = end - n
        end = t
        x_RF = x_CBF[:n].copy_(x_BTF[:, t : t + n].transpose(0, 1)).flatten(0, 1)
        G = G_KTBN[:, : n + 1]
        G[-1, -1] = G[-1, 0]
        _backward_block(dh_BTN[:, t : t + n].transpose(0, 1), torch.sign(H[:, 1:], out=mask_KTBN[:, :n]), G, Q_KTBF, layers)
        dx_RF = torch.zeros_like(x_RF) if needs_x else None
        for k, layer in enumerate(layers):
            g, h = G[k, 1:].flatten(0, 1), H[k, 1:].flatten(0, 1)
            s = (H[k - 1, 1:] if k else H[-1, :-1]).flatten(0, 1)
            q = Q_KTBF[k, :n].flatten(0, 1) if layer.residual and not gram else None
            if needs_x:
                dx_RF = dx_RF.addmm_(g, layer.scaled_FN.mT) if q is None else dx_RF.add_(q)
            if needs_W and q is None:
                dW_KFN[k].addmm_(x_RF.mT, g)
                if layer.residual:
                    dA_KNN[k].addmm_(s.mT, g)
            elif needs_W:
                e = torch.addmm(x_RF, s, layer.W_FN.mT, alpha=-1)
                dW_KFN[k] += e.mT @ g - (q.mT @ s) * alpha_KN[k]
            if needs_alpha:
                dalpha_KN[k] -= (h - s).mul_(g).sum(0)
            if needs_sparsity:
                dsparsity_KN[k] -= g.sum(0)
        if needs_x:
            dx_BTF[:, t : t + n] = dx_RF.view(n, B, F).transpose(0, 1)
    dW_KFN /= alpha_KN[:, None]
    if gram:
        dA_KNN /= alpha_KN[:, None]
        dW_KFN -= W_KFN @ (dA_KNN + dA_KNN.mT)
    return dx_BTF, G_KTBN[-1, 0].clone(), dW_KFN, dalpha_KN / alpha_KN, dsparsity_KN / alpha_KN


def _backward_block(dh_TBN: Tensor, mask_KTBN: Tensor, G_KTBN: Tensor, Q_KTBF: Tensor, layers: list[_Layer]) -> None:
    masks = [m.unbind() for m in mask_KTBN]
    Gs = [m.unbind() for m in G_KTBN]
    for t, dh in reversed(list(enumerate(dh_TBN))):
        Gs[-1][t+1].add_(dh)
        for k in reversed(range(len(layers))):
            g = Gs[k][t+1].mul_(masks[k][t])
            ds = Gs[k - 1][t+1] if k else Gs[-1][t]
            A = layers[k].A_NN
            if A is not None:
                torch.mm(g, A.mT, out=ds)
            elif layers[k].residual:
                q = torch.mm(g, layers[k].scaled_FN.mT, out=Q_KTBF[k, t])
                torch.addmm(g, q, layers[k].W_FN, alpha=-1, out=ds)
            else:
                ds.copy_(g)
