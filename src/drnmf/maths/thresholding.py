"""ISTA for sparse nonnegative coding, and its warm-started form: algorithms 1 and 2 of the paper.

Every function minimises 0.5 ||x - W h||^2 + sparsity * sum(h) over h >= 0, for frames x that are rows: x (..., F),
h (..., N), W (F, N). The step is 1 / alpha; it descends for alpha >= ||W||_2^2 (`lipschitz`) and oscillates without end
for alpha < ||W||_2^2 / 2.
"""

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.maths.nmf import check_dictionary


def ista_step(h: Tensor, x: Tensor, W: Tensor, *, alpha: Tensor | float, sparsity: Tensor | float) -> Tensor:
    """Algorithm 1, lines 2-3: h <- max((I - W^T W / alpha) h + W^T x / alpha - sparsity / alpha, 0)."""
    residual = x - h @ W.mT
    return torch.relu(h + (residual @ W - sparsity) / alpha)


def ista(
    x: Tensor, W: Tensor, *, n_iter: int, alpha: float | None = None, sparsity: float = 1.0, h0: Tensor | None = None
) -> Tensor:
    """Algorithm 1 for all frames x (..., F) at once, each on its own: h (..., N) after `n_iter` steps from `h0`.

    `alpha` defaults to the Lipschitz constant, `h0` to zeros.

    Examples:
        >>> import torch
        >>> from drnmf import ista
        >>> ista(torch.tensor([3.0, 0.5]), torch.eye(2), n_iter=1, sparsity=1.0)
        tensor([2., 0.])
    """
    alpha = _checked_alpha(x, W, n_iter, alpha, sparsity, h0)
    h = x.new_zeros(*x.shape[:-1], W.shape[1]) if h0 is None else h0
    for _ in range(n_iter):
        h = ista_step(h, x, W, alpha=alpha, sparsity=sparsity)
    return h


def warm_start_ista(
    x: Tensor, W: Tensor, *, n_iter: int, alpha: float | None = None, sparsity: float = 1.0, h0: Tensor | None = None
) -> Tensor:
    """Algorithm 2 for sequences x (..., T, F): every frame starts from the previous frame's h; returns h (..., T, N).

    `alpha` defaults to the Lipschitz constant, `h0` (..., N) to zeros.

    Examples:
        >>> import torch
        >>> from drnmf import warm_start_ista
        >>> frames = torch.tensor([[3.0, 0.5], [3.0, 0.5]])
        >>> warm_start_ista(frames, torch.eye(2), n_iter=1, alpha=2.0, sparsity=1.0)  # the second is nearer
        tensor([[1.0000, 0.0000],
                [1.5000, 0.0000]])
    """
    alpha = _checked_alpha(x, W, n_iter, alpha, sparsity, h0)
    if x.ndim < 2:
        raise InputError(f"warm_start_ista needs frames (..., T, F), got shape {tuple(x.shape)}")
    h = x.new_zeros(*x.shape[:-2], W.shape[1]) if h0 is None else h0
    frames = []
    for x_t in x.unbind(-2):
        for _ in range(n_iter):
            h = ista_step(h, x_t, W, alpha=alpha, sparsity=sparsity)
        frames.append(h)
    return torch.stack(frames, -2) if frames else x.new_zeros(*x.shape[:-1], W.shape[1])


def fista(
    x: Tensor, W: Tensor, *, n_iter: int, alpha: float | None = None, sparsity: float = 1.0, h0: Tensor | None = None
) -> Tensor:
    """ISTA with Nesterov's momentum (Beck and Teboulle, 2009): the same optimum, at a rate of 1/n^2 instead of 1/n.

    Examples:
        >>> import torch
        >>> from drnmf import fista
        >>> fista(torch.tensor([3.0, 0.5]), torch.eye(2), n_iter=10, sparsity=1.0)
        tensor([2., 0.])
    """
    alpha = _checked_alpha(x, W, n_iter, alpha, sparsity, h0)
    h = x.new_zeros(*x.shape[:-1], W.shape[1]) if h0 is None else h0
    z, t = h, 1.0
    for _ in range(n_iter):
        h_next = ista_step(z, x, W, alpha=alpha, sparsity=sparsity)
        t_next = (1 + math.sqrt(1 + 4 * t**2)) / 2
        z = h_next + (t - 1) / t_next * (h_next - h)
        h, t = h_next, t_next
    return h


