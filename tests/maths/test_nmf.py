from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import non_negative_factorization

from drnmf import InputError, infer_activations, sparse_nmf, train_dictionaries
from drnmf.maths import nmf
from drnmf.maths.divergence import beta_divergence, sparse_objective
from drnmf.maths.nmf import unit_norm
from examples import DEVICES, clean, dictionary, noisy, seeded

BETAS = [0.0, 0.5, 1.0, 1.5, 2.0]
GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "sparse_nmf.npz")


def data() -> torch.Tensor:
    """Real magnitudes (F, T), every fourth bin and frame."""
    return noisy()[::4, ::4].mT.contiguous()


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chunk", [2**16, 10, 1])
@pytest.mark.parametrize("case", ["ed", "kl"])
def test_golden_values(case, chunk, device):
    golden = {name: torch.from_numpy(GOLDEN[f"{case}_{name}"]).to(device) for name in ("V", "W0", "H0", "W", "H")}
    beta, lam, iters, div, cost = (GOLDEN[f"{case}_{name}"] for name in ("beta", "lam", "iters", "div", "cost"))
    result = sparse_nmf(
        golden["V"],
        golden["W0"].shape[1],
        beta=float(beta),
        sparsity=float(lam),
        init=(golden["W0"], golden["H0"]),
        max_iter=int(iters),
        tol=0,
        chunk=chunk,
    )
    torch.testing.assert_close(result.W, golden["W"], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(result.H, golden["H"], rtol=1e-8, atol=1e-8)
    reported = 2 if beta == 2 else 1  # the golden routine reports the sum of squares without the half
    np.testing.assert_allclose(reported * result.divergence, div, rtol=1e-8)
    np.testing.assert_allclose(result.cost - result.divergence, cost - div, rtol=1e-8)


@pytest.mark.parametrize("n_fixed", [0, 3])
@pytest.mark.parametrize("beta", [-1.0, *BETAS, 3.0])  # below 0 the dictionary's update often overshoots
def test_the_cost_never_rises_on_real_data(beta, n_fixed):
    fixed = dictionary()[::4, :n_fixed] if n_fixed else None
    result = sparse_nmf(data(), 8, beta=beta, sparsity=0.1, fixed=fixed, max_iter=150, tol=0, generator=seeded())
    assert result.cost.shape == result.divergence.shape == (150,)
    assert result.cost.diff().max() <= 1e-12 * result.cost[0]  # rounding
    assert result.cost[-1] < 0.5 * result.cost[0]
    objective = sparse_objective(data(), result.W, result.H, beta=beta, sparsity=0.1)
    torch.testing.assert_close(result.cost[-1], objective)
    torch.testing.assert_close(result.divergence[-1], beta_divergence(data(), result.W @ result.H, beta))


@pytest.mark.parametrize("beta", [-1.0, 0.0, 0.5, 3.0])
def test_where_the_majoriser_asks_for_short_steps_longer_ones_are_taken_while_the_cost_falls(beta, monkeypatch):
    options = {"beta": beta, "sparsity": 0.1, "max_iter": 15, "tol": 0}
    longer = sparse_nmf(data(), 8, generator=seeded(), **options)
    monkeypatch.setattr(nmf, "_longest_falling_step", nmf._activation_factor)
    always_gamma = sparse_nmf(data(), 8, generator=seeded(), **options)
    assert longer.cost[-1] < 0.99 * always_gamma.cost[-1]


@pytest.mark.parametrize("beta", [-2.0, -1.0, -0.5])
def test_no_frame_takes_a_step_that_would_raise_its_cost(beta):
    """One number; near the best one, where V / h^(2 - beta) = sparsity, exponent 1 goes too far to the other side."""
    V, W, sparsity = torch.ones(1, 2), torch.ones(1, 1), 1000.0
    H = torch.tensor([[2.0, 50.0]]) * sparsity ** (1 / (beta - 2))

    def cost(h):
        return beta_divergence(V, W @ h, beta, dim=0) + sparsity * h.sum(0)

    ratio, taken = (step(V, W, H, beta, sparsity) for step in (nmf._ratio, nmf._longest_falling_step))
    assert cost(H * ratio)[0] > cost(H)[0]
    assert (cost(H * taken) < cost(H)).all()


@settings(max_examples=60, deadline=None)
@given(
    beta=st.sampled_from([-0.5, *BETAS, 3.0]),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 9)),
    rank=st.integers(1, 5),
    n_fixed=st.integers(0, 5),
    sparsity=st.floats(0, 3),
    seed=st.integers(0, 2**16),
)
def test_on_any_problem_the_cost_never_rises_and_fixed_columns_stay(beta, shape, rank, n_fixed, sparsity, seed):
    V = random(*shape, seed=seed) ** 3  # some near zero
    n_fixed = min(n_fixed, rank)
    fixed = unit_norm(random(shape[0], n_fixed, seed=seed + 1)) if n_fixed else None
    result = sparse_nmf(V, rank, beta=beta, sparsity=sparsity, fixed=fixed, max_iter=40, tol=0, generator=seeded(seed))
    assert result.W.shape == (shape[0], rank)
    assert (result.cost.diff() <= 1e-9 * (result.cost[:-1].abs() + 1)).all()  # rounding
    torch.testing.assert_close(result.W.norm(dim=0), torch.ones(rank, dtype=V.dtype))
    assert min(result.W.min(), result.H.min()) >= 0
    if fixed is not None:
        assert torch.equal(result.W[:, :n_fixed], fixed)


