import itertools

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call

from drnmf import (
    DRNMF,
    InputError,
    Streamer,
    fista,
    istft,
    lipschitz,
    load_model,
    save_model,
    stft,
    warm_start_ista,
)
from drnmf.maths.nmf import unit_norm
from drnmf.pictures import show
from drnmf.signal.level import running_level
from drnmf.use import export
from examples import dictionary, noisy, recording, seeded

N = 12
OPTIONS = [
    {},
    {"first_layer": "original"},
    {"reconstruction": "separate"},
    {"alpha_per": "atom"},
    {"sparsity_per": "atom"},
    {"sparsity_per": "atom", "train_sparsity": True},
    {"power": 0.5},
    {"warm_start": False},
    {"warm_start": False, "first_layer": "original"},
    {"tied": True},
    {"tied": True, "first_layer": "original", "alpha_per": "atom"},
    {
        "alpha_per": "atom",
        "sparsity_per": "atom",
        "power": 0.3,
        "reconstruction": "separate",
        "first_layer": "original",
    },
]


def sequences() -> torch.Tensor:
    return noisy()[20:80].view(2, 30, -1)


def shaken(model: DRNMF) -> DRNMF:
    """The model after its weights moved, every one differently."""
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            weight += 0.3 * torch.randn(weight.shape, generator=seeded(), dtype=weight.dtype)
            if name == "log_h0":
                weight.clamp_min_(-1)
    return model


