"""DR-NMF with a recurrent prior: against DR-NMF, against the readable form, and what its atoms must do."""

import itertools

import pytest
import torch

from drnmf import DRNMF, InputError, load_model, save_model, stft
from drnmf.maths import prior
from drnmf.maths.divergence import sparse_objective
from drnmf.models.kinds import PriorDRNMF
from drnmf.models.masks import dictionary_mask
from drnmf.signal.level import running_level
from examples import dictionary, noisy, recording, seeded
from examples import expecting as moved

PER_ATOM = {"alpha_per": "atom", "alpha_range": "weighted", "sparsity_per": "atom", "train_sparsity": True}
COMMON = {"sparsity": 0.3, "level": 1.6, "power": 0.5, "epsilon": 1e-3}


def untrained(**options) -> PriorDRNMF:
    return PriorDRNMF.from_dictionary(dictionary(), n_layers=3, n_units=5, generator=seeded(), **COMMON, **options)


def expecting(seed: int = 0) -> PriorDRNMF:
    return moved(untrained(), seed)


def frames() -> torch.Tensor:
    """Two sequences of real noisy speech (2, T, F)."""
    x = noisy()
    return torch.stack([x[:60], 0.3 * x[60:120]])


def readable(model: PriorDRNMF, magnitude: torch.Tensor) -> torch.Tensor:
    """The mask by `maths.prior`, frame by frame."""
    W = model.dictionary()
    levels, _ = running_level(magnitude)
    x = (magnitude * model.level / levels) ** model.power
    listener, explainer = model.listener.acting(W), model.explainer.acting(W)
    B = len(magnitude)
    start = prior.Memory(
        explainer.h0_N.expand(B, -1), listener.h0_N.expand(B, -1), magnitude.new_zeros(B, model.config["n_units"])
    )
    h, v, r, _ = prior.expecting_ista(
        x, W, listener=listener, explainer=explainer, expectation=model.expectation(), start=start
    )
    return r * dictionary_mask(model.log_scale.exp() * v * h, W, model.n_speech)


def test_starts_as_dr_nmf():
    tied = DRNMF.from_dictionary(dictionary(), 3, tied=True, **PER_ATOM, **COMMON)
    torch.testing.assert_close(untrained()(frames())[0], tied(frames())[0], rtol=0, atol=1e-12)


def test_expectations_change_the_mask():
    assert (expecting()(frames())[0] - untrained()(frames())[0]).abs().max() > 0.05


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_readable_form_with_all_gradients(seed):
    model = expecting(seed)
    target = torch.randn(2, 60, 257, generator=seeded(9), dtype=torch.float64)
    parameters = dict(model.named_parameters())
    results = []
    for mask in (model.separate(frames())[0], readable(model, frames())):
        gradients = torch.autograd.grad((mask * target).sum(), list(parameters.values()))
        results.append((mask.detach(), gradients))
    (mask, gradients), (expected, expected_gradients) = results
    torch.testing.assert_close(mask, expected, rtol=0, atol=1e-10)
    for name, ours, theirs in zip(parameters, gradients, expected_gradients, strict=True):
        scale = max(1e-6, float(theirs.abs().max()))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8 * scale, msg=name)


def test_every_parameter_is_trained():
    model = expecting()
    model.separate(frames())[0].square().sum().backward()
    assert [name for name, p in model.named_parameters() if not p.grad.abs().max() > 0] == []


