"""Adam with clipping for each group and an average of the weights."""

import copy

import pytest
import torch
from torch import nn

from drnmf.training.optimiser import EAGER, AveragedAdam
from examples import DEVICES, seeded


def network(device="cpu"):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)


def inputs(step, device="cpu"):
    return torch.randn(5, 3, generator=seeded(step)).to(device)


def make(model, *, beta2=0.99, epsilon=1e-8, clip=0.0, average=0.0, share=0.05, rates=(1e-2,)):
    layers = [list(model[0].parameters()), list(model[2].parameters())]
    layers = layers if len(rates) == 2 else [layers[0] + layers[1]]
    groups = [{"params": p, "lr": rate} for p, rate in zip(layers, rates, strict=True)]
    return AveragedAdam(groups, beta2=beta2, epsilon=epsilon, clip=clip, average=average, share=share)


def loss_of(model, x, scale=1.0):
    model.zero_grad()
    loss = scale * (model(x) - x[:, :2].sin()).square().mean()
    loss.backward()
    return loss.detach()


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_it_is_adam_with_a_norm_for_each_group(clip):
    model, reference = network(), network()
    ours = make(model, clip=clip, rates=(1e-2, 1e-3), epsilon=1e-6)
    adams = [torch.optim.Adam(reference[i].parameters(), r, (0.9, 0.99), 1e-6) for i, r in ((0, 1e-2), (2, 1e-3))]
    for step in range(20):
        x = inputs(step)
        ours.step(lambda x=x: loss_of(model, x, 10))
        loss_of(reference, x, 10)
        for i, adam in zip((0, 2), adams, strict=True):
            if clip:
                nn.utils.clip_grad_norm_(reference[i].parameters(), clip)
            adam.step()
    torch.testing.assert_close(weights(model), weights(reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("share", "ramp"), [(0.05, 19), (0.25, 3)])
def test_the_average_follows_and_is_put_in_for_a_while(share, ramp):
    model = network()
    ours = make(model, average=0.7, share=share)
    expected = weights(model)
    for t in range(1, 12):
        ours.step(lambda t=t: loss_of(model, inputs(t)))
        expected = torch.lerp(expected, weights(model), 1 - min(0.7, t / (t + ramp)))
    last = weights(model)
    with ours.averaged():
        torch.testing.assert_close(weights(model), expected)
        assert not torch.allclose(expected, last, atol=1e-4)
    assert torch.equal(weights(model), last)


def test_without_an_average_it_is_the_weights():
    model = network()
    ours = make(model)
    ours.step(lambda: loss_of(model, inputs(0)))
    last = weights(model)
    with ours.averaged():
        assert torch.equal(weights(model), last)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_step_without_a_finite_gradient_changes_nothing_and_is_counted(scale):
    model = network()
    ours = make(model, clip=1.0, average=0.5)
    ours.step(lambda: loss_of(model, inputs(0)))
    before, state = weights(model), copy.deepcopy(ours.state_dict()["state"])
    for _ in range(2):
        ours.step(lambda: loss_of(model, inputs(1), scale))
    assert torch.equal(weights(model), before)
    assert torch.equal(ours.state_dict()["state"][0]["m_P"], state[0]["m_P"])
    assert torch.equal(ours.state_dict()["state"][0]["v_P"], state[0]["v_P"])
    assert ours.skipped.tolist() == [2, 2]
    ours.step(lambda: loss_of(model, inputs(2)))
    assert ours.skipped.tolist() == [0, 2]
    assert weights(model).isfinite().all()
    assert not torch.equal(weights(model), before)


def test_it_goes_on_from_its_state():
    whole, broken = network(), network()
    first, second = make(whole, average=0.9), make(broken, average=0.9)
    for step in range(8):
        first.step(lambda step=step: loss_of(whole, inputs(step)))
    for step in range(4):
        second.step(lambda step=step: loss_of(broken, inputs(step)))
    resumed = make(broken, average=0.9)
    resumed.load_state_dict(second.state_dict())
    for step in range(4, 8):
        resumed.step(lambda step=step: loss_of(broken, inputs(step)))
    assert torch.equal(weights(whole), weights(broken))
    with first.averaged(), resumed.averaged():
        assert torch.equal(weights(whole), weights(broken))


@pytest.mark.parametrize("device", DEVICES[1:])
def test_a_captured_step_is_the_same(device):
    reference, model = network(), network(device)
    first, second = (make(m, clip=0.3, average=0.9) for m in (reference, model))
    place = inputs(0, device)
    for step in range(EAGER + 10):
        place.copy_(inputs(step))
        for optimiser in (first, second):
            optimiser.param_groups[0]["lr"] = 1e-2 / (step + 1)
        first.step(lambda step=step: loss_of(reference, inputs(step)))
        second.step(lambda: loss_of(model, place))
    assert second._graph is not None
    torch.testing.assert_close(weights(model).cpu(), weights(reference), rtol=1e-4, atol=1e-5)
    with first.averaged(), second.averaged():
        torch.testing.assert_close(weights(model).cpu(), weights(reference), rtol=1e-4, atol=1e-5)
