"""Toeplitz systems by conjugate gradients: symmetric matrices whose entry i, j depends on |i - j| only.

A product with such a matrix is a convolution, and its neighbour among the circulant matrices is inverted by Fourier
transforms (T. Chan, 1988), which makes a good preconditioner: ten steps are enough for the filters of SDR losses.
Nothing depends on the values, so that a CUDA graph can capture it. Names of tensors end in their shape: B systems of K
equations.
"""

import torch
from torch import Tensor

_LEAST = 1e-6  # of the circulant matrix's largest eigenvalue
_TINY = 1e-30


def solve(column_BK: Tensor, right_BK: Tensor, start_BK: Tensor, *, n_steps: int) -> Tensor:
    """About x (B, K) with A x = right, A = column[|i - j|] positive definite; never further from it than `start`."""
    eigenvalues_BF = _circulant(column_BK)
    x_BK = start_BK
    rest_BK = right_BK - product(column_BK, x_BK)
    towards_BK = z_BK = _divided(rest_BK, eigenvalues_BF)
    size_B1 = (rest_BK * z_BK).sum(1, keepdim=True)
    for _ in range(n_steps):
        product_BK = product(column_BK, towards_BK)
        length_B1 = size_B1 / (towards_BK * product_BK).sum(1, keepdim=True).clamp_min(_TINY)
        x_BK = x_BK + length_B1 * towards_BK
        rest_BK = rest_BK - length_B1 * product_BK
        z_BK = _divided(rest_BK, eigenvalues_BF)
        next_B1 = (rest_BK * z_BK).sum(1, keepdim=True)
        towards_BK = z_BK + next_B1 / size_B1.clamp_min(_TINY) * towards_BK
        size_B1 = next_B1
    return x_BK


def product(column_BK: Tensor, x_BK: Tensor) -> Tensor:
    """A x (B, K), as a part of a circular convolution of twice the length."""
    K = x_BK.shape[1]
    circle_BL = torch.cat([column_BK, column_BK.new_zeros(len(column_BK), 1), column_BK[:, 1:].flip(1)], 1)
    whole_BL: Tensor = torch.fft.irfft(torch.fft.rfft(circle_BL) * torch.fft.rfft(x_BK, 2 * K), 2 * K)
    return whole_BL[:, :K]


def _circulant(column_BK: Tensor) -> Tensor:
    """Eigenvalues of the circulant matrix nearest to A, (B, K // 2 + 1)."""
    K = column_BK.shape[1]
    j_K = torch.arange(K, dtype=column_BK.dtype, device=column_BK.device)
    reverse_BK = torch.cat([column_BK[:, :1], column_BK[:, 1:].flip(1)], 1)
    eigenvalues_BF: Tensor = torch.fft.rfft(((K - j_K) * column_BK + j_K * reverse_BK) / K).real
    return eigenvalues_BF.clamp_min(_LEAST * eigenvalues_BF.amax(1, keepdim=True) + _TINY)


def _divided(x_BK: Tensor, eigenvalues_BF: Tensor) -> Tensor:
    divided_BK: Tensor = torch.fft.irfft(torch.fft.rfft(x_BK) / eigenvalues_BF, x_BK.shape[1])
    return divided_BK
