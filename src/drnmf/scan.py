"""The DR-NMF recurrence over all frames, fast: `ista.unfolded_ista` with its own backward pass.

Layer k of frame t takes a state s to h^(k)_t (rows, one per sequence); s is h^(k-1)_t, and h^(K)_{t-1} for k = 1:

    a = s + (x_t W_k - s W_k^T W_k - lambda_k) / alpha_k,        h^(k)_t = max(a, 0).

Each of these steps waits for the one before, so as little as possible is left to them. There are two forms:

    Gram        a = s A_k + b,  A_k = I - W_k^T W_k / alpha_k,   b = (x W_k - lambda_k) / alpha_k of many frames at once
    factored    a = s - lambda_k / alpha_k + (x_t - s W_k^T) W_k / alpha_k

Backward, the steps run from the last to the first. With g = dL/da and q = (g / alpha_k) W_k^T,

    g = dL/dh where h > 0, else 0,                               dL/ds = g A_k^T = g - q W_k,

and what remains are products and sums over many rows (frames of all sequences) at once:

    dL/dx        = sum over k of q
    dL/dW_k      = x^T g / alpha_k - W_k (M + M^T),  M = s^T g / alpha_k       (Gram)
                 = (x - s W_k^T)^T g / alpha_k - q^T s                         (factored)
    dL/dalpha_k  = -sum of g (W_k^T (x - W_k s) - lambda_k) / alpha_k^2, of which the products above hold every part
    dL/dlambda_k = -sum of g / alpha_k

Only the activations h^(k)_t are kept for the backward pass; they hold the relu's mask. g lives for one block of frames.
"""

from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from drnmf.errors import InputError

Form = Literal["auto", "gram", "factored", "kernel"]
KERNEL_ROWS = 2**16  # for the GPU kernels: few launches; so many rows of g are in memory at once
ROWS = 1024  # frames x sequences in a block: enough for efficient products, few enough to stay in cache


def scan(
    x_BTF: Tensor,
    W_KFN: Tensor,
    *,
    alpha_KN: Tensor,
    sparsity_KN: Tensor,
    h0_BN: Tensor,
    residual_first_layer: bool = True,
    warm_start: bool = True,
    form: Form = "auto",
) -> Tensor:
    """What `ista.unfolded_ista` returns, h (B, T, N), differentiable once in all five tensors.

    `form` says how layers are evaluated, by default the way that costs less; results differ by rounding only. "kernel"
    is the Gram form with all steps in one GPU kernel (`scan_triton`).
    """
    _check(x_BTF, W_KFN, alpha_KN, sparsity_KN, h0_BN)
    if form not in get_args(Form):
        raise InputError(f"form must be one of {', '.join(get_args(Form))}, got {form!r}")
    (B, T, F), (K, _, N) = x_BTF.shape, W_KFN.shape
    if form == "auto" and warm_start and _has_kernel(x_BTF, N):
        form = "kernel"
    # Multiplications in one step; the Gram form also has to make W^T W, once for all rows.
    gram = N * N * (1 + F / max(B * T, 1)) < 2 * F * N if form == "auto" else form != "factored"
    options = _Options(residual_first_layer, gram, form == "kernel")
    layers = (W_KFN, alpha_KN.expand(K, N), sparsity_KN.expand(K, N), options)
    with torch.autocast(x_BTF.device.type, enabled=False):  # thousands of dependent steps would add up its rounding
        if warm_start:
            return _run(x_BTF, h0_BN, *layers)
        # Frames that do not depend on each other are sequences of one frame.
        x_R1F, h0_RN = x_BTF.reshape(B * T, 1, F), h0_BN.repeat_interleave(T, 0)
        blocks = zip(torch.split(x_R1F, ROWS), torch.split(h0_RN, ROWS), strict=True)
        return torch.cat([_run(x, h0, *layers) for x, h0 in blocks]).view(B, T, N)


def _check(x: Tensor, W: Tensor, alpha: Tensor, sparsity: Tensor, h0: Tensor) -> None:
    if W.ndim != 3 or len(W) == 0 or x.ndim != 3 or x.shape[2] != W.shape[1]:
        raise InputError(f"scan needs x (B, T, F) and W (K, F, N), got {tuple(x.shape)} and {tuple(W.shape)}")
    K, _, N = W.shape
    if h0.shape != (len(x), N):
        raise InputError(f"h0 must be (B, N) = {(len(x), N)}, got {tuple(h0.shape)}")
    for name, value in (("alpha", alpha), ("sparsity", sparsity)):
        if value.shape not in ((K, 1), (K, N)):
            raise InputError(f"{name} must be (K, 1) or (K, N) = {(K, N)}, got {tuple(value.shape)}")
    kinds = {(tensor.dtype, tensor.device) for tensor in (x, W, alpha, sparsity, h0)}
    if len(kinds) > 1:
        raise InputError(f"scan needs one dtype and one device, got {', '.join(sorted(map(str, kinds)))}")


