"""What is compiled (`engines.compiled`, `engines.streams`) against the readable loop and against PyTorch."""

import ctypes

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drnmf import DRNMF, InputError, Streamer, lipschitz
from drnmf.engines import compiled as steps
from drnmf.engines.scan import scan
from drnmf.maths.nmf import unit_norm
from drnmf.maths.thresholding import unfolded_ista
from engines.problems import (
    NAMES,
    OF_FRAMES,
    assert_same,
    problem,
    values_and_gradients,
    with_sparsity_of_frames,
)
from examples import dictionary, noisy, recording, seeded

if steps.library() is None:
    pytest.skip("steps.c is not compiled here: there was no C compiler", allow_module_level=True)

PARAMETERS = NAMES[1:]  # all that C has gradients for
TOLERANCES = [(torch.float64, 1e-10), (torch.float32, 1e-4)]


@settings(max_examples=100, deadline=None)
@given(
    B=st.integers(1, 13),
    T=st.integers(0, 40),
    K=st.integers(1, 4),
    N=st.integers(1, 40),
    F=st.integers(1, 20),
    residual=st.booleans(),
    n_threads=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_equals_autograd_over_the_readable_loop(B, T, K, N, F, residual, n_threads, seed):
    arguments = problem(B, T, K, N, F, per_atom=seed % 2 == 0, seed=seed)
    options = {"residual_first_layer": residual}
    expected = values_and_gradients(unfolded_ista, arguments, needed=PARAMETERS, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: n_threads)
        patch.setattr(steps, "_WORK", 1)  # so that a few frames are enough for several threads
        results = values_and_gradients(scan, arguments, needed=PARAMETERS, form="compiled", **options)
    assert_same(results, expected)


@pytest.mark.skipif(not hasattr(steps.library(), "backward_frames_f32"), reason="an older steps.c is compiled here")
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(
    ("B", "T", "K", "N"), [(1, 1, 1, 3), (3, 40, 1, 7), (3, 40, 3, 7), (13, 9, 2, 30), (2, 0, 2, 5)]
)
@pytest.mark.parametrize("each", [True, False], ids=["each layer", "all layers"])
def test_a_sparsity_for_every_frame(each, B, T, K, N, residual, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(steps, "_WORK", 1)
    monkeypatch.setattr(steps, "_BLOCK", 20)
    arguments = with_sparsity_of_frames(problem(B, T, K, N, 11), K if each else 1)
    needed, options = (*PARAMETERS, OF_FRAMES), {"residual_first_layer": residual}
    expected = values_and_gradients(unfolded_ista, arguments, needed=needed, **options)
    assert_same(values_and_gradients(scan, arguments, needed=needed, form="compiled", **options), expected)
    assert_same({"h": scan(**arguments, form="compiled", **options)}, {"h": expected["h"]})


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize(("B", "T"), [(24, 60), (1, 300), (3, 7), (200, 2)])
def test_real_speech(B, T, dtype, tolerance):
    """Many sequences or many frames, more than a block, of a dictionary trained on the recording."""
    W = dictionary()
    x = noisy()[:120].repeat(-(-B * T // 120), 1)[: B * T].view(B, T, -1)
    arguments = {
        "x_BTF": x,
        "W_KFN": torch.stack([W, 0.9 * W, W.flip(1)]),
        "alpha_KN": torch.full((3, 1), lipschitz(W), dtype=W.dtype),
        "sparsity_KN": torch.linspace(0.05, 0.3, 3 * W.shape[1], dtype=W.dtype).view(3, -1),
        "h0_BN": torch.rand(B, W.shape[1], generator=seeded(), dtype=W.dtype),
    }
    expected = values_and_gradients(unfolded_ista, arguments, needed=PARAMETERS)
    moved = {name: value.to(dtype) for name, value in arguments.items()}
    results = values_and_gradients(scan, moved, needed=PARAMETERS, form="compiled")
    assert_same({name: value.double() for name, value in results.items()}, expected, tolerance)


@pytest.mark.parametrize("B", [1, 3, 7])
@pytest.mark.parametrize("rows", [1, 20, 1024])
def test_without_gradients_blocks_of_rows_carry_the_state(rows, B, monkeypatch):
    """The state before the first frame is one, so that a block which started from it again would show."""
    monkeypatch.setattr(steps, "_BLOCK", rows)
    W = dictionary()
    arguments = {
        "x_BTF": noisy().repeat(3, 1)[: 420 // B].expand(B, -1, -1) * torch.linspace(0.5, 1, B).double()[:, None, None],
        "W_KFN": torch.stack([W, W.flip(1)]),
        "alpha_KN": torch.full((2, 1), lipschitz(W), dtype=W.dtype),
        "sparsity_KN": torch.full((2, 1), 0.05, dtype=W.dtype),
        "h0_BN": torch.ones(B, W.shape[1], dtype=W.dtype),
    }
    torch.testing.assert_close(scan(**arguments, form="compiled"), unfolded_ista(**arguments), rtol=0, atol=1e-10)


def test_many_atoms_lie_in_several_panels():
    arguments = problem(5, 9, 2, 431, 230)
    expected = values_and_gradients(unfolded_ista, arguments, needed=PARAMETERS)
    assert_same(values_and_gradients(scan, arguments, needed=PARAMETERS, form="compiled"), expected)


@pytest.mark.parametrize("shape", [(3, 5), (2, 7, 16), (4, 208), (2, 3, 500)])
def test_panels_hold_all_columns(shape):
    A = torch.rand(shape, generator=seeded())
    P = steps.panels(A)
    assert P.is_contiguous()
    assert P.shape[-1] % 16 == 0
    whole = P.transpose(-3, -2).flatten(-2)
    torch.testing.assert_close(whole[..., : shape[-1]], A, rtol=0, atol=0)
    assert not whole[..., shape[-1] :].any()


def test_memory_layout_does_not_matter():
    plain = problem(5, 8, 2, 6, 5, per_atom=True)
    expected = values_and_gradients(scan, plain, needed=PARAMETERS, form="compiled")
    turned = {name: value.mT.contiguous().mT for name, value in plain.items()}
    assert_same(values_and_gradients(scan, turned, needed=PARAMETERS, form="compiled"), expected, 1e-13)
    leaf = plain["W_KFN"].clone().requires_grad_()
    h = scan(**{**plain, "W_KFN": leaf}, form="compiled")
    (expected,) = torch.autograd.grad(h, leaf, torch.ones_like(h), retain_graph=True)
    (summed,) = torch.autograd.grad(h.sum(), leaf)  # the gradient that comes in is one number for all places
    torch.testing.assert_close(summed, expected, rtol=0, atol=1e-13)


def test_nan_does_not_vanish():
    arguments = problem(4, 6, 2, 9, 5)
    arguments["x_BTF"][2, 3, 1] = torch.nan
    h = scan(**arguments, form="compiled")
    assert torch.isnan(h[2, 3:]).all()
    assert torch.isfinite(h[[0, 1, 3]]).all()


def test_automatic_where_it_can_be_used():
    arguments = problem(4, 40, 1, 12, 16)
    compiled, gram = (scan(**arguments, form=form) for form in ("compiled", "gram"))
    assert torch.equal(scan(**arguments), compiled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "library", lambda: None)
        assert torch.equal(scan(**arguments), gram)
        with pytest.raises(InputError, match="compiled"):
            scan(**arguments, form="compiled")
    arguments["x_BTF"].requires_grad_()
    scan(**arguments).sum().backward()
    assert arguments["x_BTF"].grad is not None
    with pytest.raises(InputError, match="gradient"):
        scan(**arguments, form="compiled")


def test_a_binary_of_another_version_is_not_used(caplog):
    class Other(ctypes.Structure):
        _fields_ = (("K", ctypes.c_int64),)

    assert not steps.agrees(steps.library(), "scan", Other)
    assert not steps.agrees(steps.library(), "unheard of", Other)
    assert "install the package again" in caplog.text


def network(N: int, dtype: torch.dtype, **options) -> DRNMF:
    """A network of random frames of the recording, not yet trained, every layer different."""
    frames = noisy()[torch.randint(20, 100, (N,), generator=seeded())].mT + 0.01
    noise = torch.rand(frames.shape, generator=seeded(), dtype=frames.dtype)
    model = DRNMF.from_dictionary(unit_norm(frames * (0.5 + noise)), 3, sparsity=0.05, h0=torch.rand(N), **options)
    with torch.no_grad():
        model.log_W += 0.3 * torch.randn(model.log_W.shape, generator=seeded(1), dtype=frames.dtype)
    return model.to(dtype)


CHOICES = [
    {},
    {"first_layer": "original"},
    {"reconstruction": "separate", "power": 0.5},
    {"warm_start": False, "power": 0.3, "alpha_per": "atom", "sparsity_per": "atom"},
    {"alpha_range": "weighted", "tied": True},
]


@pytest.mark.parametrize("options", CHOICES, ids=str)
@pytest.mark.parametrize("N", [24, 300], ids=["gram", "factored"])
@pytest.mark.parametrize("B", [1, 5])
def test_a_frozen_network_is_the_network(N, B, options):
    model = network(N, torch.float64, **options)
    x = noisy()[:60].view(1, 60, -1) * torch.linspace(0.5, 2, B, dtype=torch.float64)[:, None, None]
    frozen = model.freeze()
    assert (frozen.network.A_KNN is not None) == (N < 257)
    with torch.no_grad():
        for function in ("separate", "activations"):
            expected, state = getattr(model, function)(x)
            result, end = getattr(frozen, function)(x)
            torch.testing.assert_close(result, expected, rtol=0, atol=1e-9)
            torch.testing.assert_close(end, state, rtol=0, atol=1e-9)
            first, middle = getattr(frozen, function)(x[:, :7])
            second, _ = getattr(frozen, function)(x[:, 7:], middle)
            torch.testing.assert_close(torch.cat([first, second], 1), expected, rtol=0, atol=1e-9)


LEVELS = [{"level": 1.5}, {"level": 0.4, "power": 0.5}, {"level": 1.5, "power": 0.7}]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
@pytest.mark.parametrize("options", [*CHOICES, *LEVELS], ids=str)
@pytest.mark.parametrize(
    ("N", "rate", "channels", "strength", "limit"),
    [(24, 16000, 1, 1.0, None), (300, 16000, 2, 0.7, 6), (24, 44100, 3, 1.0, 3)],
)
def test_sound_to_sound_as_by_pytorch(N, rate, channels, strength, limit, options, dtype, tolerance, monkeypatch):
    model = network(N, dtype, **options)
    x = torch.stack([recording("speech/austen_0880", 24000).roll(4000 * c) / (1 + c) for c in range(channels)])
    x = (x + 0.1 * torch.randn(x.shape, generator=seeded(), dtype=x.dtype)).to(dtype)

    def streamed(block):
        streamer = Streamer(model, rate, channels=channels, strength=strength, max_attenuation=limit)
        parts = [streamer.feed(x[:, i : i + block]) for i in range(0, x.shape[1], block)]
        return torch.cat([*parts, streamer.flush()], 1)

    compiled = [streamed(block) for block in (128, 777, 24000)]
    monkeypatch.setattr(steps, "library", lambda: None)
    expected = streamed(24000)
    assert (x - expected).norm() > 0.1 * x.norm()  # else there is nothing to compare
    for result in compiled:
        torch.testing.assert_close(result, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("options", LEVELS, ids=str)
@pytest.mark.parametrize("faint", [0.0, 1e-6, 1e-5])
def test_digital_silence_and_what_is_softer_than_silence(faint, options, monkeypatch):
    """Both are brought to the level of silence, not to their own: sound after nothing at all, in parts of its size."""
    model, n = network(24, torch.float64, **options), 8000
    speech = recording("speech/austen_0880", 2 * n)
    x = torch.cat([torch.zeros(n), faint * speech[:n], speech[n:], torch.zeros(n)]).double()
    compiled = Streamer(model).feed(x)
    monkeypatch.setattr(steps, "library", lambda: None)
    expected = Streamer(model).feed(x)
    assert not compiled[: n - 512].any()
    torch.testing.assert_close(compiled, expected, rtol=0, atol=1e-11)
    part = slice(n + 1000, 2 * n - 1000)
    torch.testing.assert_close(compiled[part], expected[part], rtol=0, atol=1e-9 * faint)
    if faint:
        assert (x[part] - expected[part]).norm() > 0.1 * x[part].norm()  # else there is nothing to compare


def test_a_stream_survives_the_model_it_came_from():
    model, x = network(24, torch.float32), np.float32(recording("speech/austen_0880", 16000))
    expected = Streamer(model).feed(x)
    streamer = Streamer(model)
    del model
    torch.randn(10**6)  # other uses of memory
    np.testing.assert_array_equal(streamer.feed(x), expected)
