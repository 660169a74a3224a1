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
The steps of the factored form make x - s W^T and q on their way: the kernel for many atoms keeps these small ones too.
"""

from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from drnmf.engines import compiled as steps
from drnmf.errors import InputError

Form = Literal["auto", "gram", "factored", "kernel", "grid", "compiled"]
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
    is the Gram form with all steps in one GPU kernel (`scan_cluster`, `scan_triton`), "grid" the factored form in one
    (`scan_grid`), "compiled" the Gram form on a CPU (`steps`).
    """
    _check(x_BTF, W_KFN, alpha_KN, sparsity_KN, h0_BN)
    if form not in get_args(Form):
        raise InputError(f"form must be one of {', '.join(get_args(Form))}, got {form!r}")
    if x_BTF.dtype in (torch.bfloat16, torch.float16):  # stored so, but thousands of steps would add up its rounding
        x, W, alpha, sparsity, h0 = (t.float() for t in (x_BTF, W_KFN, alpha_KN, sparsity_KN, h0_BN))
        h = scan(
            x, W, alpha_KN=alpha, sparsity_KN=sparsity, h0_BN=h0,
            residual_first_layer=residual_first_layer, warm_start=warm_start, form=form,
        )  # fmt: skip
        return h.to(x_BTF.dtype)
    (B, T, F), (K, _, N) = x_BTF.shape, W_KFN.shape
    if form == "auto" and warm_start and x_BTF.is_cuda:
        form = _kernel_form(x_BTF, K, N)
    # Multiplications in one step; the Gram form also has to make W^T W, once for all rows.
    gram = N * N * (1 + F / max(B * T, 1)) < 2 * F * N if form == "auto" else form not in ("factored", "grid")
    compiled = steps.usable(x_BTF) and not x_BTF.requires_grad  # C does not have dL/dx
    if form == "compiled" and not compiled:
        raise InputError("the compiled form is for float32 and float64 frames on a CPU that need no gradient")
    compiled = compiled and (form == "compiled" or (form == "auto" and gram and warm_start))
    options = _Options(residual_first_layer, gram, form in ("kernel", "grid"), compiled)
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


def _kernel_form(x_BTF: Tensor, K: int, N: int) -> Form:
    """The form whose steps GPU kernels can take here; of two, the faster one."""
    from drnmf.engines import scan_cluster, scan_grid

    if not scan_cluster.usable(x_BTF, K, N) and scan_grid.usable(x_BTF, len(x_BTF), K, x_BTF.shape[2], N):
        return "grid"
    return "auto" if gram_kernels(x_BTF.new_empty(K, 0, len(x_BTF), N)) is None else "kernel"


def gram_kernels(H_KTBN: Tensor) -> ModuleType | None:
    """GPU kernels for the steps of the Gram form: on clusters, else in Triton, which comes with PyTorch for CUDA."""
    from drnmf.engines import scan_cluster

    if scan_cluster.usable(H_KTBN, len(H_KTBN), H_KTBN.shape[3]):
        return scan_cluster
    if find_spec("triton") is None:
        return None
    from drnmf.engines import scan_triton

    return scan_triton if scan_triton.usable(H_KTBN) else None


def _gram_kernels(H_KTBN: Tensor) -> ModuleType:
    """Those that can run or, where the caller asked for them, Triton's: it can also be interpreted."""
    kernels = gram_kernels(H_KTBN)
    if kernels is None:
        from drnmf.engines import scan_triton

        kernels = scan_triton
    return kernels


class _Options(NamedTuple):
    residual_first_layer: bool
    gram: bool
    kernel: bool
    compiled: bool


