import importlib
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from drnmf import InputError, lipschitz
from drnmf.engines import scan_cluster, scan_grid, scan_triton
from drnmf.engines.blocks import BlockEngine
from drnmf.engines.problem import Problem
from drnmf.engines.scan import scan
from drnmf.maths.thresholding import unfolded_ista
from engines.problems import (
    NAMES,
    OF_FRAMES,
    assert_same,
    problem,
    values_and_gradients,
    with_sparsity_of_frames,
)
from examples import DEVICES, dictionary, noisy, seeded

FORMS = ("gram", "factored")
OPTIONS = [
    {"residual_first_layer": residual, "warm_start": warm}
    for residual, warm in itertools.product((True, False), repeat=2)
]
module = importlib.import_module("drnmf.engines.scan")


@settings(max_examples=150, deadline=None)
@given(
    B=st.integers(1, 5),
    T=st.integers(0, 12),
    K=st.integers(1, 4),
    N=st.integers(1, 9),
    F=st.integers(1, 9),
    per_atom=st.booleans(),
    options=st.sampled_from(OPTIONS),
    form=st.sampled_from(("auto", *FORMS)),
    rows=st.sampled_from((1, 7, 1024)),
    of_frames=st.sampled_from((None, "layers", "layer")),
    seed=st.integers(0, 10**6),
)
def test_equals_autograd_over_the_readable_loop(B, T, K, N, F, per_atom, options, form, rows, of_frames, seed):
    arguments, needed = problem(B, T, K, N, F, per_atom=per_atom, seed=seed), NAMES
    if of_frames is not None:
        arguments = with_sparsity_of_frames(arguments, 1 if of_frames == "layers" else K, seed)
        needed = (*NAMES, OF_FRAMES)
    expected = values_and_gradients(unfolded_ista, arguments, needed=needed, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS", rows)  # so that a few frames are several blocks
        patch.setattr(BlockEngine, "rows", rows)
        assert_same(values_and_gradients(scan, arguments, needed=needed, **options, form=form), expected)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("per_atom", [False, True])
def test_gradients_are_those_of_finite_differences(form, options, per_atom):
    arguments = problem(2, 3, 2, 3, 4, per_atom=per_atom)
    leaves = [value.requires_grad_() for value in arguments.values()]
    assert torch.autograd.gradcheck(lambda *v: scan(**dict(zip(NAMES, v, strict=True)), **options, form=form), leaves)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layers", [1, 3])
def test_the_same_sparsity_in_all_frames_is_that_of_the_layers(form, layers):
    """And its gradient, summed over frames, is theirs."""
    arguments = problem(2, 5, 3, 6, 7, per_atom=True)
    expected = values_and_gradients(scan, arguments, form=form)
    moved = arguments["sparsity_KN"][:1] / 2 if layers == 1 else arguments["sparsity_KN"] / 2
    split = {
        **arguments,
        "sparsity_KN": arguments["sparsity_KN"] - moved,
        OF_FRAMES: moved[:, None, None].expand(layers, 2, 5, 6),
    }
    results = values_and_gradients(scan, split, needed=(*NAMES, OF_FRAMES), form=form)
    assert_same(results, expected)
    summed = expected["sparsity_KN"] if layers > 1 else expected["sparsity_KN"].sum(0, keepdim=True)
    torch.testing.assert_close(results[OF_FRAMES].sum((1, 2)), summed)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_the_sparsity_of_frames_are_those_of_finite_differences(form, layers):
    arguments = with_sparsity_of_frames(problem(2, 3, 2, 3, 4), layers)
    leaves = [value.requires_grad_() for value in arguments.values()]
    names = list(arguments)
    assert torch.autograd.gradcheck(lambda *v: scan(**dict(zip(names, v, strict=True)), form=form), leaves)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_real_speech(device, form, dtype, tolerance):
    """A dictionary trained on the recording, its own step size, more frames than one block."""
    W = dictionary()
    x = noisy()[:120].view(2, 60, -1).repeat(12, 1, 1)  # 24 sequences of 60 frames
    arguments = {
        "x_BTF": x,
        "W_KFN": torch.stack([W, 0.9 * W, W.flip(1)]),
        "alpha_KN": torch.full((3, 1), lipschitz(W), dtype=W.dtype),
        "sparsity_KN": torch.linspace(0.05, 0.3, 3 * W.shape[1], dtype=W.dtype).view(3, -1),
        "h0_BN": torch.rand(24, W.shape[1], generator=seeded(), dtype=W.dtype),
    }
    expected = values_and_gradients(unfolded_ista, arguments)
    assert 0.05 < (expected["h"] > 0).double().mean() < 0.95  # both sides of the threshold
    moved = {name: value.to(device, dtype) for name, value in arguments.items()}
    results = values_and_gradients(scan, moved, form=form)
    assert_same({name: value.to("cpu", torch.float64) for name, value in results.items()}, expected, tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_two_parts_with_the_state_carried_are_the_whole(form):
    def in_parts(x_BTF, h0_BN, **rest):
        first = scan(x_BTF[:, :4], h0_BN=h0_BN, **rest)
        return torch.cat([first, scan(x_BTF[:, 4:], h0_BN=first[:, -1], **rest)], 1)

    arguments = problem(3, 11, 2, 6, 5)
    expected = values_and_gradients(scan, arguments, form=form)
    assert_same(values_and_gradients(in_parts, arguments, form=form), expected, 1e-13)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", OPTIONS)
def test_memory_layout_does_not_matter(form, options):
    plain = problem(3, 8, 2, 6, 5, per_atom=True)
    expected = values_and_gradients(scan, plain, form=form, **options)
    turned = {name: value.mT.contiguous().mT for name, value in plain.items()}
    assert not any(turned[name].is_contiguous() for name in NAMES)
    assert_same(values_and_gradients(scan, turned, form=form, **options), expected, 1e-13)

    shared = {**plain, "x_BTF": plain["x_BTF"][:1].expand(3, -1, -1), "h0_BN": plain["h0_BN"][0].expand(3, -1)}
    expected = values_and_gradients(unfolded_ista, shared, **options)
    assert_same(values_and_gradients(scan, shared, form=form, **options), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_any_input_alone_may_need_a_gradient(name, form):
    arguments = problem(3, 5, 2, 6, 5)
    expected = values_and_gradients(scan, arguments, form=form)
    alone = values_and_gradients(scan, arguments, needed=(name,), form=form)
    torch.testing.assert_close(alone[name], expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("options", OPTIONS)
def test_without_gradients(options):
    arguments = problem(3, 9, 2, 6, 5)
    h = scan(**arguments, **options)
    assert h.grad_fn is None
    assert h.is_contiguous()
    arguments["W_KFN"].requires_grad_()
    assert torch.equal(scan(**arguments, **options), h)
    with torch.no_grad():
        assert torch.equal(scan(**arguments, **options), h)


def test_changing_the_result_does_not_change_the_gradient():
    arguments = problem(2, 5, 2, 4, 5)
    W = arguments["W_KFN"].requires_grad_()
    h = scan(**arguments)
    (expected,) = torch.autograd.grad(h.sum(), W, retain_graph=True)
    (again,) = torch.autograd.grad(h.mul_(1).sum(), W)
    assert torch.equal(again, expected)


def test_no_second_derivative():
    arguments = problem(2, 3, 2, 4, 5)
    W = arguments["W_KFN"].requires_grad_()
    (gradient,) = torch.autograd.grad(scan(**arguments).pow(2).sum(), W, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_autocast_does_not_reach_inside():
    arguments = {name: value.float() for name, value in problem(2, 6, 2, 8, 9).items()}
    W = arguments["W_KFN"].requires_grad_()
    expected = scan(**arguments)
    with torch.autocast("cpu", torch.bfloat16):
        h = scan(**arguments)
        (gradient,) = torch.autograd.grad(h.sum(), W)
    assert torch.equal(h, expected)
    assert torch.equal(gradient, torch.autograd.grad(expected.sum(), W)[0])


@pytest.mark.parametrize(
    ("sizes", "form"),
    [((4, 40, 1, 12, 16), "gram"), ((4, 40, 1, 48, 16), "factored"), ((1, 1, 1, 12, 16), "factored")],
    ids=["few atoms", "many atoms", "one frame"],
)
def test_the_cheaper_form_is_chosen(sizes, form, monkeypatch):
    monkeypatch.setattr("drnmf.engines.compiled.library", lambda: None)  # it would be chosen, and rounds otherwise
    arguments = problem(*sizes)
    results = {name: scan(**arguments, form=name) for name in ("auto", *FORMS)}
    assert torch.equal(results["auto"], results[form])
    assert not torch.equal(results["gram"], results["factored"])  # else the line above says nothing


@pytest.mark.parametrize(
    ("K", "N", "dtype", "of_frames", "name"),
    [
        (5, 200, torch.float32, False, "cluster"),
        (5, 200, torch.float32, True, "cluster"),
        (5, 2000, torch.float32, False, "grid"),
        (5, 2000, torch.float32, True, "factored"),
        (25, 200, torch.float32, False, "triton"),
        (25, 2000, torch.float32, False, "factored"),
        (5, 200, torch.float64, False, "gram"),
    ],
)
def test_the_order_of_the_engines_on_a_gpu(K, N, dtype, of_frames, name, monkeypatch):
    """On a pretended GPU, with all kernels installed."""
    monkeypatch.setattr(scan_cluster, "available", lambda device: True)
    monkeypatch.setattr(scan_grid, "available", lambda device: True)
    monkeypatch.setattr(scan_grid, "_multiprocessors", lambda device: 132)
    monkeypatch.setattr(scan_triton, "find_spec", lambda name: name)
    with FakeTensorMode():
        x, W, alpha, h0 = (
            torch.empty(shape, dtype=dtype, device="cuda") for shape in ((32, 500, 257), (K, 257, N), (K, N), (32, N))
        )
        more = torch.empty(1, 32, 500, N, dtype=dtype, device="cuda") if of_frames else None
        problem = Problem(x, h0, W, alpha, alpha, more, residual_first_layer=True)
        assert module._choose(problem, "auto", module.ENGINES).name == name
        assert module._choose(problem, name, module.ENGINES).name == name


def test_keeps_less_than_half_of_what_autograd_keeps():
    def kept_bytes(function):
        kept = {}

        def pack(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        leaves = {name: value.requires_grad_(name != "x_BTF") for name, value in arguments.items()}
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            h = function(**leaves)  # noqa: F841 - alive while its graph is counted
            return sum(kept.values())

    arguments = problem(8, 200, 3, 20, 25)
    assert kept_bytes(scan) < kept_bytes(unfolded_ista) / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_BTF": torch.zeros(2, 3, 4)}, r"\(2, 3, 4\) and \(2, 5, 6\)"),
        ({"W_KFN": torch.zeros(0, 5, 6)}, r"W \(K, F, N\)"),
        ({"h0_BN": torch.zeros(6)}, r"h0 must be \(B, N\) = \(2, 6\), got \(6,\)"),
        ({"alpha_KN": torch.ones(2)}, "alpha must be"),
        ({"sparsity_KN": torch.ones(1, 6)}, "sparsity must be"),
        ({"h0_BN": torch.zeros(2, 6, dtype=torch.float64)}, "one dtype and one device.*float32.*float64"),
        ({"form": "fast"}, "form.*'fast'"),
        ({"form": "cluster"}, "'cluster' is for float32 on a GPU"),
        (
            {"sparsity_KBTN": torch.zeros(3, 2, 3, 6)},
            r"sparsity of frames must be .* = \(2, 2, 3, 6\), got \(3, 2, 3, 6\)",
        ),
        ({"sparsity_KBTN": torch.zeros(1, 2, 3, 6), "form": "grid"}, "'grid' is for .* one sparsity for all frames"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    arguments = {name: value.float() for name, value in problem(2, 3, 2, 6, 5).items()}
    with pytest.raises(InputError, match=message):
        scan(**{**arguments, **change})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("form", FORMS)
def test_a_cuda_graph_can_hold_it(form):
    arguments = {name: value.cuda().requires_grad_() for name, value in problem(3, 9, 2, 6, 5).items()}

    def step():
        h = scan(**arguments, form=form)
        return h, *torch.autograd.grad(h.square().sum(), list(arguments.values()))

    expected = [value.clone() for value in step()]
    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    graph.replay()
    for value, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(value, reference, rtol=1e-12, atol=1e-12)