@pytest.mark.parametrize("beta", BETAS)
def test_going_on_from_a_result_never_raises_its_cost(beta):
    options = {"beta": beta, "sparsity": 0.1, "max_iter": 30, "tol": 0}
    first = sparse_nmf(data(), 8, generator=seeded(), **options)
    second = sparse_nmf(data(), 8, init=(first.W, first.H), **options)
    assert second.cost[0] <= first.cost[-1] * (1 + 1e-12)


def test_fixed_columns_of_another_scale_are_normalised_and_their_activations_matched():
    fixed, W0, H0 = 5 * dictionary()[::4, :3], random(65, 8), random(8, data().shape[1])
    start = torch.cat([fixed, W0[:, 3:]], 1)
    result = sparse_nmf(data(), 8, fixed=fixed, init=(W0, H0), max_iter=0)
    torch.testing.assert_close(result.W, unit_norm(start))
    torch.testing.assert_close(result.W @ result.H, start @ H0)


def test_the_scale_of_the_start_does_not_matter_and_its_tensors_are_left_alone():
    W0, H0 = random(65, 5), random(5, data().shape[1])
    scale = torch.tensor([1.0, 10.0, 0.1, 2.0, 5.0], dtype=W0.dtype)
    before = W0.clone(), H0.clone()
    plain = sparse_nmf(data(), 5, init=(W0, H0), max_iter=20)
    scaled = sparse_nmf(data(), 5, init=(W0 * scale, H0 / scale[:, None]), max_iter=20)
    torch.testing.assert_close(plain.W, scaled.W)
    torch.testing.assert_close(plain.H, scaled.H)
    assert torch.equal(W0, before[0])
    assert torch.equal(H0, before[1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("beta", BETAS)
def test_single_precision_follows_double(beta, device):
    start = (random(65, 8), random(8, data().shape[1]))
    options = {"beta": beta, "sparsity": 0.1, "max_iter": 40, "tol": 0}
    V = data().clamp_min(1e-3)  # near zero the Itakura-Saito divergence is all rounding
    double = sparse_nmf(V, 8, init=start, **options)
    single = sparse_nmf(V.to(device).float(), 8, init=tuple(t.to(device).float() for t in start), **options)
    assert single.W.dtype == single.H.dtype == torch.float32
    np.testing.assert_allclose(single.cost, double.cost, rtol=2e-4)


@pytest.mark.parametrize("beta", BETAS)
def test_chunks_of_frames_give_the_same_result(beta):
    whole, pieces = (
        sparse_nmf(data(), 6, beta=beta, max_iter=20, tol=0, generator=seeded(), chunk=c) for c in (2**16, 7)
    )
    torch.testing.assert_close(whole.W, pieces.W, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(whole.H, pieces.H, rtol=1e-8, atol=1e-8)


def test_stopping_progress_and_seeds():
    calls = []
    result, again, other = (
        sparse_nmf(data(), 6, tol=1e-3, generator=seeded(s), progress=lambda *call: calls.append(call))
        for s in (1, 1, 2)
    )
    n = len(result.cost)
    change = (result.cost.diff() / result.cost[:-1]).abs()
    assert 1 < n < 1000
    assert change[-1] < 1e-3 <= change[:-1].min()
    assert calls[:n] == [(f"dictionary, cost {cost:.4g}", i, 1000) for i, cost in enumerate(result.cost.tolist(), 1)]
    assert torch.equal(result.W, again.W)
    assert not torch.equal(result.W, other.W)


@pytest.mark.parametrize("beta", BETAS)
def test_silence_and_atoms_without_use_stay_finite(beta):
    V = data()
    V[:, 10:20] = 0
    V[30:40] = 0
    for result in (
        sparse_nmf(V, 6, beta=beta, max_iter=30, generator=seeded()),
        sparse_nmf(torch.zeros(5, 7), 3, beta=beta, max_iter=30, generator=seeded()),
        sparse_nmf(V, 6, beta=beta, sparsity=1e6, max_iter=30, generator=seeded()),
    ):
        assert all(t.isfinite().all() for t in (result.W, result.H, result.cost))
        torch.testing.assert_close(result.W.norm(dim=0), torch.ones_like(result.W[0]))


def sklearn_cost(V, W0, H0, **options) -> float:
    """0.5 ||V - W H||^2 by scikit-learn, whose data are (samples, features): our transposes."""
    H, W, _ = non_negative_factorization(
        V.mT.numpy(), n_components=len(H0), W=H0.mT.numpy().copy(), H=W0.mT.numpy().copy(), init="custom", **options
    )
    return 0.5 * float(((V.mT.numpy() - H @ W) ** 2).sum())


def test_without_sparsity_scikit_learn_finds_the_same_cost():
    V = data()
    starts = [(random(len(V), 3, seed=s), random(3, V.shape[1], seed=s + 100)) for s in range(3)]
    ours = [float(sparse_nmf(V, 3, sparsity=0, init=s, max_iter=1500, tol=1e-8).cost[-1]) for s in starts]
    theirs = [sklearn_cost(V, *s, solver="cd", tol=1e-6, max_iter=1500) for s in starts]
    assert min(ours) == pytest.approx(min(theirs), rel=1e-3)  # the best of each: any start may find a local minimum


@pytest.mark.filterwarnings("ignore:When update_H=False:RuntimeWarning")
def test_without_sparsity_scikit_learn_infers_the_same_cost():
    V, W = noisy().mT.contiguous(), dictionary()
    H = infer_activations(V, W, n_iter=2000, sparsity=0)
    theirs = sklearn_cost(V, W, W.mT @ V, solver="cd", update_H=False, tol=1e-10, max_iter=2000)
    assert float(sparse_objective(V, W, H, sparsity=0)) == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("beta", BETAS)
def test_inference_descends_and_treats_every_frame_alone(beta):
    V, W = noisy().mT.contiguous(), dictionary()
    results = [infer_activations(V, W, n_iter=n, beta=beta, sparsity=0.1) for n in (0, 1, 5, 20)]
    torch.testing.assert_close(results[0], W.mT @ V)
    costs = [float(sparse_objective(V, W, H, beta=beta, sparsity=0.1)) for H in results]
    assert costs == sorted(costs, reverse=True)
    options = {"n_iter": 20, "beta": beta, "sparsity": 0.1}
    torch.testing.assert_close(infer_activations(V[:, 40:50], W, **options), results[3][:, 40:50])
    torch.testing.assert_close(infer_activations(V, W, chunk=7, **options), results[3])
    onwards = infer_activations(V, W, init=results[2], **options | {"n_iter": 15})
    torch.testing.assert_close(onwards, results[3])


@pytest.mark.parametrize(
    ("beta", "gamma"), [(-1, 1 / 3), (0, 1 / 2), (0.5, 2 / 3), (1, 1), (1.5, 1), (2, 1), (3, 1 / 2)]
)
def test_one_update_of_activations_minimises_the_majoriser(beta, gamma):
    V, W = noisy()[20:40].mT.contiguous(), dictionary() + 0.01
    v, w = V.numpy(), W.numpy()
    h = w.T @ v
    expected = h * (w.T @ (v * (w @ h) ** (beta - 2)) / (w.T @ (w @ h) ** (beta - 1) + 0.1)) ** gamma
    np.testing.assert_allclose(infer_activations(V, W, n_iter=1, beta=beta, sparsity=0.1), expected, rtol=1e-10)


def test_inference_is_differentiable():
    V, W = random(4, 3).requires_grad_(), random(4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda V, W: infer_activations(V, W, n_iter=3, chunk=2, sparsity=0.1), (V, W))


@pytest.mark.parametrize("device", DEVICES)
def test_dictionaries_of_speech_then_noise(device):
    options = {"sparsity": 0.5, "max_iter": 25, "tol": 0}
    V_clean, V_noisy = clean().mT.contiguous().to(device), noisy().mT.contiguous().to(device)
    result = train_dictionaries(V_clean, V_noisy, rank_per_source=4, generator=seeded(), **options)
    speech = sparse_nmf(V_clean, 4, generator=seeded(), **options)
    assert result.n_speech == 4
    assert result.W.shape == (257, 8)
    assert torch.equal(result.W[:, :4], speech.W)
    assert torch.equal(result.speech_cost, speech.cost)
    assert result.noise_cost.shape == (25,)
    alone = sparse_objective(V_noisy, speech.W, infer_activations(V_noisy, speech.W, sparsity=0.5), sparsity=0.5)
    assert result.noise_cost[-1] < 0.9 * float(alone)  # the noise atoms explain what the speech atoms cannot


NAN = float("nan")
V, W, H = torch.ones(4, 5), torch.ones(4, 3), torch.ones(3, 5)


@pytest.mark.parametrize(
    ("V", "rank", "options", "message"),
    [
        (V, 0, {}, "rank must be at least 1.*got 0"),
        (V, 2, {"fixed": W}, "count the 3 fixed columns, got 2"),
        (V[0], 3, {}, r"data must be .* got torch.float32 of shape \(5,\)"),
        (V[:, :0], 3, {}, r"T > 0.*\(4, 0\)"),
        (V.long(), 3, {}, "int64"),
        (V * NAN, 3, {}, "data hold NaN"),
        (-V, 3, {}, "data hold negative values"),
        (V, 3, {"sparsity": -1}, "sparsity must not be negative, got -1"),
        (V, 3, {"sparsity": NAN}, "sparsity"),
        (V, 3, {"fixed": W[:3]}, r"data \(4, 5\) and dictionary \(3, 3\)"),
        (V, 3, {"fixed": W[:, 0]}, r"dictionary \(4,\) must be"),
        (V, 3, {"fixed": 0 * W}, "column of the dictionary is zero"),
        (V, 3, {"fixed": W.double()}, "data are torch.float32 on cpu, the dictionary is torch.float64"),
        (V, 3, {"fixed": -W}, "dictionary holds negative"),
        (V, 3, {"init": (W[:, :2], H)}, r"initial dictionary has shape \(4, 2\), expected \(4, 3\)"),
        (V, 3, {"init": (W * NAN, H)}, "dictionary holds NaN"),
        (V, 3, {"init": (W.to("meta"), H)}, "meta"),
        (V, 3, {"init": (W, H[:2])}, r"initial activations .* \(2, 5\), expected .* \(3, 5\)"),
        (V, 3, {"init": (W, H.double())}, "initial activations are torch.float64"),
        (V, 3, {"init": (W, -H)}, "initial activations hold negative"),
        (V, 3, {"init": (W, NAN * H)}, "initial activations hold NaN"),
    ],
)
def test_problems_that_cannot_be_factorised(V, rank, options, message):
    with pytest.raises(InputError, match=message):
        sparse_nmf(V, rank, **options)


@pytest.mark.parametrize(
    ("V", "W", "options", "message"),
    [
        (V, W[:3], {}, r"data \(4, 5\) and dictionary \(3, 3\)"),
        (V, W[:, :0], {}, "N > 0"),
        (V, W.double(), {}, "torch.float64"),
        (V, W.to("meta"), {}, "meta"),
        (V * NAN, W, {}, "data hold NaN"),
        (-V, W, {}, "data hold negative"),
        (V, W, {"init": H[:2]}, "initial activations"),
        (V, W, {"n_iter": -1}, "n_iter must not be negative"),
    ],
)
def test_activations_that_cannot_be_inferred(V, W, options, message):
    with pytest.raises(InputError, match=message):
        infer_activations(V, W, **options)


def test_clean_and_noisy_data_of_different_size_are_refused():
    with pytest.raises(InputError, match=r"data \(3, 5\) and dictionary \(4, 2\)"):
        train_dictionaries(V, V[:3], rank_per_source=2, max_iter=2)


@pytest.mark.parametrize("N", [5, 30])  # fewer and more atoms than twice the bins: two ways to compute W^T W h
def test_euclidean_updates_are_the_textbook_s(N):
    V, W = (
        torch.rand(8, 12, generator=seeded(), dtype=torch.float64),
        unit_norm(torch.rand(8, N, generator=seeded(1)).double()),
    )
    H = W.mT @ V
    for _ in range(10):
        H = H * (W.mT @ V) / (W.mT @ (W @ H) + 0.1)
    torch.testing.assert_close(infer_activations(V, W, n_iter=10, sparsity=0.1), H)
