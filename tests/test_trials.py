"""The trials' network is the package's, where nothing is changed."""

import json
from pathlib import Path

import pytest
import torch
from benchmarks.trials import Run
from benchmarks.variants import SPARSITY, Variant

from drnmf import PriorDRNMF
from drnmf.data.endless import Chunk
from drnmf.maths.divergence import sparse_objective
from drnmf.maths.thresholding import ista_step
from examples import dictionary, expecting, noisy, seeded


def test_a_variant_without_a_change_is_the_default_network():
    model = expecting(PriorDRNMF.from_dictionary(dictionary(), n_units=5, generator=seeded()))
    variant = Variant(dictionary(), units=5).double()
    weights = {
        name.replace("gru.", "recurrent.gru.").replace("to_", "recurrent."): value
        for name, value in model.state_dict().items()
    }
    variant.load_state_dict(weights)
    x = noisy()[None]
    torch.testing.assert_close(variant.separate(x)[0], model(x)[0])
    assert [len(group) for group in variant.groups()] == [len(group) for group in model.groups()]


@pytest.mark.parametrize("each_layer", [False, True])
def test_a_variant_goes_on_from_a_trained_network(each_layer):
    trained = expecting(PriorDRNMF.from_dictionary(dictionary(), n_units=5, generator=seeded()))
    variant = Variant(torch.rand(257, dictionary().shape[1]), units=5, each_layer=each_layer).double()
    variant.go_on_from(trained)
    x = noisy()[None]
    torch.testing.assert_close(variant.separate(x)[0], trained.separate(x)[0])


OPTIONS = [
    *({"mode": "add"}, {"mode": "none"}, {"hear": "x"}, {"gate": False}, {"gain": False}),
    *({"layers": 2}, {"layers": 3, "goes_on": True}, {"each_layer": True}, {"each_layer": True, "mode": "add"}),
]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_change_trains(option):
    variant = Variant(dictionary(), units=5, **option).double()
    mask, state = variant.separate(noisy()[None])
    mask.square().sum().backward()
    idle = {"explainer.log_h0"} if "goes_on" in option else set()
    assert {name for name, parameter in variant.named_parameters() if parameter.grad is None} == idle
    assert [part.shape for part in state] == [part.shape for part in variant.start(1)]


def test_layers_that_go_on_are_ista_from_what_was_heard():
    """While nothing is expected: two layers from the frame before, three more of each frame."""
    variant = Variant(dictionary(), units=5, layers=3, goes_on=True).double()
    heard = Variant(dictionary(), units=5, layers=2, mode="none").double()
    x = noisy()[None, :60]
    seen = {}
    for name, network in (("goes on", variant), ("heard", heard)):
        with torch.no_grad():
            _, state = network.separate(x)
        seen[name] = state[0]
    last = PriorDRNMF.features(x, {})[:, -1]
    W, acting = heard.dictionary(), variant.explainer.acting(variant.dictionary())
    expected = seen["heard"]
    for _ in range(3):
        expected = ista_step(expected, last, W, alpha=acting.alpha_KN[0], sparsity=acting.sparsity_KN[0])
    assert expected.any()
    torch.testing.assert_close(seen["goes on"], expected)


def test_a_change_for_each_layer_can_be_the_same_for_all():
    one, each = (Variant(dictionary(), units=5, each_layer=each, seed=3).double() for each in (False, True))
    with torch.no_grad():
        one.recurrent["sparsity"].weight.normal_(generator=seeded())
        each.recurrent["sparsity"].weight.copy_(one.recurrent["sparsity"].weight.repeat(5, 1))
    x = noisy()[None]
    torch.testing.assert_close(each.separate(x)[0], one.separate(x)[0])


def test_the_objective_is_that_of_the_paper():
    variant = Variant(dictionary(), units=5, mode="none").double()
    variant.has_objective = True
    x = noisy()[None, 50:51]
    _, (h, *_) = variant.separate(x)
    features, W = PriorDRNMF.features(x, {})[0], variant.dictionary()
    expected = sparse_objective(features.mT, W, h.mT, beta=2, sparsity=SPARSITY) / (features.square().sum() / 2)
    torch.testing.assert_close(variant.objective, expected)


@pytest.mark.parametrize("file", ["trials.json", "shapes.json"])
def test_every_network_of_a_trial_takes_a_step(file):
    variants = json.loads((Path(__file__).parents[1] / "benchmarks" / file).read_text())
    sound = torch.randn(2, 128 * 125 + 384, generator=seeded())
    chunk = Chunk(sound, 0.5 * sound, torch.tensor([True, True]), sound[:, :0])
    for name, settings in variants.items():
        rank = 6 if "rank" in settings["model"] else 4
        run = Run(name, settings, torch.rand(257, 2 * rank, generator=seeded()), chunk)
        before = [p.detach().clone() for p in run.network.parameters()]
        run.step(1.0)
        assert any((a != b).any() for a, b in zip(before, run.network.parameters(), strict=True)), name
