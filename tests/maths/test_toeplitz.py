import itertools

import torch

from drnmf.maths import toeplitz
from examples import recording


def autocorrelation(name, n):
    x = recording(name, 40000).double()
    whole = torch.fft.irfft(torch.fft.rfft(x, 2**17).abs().square(), 2**17)
    column = whole[:n] / whole[0]
    column[0] *= 1.001
    return column


def matrix(column):
    lag = torch.arange(len(column))
    return column[(lag[:, None] - lag).abs()]


def test_product_is_the_matrix_times_the_vector():
    column, x = torch.rand(2, 3, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.stack([matrix(c) @ v for c, v in zip(column, x, strict=True)])
    torch.testing.assert_close(toeplitz.product(column, x), expected)


def test_filters_of_real_sounds_are_found_in_a_few_steps():
    """In the energy norm of A, which is what a projection loses."""
    columns = torch.stack([autocorrelation(name, 512) for name in ("speech/austen_0870", "noise/guitar")])
    right = torch.randn(2, 512, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    right = toeplitz.product(columns, right)
    start = torch.zeros_like(right)
    exact = torch.stack([torch.linalg.solve(matrix(c), r) for c, r in zip(columns, right, strict=True)])

    def lost(x):
        error = exact - x
        return (error * toeplitz.product(columns, error)).sum(1) / (exact * right).sum(1)

    losses = [lost(toeplitz.solve(columns, right, start, n_steps=n)) for n in (0, 2, 4, 8, 60)]
    assert all((after <= before).all() for before, after in itertools.pairwise(losses))
    assert (losses[3] < 0.02).all()
    assert (losses[4] < 1e-4).all()


def test_silence_is_harmless():
    zeros = torch.zeros(1, 8)
    torch.testing.assert_close(toeplitz.solve(zeros, zeros, zeros, n_steps=3), zeros)