@pytest.mark.parametrize("sizes", [[1] * 60, [7, 0, 50, 3]])
def test_blocks_are_as_good_as_the_whole(sizes):
    model = expecting()
    whole, last = model(frames())
    state, parts = None, []
    for first, size in zip(itertools.accumulate(sizes, initial=0), sizes, strict=False):
        mask, state = model(frames()[:, first : first + size], state)
        parts.append(mask)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    for ours, theirs in zip(state, last, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_does_not_depend_on_the_level():
    model = expecting()
    torch.testing.assert_close(model(30 * frames())[0], model(frames())[0], rtol=0, atol=1e-9)


def test_sequences_with_noises_of_their_own_are_as_with_networks_of_their_own():
    """While it is trained, atoms move for each sequence; an adapted network's have moved for good."""
    model, x = expecting(), noisy()
    noise = stft(recording("noise/percussion", 16000)).abs()
    atoms = model.moved(torch.stack([noise, 0 * noise]))
    assert not atoms[1].any()
    together, state = model.separate(torch.stack([x, x]), (*model.start(2), atoms))
    adapted = model.adapted([noise.numpy()])
    torch.testing.assert_close(together[0], adapted(x[None])[0][0], rtol=0, atol=1e-4)
    torch.testing.assert_close(together[1], model(x[None])[0][0])
    assert (together[0] - together[1]).abs().max() > 1e-3
    assert torch.equal(state[-1], atoms)
    together[0].sum().backward()
    assert model.log_W.grad[:, model.n_speech :].any()  # what has moved teaches the network's own


def test_sequences_that_share_atoms_give_the_gradients_of_each():
    """On a CPU those with the same atoms go together, here the network's own and those of one noise, in turn."""
    model, x = expecting(), torch.stack([noisy().roll(k, 0) for k in (0, 7, 20, 33)])
    noise = stft(recording("noise/percussion", 16000)).abs()
    atoms = model.moved(torch.stack([noise, 0 * noise, noise, 0 * noise]))
    weight = torch.rand(x.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def gradients(rows):
        model.zero_grad()
        mask, _ = model.separate(x[rows], (*model.start(len(rows)), atoms[rows]))
        (mask * weight[rows]).sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    apart = [sum(parts) for parts in zip(*(gradients([b]) for b in range(4)), strict=True)]
    for together, expected in zip(gradients([0, 1, 2, 3]), apart, strict=True):
        torch.testing.assert_close(together, expected)


def test_later_frames_change_nothing():
    model, changed = expecting(), frames()
    changed[:, 40:] *= 7
    torch.testing.assert_close(model(changed)[0][:, :40], model(frames())[0][:, :40], rtol=0, atol=1e-12)


def test_atoms_are_nonnegative_spectra_of_unit_norm_and_lambda_stays_positive():
    model = expecting()
    W = model.dictionary()
    assert (W >= 0).all()
    torch.testing.assert_close(W.norm(dim=0), torch.ones(W.shape[1], dtype=W.dtype))
    assert (model.heard(frames()[0])["expected sparsity λ"] > 0).all()


def test_what_can_be_seen_of_the_activations_makes_the_mask_but_for_its_gain():
    model, x = expecting(), frames()[0]
    h = model.heard(x)["activations"] ** model.power
    mask, ratio = model(x[None])[0][0], dictionary_mask(h, model.dictionary(), model.n_speech)
    gain = (mask / ratio)[ratio.amax(1) > 0]  # the first frame is silent
    assert len(gain) > 50
    torch.testing.assert_close(gain, gain[:, :1].expand_as(gain))
    assert gain.std() > 0.01


def test_the_objective_beside_the_mask_is_that_of_the_paper():
    model, x = expecting(), frames()
    mask, state, objective = model.separate_and_judge(x)
    expected, after = model.separate(x)
    assert torch.equal(mask, expected)
    assert all(torch.equal(a, b) for a, b in zip(state, after, strict=True))
    features = model.features(x, model.config)
    *memory, _ = model.start(len(x))
    h, _, _ = model._explained(features, memory, model.weights())
    V, H = (t.flatten(0, 1).mT for t in (features, h))
    cost = sparse_objective(V, model.dictionary(), H, beta=2, sparsity=model.config["sparsity"])
    torch.testing.assert_close(objective, cost / (V.square().sum() / 2))
    objective.backward()
    assert model.log_W.grad.any()
    assert model.gru.weight_hh_l0.grad.any()  # what is expected changes what is explained


def test_the_objective_of_sequences_with_atoms_of_their_own():
    model, x = expecting(), noisy()
    noise = stft(recording("noise/percussion", 16000)).abs()
    atoms = model.moved(torch.stack([noise, 0 * noise]))
    together = model.separate_and_judge(torch.stack([x, x]), (*model.start(2), atoms))[2]
    apart = [model.separate_and_judge(x[None], (*model.start(1), atoms[i : i + 1]))[2] for i in (0, 1)]
    assert (apart[0] - apart[1]).abs() > 1e-4
    torch.testing.assert_close(together, (apart[0] + apart[1]) / 2)


def test_a_silenced_atom_changes_the_mask_only_where_it_is_active():
    model = expecting()
    h = model.heard(frames()[0])["activations"]
    atom = int((h > 0).double().mean(0).sub(0.5).abs().argmin())  # active in about half of the frames
    active = h[:, atom] > 0
    assert 0 < active.sum() < len(active)
    before = model(frames()[:1])[0][0]
    with torch.no_grad():
        model.log_scale[atom] = -torch.inf
    changed = (model(frames()[:1])[0][0] - before).abs().amax(1) > 0
    assert (changed == active).all()


def test_saved_and_loaded(tmp_path):
    model = expecting().float()
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert torch.equal(loaded(frames().float())[0], model(frames().float())[0])


@pytest.mark.parametrize("option", [{"n_units": 0}, {"sparsity": 0.0}, {"level": -1.0}, {"n_listening": 0}])
def test_impossible_options_are_refused_by_name(option):
    with pytest.raises(InputError, match=next(iter(option))):
        PriorDRNMF(n_atoms=4, **option)


def test_the_gru_and_its_maps_are_the_recurrent_part():
    model = untrained()
    logarithms, recurrent = model.groups()
    parts = (model.gru, model.to_sparsity, model.to_weight, model.to_gain)
    assert {id(p) for p in recurrent} == {id(p) for part in parts for p in part.parameters()}
    assert len(logarithms) + len(recurrent) == len(list(model.parameters()))


def test_the_start_is_what_none_stands_for():
    model = expecting()
    x = frames()
    assert torch.equal(model(x, model.start(2))[0], model(x)[0])


def test_training_begins_with_the_same_random_weights_for_the_same_seed():
    models = [PriorDRNMF.begin({"n_units": 4}, W=dictionary(), generator=seeded(seed)) for seed in (1, 1, 2)]
    first, again, other = (model.gru.weight_hh_l0 for model in models)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
