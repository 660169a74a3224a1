"""The fast recurrence with transition and momentum against the readable loop: values, and the gradients of autograd."""

import itertools

import pytest
import torch
from torch import Tensor

from drnmf.engines.gram import gram_scan
from drnmf.maths.thresholding import unfolded_ista
from examples import DEVICES, seeded

NAMES = ("x_BTF", "W_KFN", "alpha_KN", "sparsity_KN", "h0_BN", "transition_NN")
OPTIONS = [
    dict(zip(("residual_first_layer", "warm_start", "momentum"), values, strict=True))
    for values in itertools.product((True, False), repeat=3)
]


def problem(K: int, *, per_atom: bool, transition: bool, N: int = 4) -> dict[str, Tensor]:
    """Random arguments in float64, with zeros among the activations that they lead to."""
    B, T, F, P = 3, 6, 5, N if per_atom else 1
    shapes = ((B, T, F), (K, F, N), (K, P), (K, P), (B, N), (N, N))
    x, W, alpha, sparsity, h0, P_NN = (torch.rand(s, generator=seeded(i)).double() for i, s in enumerate(shapes))
    loudness = torch.tensor([8.0, 1, 4, 0, 6, 2]).double()[:, None]
    values = (loudness * x, W, 2 * N + 3 * alpha, 4 + 6 * sparsity, h0, P_NN / N)
    return dict(zip(NAMES, values if transition else values[:-1], strict=False))


def results(function, arguments: dict[str, Tensor], **options: bool) -> tuple[Tensor, ...]:
    """h, and the gradients of a random linear function of it."""
    leaves = {name: value.detach().requires_grad_() for name, value in arguments.items()}
    h = function(**leaves, **options)
    dh = torch.randn(h.shape, generator=seeded(9)).to(h)
    return h, *torch.autograd.grad(h, list(leaves.values()), dh)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(k for k, v in o.items() if v) or "none")
@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("transition", [True, False])
@pytest.mark.parametrize("per_atom", [True, False])
def test_values_and_gradients(options, K, transition, per_atom):
    arguments = problem(K, per_atom=per_atom, transition=transition)
    expected = results(unfolded_ista, arguments, **options)
    assert 0.05 < (expected[0] == 0).double().mean() < 0.95
    for ours, theirs in zip(results(gram_scan, arguments, **options), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11 * float(theirs.detach().abs().max()))


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("momentum", [True, False])
def test_the_gpu_kernels_take_the_same_steps(device, momentum):
    arguments = problem(5, per_atom=True, transition=True, N=30)
    expected = results(unfolded_ista, arguments, momentum=momentum)
    there = {name: value.to(device).float() for name, value in arguments.items()}
    for ours, theirs in zip(results(gram_scan, there, momentum=momentum), expected, strict=True):
        assert (ours.cpu().double() - theirs).norm() < 1e-4 * theirs.norm()


def test_no_frames():
    arguments = problem(2, per_atom=False, transition=True)
    arguments["x_BTF"] = arguments["x_BTF"][:, :0]
    assert gram_scan(**arguments).shape == (3, 0, 4)
