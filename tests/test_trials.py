"""The trials' network is the package's, where nothing is changed."""

import pytest
import torch
from benchmarks.trials import Variant

from drnmf import PriorDRNMF
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


@pytest.mark.parametrize("option", [{"mode": "add"}, {"mode": "none"}, {"hear": "x"}, {"gate": False}, {"gain": False}])
def test_every_change_trains(option):
    variant = Variant(dictionary(), units=5, **option).double()
    mask, state = variant.separate(noisy()[None])
    mask.square().sum().backward()
    assert all(parameter.grad is not None for parameter in variant.parameters())
    assert [part.shape for part in state] == [part.shape for part in variant.start(1)]
