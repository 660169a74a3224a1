"""The limits that SECURITY.md promises are those that the code keeps."""

import re
from pathlib import Path

import pytest

from drnmf.data import manifests, mixing
from drnmf.models import folders, options
from drnmf.signal import audio
from drnmf.training import recipe

PAGE = (Path(__file__).parents[1] / "SECURITY.md").read_text()


def most(settings, name):
    """The highest value that a recipe's setting takes."""
    schema = settings.model_json_schema()["properties"][name]
    return next(part["maximum"] for part in (schema, *schema.get("anyOf", ())) if "maximum" in part)


LIMITS = {
    "weights of a model": options.MOST_WEIGHTS,
    "its layers": options.MOST_OF["n_layers"],
    "its iterations for a frame": options.MOST_OF["n_iter"],
    "its atoms": options.MOST_OF["n_atoms"],
    "any other number among its options": options.MOST,
    "bytes of `config.json`": folders.MOST_CONFIG,
    "bytes of a recipe": recipe.MOST_BYTES,
    "bytes of a line in a recipe": recipe.LONGEST_LINE,
    "`devices`, `nodes` and `workers` of a recipe": most(recipe.TrainingSettings, "devices"),
    "bytes of a manifest": manifests.MOST_BYTES,
    "level or SNR of a mixture, in dB": mixing.DECIBELS,
    "sample rate, in Hz": audio.RATES[1],
    "channels": audio.CHANNELS,
}


@pytest.mark.parametrize(("what", "limit"), LIMITS.items(), ids=LIMITS)
def test_a_limit_is_as_written(what, limit):
    assert f"| {what} | {limit:,.0f} |" in PAGE


def test_every_limit_that_is_written_is_known():
    assert set(re.findall(r"^\| ([^|]+) \| [\d,]+ \|$", PAGE, re.MULTILINE)) == set(LIMITS)


def test_processes_have_one_limit():
    settings = [(recipe.TrainingSettings, "nodes"), (recipe.DataSettings, "workers")]
    assert {most(*setting) for setting in settings} == {most(recipe.TrainingSettings, "devices")}


def test_nobody_s_address_is_on_the_page():
    assert "@" not in PAGE
