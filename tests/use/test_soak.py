"""The soak in short: `make soak` goes on for an hour."""

from random import Random

import numpy as np
import pytest

from drnmf import Streamer
from examples import build
from use import soak


def test_a_few_streams_are_as_by_files(tmp_path):
    figures, random = soak.Figures(), Random(1)
    for model in soak.models().values():
        soak.one_stream(random, model, 0.5, tmp_path, figures)
    assert figures.failure() == ""
    assert figures.streams == 4
    assert figures.refused > 0


@pytest.mark.parametrize("kind", range(20))
def test_bad_blocks_are_bad(kind):
    soak.refuse(Streamer(build("drnmf"), channels=2), soak.bad_block(Random(kind), 2))


def test_a_block_that_is_taken_is_noticed():
    with pytest.raises(AssertionError, match="was taken"):
        soak.refuse(Streamer(build("drnmf")), np.zeros((1, 5), np.float32))


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ({}, ""),
        ({"growth_mb": 4.9, "largest_difference": 9e-6}, ""),
        ({"growth_mb": 5.1}, "5.1 MB"),
        ({"different_samples": 1}, "1 samples are not"),
        ({"largest_difference": 2e-5}, "2e-05 is how far"),
    ],
)
def test_what_fails(figures, told):
    failure = soak.Figures(**figures).failure()
    assert told in failure
    assert bool(told) == bool(failure)
