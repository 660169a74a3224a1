"""DR-NMF with a recurrent prior in C (`csrc/prior.h`) against PyTorch: frame by frame, and from sound to sound."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drnmf import InputError, PriorDRNMF, Streamer
from drnmf.engines import compiled as steps
from drnmf.engines.prior_network import pack
from drnmf.engines.streams import Stream, frames
from drnmf.models.masks import MASK_FLOOR
from examples import expecting, noisy, recording, seeded

if steps.library() is None:
    pytest.skip("steps.c is not compiled here: there was no C compiler", allow_module_level=True)


def network(N: int, U: int, K: int = 3, *, n_features: int = 257, seed: int = 0, **options) -> PriorDRNMF:
    """A network of random atoms whose weights have all moved, float64; its memory is not chaotic."""
    sizes = {"n_atoms": N, "n_units": U, "n_layers": K, "n_features": n_features}
    model = PriorDRNMF(**sizes, sparsity=0.05, generator=seeded(seed), **options).double()
    expecting(model, seed)
    with torch.no_grad():
        model.gru.weight_hh_l0 *= min(1.0, 2 * U**-0.5)
    return model


def assert_same_frames(model: PriorDRNMF, X: torch.Tensor, cut: int, tolerance: float) -> None:
    """Masks and states of the frozen network, whole and in two parts, are the model's in float64."""
    with torch.no_grad():
        expected, last = model.double()(X.double())
        frozen = model.to(X.dtype).freeze()
        assert frozen.network.takes(X)
        whole = frozen(X)
        first, middle = frozen(X[:, :cut])
        second, end = frozen(X[:, cut:], middle)
    for mask, state in (whole, (torch.cat([first, second], 1), end)):
        torch.testing.assert_close(mask.double(), expected, rtol=0, atol=tolerance)
        for ours, theirs in zip(state, last, strict=True):
            scale = max(1.0, float(theirs.abs().max()))
            torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=tolerance * scale)


@settings(max_examples=60, deadline=None)
@given(
    N=st.integers(2, 40),
    U=st.integers(1, 40),
    K=st.integers(1, 4),
    F=st.integers(1, 40),
    n_listening=st.integers(1, 3),
    B=st.integers(1, 3),
    power=st.sampled_from([0.5, 0.7, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_frames_of_any_shape(N, U, K, F, n_listening, B, power, seed):
    model = network(N, U, K, n_features=F, n_listening=n_listening, n_speech=1, power=power, seed=seed)
    X = torch.rand(B, 9, F, generator=seeded(seed), dtype=torch.float64)
    assert_same_frames(model, X, 4, 1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 3e-5)])
@pytest.mark.parametrize(("N", "U"), [(24, 16), (200, 256), (300, 96)])
def test_real_speech_through_networks_with_several_panels(N, U, dtype, tolerance):
    assert_same_frames(network(N, U), noisy()[None].to(dtype), 37, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 3e-5)])
@pytest.mark.parametrize(
    ("rate", "channels", "strength", "limit"),
    [(16000, 1, 1.0, None), (16000, 2, 0.7, None), (44100, 2, 1.0, None), (16000, 2, 1.0, 6), (44100, 1, 0.9, 3)],
)
def test_sound_to_sound_as_by_pytorch(rate, channels, strength, limit, dtype, tolerance, monkeypatch):
    model = network(24, 16).to(dtype)
    x = torch.stack([recording("speech/austen_0880", 24000).roll(4000 * c) / (1 + c) for c in range(channels)])
    x = (x + 0.1 * torch.randn(x.shape, generator=seeded(), dtype=x.dtype)).to(dtype)

    def streamed(block):
        streamer = Streamer(model, rate, channels=channels, strength=strength, max_attenuation=limit)
        parts = [streamer.feed(x[:, i : i + block]) for i in range(0, x.shape[1], block)]
        return torch.cat([*parts, streamer.flush()], 1)

    compiled = [streamed(block) for block in (127, 128, 777, 24000)]
    monkeypatch.setattr(steps, "library", lambda: None)
    expected = streamed(24000)
    assert (x - expected).norm() > 0.1 * x.norm()  # else there is nothing to compare
    for result in compiled:
        torch.testing.assert_close(result, expected, rtol=0, atol=tolerance)


def test_digital_silence_stays_silent_and_speech_after_it_is_as_by_pytorch(monkeypatch):
    model = network(24, 16).float()
    x = torch.cat([torch.zeros(32000), recording("speech/austen_0880", 8000).float(), torch.zeros(8000)])
    y = Streamer(model).feed(x)
    assert not y[:31000].any()
    monkeypatch.setattr(steps, "library", lambda: None)
    torch.testing.assert_close(y, Streamer(model).feed(x), rtol=0, atol=3e-5)


def test_it_runs_where_it_was_unpickled():
    network_ = network(24, 16).float().freeze().network
    x = np.float32(recording("speech/austen_0880", 16000))[None]
    copied = pickle.loads(pickle.dumps(network_))
    first, second = (Stream(each, channels=1, strength=1.0).feed(x) for each in (network_, copied))
    assert first.any()
    np.testing.assert_array_equal(first, second)


def test_large_arguments_neither_overflow_nor_leave_the_bounds():
    """Gates far beyond where exp has room, in float."""
    model = network(24, 16)
    with torch.no_grad():
        model.gru.bias_ih_l0 += torch.linspace(-300, 300, 48, dtype=torch.float64)
        model.to_sparsity.bias += torch.linspace(-1000, 1000, 24, dtype=torch.float64)
    assert_same_frames(model, noisy()[None].float(), 11, 3e-5)


def test_nan_does_not_vanish():
    x = torch.full((1, 1, 257), torch.nan)
    frozen = network(24, 16).float().freeze()
    state = torch.from_numpy(frozen.network.silent)[None]
    weighted, after = frames(frozen.network, x, state)
    assert torch.isnan(weighted).all()
    assert torch.isnan(after).all()


@pytest.mark.parametrize("name", ["heard_GN", "memory_GU", "sparsity_NU", "weight_bias_N", "gain_1U"])
def test_wrong_weights_never_reach_c(name):
    model = network(24, 16).requires_grad_(False)
    W, listener, explainer, scale = model.weights()
    listener, explainer, e = (type(x)(*map(np.asarray, x)) for x in (listener, explainer, model.expectation()))
    e = e._replace(**{name: getattr(e, name)[:-1]})
    weight = np.concatenate([listener.alpha_KN, explainer.alpha_KN])
    layers = {"listener": listener, "explainer": explainer, "weight_KN": weight}
    packed = {**layers, "expectation": e, "scale_N": scale.numpy()}
    with pytest.raises(InputError, match=f"{name} must be"):
        pack(W.numpy(), **packed, n_speech=12, level=1.0, power=1.0, floor=MASK_FLOOR)
