"""What is true of every separator."""

import pytest
import torch
from torch.func import functional_call

from drnmf import InputError, Separator
from drnmf.maths.nmf import unit_norm
from examples import DEVICES, MODELS, build, noisy, seeded

every_model = pytest.mark.parametrize("name", MODELS)


def sequences() -> torch.Tensor:
    """Three pieces of the real mixture, (3, 30, F)."""
    return noisy()[20:110].view(3, 30, -1)


def tiny_dictionary(context: int) -> torch.Tensor:
    return unit_norm(torch.rand(5 * context, 4, generator=seeded(), dtype=torch.float64))


def tiny(name: str) -> Separator:
    """The model for five features, its weights shaken so that no two layers are alike."""
    model = build(name, tiny_dictionary)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=seeded(1), dtype=weight.dtype)
    return model


@every_model
def test_masks_lie_between_zero_and_one_even_at_silence(name):
    x = sequences()
    x[0, 10:] = 0
    mask, _ = build(name)(x)
    assert mask.shape == x.shape
    assert mask.dtype == x.dtype
    assert (mask >= 0).all()
    assert (mask <= 1).all() or name == "prior_drnmf"  # that one keeps the speech at its level
    assert mask[1:].std() > 1e-3  # it depends on what it hears


@every_model
def test_a_batch_is_its_sequences_one_by_one(name):
    x, model = sequences(), build(name)
    mask, state = model(x)
    for b in range(len(x)):
        mask_b, state_b = model(x[b : b + 1])
        torch.testing.assert_close(mask[b : b + 1], mask_b, rtol=0, atol=1e-10)
        for whole, single in zip(state, state_b, strict=True):
            torch.testing.assert_close(whole[b : b + 1], single, rtol=0, atol=1e-10)


@every_model
@pytest.mark.parametrize("value", [0.0, 7.0])
def test_frames_appended_change_none_before_them(name, value):
    x, model = sequences(), build(name)
    padded = torch.cat([x, torch.full_like(x[:, :9], value)], 1)
    torch.testing.assert_close(model(padded)[0][:, :30], model(x)[0], rtol=0, atol=1e-10)


@every_model
@pytest.mark.parametrize("sizes", [[1] * 30, [7, 7, 7, 7, 2], [0, 29, 0, 1, 0]])
def test_chunks_with_carried_state_are_the_whole(name, sizes):
    x, model = sequences(), build(name)
    masks, state = [], None
    for chunk in x.split(sizes, 1):
        mask, state = model(chunk, state)
        masks.append(mask)
        assert [tuple(s.shape[1:]) for s in state] == list(model.state_shapes)
    whole, last = model(x)
    torch.testing.assert_close(torch.cat(masks, 1), whole, rtol=0, atol=1e-10)
    torch.testing.assert_close(state, last, rtol=0, atol=1e-10)


@every_model
def test_gradients_of_all_weights_and_of_the_magnitudes(name):
    model = tiny(name)
    names, weights = zip(*model.named_parameters(), strict=True) if list(model.parameters()) else ((), ())
    x = (3 * torch.rand(2, 3, 5, generator=seeded(2), dtype=torch.float64) + 0.1).requires_grad_()

    def forward(x, *weights):
        mask, state = functional_call(model, dict(zip(names, weights, strict=True)), (x,))
        return mask, *(s for s in state if s.requires_grad)

    assert torch.autograd.gradcheck(forward, (x, *weights))


@pytest.mark.parametrize("name", [name for name in MODELS if "ista" not in name.split("_") and name != "snmf"])
def test_gradients_are_finite_at_silence_and_reach_every_weight(name):
    model, x = tiny(name), torch.rand(2, 6, 5, generator=seeded(), dtype=torch.float64)
    x[:, 2:4] = 0
    x[1] = 0
    model(x)[0].square().sum().backward()
    for weight, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), weight
        assert parameter.grad.any(), weight


@every_model
def test_single_precision_follows_double(name):
    x, model = sequences(), build(name)
    double = model(x)[0]
    single = model.float()(x.float())[0]
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-3)


@every_model
@pytest.mark.parametrize("device", DEVICES[1:])
def test_cuda_gives_the_same(name, device):
    x, model = sequences(), build(name)
    mask, state = model(x)
    mask_there, state_there = model.to(device)(x.to(device))
    torch.testing.assert_close(mask_there.cpu(), mask, rtol=0, atol=1e-8)
    torch.testing.assert_close(tuple(s.cpu() for s in state_there), state, rtol=0, atol=1e-8)


@every_model
def test_separate_is_the_call_without_the_checks(name):
    x, model = sequences(), build(name)
    torch.testing.assert_close(model.separate(x), model(x), rtol=0, atol=0)
    with pytest.raises(InputError):
        model(-x)


@every_model
def test_the_start_is_what_none_stands_for(name):
    x, model = sequences(), build(name)
    mask, state = model(x, model.start(len(x)))
    expected, expected_state = model(x)
    assert torch.equal(mask, expected)
    assert all(torch.equal(a, b) for a, b in zip(state, expected_state, strict=True))


@every_model
def test_the_groups_are_all_that_is_trained(name):
    model = build(name)
    grouped = [p for group in model.groups() for p in group]
    assert {id(p) for p in grouped} == {id(p) for p in model.parameters() if p.requires_grad}