def _has_kernel(x_BTF: Tensor, N: int) -> bool:
    """Whether GPU kernels can take the steps: they are written in Triton, which comes with PyTorch for CUDA."""
    if not x_BTF.is_cuda or find_spec("triton") is None:
        return False
    from drnmf import scan_triton

    return scan_triton.usable(x_BTF, N)


class _Options(NamedTuple):
    residual_first_layer: bool
    gram: bool
    kernel: bool


def _run(
    x_BTF: Tensor, h0_BN: Tensor, W_KFN: Tensor, alpha_KN: Tensor, sparsity_KN: Tensor, options: _Options
) -> Tensor:
    """Return h (B, T, N), keeping activations only where a gradient will ask for them."""
    tensors = (x_BTF, h0_BN, W_KFN, alpha_KN, sparsity_KN)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return cast(Tensor, _Scan.apply(*tensors, options))  # type: ignore[no-untyped-call]
    return _forward(*tensors, options, keep=False)[0]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, W: Tensor, alpha: Tensor, sparsity: Tensor, options: _Options
    ) -> Tensor:
        h_BTN, kept = _forward(x, h0, W, alpha, sparsity, options, keep=True)
        ctx.save_for_backward(x, W, alpha, sparsity, *kept)
        ctx.options = options
        return h_BTN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh_BTN: Tensor) -> tuple[Tensor | None, ...]:
        x, W, alpha, sparsity, *kept = ctx.saved_tensors
        with torch.autocast(dh_BTN.device.type, enabled=False):
            gradients = _backward(dh_BTN, x, W, alpha, sparsity, kept, ctx.options, ctx.needs_input_grad)
        return *gradients, None


class _Layer(NamedTuple):
    """What the steps of one layer multiply by. With neither `A` nor `residual`, they only add the state."""

    W: Tensor  # (F, N)
    scaled: Tensor  # (F, N), W / alpha
    A: Tensor | None  # (N, N), in the Gram form
    residual: bool


def _layers(W_KFN: Tensor, alpha_KN: Tensor, options: _Options) -> list[_Layer]:
    layers = []
    for k, (W, alpha) in enumerate(zip(W_KFN, alpha_KN, strict=True)):
        scaled, residual = W / alpha, options.residual_first_layer or k > 0
        A = torch.eye(len(alpha), dtype=W.dtype, device=W.device) - W.mT @ scaled if options.gram and residual else None
        layers.append(_Layer(W, scaled, A, residual))
    return layers


def _stacked(layers: list[_Layer]) -> Tensor:
    """A of all layers (K, N, N), the identity where a layer only adds the state."""
    W = layers[0].W
    identity = torch.eye(W.shape[1], dtype=W.dtype, device=W.device)
    return torch.stack([identity if layer.A is None else layer.A for layer in layers])