def numpy_network(model: DRNMF, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Activations and mask of one sequence (T, F): section 4 of the paper in loops, from the raw weights."""
    weights = {name: np.exp(weight.numpy()) for name, weight in model.state_dict().items()}
    W = weights["log_W"] / np.sqrt((weights["log_W"] ** 2).sum(1, keepdims=True))
    R = weights.get("log_reconstruction", W[-1])
    alpha, lam, h0 = weights["log_alpha"], weights["log_sparsity"], weights["log_h0"]
    options, h, activations = model.config, h0, []
    W = W.repeat(options["n_layers"], 0) if options["tied"] else W
    for x_t in x ** options["power"]:
        h = h if options["warm_start"] else h0
        for k in range(options["n_layers"]):
            explained = 0 if k == 0 and options["first_layer"] == "original" else W[k].T @ (W[k] @ h)
            h = np.maximum(h + (W[k].T @ x_t - explained - lam[k]) / alpha[k], 0)
        activations.append(h)
    h, n = np.stack(activations), options["n_speech"]
    speech, noise = h[:, :n] @ R[:, :n].T, h[:, n:] @ R[:, n:].T
    return h, speech / np.maximum(speech + noise, 1e-5)


@pytest.mark.parametrize("n_layers", [1, 2, 5])
@pytest.mark.parametrize("alpha", [None, 20.0])
@pytest.mark.parametrize("alpha_range", ["free", "weighted"])
def test_before_training_it_is_warm_start_ista(n_layers, alpha, alpha_range):
    x, W = sequences(), dictionary()
    h0 = torch.rand(N, generator=seeded(), dtype=W.dtype)
    model = DRNMF.from_dictionary(W, n_layers, alpha=alpha, h0=h0, sparsity=0.7, alpha_range=alpha_range)
    h = warm_start_ista(x, W, n_iter=n_layers, alpha=alpha, sparsity=0.7, h0=h0.expand(2, -1))
    torch.testing.assert_close(model.activations(x)[0], h, rtol=0, atol=1e-10)
    speech, noise = h[..., :6] @ W[:, :6].mT, h[..., 6:] @ W[:, 6:].mT
    torch.testing.assert_close(model(x)[0], speech / (speech + noise).clamp_min(1e-5), rtol=0, atol=1e-10)


def test_by_default_it_is_warm_start_ista_with_the_papers_settings():
    x, W = sequences(), dictionary()
    expected = warm_start_ista(x, W, n_iter=5, alpha=lipschitz(W), sparsity=1.0)
    torch.testing.assert_close(DRNMF.from_dictionary(W, 5).activations(x)[0], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("n_layers", "n_atoms", "count"), [(2, 200, 103_002), (5, 200, 257_205), (2, 2000, 1_030_002), (5, 2000, 2_572_005)]
)
def test_the_papers_parameter_counts(n_layers, n_atoms, count):
    model = DRNMF(n_layers=n_layers, n_atoms=n_atoms, generator=seeded())
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == count


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, 0),
        ({"alpha_per": "atom"}, 2 * (N - 1)),
        ({"sparsity_per": "atom"}, 0),
        ({"train_sparsity": True}, 2),
        ({"train_sparsity": True, "sparsity_per": "atom"}, 2 * N),
        ({"reconstruction": "separate"}, 257 * N),
        ({"first_layer": "original", "power": 0.5, "warm_start": False}, 0),
        ({"tied": True}, -257 * N),
        ({"alpha_range": "weighted"}, 2 * N),
    ],
)
def test_what_the_options_add_to_the_parameters(options, more):
    model = DRNMF.from_dictionary(dictionary(), 2, **options)
    assert sum(p.numel() for p in model.parameters()) == 2 * 257 * N + 2 + N + more


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("n_layers", [1, 3])
def test_with_any_weights_it_is_the_papers_network(options, n_layers):
    model = shaken(DRNMF.from_dictionary(dictionary(), n_layers, n_speech=5, sparsity=0.2, **options))
    for x in sequences():
        h, mask = numpy_network(model, x.numpy())
        assert (h > 0).mean() > 0.05  # something to compare
        torch.testing.assert_close(model.activations(x[None])[0][0], torch.from_numpy(h), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(model(x[None])[0][0], torch.from_numpy(mask), rtol=0, atol=1e-9)


def test_the_original_first_layer_lacks_exactly_one_term():
    x, W = 5 + sequences()[:, :1], dictionary()
    h0 = torch.rand(N, generator=seeded(), dtype=W.dtype)
    paper, original = (
        DRNMF.from_dictionary(W, 1, h0=h0, first_layer=f).activations(x)[0] for f in ("paper", "original")
    )
    assert (paper > 0).all()  # nothing is cut off
    torch.testing.assert_close(original - paper, (W.mT @ W @ h0 / lipschitz(W)).expand(2, 1, N))


def test_power_is_applied_to_the_magnitudes_alone():
    x, W = sequences(), dictionary()
    plain, powered = (DRNMF.from_dictionary(W, 2, power=p) for p in (1.0, 0.5))
    torch.testing.assert_close(powered(x), plain(x**0.5))


def test_cold_start_has_no_memory():
    x, model = sequences(), DRNMF.from_dictionary(dictionary(), 2, warm_start=False)
    mask, state = model(x)
    order = torch.randperm(x.shape[1], generator=seeded())
    torch.testing.assert_close(model(x[:, order], state)[0], mask[:, order])


def test_a_separate_reconstruction_starts_as_the_shared_one_and_goes_its_own_way():
    x = sequences()
    shared, separate = (DRNMF.from_dictionary(dictionary(), 2, reconstruction=r) for r in ("shared", "separate"))
    torch.testing.assert_close(shared(x)[0], separate(x)[0], rtol=0, atol=1e-10)
    before = separate(x)[0], separate.activations(x)[0]
    with torch.no_grad():
        separate.log_reconstruction[:, :6] += 1
    torch.testing.assert_close(separate.reconstruction()[:, :6].norm(dim=0), torch.full((6,), np.e).double())
    assert (separate(x)[0] >= before[0]).all()
    torch.testing.assert_close(separate.activations(x)[0], before[1], rtol=0, atol=0)


def test_random_dictionaries_come_from_the_generator():
    first, again, other = (DRNMF(n_layers=2, n_atoms=6, generator=seeded(s)) for s in (1, 1, 2))
    assert torch.equal(first.log_W, again.log_W)
    assert not torch.equal(first.log_W, other.log_W)
    torch.testing.assert_close(first.dictionaries().norm(dim=1), torch.ones(2, 6))
    torch.testing.assert_close(first.alpha(), torch.full((2, 1), lipschitz(first.dictionaries()[0].detach())))


def test_the_scale_of_a_columns_weights_does_not_matter_however_large():
    x, model = sequences(), DRNMF.from_dictionary(dictionary(), 2)
    mask = model(x)[0]
    with torch.no_grad():
        model.log_W += torch.linspace(-900, 900, N)  # exp of these over- and underflows
    torch.testing.assert_close(model(x)[0], mask, rtol=0, atol=1e-9)


def expansion(model: DRNMF, x: torch.Tensor, seed: int) -> float:
    """By how much one layer enlarges the distance of two states, measured with its alphas."""
    h = torch.rand(2, 2, model.config["n_atoms"], generator=seeded(seed), dtype=x.dtype)
    weight = model.alpha()[0].sqrt().detach()  # with one alpha for all atoms: the Euclidean distance
    after = [model.activations(x, (state,))[0][:, 0].detach() for state in h]
    before, after = (float(((a - b) * weight).norm()) for a, b in (h, after))
    return after / before


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([0.1, 1.0, 10.0, 100.0]),
    weight=st.sampled_from([0.1, 3.0, 100.0]),
    shift=st.floats(-1000, 10),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**16),
)
def test_no_weights_take_a_weighted_alpha_out_of_the_stable_region(size, weight, shift, dtype, seed):
    model = DRNMF(n_layers=1, n_features=7, n_atoms=6, alpha_per="atom", alpha_range="weighted", generator=seeded())
    with torch.no_grad():
        model.to(dtype).log_W += size * torch.randn(model.log_W.shape, generator=seeded(seed), dtype=dtype)
        model.log_weight += weight * torch.randn(model.log_weight.shape, generator=seeded(seed + 1), dtype=dtype)
        model.log_alpha += shift
    x = torch.rand(2, 1, 7, generator=seeded(seed), dtype=dtype)
    assert expansion(model, x, seed) <= 1 + 1e-4


@pytest.mark.parametrize("shape", [(9, 4), (9, 9), (5, 30)])  # more features than atoms, as many, fewer
def test_all_weighted_steps_start_at_the_lipschitz_constant(shape):
    W = torch.rand(*shape, generator=seeded(), dtype=torch.float64)
    W /= W.norm(dim=0)
    alpha = DRNMF.from_dictionary(W, 2, alpha_per="atom", alpha_range="weighted").alpha()
    torch.testing.assert_close(alpha, torch.full_like(alpha, lipschitz(W)), rtol=1e-10, atol=0)


def test_weighted_steps_of_some_atoms_can_be_longer_than_one_step_for_all():
    W = dictionary()
    model = DRNMF.from_dictionary(W, 1, alpha_per="atom", alpha_range="weighted")
    with torch.no_grad():
        model.log_alpha.fill_(-10)
        model.log_weight[:, 6:] -= 10
    speech, noise = model.alpha()[0, :6], model.alpha()[0, 6:]
    assert speech.max() < 0.9 * lipschitz(W) / 2 < noise.min()


def test_a_free_alpha_can_leave_the_stable_region_and_a_weighted_one_cannot():
    x, W = noisy()[60:61], dictionary()
    optimum = fista(x, W, n_iter=3000)
    distance = {}
    for alpha_range in ("free", "weighted"):
        model = DRNMF.from_dictionary(W, 3, alpha_range=alpha_range)
        with torch.no_grad():
            model.log_alpha -= 3
            h = model.activations(x.expand(1, 500, -1))[0][:, -1]  # the same frame over and over
        distance[alpha_range] = float((h - optimum).norm() / optimum.norm())
    assert distance["weighted"] < 1e-3
    assert distance["free"] > 0.5


@pytest.mark.parametrize(("alpha_per", "sparsity_per"), [*itertools.product(("layer", "atom"), repeat=2)])
def test_shapes_of_alpha_and_lambda(alpha_per, sparsity_per):
    model = DRNMF.from_dictionary(
        dictionary(), 3, alpha=25.0, sparsity=0.4, alpha_per=alpha_per, sparsity_per=sparsity_per
    )
    columns = {"layer": 1, "atom": N}
    torch.testing.assert_close(model.alpha(), torch.full((3, columns[alpha_per]), 25.0, dtype=torch.float64))
    torch.testing.assert_close(model.sparsity(), torch.full((3, columns[sparsity_per]), 0.4, dtype=torch.float64))


def test_an_alpha_that_cannot_be_stable_warns_or_is_refused():
    W = dictionary()
    with pytest.warns(RuntimeWarning, match="oscillates"):
        DRNMF.from_dictionary(W, 2, alpha=0.4 * lipschitz(W))
    with pytest.warns(RuntimeWarning), pytest.raises(InputError, match="a weighted alpha lies above"):
        DRNMF.from_dictionary(W, 2, alpha=0.4 * lipschitz(W), alpha_range="weighted")


def test_the_dictionary_is_scaled_to_unit_norm():
    model = DRNMF.from_dictionary(3 * dictionary(), 2)
    torch.testing.assert_close(model.dictionaries()[0], unit_norm(dictionary()), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_layers": 0}, "n_layers must be at least 1, got 0"),
        ({"n_atoms": 0}, "of 0 atoms"),
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_speech": 4}, "of 4 atoms at least one must be speech and one noise, got 4"),
        ({"power": 0.0}, "power must be positive, got 0"),
        ({"sparsity": -0.1}, "sparsity must not be negative, got -0.1"),
        ({"alpha_per": "frame"}, "alpha_per must be one of layer, atom, got 'frame'"),
        ({"sparsity_per": "frame"}, "sparsity_per must be one of layer, atom"),
        ({"alpha_range": "any"}, "alpha_range must be one of free, weighted"),
        ({"first_layer": "last"}, "first_layer must be one of paper, original"),
        ({"reconstruction": "none"}, "reconstruction must be one of shared, separate"),
    ],
)
def test_options_that_make_no_network(options, message):
    with pytest.raises(InputError, match=message):
        DRNMF(**{"n_layers": 2, "n_atoms": 4, "n_features": 5, **options})


@pytest.mark.parametrize("h0", [torch.zeros(N - 1), -torch.ones(N), torch.full((N,), float("nan"))])
def test_a_start_that_does_not_fit(h0):
    with pytest.raises(InputError, match="h0 must hold 12 activations, none negative or NaN"):
        DRNMF.from_dictionary(dictionary(), 2, h0=h0)


def test_a_frozen_copy_gives_the_same_and_stays_as_it_is():
    model = DRNMF.from_dictionary(dictionary().float(), 2, alpha_range="weighted", reconstruction="separate")
    x = noisy()[None].float()
    frozen = model.freeze()
    before, _ = frozen(x)
    torch.testing.assert_close(before, model(x)[0], rtol=0, atol=1e-5)  # its weights are rounded once, and better
    assert not before.requires_grad
    with torch.no_grad():
        model.log_W += 1e-2 * torch.randn(model.log_W.shape, generator=seeded())
    assert not torch.equal(model(x)[0], before)
    assert torch.equal(frozen(x)[0], before)


VARIANTS = [
    {"tied": True},
    {"tied": True, "first_layer": "original", "reconstruction": "separate"},
    {"warm_start": False, "power": 0.5},
    {"level": 1.5, "power": 0.5},
    {"level": 0.3, "warm_start": False},
]
every_variant = pytest.mark.parametrize("options", VARIANTS, ids=lambda options: "-".join(options))


def variant(options: dict[str, object], n_layers: int = 4) -> DRNMF:
    return shaken(DRNMF.from_dictionary(dictionary(), n_layers, sparsity=0.2, alpha_range="weighted", **options))


@pytest.mark.parametrize("gain", [1e-2, 30.0])
def test_with_a_level_the_mask_does_not_depend_on_how_loud_the_sound_is(gain):
    x = sequences() + 0.01  # above silence, below which there is no level
    model = variant({"level": 1.5, "power": 0.5})
    torch.testing.assert_close(model(gain * x)[0], model(x)[0], rtol=1e-9, atol=1e-12)
    without = DRNMF(**{**model.config, "level": None}).double()
    without.load_state_dict(model.state_dict())
    levels, _ = running_level(x)
    torch.testing.assert_close(model(x)[0], without(x * (1.5 / levels))[0])
    assert not torch.allclose(without(gain * x)[0], without(x)[0], atol=0.01)


def test_a_level_must_be_positive():
    with pytest.raises(InputError, match="level must be positive, got 0"):
        DRNMF(n_layers=1, n_atoms=4, level=0)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_tied_layers_start_as_untied_ones_and_move_together(n_layers):
    x = sequences()
    untied, tied = (
        DRNMF.from_dictionary(dictionary(), n_layers, tied=t, alpha_range="weighted") for t in (False, True)
    )
    torch.testing.assert_close(tied(x)[0], untied(x)[0], rtol=0, atol=0)
    for model in (untied, tied):
        model(x)[0].square().sum().backward()
    torch.testing.assert_close(tied.log_W.grad, untied.log_W.grad.sum(0, keepdim=True))
    W = shaken(tied).dictionaries()
    assert torch.equal(W, W[:1].expand(n_layers, -1, -1))


@every_variant
def test_gradients_of_the_variants(options):
    W = unit_norm(torch.rand(5, 4, generator=seeded(), dtype=torch.float64))
    model = shaken(DRNMF.from_dictionary(W, 3, sparsity=0.2, **options))
    names, weights = zip(*model.named_parameters(), strict=True)
    x = (3 * torch.rand(2, 3, 5, generator=seeded(2), dtype=torch.float64) + 0.1).requires_grad_()

    def forward(x, *weights):
        mask, state = functional_call(model, dict(zip(names, weights, strict=True)), (x,))
        return mask, *state

    assert torch.autograd.gradcheck(forward, (x, *weights))


@every_variant
@pytest.mark.parametrize("sizes", [[1] * 30, [7, 0, 21, 2]])
def test_the_variants_in_chunks_are_the_whole(options, sizes):
    x, model = sequences(), variant(options)
    whole, last = model(x)
    assert whole.std() > 0.05
    masks, state = [], None
    for chunk in x.split(sizes, 1):
        mask, state = model.freeze()(chunk, state)
        masks.append(mask)
    torch.testing.assert_close(torch.cat(masks, 1), whole, rtol=0, atol=1e-9)
    torch.testing.assert_close(state, last, rtol=0, atol=1e-9)


@every_variant
def test_the_variants_are_saved_streamed_exported_and_shown(options, tmp_path):
    model = variant(options).float()
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    x = sum(recording(name, 20000) for name in ("speech/austen_0880", "noise/percussion")).float()
    X = stft(x)
    masks, _ = model(X[None].abs())
    assert torch.equal(again(X[None].abs())[0], masks)
    stream = Streamer(again)
    heard = torch.cat([*(stream.feed(part) for part in x.split(1000)), stream.flush()], -1)
    torch.testing.assert_close(heard, istft(masks[0].detach() * X, len(x)), rtol=0, atol=1e-5)
    torch.testing.assert_close(onnx_masks(model, X.abs()), masks[0].detach(), rtol=0, atol=1e-4)
    assert len(show.draw_model(model, name="variant").axes) > 4


def onnx_masks(model: DRNMF, magnitudes: torch.Tensor) -> torch.Tensor:
    """Masks (T, F) of the exported network, frame by frame."""
    network = onnxruntime.InferenceSession(export.onnx_model(model).SerializeToString())
    state = {value.name: np.zeros(value.shape, np.float32) for value in network.get_inputs()[1:]}
    masks = []
    for x in magnitudes.numpy():
        mask, *after = network.run(None, {"magnitude": x[None], **state})
        state = dict(zip(state, after, strict=True))
        masks.append(mask)
    return torch.from_numpy(np.concatenate(masks))