def _run(
    x_BTF: Tensor, h0_BN: Tensor, W_KFN: Tensor, alpha_KN: Tensor, sparsity_KN: Tensor, options: _Options
) -> Tensor:
    """Return h (B, T, N), keeping activations only where a gradient will ask for them."""
    tensors = (x_BTF, h0_BN, W_KFN, alpha_KN, sparsity_KN)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return cast(Tensor, _Scan.apply(*tensors, options))  # type: ignore[no-untyped-call]
    if options.compiled:
        return steps.activations(x_BTF, h0_BN, _packed(W_KFN, alpha_KN, sparsity_KN, options))
    return _forward(*tensors, options, keep=False)[0]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, W: Tensor, alpha: Tensor, sparsity: Tensor, options: _Options
    ) -> Tensor:
        if options.compiled:
            h_BTN, kept = steps.forward(x, h0, _packed(W, alpha, sparsity, options))
        else:
            h_BTN, kept = _forward(x, h0, W, alpha, sparsity, options, keep=True, keep_e=any(ctx.needs_input_grad[2:5]))
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
    alpha: Tensor  # (N,)
    scaled: Tensor  # (F, N), W / alpha
    A: Tensor | None  # (N, N), in the Gram form
    residual: bool


def _layers(W_KFN: Tensor, alpha_KN: Tensor, options: _Options) -> list[_Layer]:
    layers = []
    for k, (W, alpha) in enumerate(zip(W_KFN, alpha_KN, strict=True)):
        scaled, residual = W / alpha, options.residual_first_layer or k > 0
        A = torch.eye(len(alpha), dtype=W.dtype, device=W.device) - W.mT @ scaled if options.gram and residual else None
        layers.append(_Layer(W, alpha, scaled, A, residual))
    return layers


def _factored(layers: list[_Layer]) -> bool:
    return any(layer.residual and layer.A is None for layer in layers)


def _stacked(layers: list[_Layer]) -> Tensor:
    """A of all layers (K, N, N), the identity where a layer only adds the state."""
    W = layers[0].W
    identity = torch.eye(W.shape[1], dtype=W.dtype, device=W.device)
    return torch.stack([identity if layer.A is None else layer.A for layer in layers])


def _packed(W_KFN: Tensor, alpha_KN: Tensor, sparsity_KN: Tensor, options: _Options) -> steps.Layers:
    layers = _layers(W_KFN, alpha_KN, options)
    return steps.pack(torch.stack([layer.scaled for layer in layers]), _stacked(layers), sparsity_KN / alpha_KN)


