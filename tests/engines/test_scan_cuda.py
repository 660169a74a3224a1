"""The GPU kernels of `triton_kernels`, `scan_cluster` and `scan_grid` against the readable loop in double precision.

They need a GPU; with Triton installed, `TRITON_INTERPRET=1` runs the smaller sizes of its own on any machine, slowly.
"""

import os
import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton comes with PyTorch for CUDA")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not INTERPRETED and not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

from drnmf.engines import scan_cluster, scan_grid  # noqa: E402
from drnmf.engines.blocks import GramKernels  # noqa: E402
from drnmf.engines.problem import Layers, Problem  # noqa: E402
from drnmf.engines.scan import scan  # noqa: E402
from drnmf.engines.scan_triton import Triton  # noqa: E402
from drnmf.maths.thresholding import lipschitz, unfolded_ista  # noqa: E402

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
TOLERANCE = 1e-4
LEAVES = ("x", "W", "alpha", "sparsity", "h0")
ARGUMENTS = dict(zip(LEAVES, ("x_BTF", "W_KFN", "alpha_KN", "sparsity_KN", "h0_BN"), strict=True))
ARGUMENTS["of_frames"] = "sparsity_KBTN"
on_gpu = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
every_gram_kernel = pytest.mark.parametrize("form", ["triton", pytest.param("cluster", marks=on_gpu)])


