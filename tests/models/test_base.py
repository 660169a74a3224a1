import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drnmf import InputError, Separator, ratio_mask
from drnmf.models.masks import dictionary_mask, split_sources
from examples import DEVICES, build, dictionary, spectra

NAN = float("nan")
SIX = torch.tensor([0.0, 1e-300, 1e-12, 1e-5, 1.0, 1e6], dtype=torch.float64)


def test_values():
    speech, noise = torch.tensor([1.0, 3.0, 0.0, 2.0]), torch.tensor([1.0, 1.0, 5.0, 0.0])
    torch.testing.assert_close(ratio_mask(speech, noise), torch.tensor([0.5, 0.75, 0.0, 1.0]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite_down_to_silence(dtype, device):
    speech, noise = (t.to(device, dtype).requires_grad_() for t in torch.meshgrid(SIX, SIX, indexing="ij"))
    mask = ratio_mask(speech, noise)
    mask.sum().backward()
    assert mask[0, 0] == 0
    assert ((mask >= 0) & (mask <= 1)).all()
    largest = max(float(t.grad.abs().max()) for t in (speech, noise))
    assert largest <= 1e5 * (1 + 1e-6)  # one over the floor


def test_gradients():
    speech, noise = (torch.rand(2, 3, 4, dtype=torch.float64) + 0.1).requires_grad_().unbind()
    assert torch.autograd.gradcheck(ratio_mask, (speech, noise))


def test_the_floor_is_never_reached_by_real_recordings():
    speech, noise = (X[4:-4].abs() for X in spectra())  # without the frames that reach over the ends
    torch.testing.assert_close(ratio_mask(speech, noise), speech / (speech + noise), rtol=0, atol=0)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_masks_of_speech_and_noise_add_up_to_one(speech, noise):
    s, n = torch.tensor([speech, noise], dtype=torch.float64)
    assert float(ratio_mask(s, n) + ratio_mask(n, s)) == pytest.approx(min((speech + noise) / 1e-5, 1))


def test_the_mask_of_a_dictionary_splits_its_atoms():
    h = torch.rand(2, 5, 12, dtype=torch.float64)
    contributions = h[:, :, None] * dictionary()  # what every atom adds to every bin
    expected = contributions[..., :4].sum(-1) / contributions.sum(-1)
    torch.testing.assert_close(dictionary_mask(h, dictionary(), 4), expected)


def test_half_of_the_atoms_are_speech_by_default():
    assert split_sources(7, None) == 3
    assert split_sources(7, 6) == 6


@pytest.mark.parametrize(("n_atoms", "n_speech"), [(0, None), (1, None), (4, 0), (4, 4), (4, -1)])
def test_both_sources_need_atoms(n_atoms, n_speech):
    with pytest.raises(InputError, match=f"of {n_atoms} atoms at least one must be speech and one noise"):
        split_sources(n_atoms, n_speech)


X = torch.ones(2, 3, 257, dtype=torch.float64)


@pytest.mark.parametrize("name", ["drnmf", "lstm", "snmf"])
@pytest.mark.parametrize(
    ("magnitude", "message"),
    [
        (X[0], r"\(batch, frames, 257\), got \(3, 257\)"),
        (X[..., :256], r"got \(2, 3, 256\)"),
        (X[:0], r"got \(0, 3, 257\)"),
        (X.float(), "magnitudes are torch.float32 on cpu, the model is torch.float64 on cpu"),
        (X.to(torch.complex128), "complex128"),
        (X.to("meta"), "on meta, the model is torch.float64 on cpu"),
        (X * NAN, "magnitudes hold NaN"),
        (X / 0, "infinite"),
        (-X, "negative values: pass stft"),
    ],
)
def test_magnitudes_that_do_not_fit(name, magnitude, message):
    with pytest.raises(InputError, match=message):
        build(name)(magnitude)


@pytest.mark.parametrize(
    ("name", "state", "message"),
    [
        ("drnmf", torch.ones(3, 12, dtype=torch.float64), r"state has shapes \[\(3, 12\)\].* need \[\(2, 12\)\]"),
        ("drnmf", torch.ones(2, 11, dtype=torch.float64), r"\[\(2, 11\)\]"),
        ("drnmf", torch.ones(2, 12), "state is not torch.float64"),
        ("ista", torch.ones(2, 12, device="meta", dtype=torch.float64), "state is not torch.float64 on cpu"),
        ("lstm", torch.ones(2, 12, dtype=torch.float64), r"need \[\(2, 2, 3\), \(2, 2, 3\)\]"),
        ("snmf", torch.ones(2, 12, dtype=torch.float64), r"need \[\]"),
        ("sista", torch.ones(1, 12, dtype=torch.float64), r"need \[\(2, 12\)\]"),
        ("deep_nmf_context", torch.ones(2, 12, dtype=torch.float64), r"need \[\(2, 2, 257\)\]"),
    ],
)
def test_states_that_do_not_fit(name, state, message):
    with pytest.raises(InputError, match=message):
        build(name)(X, (state,))


def test_a_separator_must_say_how_it_separates():
    class Incomplete(Separator):
        pass

    with pytest.raises(NotImplementedError):
        Incomplete(257)(X.float())