def _blocks(x_BTF: Tensor, options: _Options) -> tuple[Tensor, ...]:
    """Frames in blocks, each (C, B, F)."""
    rows = KERNEL_ROWS if options.kernel else ROWS
    return torch.split(x_BTF.transpose(0, 1), max(1, rows // max(1, len(x_BTF))))


def _forward(
    x_BTF: Tensor,
    h0_BN: Tensor,
    W_KFN: Tensor,
    alpha_KN: Tensor,
    sparsity_KN: Tensor,
    options: _Options,
    *,
    keep: bool,
    keep_e: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """Return h (B, T, N) and, to `keep`, the activations H (K, 1 + C, B, N) of every block of C frames.

    H[-1, 0] is the state before the block, so that H[-1, :-1] is s for the first layer. The other H[k, 0] are not used.
    After all of these, to `keep_e`, come [x - s W^T, 1] (K, C, B, F + 1) of every block, if a kernel has them.
    """
    (B, T, _), (K, _, N) = x_BTF.shape, W_KFN.shape
    layers, thresholds = _layers(W_KFN, alpha_KN, options), sparsity_KN / alpha_KN
    h_BTN, state, kept, kept_e = x_BTF.new_empty(B, T, N), h0_BN, [], []
    for x_CBF, h_CBN in zip(_blocks(x_BTF, options), _blocks(h_BTN, options), strict=True):
        H = x_BTF.new_empty(K, 1 + len(x_CBF), B, N)
        H[-1, 0] = state
        if options.kernel and _factored(layers):
            e = _forward_on_grid(x_CBF, H, layers, thresholds, keep_e)
            kept_e += [] if e is None else [e]
        else:
            _forward_block(x_CBF.contiguous(), H, layers, thresholds, options.kernel)
        h_CBN.copy_(H[-1, 1:])
        state = H[-1, -1]
        if keep:
            kept.append(H)
    return h_BTN, kept + kept_e


def _forward_on_grid(
    x_CBF: Tensor, H: Tensor, layers: list[_Layer], threshold_KN: Tensor, keep_e: bool
) -> Tensor | None:
    """`_forward_block` in one kernel; to `keep_e`, [x - s W^T, 1] (K, C, B, F + 1)."""
    from drnmf.engines import scan_grid

    C, B, F = x_CBF.shape
    e = x_CBF.new_empty(len(layers), C, B, F + 1) if keep_e else None
    if e is not None:
        e[..., F] = 1
    W_KFN, alpha_KN = (torch.stack(parts) for parts in zip(*(layer[:2] for layer in layers), strict=True))
    scan_grid.forward_(H, x_CBF, W_KFN, alpha_KN, threshold_KN, residual=layers[0].residual, e_KTBF=e)
    return e


def _forward_block(x_CBF: Tensor, H: Tensor, layers: list[_Layer], threshold_KN: Tensor, kernel: bool) -> None:
    """Fill H[:, 1:] from the state H[-1, 0] and the frames x."""
    _, B, F = x_CBF.shape
    for h_CBN, layer, threshold in zip(H[:, 1:], layers, threshold_KN, strict=True):
        if layer.A is not None or not layer.residual:
            torch.addmm(-threshold, x_CBF.flatten(0, 1), layer.scaled, out=h_CBN.flatten(0, 1))
    if kernel:
        _gram_kernels(H).forward_(H, _stacked(layers))
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
    F, gram, layers = W_KFN.shape[1], options.gram, _layers(W_KFN, alpha_KN, options)
    if options.compiled:
        dx_BTF, (ds_BN, eg_KFN, sg_K) = None, steps.backward(dh_BTN, x_BTF, kept, _stacked(layers))
        if not options.residual_first_layer:
            sg_K[0] = 0  # that layer's matrix is the identity, whatever W is
    else:
        dx_BTF, ds_BN, eg_KFN, sg_K = _backward_sums(dh_BTN, x_BTF, layers, kept, options, needs)
    eg_KFN, g_KN = eg_KFN[:, :F], eg_KFN[:, F]
    projection_KN = (W_KFN * eg_KFN).sum(1)  # sum of g (W^T (x - W s))
    if gram:
        projection_KN -= (W_KFN.mT @ W_KFN * sg_K).sum(1)
        M_KNN = sg_K / alpha_KN[:, None]
        sg_K = W_KFN @ (M_KNN + M_KNN.mT)
    dW_KFN = eg_KFN / alpha_KN[:, None] - sg_K
    dalpha_KN = (sparsity_KN * g_KN - projection_KN) / alpha_KN.square()
    return dx_BTF, ds_BN, dW_KFN, dalpha_KN, -g_KN / alpha_KN


def _backward_sums(
    dh_BTN: Tensor,
    x_BTF: Tensor,
    layers: list[_Layer],
    kept: list[Tensor],
    options: _Options,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
    """The gradients of x, if needed, and of h0; and the sums over all rows, zeros where they are not needed.

    These are [x, 1]^T g and s^T g in the Gram form, [x - s W^T, 1]^T g and q^T s in the factored one.
    """
    needs_x, _, *needs_parameters = needs[:5]
    K, gram, (F, N) = len(layers), options.gram, layers[0].W.shape
    scaled_KFN = torch.stack([layer.scaled for layer in layers])
    ds_BN, dx_blocks = dh_BTN.new_zeros(len(dh_BTN), N), []
    eg_KFN, sg_K = dh_BTN.new_zeros(K, F + 1, N), dh_BTN.new_zeros(K, N if gram else F, N)
    x_blocks, dh_blocks = _blocks(x_BTF, options), _blocks(dh_BTN, options)
    kept_e: list[Tensor | None] = [*kept[len(x_blocks) :]] or [None] * len(x_blocks)
    blocks = (x_blocks[::-1], dh_blocks[::-1], kept[: len(x_blocks)][::-1], kept_e[::-1])
    for x_CBF, dh_CBN, H, e_KCBF in zip(*blocks, strict=True):
        G, q_KRF = _backward_block(dh_CBN, ds_BN, H, layers, options.kernel)
        ds_BN, h_KRN, g_KRN = G[-1, 0], H[:, 1:].flatten(1, 2), G[:, 1:].flatten(1, 2)
        if q_KRF is None:
            q_KRF = g_KRN @ scaled_KFN.mT if needs_x or not gram else g_KRN.new_empty(K, 0)  # empty: not used
        if needs_x:
            dx_blocks.append(q_KRF.sum(0).view_as(x_CBF))
        if not any(needs_parameters):
            continue
        x_RF = torch.nn.functional.pad(x_CBF.flatten(0, 1), (0, 1), value=1.0)  # a column of ones sums up g on the way
        s_KRN = [H[-1, :-1].flatten(0, 1), *h_KRN[:-1]]
        for k, (layer, s, g, q) in enumerate(zip(layers, s_KRN, g_KRN, q_KRF, strict=True)):
            if e_KCBF is not None:
                e_RF = e_KCBF[k].flatten(0, 1)
            elif gram or not layer.residual:
                e_RF = x_RF
            else:
                e_RF = x_RF.clone()
                e_RF[:, :F].addmm_(s, layer.W.mT, alpha=-1)
            eg_KFN[k].addmm_(e_RF.mT, g)
            if layer.residual:
                sg_K[k].addmm_(*((s.mT, g) if gram else (q.mT, s)))
    dx_BTF = torch.cat(dx_blocks[::-1]).transpose(0, 1) if needs_x else None
    return dx_BTF, ds_BN.clone(), eg_KFN, sg_K  # a copy: a view would hold all of G


def _backward_block(
    dh_CBN: Tensor, ds_BN: Tensor, H: Tensor, layers: list[_Layer], kernel: bool
) -> tuple[Tensor, Tensor | None]:
    """G (K, 1 + C, B, N): g of all steps in G[:, 1:], and in G[-1, 0] the gradient of the state before the block.

    And q (K, R, F), if a kernel has it.
    """
    G = torch.empty_like(H) if kernel else torch.zeros_like(H)  # kernels do not add to what is there
    G[-1, 0], G[-1, 1:] = 0, dh_CBN
    G[-1, -1] += ds_BN
    if kernel and _factored(layers):
        from drnmf.engines import scan_grid

        W_KFN, alpha_KN = (torch.stack(parts) for parts in zip(*(layer[:2] for layer in layers), strict=True))
        q_KCBF = G.new_empty(len(layers), *dh_CBN.shape[:2], W_KFN.shape[1])
        scan_grid.backward_(G, H, W_KFN, alpha_KN, residual=layers[0].residual, q_KTBF=q_KCBF)
        return G, q_KCBF.flatten(1, 2)
    if kernel:
        _gram_kernels(H).backward_(G, H, _stacked(layers))
        return G, None
    g_CK, mask_CK = list(zip(*G, strict=True)), list(zip(*H[:, 1:].sign(), strict=True))
    transposed = [(layer, None if layer.A is None else layer.A.mT) for layer in layers]
    for t in reversed(range(len(dh_CBN))):
        g_K = g_CK[t + 1]
        ds_K = (g_CK[t][-1], *g_K)
        for g, ds, mask, (layer, A_T) in zip(g_K[::-1], ds_K[-2::-1], mask_CK[t][::-1], transposed[::-1], strict=True):
            g.mul_(mask)
            if A_T is not None:
                ds.addmm_(g, A_T)
            elif layer.residual:
                ds.add_(g).addmm_(g @ layer.scaled.mT, layer.W, alpha=-1)
            else:
                ds.add_(g)
    return G, None
