"""The scan with a dictionary for each sequence against `scan`, one sequence at a time, in double precision."""

import pytest
import torch
from torch import Tensor

from drnmf.engines.cuda_kernel import available
from drnmf.engines.scan import scan
from drnmf.engines.scan_own import scan_own

HOPPER = torch.cuda.is_available() and available(torch.device("cuda"))
on_hopper = pytest.mark.skipif(not HOPPER, reason="needs a GPU from Hopper on")
NAMES = ("h", "x", "W", "alpha", "sparsity", "h0", "sparsity of frames")


def problem(B: int, T: int, N: int, K: int) -> list[Tensor]:
    """Random activity that no rounding can change, as in `test_scan_cuda`; the first sequence has an empty place."""
    generator = torch.Generator().manual_seed(B + T)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    W = torch.linalg.qr(torch.randn(B, N + 3, N, generator=generator, dtype=torch.float64)).Q
    x = 8 * ((rand(B, T, N) < 1 / 3).double() - 0.5) @ W.mT
    W[0, :, -1] = 0
    return [x, W, 1.2 + 0.1 * rand(B, K, N), 0.2 * rand(K, N), rand(B, N), 0.2 * rand(K, B, T, N)]


def own(x: Tensor, W: Tensor, alpha: Tensor, sparsity: Tensor, h0: Tensor, of_frames: Tensor) -> Tensor:
    return scan_own(x, W, alpha_BKN=alpha, sparsity_KN=sparsity, h0_BN=h0, sparsity_KBTN=of_frames)


def one_by_one(x: Tensor, W: Tensor, alpha: Tensor, sparsity: Tensor, h0: Tensor, of_frames: Tensor) -> Tensor:
    K = len(sparsity)
    sequences = (
        scan(
            x[b : b + 1],
            W[b].expand(K, -1, -1),
            alpha_KN=alpha[b],
            sparsity_KN=sparsity,
            h0_BN=h0[b : b + 1],
            sparsity_KBTN=of_frames[:, b : b + 1],
        )
        for b in range(len(x))
    )
    return torch.cat(list(sequences))


def values_and_gradients(function, tensors: list[Tensor], weight: Tensor) -> list[Tensor]:
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    h = function(*leaves)
    return [h.detach(), *torch.autograd.grad((h * weight.to(h)).sum(), leaves)]


def check(sizes: tuple[int, ...], device: str, dtype: torch.dtype, tolerance: float) -> None:
    tensors = problem(*sizes)
    weight = torch.rand(*sizes[:3], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = values_and_gradients(one_by_one, tensors, weight)
    found = values_and_gradients(own, [tensor.to(device, dtype) for tensor in tensors], weight)
    for name, a, b in zip(NAMES, found, expected, strict=True):
        error = (a.cpu().double() - b).abs().max() / b.abs().max()
        assert error < tolerance, f"{name}: {error:.2g}"


@pytest.mark.parametrize("sizes", [(1, 1, 5, 1), (3, 7, 9, 3), (2, 20, 40, 2)])
def test_values_and_gradients(sizes):
    check(sizes, "cpu", torch.float64, 1e-12)


def test_frames_without_thresholds_of_their_own():
    x, W, alpha, sparsity, h0, of_frames = problem(2, 5, 6, 2)
    h = scan_own(x, W, alpha_BKN=alpha, sparsity_KN=sparsity, h0_BN=h0)
    torch.testing.assert_close(h, own(x, W, alpha, sparsity, h0, 0 * of_frames))


@on_hopper
@pytest.mark.parametrize("sizes", [(1, 9, 216, 5), (3, 40, 216, 2), (33, 100, 232, 5), (32, 60, 50, 3)])
def test_values_and_gradients_on_clusters(sizes):
    check(sizes, "cuda", torch.float32, 2e-5)
