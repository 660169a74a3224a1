"""The DR-NMF recurrence over all frames, fast: `thresholding.unfolded_ista` with its own backward pass.

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

Where frames have a lambda of their own, it is added to lambda_k, and its gradient is -g / alpha_k without the sum.

Only the activations h^(k)_t are kept for the backward pass; they hold the relu's mask. g lives for one block of frames.
The steps of the factored form make x - s W^T and q on their way: the kernel for many atoms keeps these small ones too.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from drnmf.engines.blocks import ROWS
from drnmf.engines.compiled import Compiled
from drnmf.engines.plain import PlainFactored, PlainGram
from drnmf.engines.problem import Engine, Needs, Problem
from drnmf.engines.scan_cluster import Cluster
from drnmf.engines.scan_grid import Grid
from drnmf.engines.scan_triton import Triton
from drnmf.errors import InputError

PLAIN: tuple[Engine, ...] = (PlainGram(), PlainFactored())
ENGINES: tuple[Engine, ...] = (Cluster(), Grid(), Triton(), Compiled(), *PLAIN)
"""The first that is usable solves a problem."""


def scan(
    x_BTF: Tensor,
    W_KFN: Tensor,
    *,
    alpha_KN: Tensor,
    sparsity_KN: Tensor,
    h0_BN: Tensor,
    sparsity_KBTN: Tensor | None = None,
    residual_first_layer: bool = True,
    warm_start: bool = True,
    form: str = "auto",
) -> Tensor:
    """What `thresholding.unfolded_ista` returns, h (B, T, N), differentiable once in all its tensors.

    `form` names an engine; by default the first of ENGINES that is usable. Results differ by rounding only.
    """
    problem = Problem(x_BTF, h0_BN, W_KFN, alpha_KN, sparsity_KN, sparsity_KBTN, residual_first_layer)
    _check(problem)
    if x_BTF.dtype in (torch.bfloat16, torch.float16):  # stored so, but thousands of steps would add up its rounding
        problem = Problem._make(t.float() if isinstance(t, Tensor) else t for t in problem)
    K, _, N = W_KFN.shape
    problem = problem._replace(alpha_KN=problem.alpha_KN.expand(K, N), sparsity_KN=problem.sparsity_KN.expand(K, N))
    engine = _choose(problem, form, ENGINES if warm_start else PLAIN)
    with torch.autocast(x_BTF.device.type, enabled=False):  # thousands of dependent steps would add up its rounding
        h_BTN = _run(problem, engine) if warm_start else _run_frames(problem, engine)
    return h_BTN.to(x_BTF.dtype)


def _check(problem: Problem) -> None:
    x, h0, W, alpha, sparsity, of_frames, _ = problem
    if W.ndim != 3 or len(W) == 0 or x.ndim != 3 or x.shape[2] != W.shape[1]:
        raise InputError(f"scan needs x (B, T, F) and W (K, F, N), got {tuple(x.shape)} and {tuple(W.shape)}")
    (B, T, _), (K, _, N) = x.shape, W.shape
    if h0.shape != (B, N):
        raise InputError(f"h0 must be (B, N) = {(B, N)}, got {tuple(h0.shape)}")
    for name, value in (("alpha", alpha), ("sparsity", sparsity)):
        if value.shape not in ((K, 1), (K, N)):
            raise InputError(f"{name} must be (K, 1) or (K, N) = {(K, N)}, got {tuple(value.shape)}")
    if of_frames is not None and of_frames.shape not in ((1, B, T, N), (K, B, T, N)):
        wanted = f"(1, B, T, N) or (K, B, T, N) = {(K, B, T, N)}"
        raise InputError(f"the sparsity of frames must be {wanted}, got {tuple(of_frames.shape)}")
    kinds = {(tensor.dtype, tensor.device) for tensor in problem if isinstance(tensor, Tensor)}
    if len(kinds) > 1:
        raise InputError(f"scan needs one dtype and one device, got {', '.join(sorted(map(str, kinds)))}")


def _choose(problem: Problem, form: str, engines: tuple[Engine, ...]) -> Engine:
    """The engine that `form` names, or the first usable one."""
    if form == "auto":
        return next(engine for engine in engines if engine.usable(problem, by_name=False))
    named = {engine.name: engine for engine in ENGINES}
    if form not in named:
        raise InputError(f"form must be one of auto, {', '.join(named)}, got {form!r}")
    if not named[form].usable(problem, by_name=True):
        raise InputError(f"the form {form!r} is for {named[form].takes}")
    return named[form]


def _run(problem: Problem, engine: Engine) -> Tensor:
    """Return h (B, T, N), keeping activations only where a gradient will ask for them."""
    *tensors, residual_first_layer = problem
    if torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors):
        return cast(Tensor, _Scan.apply(*tensors, residual_first_layer, engine))  # type: ignore[no-untyped-call]
    return engine.forward(problem, None)[0]


def _run_frames(problem: Problem, engine: Engine) -> Tensor:
    """Return h (B, T, N) where no frame starts from the one before: B T sequences of one frame, some at a time."""
    (B, T, F), N = problem.x_BTF.shape, problem.h0_BN.shape[1]
    x_R1F, h0_RN, sparsity = problem.x_BTF.reshape(B * T, 1, F), problem.h0_BN.repeat_interleave(T, 0), None
    if problem.sparsity_KBTN is not None:
        sparsity = problem.sparsity_KBTN.flatten(1, 2)[:, :, None]
    parts = []
    for i in range(0, max(1, B * T), ROWS):
        rows = slice(i, i + ROWS)
        of_frames = None if sparsity is None else sparsity[:, rows]
        part = problem._replace(x_BTF=x_R1F[rows], h0_BN=h0_RN[rows], sparsity_KBTN=of_frames)
        parts.append(_run(part, engine))
    return torch.cat(parts).view(B, T, N)


class _Scan(torch.autograd.Function):
    """A problem's tensors, then what else it consists of, and the engine that solves it."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, ctx.residual_first_layer, ctx.engine = arguments
        ctx.needs = Needs(*ctx.needs_input_grad[: len(tensors)])
        h_BTN, kept = ctx.engine.forward(Problem._make([*tensors, ctx.residual_first_layer]), ctx.needs)
        ctx.save_for_backward(*tensors, *kept)
        return cast(Tensor, h_BTN)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh_BTN: Tensor) -> tuple[Tensor | None, ...]:
        n = len(ctx.needs)
        problem = Problem._make([*ctx.saved_tensors[:n], ctx.residual_first_layer])
        kept = list(ctx.saved_tensors[n:])
        with torch.autocast(dh_BTN.device.type, enabled=False):
            gradients = ctx.engine.backward(dh_BTN, problem, kept, ctx.needs)
        return *gradients, None, None
