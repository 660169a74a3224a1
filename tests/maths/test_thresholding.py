import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drnmf import InputError, fista, infer_activations, ista, lipschitz, step_bounds, warm_start_ista
from drnmf.maths.divergence import sparse_objective
from drnmf.maths.thresholding import ista_step
from examples import DEVICES, dictionary, noisy, seeded

ALGORITHMS = [ista, warm_start_ista, fista]


def objective(x, W, h, sparsity):
    return float(sparse_objective(x.mT, W, h.mT, sparsity=sparsity))


def algorithm_1(x, W, n_iter, alpha, sparsity, h):
    """One frame in NumPy, in the paper's form."""
    for _ in range(n_iter):
        z = (np.eye(W.shape[1]) - W.T @ W / alpha) @ h + W.T @ x / alpha
        h = np.maximum(z - sparsity / alpha, 0)
    return h


def test_ista_is_algorithm_1():
    x, W = noisy()[:9], dictionary()
    h0 = torch.rand(9, W.shape[1], generator=seeded(), dtype=x.dtype)
    h = ista(x, W, n_iter=7, alpha=30.0, sparsity=0.4, h0=h0)
    for t in range(9):
        expected = algorithm_1(x[t].numpy(), W.numpy(), 7, 30.0, 0.4, h0[t].numpy())
        np.testing.assert_allclose(h[t].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_warm_start_is_algorithm_2(device):
    x, W = noisy()[:20].view(2, 10, -1), dictionary()
    h0 = torch.rand(2, W.shape[1], generator=seeded(), dtype=x.dtype)
    result = warm_start_ista(x.to(device), W.to(device), n_iter=3, sparsity=0.4, h0=h0.to(device)).cpu().numpy()
    for b in range(2):
        h = h0[b].numpy()
        for t in range(10):
            h = algorithm_1(x[b, t].numpy(), W.numpy(), 3, lipschitz(W), 0.4, h)
            np.testing.assert_allclose(result[b, t], h, atol=1e-12)


def test_single_precision_follows_double():
    x, W = noisy(), dictionary()
    double = warm_start_ista(x, W, n_iter=5)
    torch.testing.assert_close(warm_start_ista(x.float(), W.float(), n_iter=5).double(), double, rtol=1e-4, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 2), st.integers(0, 2**16))
def test_the_objective_never_rises_at_the_lipschitz_constant(F, N, sparsity, seed):
    x, W, h = (torch.rand(*shape, generator=seeded(seed), dtype=torch.float64) for shape in ((4, F), (F, N), (4, N)))
    costs = []
    for _ in range(30):
        costs.append(objective(x, W, h, sparsity))
        h = ista_step(h, x, W, alpha=lipschitz(W), sparsity=sparsity)
    assert np.diff(costs).max() <= 1e-12 * costs[0]


def test_ista_fista_and_multiplicative_updates_meet_at_the_optimum():
    x, W = noisy()[60:80], dictionary()
    solutions = [ista(x, W, n_iter=5000), fista(x, W, n_iter=5000), infer_activations(x.mT, W, n_iter=5000).mT]
    costs = [objective(x, W, h, 1.0) for h in solutions]
    assert max(costs) <= min(costs) * (1 + 1e-6)
    for h in solutions:
        torch.testing.assert_close(h, solutions[1], rtol=0, atol=2e-3 * float(solutions[1].max()))
    # the optimum is known by its own conditions: h >= 0, gradient >= 0, and one of the two zero
    h = solutions[1]
    gradient = (h @ W.mT - x) @ W + 1
    assert h.min() >= 0
    assert gradient.min() > -1e-6
    assert (h * gradient).abs().max() < 1e-5


def test_fista_is_faster():
    x, W = noisy()[60:100], dictionary()
    slow, fast, best = (
        objective(x, W, solve(x, W, n_iter=n, sparsity=0.1), 0.1)
        for solve, n in [(ista, 100), (fista, 100), (fista, 3000)]
    )
    assert fast - best < 0.1 * (slow - best)


