"""The GRU on clusters against `torch.nn.GRU` in double precision.

Its kernels need a GPU from Hopper on. What is around them is tested on any machine: PyTorch plays the kernels.
"""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from drnmf.engines import gru_cluster
from drnmf.engines.cuda_kernel import SHARED, available
from drnmf.engines.gru_cluster import gru
from drnmf.models.prior_drnmf import PriorDRNMF

HOPPER = torch.cuda.is_available() and available(torch.device("cuda"))
on_hopper = pytest.mark.skipif(not HOPPER, reason="needs a GPU from Hopper on")
NAMES = ("c", "g", "c0", "weight_ih", "weight_hh", "bias_ih", "bias_hh")
TOLERANCE = 1e-5

UNITS, BATCHES = (32, 40, 100, 256, 384), (1, 3, 5, 31, 32, 33, 70)
LENGTHS = itertools.cycle((1, 7, 200, 2, 7))  # of another period than the batches, as the inputs
INPUTS = itertools.cycle((5, 200))
SIZES = [(B, next(LENGTHS), next(INPUTS), U) for U in UNITS for B in BATCHES]


def steps_forward_(c: Tensor, gates: Tensor, heard: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> None:
    for t in range(len(heard)):
        heard_r, heard_z, heard_n = heard[t].chunk(3, -1)
        r, z, m = (c[t] @ weight_hh.mT + bias_hh).chunk(3, -1)
        r, z = torch.sigmoid(heard_r + r), torch.sigmoid(heard_z + z)
        n = torch.tanh(heard_n + r * m)
        c[t + 1] = (1 - z) * n + z * c[t]
        if len(gates):
            gates[t] = torch.stack([r, z, n, m], 1)


def steps_backward(weight_hh: Tensor, c: Tensor, gates: Tensor, dc: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    carried = torch.zeros_like(c[0])
    heard, remembered = [], []
    for t in reversed(range(len(dc))):
        (r, z, n, m), d = gates[t].unbind(1), dc[t] + carried
        dn, dz = d * (1 - z) * (1 - n**2), d * (c[t] - n) * z * (1 - z)
        dr = dn * m * r * (1 - r)
        heard.append(torch.cat([dr, dz, dn], -1))
        remembered.append(torch.cat([dr, dz, dn * r], -1))
        carried = d * z + remembered[-1] @ weight_hh
    return torch.stack(heard[::-1]), torch.stack(remembered[::-1]), carried


@pytest.fixture
def played(monkeypatch) -> None:
    """PyTorch plays the kernels."""
    monkeypatch.setattr(gru_cluster, "steps_forward_", steps_forward_)
    monkeypatch.setattr(gru_cluster, "steps_backward", steps_backward)


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    """The products around the kernels must not round to TF32: that alone costs more than the tolerance."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def problem(B: int, T: int, N: int, U: int) -> list[Tensor]:
    """The arguments of `gru`, in double precision, with weights large enough to saturate some gates."""
    generator = torch.Generator().manual_seed(B + T + N + U)
    sizes = ((B, T, N), (B, U), (3 * U, N), (3 * U, U), (3 * U,), (3 * U,))
    scales = (1, 0.5, N**-0.5, U**-0.5, 1, 1)
    return [
        scale * torch.randn(size, generator=generator, dtype=torch.float64)
        for size, scale in zip(sizes, scales, strict=True)
    ]


def expected(g: Tensor, c0: Tensor, *weights: Tensor) -> Tensor:
    model = nn.GRU(g.shape[2], c0.shape[1], batch_first=True, dtype=torch.float64)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (g, c0[None]))[0]


def values_and_gradients(function, arguments: list[Tensor]) -> list[Tensor]:
    leaves = [argument.detach().requires_grad_() for argument in arguments]
    c = function(*leaves)
    dc = torch.randn(c.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(c)
    return [c.detach(), *torch.autograd.grad(c, leaves, dc)]


def assert_same(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    errors = {
        name: float((a.cpu().double() - b).norm() / b.norm()) for name, a, b in zip(NAMES, found, wanted, strict=True)
    }
    assert all(value < tolerance for value in errors.values()), errors  # NaN fails too


def on_gpu(arguments: list[Tensor]) -> list[Tensor]:
    return [argument.to("cuda", torch.float32) for argument in arguments]


@pytest.mark.parametrize(("B", "T", "N", "U"), [(1, 1, 1, 1), (3, 7, 5, 4), (2, 12, 3, 9)])
def test_the_equations(played, B, T, N, U):
    arguments = problem(B, T, N, U)
    assert_same(values_and_gradients(gru, arguments), values_and_gradients(expected, arguments), 1e-12)


def test_without_gradients_nothing_is_kept(played, monkeypatch):
    kept = []
    monkeypatch.setattr(gru_cluster, "steps_forward_", lambda c, gates, *_: kept.append(gates.numel()))
    arguments = problem(2, 3, 4, 5)
    gru(*arguments)
    gru(arguments[0].requires_grad_(), *arguments[1:])
    assert kept == [0, 2 * 3 * 4 * 5]


def test_only_the_gradients_that_are_needed(played):
    arguments = problem(2, 3, 4, 5)
    wanted = values_and_gradients(expected, arguments)
    for i, leaf in enumerate(arguments):
        some = [*arguments[:i], leaf.detach().requires_grad_(), *arguments[i + 1 :]]
        gru(*some).backward(torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
        torch.testing.assert_close(some[i].grad, wanted[1 + i])


def test_the_model_has_the_same_gradients_with_it(played, monkeypatch):
    model = PriorDRNMF(n_layers=2, n_atoms=6, n_units=5, n_features=9, generator=torch.Generator().manual_seed(0))
    model = model.double()
    with torch.no_grad():
        model.to_sparsity.weight.normal_(generator=torch.Generator().manual_seed(1))
    magnitude = torch.rand(2, 7, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found, calls = [], []
    for engine in (False, True):
        monkeypatch.setattr(gru_cluster, "usable", lambda *sizes, engine=engine: calls.append(sizes) or engine)
        first, state = model.separate(magnitude[:, :4])
        second, state = model.separate(magnitude[:, 4:], state)
        mask = torch.cat([first, second], 1)
        found.append([mask, *state, *torch.autograd.grad(mask.square().sum(), [*model.gru.parameters()])])
    assert [n_units for _, n_units in calls] == [5] * 4
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_other_tensors_are_not_for_it():
    assert not gru_cluster.usable(torch.zeros(2, 3, 4), 256)


@pytest.mark.parametrize("backward", [False, True])
def test_every_size_fits(backward):
    for U in range(1, gru_cluster.MOST_UNITS + 1):
        for B in (1, 14, 32, 64, 500):
            size = gru_cluster._size(U, B, backward=backward)
            assert size.cluster * size.units >= U
            assert size.threads == 8 * size.units <= 384  # the registers of more would be too few
            assert size.shared <= SHARED


@on_hopper
@pytest.mark.parametrize(("B", "T", "N", "U"), [*SIZES, (32, 500, 200, 256), (200, 3, 5, 256), (300, 3, 5, 300)])
def test_values_and_gradients(B, T, N, U):
    arguments = problem(B, T, N, U)
    assert gru_cluster.usable(on_gpu(arguments[:1])[0], U)
    assert_same(values_and_gradients(gru, on_gpu(arguments)), values_and_gradients(expected, arguments), TOLERANCE)


@on_hopper
def test_tensors_that_are_not_contiguous():
    arguments = problem(5, 7, 6, 40)
    strided = [a.mT.contiguous().mT if a.ndim > 1 else a.repeat_interleave(2)[::2] for a in on_gpu(arguments)]
    assert not any(argument.is_contiguous() for argument in strided)

    def with_strided_gradient(*leaves: Tensor) -> Tensor:
        return gru(*leaves).mT.contiguous().mT

    wanted = values_and_gradients(expected, arguments)
    assert_same(values_and_gradients(with_strided_gradient, strided), wanted, TOLERANCE)


@on_hopper
@pytest.mark.parametrize("B", [5, 33, 70])
def test_the_kernel_writes_every_row_and_nothing_else(B):
    g, c0, weight_ih, weight_hh, bias_ih, bias_hh = on_gpu(problem(B, 9, 5, 100))
    c = torch.full((12, B, 100), torch.nan, device="cuda")
    gates = torch.full((11, B, 4, 100), torch.nan, device="cuda")
    c[1] = c0
    heard = (g @ weight_ih.mT + bias_ih).transpose(0, 1).contiguous()
    gru_cluster.steps_forward_(c[1:-1], gates[1:-1], heard, weight_hh, bias_hh)
    assert not c[1:-1].isnan().any()
    assert not gates[1:-1].isnan().any()
    for outside in (c[0], c[-1], gates[0], gates[-1]):
        assert outside.isnan().all()


@on_hopper
def test_what_is_not_a_number_stays_in_its_sequence_and_shows():
    arguments = on_gpu(problem(3, 6, 5, 40))
    arguments[0][1, 2, 3] = torch.nan
    c, dg, *_ = values_and_gradients(gru, arguments)
    assert c[1, 2:].isnan().all()
    assert not c[1, :2].isnan().any()
    assert not c[[0, 2]].isnan().any()
    assert dg[1].isnan().all()
    assert not dg[[0, 2]].isnan().any()


@on_hopper
def test_the_same_every_time_and_without_gradients():
    arguments = on_gpu(problem(32, 50, 20, 256))
    first, second = (values_and_gradients(gru, arguments) for _ in range(2))
    assert torch.equal(first[0], gru(*arguments))
    for name, a, b in zip(NAMES, first, second, strict=True):
        assert torch.equal(a, b), name


@on_hopper
def test_autocast_does_not_round_the_steps():
    arguments = on_gpu(problem(4, 9, 5, 64))
    with torch.autocast("cuda", torch.bfloat16):
        found = values_and_gradients(gru, arguments)
    for a, b in zip(found, values_and_gradients(gru, arguments), strict=True):
        assert torch.equal(a, b)


@on_hopper
def test_replayed_from_a_cuda_graph():
    leaves = [argument.requires_grad_() for argument in on_gpu(problem(4, 20, 30, 256))]

    def step() -> list[Tensor]:
        c = gru(*leaves)
        return [c, *torch.autograd.grad(c.square().sum(), leaves)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()  # compiles
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        leaves[0].copy_(torch.randn_like(leaves[0]))
    graph.replay()
    for replayed, direct in zip(captured, step(), strict=True):
        torch.testing.assert_close(replayed, direct, rtol=1e-5, atol=1e-5)
