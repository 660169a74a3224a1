"""Recipes as somebody could write them: any value for any key, nested, cut and mixed up."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drnmf.training.recipe import Recipe
from fuzz.sounds import Random, damaged, naming, pick

SHORT = 150
VALUES = (
    *("0", "1", "-1", "2", "1.0", "0.5", "-0.5", "1e300", "-1e300", "5e-324", "nan", "inf", "-inf", "true", "false"),
    *(str(2**31), str(2**63), str(10**18), "1" + "0" * 400, "9" * 1500, "0x7fffffffffffffff", "1_000"),
    *('""', '"a"', '"auto"', '"DRNMF"', '"cosine"', '"a\\u0000b"', '"$NOT_SET"', '"~"', '"é\\n"', f'"{"a" * 1500}"'),
    *("[]", "[1]", "[-3, 3]", "[3, -3]", "[nan, 0]", "['a', 1]", "{}", "{a = 1}", "2024-01-01", "12:00:00"),
    *("[" * 900 + "]" * 900, "{a=" * 300 + "1" + "}" * 300, "'''\n\n'''", "", "="),
)
RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))


def attempt(random: Random, folder: Path) -> None:
    path = folder / "recipe.toml"
    text = pick(random, RECIPES).read_text().replace("$", "")  # no variables
    path.write_bytes(pick(random, (settings, settings, settings, sections, raw))(text, random))
    with naming(path):
        recipe = Recipe.read(path)
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml()), "copy") == recipe


def keys() -> list[tuple[str, str]]:
    """Every setting that there is, with its section."""

    def inside(section: str, model: Any) -> Iterator[tuple[str, str]]:
        for name, field in model.model_fields.items():
            yield section, name
            nested = [kind for kind in getattr(field.annotation, "__args__", ()) if hasattr(kind, "model_fields")]
            for kind in nested:
                yield from inside(f"{section}.{name}", kind)

    sections = [(name, field.annotation) for name, field in Recipe.model_fields.items()]
    return [pair for name, model in sections for pair in inside(name, model)]


KEYS = keys()
OPTIONS = (
    "n_layers",
    "n_units",
    "n_untied",
    "context",
    "n_iter",
    "level",
    "power",
    "sparsity",
    "epsilon",
    "tied",
    "alpha",
)


def settings(text: str, random: Random) -> bytes:
    """Some keys have other values; a key may come twice."""
    lines = text.splitlines()
    for _ in range(random.integers(1, 4)):
        section, key = pick(random, KEYS) if random.random() < 0.8 else ("model", pick(random, OPTIONS))
        line = f"{key} = {pick(random, VALUES)}"
        present = [i for i, old in enumerate(lines) if old.partition(" =")[0] == key]
        if present:
            lines[pick(random, present)] = line
        elif f"[{section}]" in lines:
            lines.insert(lines.index(f"[{section}]") + 1, line)
        else:
            lines += [f"[{section}]", line]
    return "\n".join(lines).encode()


def sections(text: str, random: Random) -> bytes:
    """Sections are gone, twice, elsewhere, or of another kind."""
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("[")]
    at = pick(random, heads)
    odd = ["", "[data]", "[[data]]", "[model.options]", "data = 3", "[training.loss.sdr]", "[x]"]
    lines[at] = pick(random, [*odd, "[" + ".".join("a" * 900) + "]", ".".join("b" * 900) + " = 1"])
    return "\n".join(lines).encode()


def raw(text: str, random: Random) -> bytes:
    return damaged(text.encode(), random)