def skip_if_too_large(form: str, K: int, N: int) -> None:
    if form == "cluster" and not scan_cluster._size(K, N, 4):
        pytest.skip("more than the shared memory of a cluster holds")


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    """The products around the kernels must not round to TF32: that alone costs more than the tolerance."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def sizes(n: int, seed: int) -> list[tuple[int, int, int, int]]:
    """Random (B, T, K, N), drawn evenly on a logarithmic scale; few steps in all, because the readable loop is slow."""
    draw = random.Random(seed)
    limits = (3, 6, 3, 512) if INTERPRETED else (256, 1000, 25, 512)
    found: list[tuple[int, int, int, int]] = []
    while len(found) < n:
        B, T, K = (round(limit ** draw.random()) for limit in limits[:3])
        if T * K <= 2000:
            found.append((B, T, K, round(8 * (limits[3] / 8) ** draw.random())))
    return found if INTERPRETED else [*found, (256, 20, 2, 200)]  # several sequences on a multiprocessor


def error(output: Tensor, reference: Tensor) -> float:
    return float((output.detach().double() - reference.detach()).norm() / reference.detach().norm())


def check(
    problem: dict[str, Tensor],
    *,
    form: str,
    dtype: torch.dtype = torch.float32,
    tolerance: float = TOLERANCE,
    **options: bool,
) -> None:
    """Values and all gradients of the kernels and of the readable loop."""
    generator = torch.Generator().manual_seed(0)
    dh = torch.randn(*problem["x"].shape[:2], problem["W"].shape[2], generator=generator).to(DEVICE)
    results = []
    dh = dh.to(dtype)
    for function, kind in ((scan, dtype), (unfolded_ista, torch.float64)):
        leaves = {name: value.to(DEVICE, kind).requires_grad_() for name, value in problem.items()}
        chosen = {"form": form} if function is scan else {}
        h = function(**{ARGUMENTS[name]: leaf for name, leaf in leaves.items()}, **options, **chosen)
        results.append([h, *torch.autograd.grad(h, [*leaves.values()], dh.to(kind))])
    errors = {name: error(*pair) for name, pair in zip(("h", *problem), zip(*results, strict=True), strict=True)}
    assert all(value < tolerance for value in errors.values()), errors  # NaN fails too


def spectra(B: int, T: int, K: int, N: int, F: int = 33, *, per_atom: bool = False) -> dict[str, Tensor]:
    """Nonnegative frames and dictionaries as the network has them; the atoms of a frame are active or not by chance."""
    generator = torch.Generator().manual_seed(B + T + K + N)
    W = torch.rand(K, F, N, generator=generator) ** 4
    W /= W.norm(dim=1, keepdim=True)
    width = N if per_atom else 1
    alpha = torch.tensor([[lipschitz(W_k)] for W_k in W]) * (1 + 0.2 * torch.rand(K, width, generator=generator))
    return {
        "x": 3 * torch.rand(B, T, F, generator=generator),
        "W": W,
        "alpha": alpha,
        "sparsity": 0.1 + torch.rand(K, width, generator=generator),
        "h0": torch.rand(B, N, generator=generator),
    }


def far_from_the_kink(B: int, T: int, K: int, N: int) -> dict[str, Tensor]:
    """Random activity, one atom in three, that no rounding can change.

    The gradient jumps where a = 0. Among millions of values one is so close to 0 that single precision lands on the
    other side, whatever computes it. Here dictionaries are nearly orthogonal, so a = 0.2 s + b with b near +3 or -3.
    """
    generator = torch.Generator().manual_seed(B + T + K + N)
    F = N + 3
    basis, _ = torch.linalg.qr(torch.randn(F, N, generator=generator))
    b = torch.where(torch.rand(B, T, N, generator=generator) < 1 / 3, 4.0, -4.0)
    return {
        "x": b @ basis.mT,
        "W": basis + 0.05 / F**0.5 * torch.randn(K, F, N, generator=generator),
        "alpha": 1.2 + 0.1 * torch.rand(K, N, generator=generator),
        "sparsity": 0.2 * torch.rand(K, N, generator=generator),
        "h0": torch.rand(B, N, generator=generator),
    }


@pytest.mark.parametrize(("B", "T", "K", "N"), sizes(5 if INTERPRETED else 16, seed=1))
@every_gram_kernel
def test_values_and_gradients_over_sizes(form: str, B: int, T: int, K: int, N: int) -> None:
    skip_if_too_large(form, K, N)
    check(far_from_the_kink(B, T, K, N), form=form)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("warm_start", [True, False])
@every_gram_kernel
def test_a_sparsity_for_every_frame(form: str, warm_start: bool, layers: int) -> None:
    problem = far_from_the_kink(3, 7, 3, 40)
    problem["of_frames"] = 0.2 * torch.rand(layers, 3, 7, 40, generator=torch.Generator().manual_seed(1))
    check(problem, form=form, warm_start=warm_start)


@on_gpu
@pytest.mark.parametrize(("B", "T", "K", "N"), [(1, 40, 3, 300), (33, 9, 2, 513), (7, 20, 1, 900), (16, 30, 3, 350)])
def test_values_and_gradients_on_the_whole_grid(B: int, T: int, K: int, N: int) -> None:
    for residual_first_layer in (True, False):
        check(far_from_the_kink(B, T, K, N), form="grid", residual_first_layer=residual_first_layer)


@on_gpu
@pytest.mark.parametrize(("B", "T", "K", "N"), [(2, 3, 25, 600), (3, 5, 25, 150), (256, 2, 3, 700), (1, 1000, 2, 300)])
def test_other_sizes_as_they_are_chosen(B: int, T: int, K: int, N: int) -> None:
    check(far_from_the_kink(B, T, K, N), form="auto")


@on_gpu
@pytest.mark.parametrize(
    ("B", "T", "K", "N"), [(32, 40, 5, 2000), (256, 3, 2, 2000), (7, 20, 2, 2048), (21, 6, 3, 300)]
)
def test_the_grid_takes_every_step_and_writes_nothing_else(B: int, T: int, K: int, N: int) -> None:
    """With the kernel's own activity: among so many values, rounding puts some on the other side of the kink."""
    problem = {name: value.to(DEVICE) for name, value in spectra(B, T, K, N, 257, per_atom=True).items()}
    W, alpha, x = problem["W"], problem["alpha"], problem["x"].transpose(0, 1)
    layers = Layers.of(Problem(problem["x"], problem["h0"], W, alpha, problem["sparsity"], None, True), gram=False)
    threshold = layers.threshold_KN
    H = torch.full((K, T + 2, B, N), torch.nan, device=DEVICE)
    G = H.clone()
    H[-1, 0] = problem["h0"]
    G[-1, 1:-1] = torch.randn(T, B, N, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    dh, exact, scaled = G[-1, 1:-1].double(), W.double(), W.double() / alpha.double()[:, None]
    e, q = (torch.full((K, T, B, width), torch.nan, device=DEVICE) for width in (258, 257))
    scan_grid.steps_(H[:, :-1], H[:, :-1], x, layers, e)
    scan_grid.steps_(G[:, :-1], H[:, :-1], None, layers, q)
    expected_H, expected_G = H[:, 1:-1].double(), G[:, 1:-1].double()
    expected_e, expected_q = torch.empty_like(q, dtype=torch.float64), torch.empty_like(q, dtype=torch.float64)
    state, gradient = H[-1, 0].double(), torch.zeros(B, N, device=DEVICE, dtype=torch.float64)
    for t in range(T):
        for k in range(K):
            expected_e[k, t] = x[t] - state @ exact[k].mT
            expected_H[k, t] = state = torch.relu(state - threshold[k] + expected_e[k, t] @ scaled[k])
    for t in reversed(range(T)):
        gradient = gradient + dh[t]
        for k in reversed(range(K)):
            expected_G[k, t] = gradient = torch.where(H[k, 1 + t] > 0, gradient, 0)
            expected_q[k, t] = gradient @ scaled[k].mT
            gradient = gradient - expected_q[k, t] @ exact[k]
    assert error(H[:, 1:-1], expected_H) < TOLERANCE
    assert error(G[:, 1:-1], expected_G) < TOLERANCE
    assert error(G[-1, 0], gradient) < TOLERANCE
    assert error(e[..., :257], expected_e) < TOLERANCE
    assert error(q, expected_q) < TOLERANCE
    assert e[..., 257].isnan().all()
    for rows in (H, G):
        assert rows[:, -1].isnan().all()
        assert rows[:-1, 0].isnan().all()


@on_gpu
@pytest.mark.parametrize("N", [40, 200, 1000])
def test_bfloat16(N: int) -> None:
    problem = {name: value.bfloat16() for name, value in far_from_the_kink(4, 30, 1 if N > 500 else 3, N).items()}
    check(problem, form="auto", dtype=torch.bfloat16, tolerance=1e-2)


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("residual_first_layer", [True, False])
@pytest.mark.parametrize("per_atom", [True, False])
@every_gram_kernel
def test_values_and_gradients_with_every_option(
    form: str, per_atom: bool, residual_first_layer: bool, warm_start: bool
) -> None:
    problem = spectra(3, 5, 3, 40, per_atom=per_atom)
    check(problem, form=form, residual_first_layer=residual_first_layer, warm_start=warm_start)


@pytest.mark.parametrize("N", [8, 9, 31, 64, 130, 200, 257, 512])
@every_gram_kernel
def test_sizes_that_fill_the_tiles_and_sizes_that_do_not(form: str, N: int) -> None:
    skip_if_too_large(form, 2, N)
    check(spectra(2, 3, 2, N), form=form)


@every_gram_kernel
def test_an_empty_batch_and_no_frames(form: str) -> None:
    for B, T in ((0, 3), (2, 0)):
        problem = {name: value.to(DEVICE) for name, value in spectra(2, 3, 2, 16).items()}
        named = {"alpha_KN": problem["alpha"], "sparsity_KN": problem["sparsity"], "h0_BN": problem["h0"][:B]}
        assert scan(problem["x"][:B, :T], problem["W"], **named, form=form).shape == (B, T, 16)


@pytest.mark.parametrize(("B", "T", "K", "N"), sizes(5 if INTERPRETED else 16, seed=2))
@pytest.mark.parametrize("engine", [Triton(), pytest.param(scan_cluster.Cluster(), marks=on_gpu)])
def test_kernels_alone_write_every_row_and_nothing_else(engine: GramKernels, B: int, T: int, K: int, N: int) -> None:
    skip_if_too_large(engine.name, K, N)
    generator = torch.Generator().manual_seed(B + T + K + N)
    A = (0.5 * torch.eye(N) + 0.3 * torch.randn(K, N, N, generator=generator) / N**0.5).to(DEVICE)
    b = torch.randn(K, T, B, N, generator=generator).to(DEVICE)
    dh = torch.randn(T, B, N, generator=generator).to(DEVICE)
    # A block of a larger tensor of NaN: what is read or written where it should not be, shows.
    H = torch.full((K, T + 2, B, N), torch.nan, device=DEVICE)
    G = H.clone()
    H[-1, 0] = b[0, 0].relu()
    H[:, 1:-1] = b
    G[-1, 1:-1] = dh
    state, gradient = H[-1, 0].double(), torch.zeros(B, N, device=DEVICE, dtype=torch.float64)
    engine.steps_(H[:, :-1], H[:, :-1], A, backward=False)
    engine.steps_(G[:, :-1], H[:, :-1], A, backward=True)
    expected_H, expected_G = torch.empty_like(b, dtype=torch.float64), torch.empty_like(b, dtype=torch.float64)
    for t in range(T):
        for k in range(K):
            expected_H[k, t] = state = torch.relu(state @ A[k].double() + b[k, t])
    for t in reversed(range(T)):
        gradient = gradient + dh[t]
        for k in reversed(range(K)):
            expected_G[k, t] = gradient = torch.where(H[k, 1 + t] > 0, gradient, 0)  # the kernel's own activity
            gradient = gradient @ A[k].double().mT
    assert error(H[:, 1:-1], expected_H) < TOLERANCE
    assert error(G[:, 1:-1], expected_G) < TOLERANCE
    assert error(G[-1, 0], gradient) < TOLERANCE
    assert H[:, -1].isnan().all()
    assert G[:, -1].isnan().all()
    assert H[:-1, 0].isnan().all()
    assert G[:-1, 0].isnan().all()


@every_gram_kernel
def test_what_is_not_a_number_stays_in_its_sequence_and_shows(form: str) -> None:
    problem = {name: value.to(DEVICE) for name, value in spectra(3, 4, 2, 20).items()}
    problem["x"][1, 2, 5] = torch.nan
    named = {"alpha_KN": problem["alpha"], "sparsity_KN": problem["sparsity"], "h0_BN": problem["h0"]}
    h = scan(problem["x"], problem["W"], **named, form=form)
    assert h[1, 2:].isnan().all()
    assert not h[1, :2].isnan().any()
    assert not h[[0, 2]].isnan().any()


@on_gpu
@pytest.mark.parametrize(("form", "N"), [("cluster", 200), ("grid", 2000)])
def test_chosen_by_itself_and_the_same_every_time(form: str, N: int) -> None:
    problem = {name: value.to(DEVICE) for name, value in spectra(8, 50, 2, N).items()}
    named = {"alpha_KN": problem["alpha"], "sparsity_KN": problem["sparsity"], "h0_BN": problem["h0"]}
    runs = [scan(problem["x"], problem["W"], **named, form=chosen) for chosen in (form, form, "auto")]
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


@on_gpu
@pytest.mark.parametrize(("form", "N"), [("triton", 40), ("cluster", 40), ("grid", 300)])
def test_replayed_from_a_cuda_graph(form: str, N: int) -> None:
    problem = {name: value.to(DEVICE).requires_grad_() for name, value in spectra(4, 20, 2, N).items()}
    leaves = [problem[name] for name in LEAVES]

    def step() -> list[Tensor]:
        named = {"alpha_KN": problem["alpha"], "sparsity_KN": problem["sparsity"], "h0_BN": problem["h0"]}
        h = scan(problem["x"], problem["W"], **named, form=form)
        return [h, *torch.autograd.grad(h.square().sum(), leaves)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()  # compiles
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        problem["x"].copy_(torch.rand_like(problem["x"]))
    graph.replay()
    for replayed, direct in zip(captured, step(), strict=True):
        torch.testing.assert_close(replayed, direct, rtol=1e-5, atol=1e-5)