def _blocks(x_BTF: Tensor, options: _Options) -> tuple[Tensor, ...]:
    """Frames in blocks, each (C, B, F)."""
    rows = KERNEL_ROWS if options.kernel else ROWS
    return torch.split(x_BTF.transpose(0, 1), max(1, rows // max(1, len(x_BTF))))


def _forward(
    x_BTF: Tensor, h0_BN: Tensor, W_KFN: Tensor, alpha_KN: Tensor, sparsity_KN: Tensor, options: _Options, *, keep: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return h (B, T, N) and, to `keep`, the activations H (K, 1 + C, B, N) of every block of C frames.

    H[-1, 0] is the state before the block, so that H[-1, :-1] is s for the first layer. The other H[k, 0] are not used.
    """
    (B, T, _), (K, _, N) = x_BTF.shape, W_KFN.shape
    layers, thresholds = _layers(W_KFN, alpha_KN, options), sparsity_KN / alpha_KN
    h_BTN, state, kept = x_BTF.new_empty(B, T, N), h0_BN, []
    for x_CBF, h_CBN in zip(_blocks(x_BTF, options), _blocks(h_BTN, options), strict=True):
        H = x_BTF.new_empty(K, 1 + len(x_CBF), B, N)
        H[-1, 0] = state
        _forward_block(x_CBF.contiguous(), H, layers, thresholds, options.kernel)
        h_CBN.copy_(H[-1, 1:])
        state = H[-1, -1]
        if keep:
            kept.append(H)
    return h_BTN, kept


def _forward_block(x_CBF: Tensor, H: Tensor, layers: list[_Layer], threshold_KN: Tensor, kernel: bool) -> None:
    """Fill H[:, 1:] from the state H[-1, 0] and the frames x."""
    _, B, F = x_CBF.shape
    for h_CBN, layer, threshold in zip(H[:, 1:], layers, threshold_KN, strict=True):
        if layer.A is not None or not layer.residual:
            torch.addmm(-threshold, x_CBF.flatten(0, 1), layer.scaled, out=h_CBN.flatten(0, 1))
    if kernel:
        from drnmf import scan_triton

        scan_triton.forward_(H, _stacked(layers))
        return
    s, e_BF, thresholds = H[-1, 0], x_CBF.new_empty(B, F), threshold_KN.unbind()
    for x_BF, *h_KBN in zip(x_CBF, *H[:, 1:], strict=True):
        for h, layer, threshold in zip(h_KBN, layers, thresholds, strict=True):
            if layer.A is not None:
                h.addmm_(s, layer.A)
            elif layer.residual:
                torch.addmm(x_BF, s, layer.W.mT, alpha=-1, out=e_BF)
                torch.sub(s, threshold, out=h).addmm_(e_BF, layer.scaled)
            else:
                h.add_(s)
            s = h.relu_()


def _backward(
    dh_BTN: Tensor,
    x_BTF: Tensor,
    W_KFN: Tensor,
    alpha_KN: Tensor,
    sparsity_KN: Tensor,
    kept: list[Tensor],
    options: _Options,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of x, h0, W, alpha and sparsity; where one is not needed, None or zeros."""
    needs_x, _, *needs_parameters = needs[:5]
    (K, F, N), gram, layers = W_KFN.shape, options.gram, _layers(W_KFN, alpha_KN, options)
    scaled_KFN = W_KFN / alpha_KN[:, None]
    ds_BN, dx_blocks = dh_BTN.new_zeros(len(dh_BTN), N), []
    eg_KFN, sg_K = W_KFN.new_zeros(K, F + 1, N), W_KFN.new_zeros(K, N if gram else F, N)
    blocks = (_blocks(x_BTF, options)[::-1], _blocks(dh_BTN, options)[::-1], kept[::-1])
    for x_CBF, dh_CBN, H in zip(*blocks, strict=True):
        G = _backward_block(dh_CBN, ds_BN, H, layers, options.kernel)
        ds_BN, h_KRN, g_KRN = G[-1, 0], H[:, 1:].flatten(1, 2), G[:, 1:].flatten(1, 2)
        q_KRF = g_KRN @ scaled_KFN.mT if needs_x or not gram else g_KRN.new_empty(K, 0)  # empty: not used
        if needs_x:
            dx_blocks.append(q_KRF.sum(0).view_as(x_CBF))
        if not any(needs_parameters):
            continue
        x_RF = torch.nn.functional.pad(x_CBF.flatten(0, 1), (0, 1), value=1.0)  # a column of ones sums up g on the way
        s_KRN = [H[-1, :-1].flatten(0, 1), *h_KRN[:-1]]
        for k, (layer, s, g, q) in enumerate(zip(layers, s_KRN, g_KRN, q_KRF, strict=True)):
            if gram or not layer.residual:
                eg_KFN[k].addmm_(x_RF.mT, g)
                if layer.residual:
                    sg_K[k].addmm_(s.mT, g)
            else:
                e_RF = x_RF.clone()
                e_RF[:, :F].addmm_(s, layer.W.mT, alpha=-1)
                eg_KFN[k].addmm_(e_RF.mT, g)
                sg_K[k].addmm_(q.mT, s)
    dx_BTF = torch.cat(dx_blocks[::-1]).transpose(0, 1) if needs_x else None
    eg_KFN, g_KN = eg_KFN[:, :F], eg_KFN[:, F]
    projection_KN = (W_KFN * eg_KFN).sum(1)  # sum of g (W^T (x - W s))
    if gram:
        projection_KN -= (W_KFN.mT @ W_KFN * sg_K).sum(1)
        M_KNN = sg_K / alpha_KN[:, None]
        sg_K = W_KFN @ (M_KNN + M_KNN.mT)
    dW_KFN = eg_KFN / alpha_KN[:, None] - sg_K
    dalpha_KN = (sparsity_KN * g_KN - projection_KN) / alpha_KN.square()
    return dx_BTF, ds_BN.clone(), dW_KFN, dalpha_KN, -g_KN / alpha_KN  # a copy: a view would hold all of G


def _backward_block(dh_CBN: Tensor, ds_BN: Tensor, H: Tensor, layers: list[_Layer], kernel: bool) -> Tensor:
    """G (K, 1 + C, B, N): g of all steps in G[:, 1:], and in G[-1, 0] the gradient of the state before the block."""
    G = torch.zeros_like(H)
    G[-1, 1:] = dh_CBN
    G[-1, -1] += ds_BN
    if kernel:
        from drnmf import scan_triton

        scan_triton.backward_(G, H, _stacked(layers))
        return G
    g_CK, mask_CK = list(zip(*G, strict=True)), list(zip(*H[:, 1:].sign(), strict=True))
    steps = [(layer, None if layer.A is None else layer.A.mT) for layer in layers]
    for t in reversed(range(len(dh_CBN))):
        g_K = g_CK[t + 1]
        ds_K = (g_CK[t][-1], *g_K)
        for g, ds, mask, (layer, A_T) in zip(g_K[::-1], ds_K[-2::-1], mask_CK[t][::-1], steps[::-1], strict=True):
            g.mul_(mask)
            if A_T is not None:
                ds.addmm_(g, A_T)
            elif layer.residual:
                ds.add_(g).addmm_(g @ layer.scaled.mT, layer.W, alpha=-1)
            else:
                ds.add_(g)
    return G