def test_the_momentum_is_beck_and_teboulle_s():
    x, W = noisy()[60:63], dictionary()
    t = [1.0]
    while len(t) < 6:
        t.append((1 + (1 + 4 * t[-1] ** 2) ** 0.5) / 2)
    z = h = torch.zeros(3, W.shape[1], dtype=W.dtype)
    for before, after in itertools.pairwise(t):
        last, h = h, ista_step(z, x, W, alpha=lipschitz(W), sparsity=1.0)
        z = h + (before - 1) / after * (h - last)
    torch.testing.assert_close(fista(x, W, n_iter=5), h, rtol=0, atol=1e-12)


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**16))
def test_the_lipschitz_constant_is_exact_and_within_the_papers_bounds(F, N, seed):
    W = torch.rand(F, N, generator=seeded(seed), dtype=torch.float64)
    W /= W.norm(dim=0)
    L, bounds, rounding = lipschitz(W), step_bounds(W), 1 + 1e-12
    assert pytest.approx(np.linalg.svd(W.numpy(), compute_uv=False)[0] ** 2, rel=1e-12) == L
    assert bounds.lower <= L * rounding
    assert bounds.upper * rounding >= L
    assert bounds.preprint >= bounds.upper


def test_the_bounds_on_a_real_dictionary():
    W = dictionary()
    bounds = step_bounds(W)
    assert 0.9 * lipschitz(W) < bounds.lower <= lipschitz(W) <= bounds.upper < bounds.preprint


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_an_alpha_that_cannot_be_stable_warns(algorithm, recwarn):
    x, W = noisy()[:3], dictionary()
    algorithm(x, W, n_iter=1, alpha=0.51 * lipschitz(W))
    assert not recwarn
    with pytest.warns(RuntimeWarning, match="alpha = .* oscillates: a stable step needs alpha >"):
        algorithm(x, W, n_iter=1, alpha=0.49 * lipschitz(W))


@pytest.mark.filterwarnings("ignore:alpha")
def test_half_the_lipschitz_constant_is_the_edge_of_stability():
    x, W = noisy()[60:61], dictionary()
    best = fista(x, W, n_iter=3000, sparsity=0.1)
    above, below = (ista(x, W, n_iter=2000, sparsity=0.1, alpha=c * lipschitz(W)) for c in (0.55, 0.45))
    assert (above - best).abs().max() < 0.02 * best.max() < (below - best).abs().max()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_gradients(algorithm):
    x, W = (torch.rand(*shape, generator=seeded(), dtype=torch.float64) for shape in ((3, 4), (4, 3)))
    x, W = 3 * x.requires_grad_(), W.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, W: algorithm(x, W, n_iter=3, alpha=8.0, sparsity=0.1), (x, W))


def test_no_iterations_and_no_frames():
    x, W = noisy(), dictionary()
    assert not ista(x, W, n_iter=0).any()
    assert warm_start_ista(x[:0], W, n_iter=3).shape == (0, W.shape[1])


NAN = float("nan")
x, W = torch.ones(5, 4), torch.ones(4, 3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("x", "W", "options", "message"),
    [
        (x[:, :3], W, {}, r"frames of shape \(5, 3\) do not fit a dictionary of shape \(4, 3\)"),
        (x.double(), W, {}, "frames are torch.float64 on cpu, the dictionary is torch.float32"),
        (x.to("meta"), W, {}, "on meta"),
        (x * NAN, W, {}, "frames hold NaN"),
        (x, W * NAN, {}, "dictionary holds NaN"),
        (x, W[:, :0], {}, r"dictionary .* N > 0, got torch.float32 of shape \(4, 0\)"),
        (x, W[0], {}, "a dictionary is a float array"),
        (x, 0 * W, {}, "column of the dictionary is zero"),
        (x, W, {"n_iter": -1}, "n_iter must not be negative, got -1"),
        (x, W, {"alpha": 0.0}, "alpha must be positive, got 0"),
        (x, W, {"alpha": NAN}, "alpha must be positive, got nan"),
        (x, W, {"sparsity": -1.0}, "sparsity must not be negative"),
        (x, W, {"h0": torch.zeros(4)}, r"h0 is .* shape \(4,\), the dictionary .* 3 atoms"),
        (x, W, {"h0": torch.zeros(3, dtype=torch.float64)}, "h0 is torch.float64"),
    ],
)
def test_problems_that_do_not_fit(algorithm, x, W, options, message):
    with pytest.raises(InputError, match=message):
        algorithm(x, W, **{"n_iter": 1, **options})


def test_warm_start_needs_a_sequence():
    with pytest.raises(InputError, match="needs frames"):
        warm_start_ista(x[0], W, n_iter=1)
