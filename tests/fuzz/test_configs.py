"""The short form of `make fuzz` for all that is not sound: nothing but success or one line, in bounded memory."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from fuzz import checkpoints, manifests, models, recipes
from fuzz.damage import first

CLASSES = {
    "models": (models, 100),
    "recipes": (recipes, 150),
    "manifests": (manifests, 100),
    "checkpoints": (checkpoints, 150),
}


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """Memory that is allocated beyond what there is now is refused, if it is more than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(("module", "count"), CLASSES.values(), ids=CLASSES)
def test_a_stranger_s_files_end_well_or_in_one_line(module, count, tmp_path):
    with at_most(2**30):
        results = [said for _, said in first(module.cases(np.random.default_rng(16), tmp_path), count)]
    refused = sum(said != "done" for said in results)
    assert 0.3 * count < refused, "cases are hardly damaged"
    assert refused < count, "none of the cases is right: they do not get far"
