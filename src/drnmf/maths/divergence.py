"""Beta-divergences between nonnegative arrays, and the sparse NMF objective."""

import torch
from torch import Tensor

from drnmf.errors import InputError

FLOOR = 1e-9
"""Smallest model value: below it logarithms and negative powers would overflow."""


def beta_divergence(V: Tensor, V_hat: Tensor, beta: float, *, dim: int | None = None) -> Tensor:
    """Sum of (v^beta + (beta - 1) v_hat^beta - beta v v_hat^(beta - 1)) / (beta (beta - 1)); limits at 0 and 1.

    The sum is over all numbers, or along `dim`. `V_hat` is floored at 1e-9, and so is `V` where beta <= 0, since a zero
    would cost infinitely much there.

    Examples:
        >>> import torch
        >>> from drnmf import beta_divergence
        >>> V, V_hat = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])
        >>> [round(beta_divergence(V, V_hat, beta).item(), 3) for beta in (2, 1, 0)]
        [0.5, 0.386, 0.307]
    """
    if V.shape != V_hat.shape:
        raise InputError(f"shapes differ: data {tuple(V.shape)}, model {tuple(V_hat.shape)}")
    if not ((V >= 0).all() and (V_hat >= 0).all()):
        raise InputError("a beta-divergence compares nonnegative numbers, these hold negative ones or NaN")
    V_hat = V_hat.clamp_min(FLOOR)
    V = V.clamp_min(FLOOR) if beta <= 0 else V
    if beta == 2:  # Euclidean
        return 0.5 * (V - V_hat).square().sum(dim)
    if beta == 1:  # Kullback-Leibler
        return (torch.xlogy(V, V) - torch.xlogy(V, V_hat) - V + V_hat).sum(dim)
    if beta == 0:  # Itakura-Saito
        ratio = V / V_hat
        return (ratio - ratio.log() - 1).sum(dim)
    total = V**beta + (beta - 1) * V_hat**beta - beta * V * V_hat ** (beta - 1)
    return total.sum(dim) / (beta * (beta - 1))


def sparse_objective(V: Tensor, W: Tensor, H: Tensor, *, beta: float = 2.0, sparsity: float = 1.0) -> Tensor:
    """Equation (1): D_beta(V || W H) + sparsity * sum(H), with V (F, T), W (F, N), H (N, T)."""
    return beta_divergence(V, W @ H, beta) + sparsity * H.sum()
