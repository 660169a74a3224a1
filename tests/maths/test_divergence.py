import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import kl_div

from drnmf import InputError, beta_divergence
from drnmf.maths.divergence import sparse_objective
from examples import DEVICES, clean, dictionary, noisy

BETAS = [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
FORMULAS = {
    2.0: lambda v, w: 0.5 * (v - w) ** 2,
    1.0: kl_div,
    0.0: lambda v, w: v / w - np.log(v / w) - 1,
    0.5: lambda v, w: 2 * (np.sqrt(v) - np.sqrt(w)) ** 2 / np.sqrt(w),
    3.0: lambda v, w: (v**3 + 2 * w**3 - 3 * v * w**2) / 6,
}
numbers = st.floats(0.01, 100)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("beta", FORMULAS)
def test_sum_of_each_formula(beta, device):
    V, V_hat = clean() + 1e-3, noisy() + 1e-3
    expected = FORMULAS[beta](V.numpy(), V_hat.numpy()).sum()
    assert beta_divergence(V.to(device), V_hat.to(device), beta).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("step", [-1e-5, 1e-5])
def test_the_special_cases_are_limits_of_the_general_formula(beta, step):
    V, V_hat = clean() + 1e-3, noisy() + 1e-3
    near, limit = (float(beta_divergence(V, V_hat, b)) for b in (beta + step, beta))
    assert near != limit
    assert near == pytest.approx(limit, rel=1e-3)


@given(v=numbers, w=numbers, beta=st.sampled_from(BETAS))
def test_never_negative_and_zero_between_equals(v, w, beta):
    V, V_hat = torch.tensor([[[v]], [[w]]], dtype=torch.float64)
    rounding = 1e-9  # terms as large as 1e6 cancel
    assert beta_divergence(V, V_hat, beta) >= -rounding
    assert abs(beta_divergence(V, V, beta)) <= rounding


@pytest.mark.parametrize("beta", BETAS)
def test_gradients_and_their_finiteness_at_silence(beta):
    V, V_hat = torch.rand(2, 3, 4, dtype=torch.float64) + 0.1
    assert torch.autograd.gradcheck(lambda w: beta_divergence(V, w, beta), V_hat.requires_grad_())
    silence = torch.zeros(3, 4, requires_grad=True)
    value = beta_divergence(torch.zeros(3, 4), silence, beta)
    value.backward()
    assert value.isfinite()
    assert silence.grad.isfinite().all()


def test_the_objective_adds_the_weighted_sum_of_activations():
    V, W = noisy().mT, dictionary()
    H = W.mT @ V
    expected = 0.5 * ((V - W @ H) ** 2).sum() + 0.3 * H.sum()
    torch.testing.assert_close(sparse_objective(V, W, H, sparsity=0.3), expected)


@pytest.mark.parametrize(
    ("V", "V_hat", "message"),
    [
        (torch.ones(2, 3), torch.ones(3, 2), r"shapes differ: data \(2, 3\), model \(3, 2\)"),
        (torch.ones(3), torch.ones(1), "shapes differ"),
        (-torch.ones(3), torch.ones(3), "negative"),
        (torch.ones(3), -torch.ones(3), "negative"),
        (torch.tensor([1.0, float("nan")]), torch.ones(2), "NaN"),
    ],
)
@pytest.mark.parametrize("beta", [0, 2])
def test_arrays_that_cannot_be_compared(V, V_hat, message, beta):
    with pytest.raises(InputError, match=message):
        beta_divergence(V, V_hat, beta)