def unfolded_ista(
    x_BTF: Tensor,
    W_KFN: Tensor,
    *,
    alpha_KN: Tensor,
    sparsity_KN: Tensor,
    h0_BN: Tensor,
    sparsity_KBTN: Tensor | None = None,
    residual_first_layer: bool = True,
    warm_start: bool = True,
) -> Tensor:
    """Algorithm 2 with a dictionary, step and threshold for each iteration k: the DR-NMF network's h (B, T, N).

    `alpha_KN` and `sparsity_KN` may be (K, 1): one value per layer. `sparsity_KBTN` is what single frames add to
    `sparsity_KN`; it may be (1, B, T, N), the same for all layers. `residual_first_layer=False` leaves
    -W^T W h / alpha out of layer 1, as the original code does; `warm_start=False` starts every frame from `h0_BN`.
    """
    layers = list(zip(W_KFN, alpha_KN, sparsity_KN, strict=True))
    more_KBTN = None if sparsity_KBTN is None else sparsity_KBTN.expand(len(layers), -1, -1, -1)
    h = h0_BN
    frames = []
    for t, x_BF in enumerate(x_BTF.unbind(1)):
        h = h if warm_start else h0_BN
        for k, (W, alpha, sparsity) in enumerate(layers):
            if more_KBTN is not None:
                sparsity = sparsity + more_KBTN[k, :, t]
            if k == 0 and not residual_first_layer:
                h = torch.relu(h + (x_BF @ W - sparsity) / alpha)
            else:
                h = ista_step(h, x_BF, W, alpha=alpha, sparsity=sparsity)
        frames.append(h)
    return torch.stack(frames, 1) if frames else h0_BN.new_zeros(len(x_BTF), 0, h0_BN.shape[-1])


def lipschitz(W: Tensor) -> float:
    """||W||_2^2, the largest eigenvalue of W^T W: the Lipschitz constant of the gradient of 0.5 ||x - W h||^2.

    Examples:
        >>> import torch
        >>> from drnmf import lipschitz
        >>> round(lipschitz(torch.tensor([[1.0, 0.6], [0.0, 0.8]])), 3)
        1.6
    """
    check_dictionary(W, signed=True)
    W = W.detach().double()
    gram = W.mT @ W if W.shape[1] <= W.shape[0] else W @ W.mT  # the same non-zero eigenvalues, from the smaller one
    return float(torch.linalg.eigvalsh(gram)[-1])


class StepBounds(NamedTuple):
    """The paper's bounds on alpha (section 4, appendix), for unit-norm nonnegative columns with coherence delta."""

    lower: float
    """N^-1/2 ||W^T W 1||_2: the Lipschitz constant is at least this."""
    upper: float
    """1 + delta (N - 1): the Lipschitz constant is at most this (Gershgorin)."""
    preprint: float
    """2 (1 + delta (N - 1))^2: the bound printed in the preprint, far above what is needed."""


def step_bounds(W: Tensor) -> StepBounds:
    """The paper's bounds, to set beside the exact value `lipschitz(W)`.

    Examples:
        >>> import torch
        >>> from drnmf import step_bounds
        >>> [round(bound, 3) for bound in step_bounds(torch.tensor([[1.0, 0.6], [0.0, 0.8]]))]
        [1.6, 1.6, 5.12]
    """
    W = W.detach().double()
    gram = W.mT @ W
    N = len(gram)
    delta = float((gram - torch.diag(gram.diagonal())).max()) if N > 1 else 0.0
    upper = 1 + delta * (N - 1)
    return StepBounds(float(gram.sum(1).norm()) / math.sqrt(N), upper, 2 * upper**2)


def check_alpha(alpha: float | None, L: float) -> float:
    """Alpha, by default the Lipschitz constant L; refuse one that is not positive, warn of one that oscillates."""
    if alpha is None:
        return L
    if not alpha > 0:
        raise InputError(f"alpha must be positive, got {alpha}")
    if alpha <= L / 2:
        message = f"alpha = {alpha:.4g} oscillates: a stable step needs alpha > {L / 2:.4g}, descent {L:.4g}"
        warnings.warn(message, RuntimeWarning, stacklevel=4)
    return alpha


def _checked_alpha(x: Tensor, W: Tensor, n_iter: int, alpha: float | None, sparsity: float, h0: Tensor | None) -> float:
    """Refuse what does not fit."""
    L = lipschitz(W)
    if x.ndim == 0 or x.shape[-1] != W.shape[0]:
        raise InputError(f"frames of shape {tuple(x.shape)} do not fit a dictionary of shape {tuple(W.shape)}")
    if x.dtype != W.dtype or x.device != W.device:
        raise InputError(f"frames are {x.dtype} on {x.device}, the dictionary is {W.dtype} on {W.device}")
    if not torch.isfinite(x).all():
        raise InputError("frames hold NaN or infinite values")
    if n_iter < 0:
        raise InputError(f"n_iter must not be negative, got {n_iter}")
    if not sparsity >= 0:
        raise InputError(f"sparsity must not be negative, got {sparsity}")
    if h0 is not None and (h0.shape[-1:] != W.shape[1:] or h0.dtype != W.dtype or h0.device != W.device):
        found = f"h0 is {h0.dtype} on {h0.device} of shape {tuple(h0.shape)}"
        raise InputError(f"{found}, the dictionary {W.dtype} on {W.device} with {W.shape[1]} atoms")
    return check_alpha(alpha, L)
