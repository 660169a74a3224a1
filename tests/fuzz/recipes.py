"""Recipes as somebody could write them: any value for any key, nested, cut and mixed up."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drnmf.training.recipe import Recipe
from fuzz.damage import Case, Random, damaged, pick

VALUES = (
    *("0", "1", "-1", "2", "1.0", "0.5", "-0.5", "1e300", "-1e300", "5e-324", "nan", "inf", "-inf", "true", "false"),
    *(str(2**31), str(2**63), str(10**18), "1" + "0" * 400, "9" * 1500, "0x7fffffffffffffff", "1_000"),
    *('""', '"a"', '"auto"', '"DRNMF"', '"cosine"', '"a\\u0000b"', '"$NOT_SET"', '"~"', '"é\\n"', f'"{"a" * 1500}"'),
    *("[]", "[1]", "[-3, 3]", "[3, -3]", "[nan, 0]", "['a', 1]", "{}", "{a = 1}", "2024-01-01", "12:00:00"),
    *("[" * 900 + "]" * 900, "{a=" * 300 + "1" + "}" * 300, "'''\n\n'''", "", "="),
)
RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))


def cases(rng: Random, folder: Path) -> Iterator[Case]:
    """Without end."""
    path = folder / "recipe.toml"
    originals = [recipe.read_text().replace("$", "") for recipe in RECIPES]  # no variables
    changes = (settings, settings, settings, sections, raw)
    while True:
        change = pick(rng, changes)
        content = change(pick(rng, originals), rng)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        yield change.__name__, lambda: use(path)


def use(path: Path) -> None:
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


def settings(text: str, rng: Random) -> str:
    """Some keys have other values; a key may come twice."""
    lines = text.splitlines()
    for _ in range(rng.integers(1, 4)):
        section, key = pick(rng, KEYS) if rng.random() < 0.8 else ("model", pick(rng, OPTIONS))
        line = f"{key} = {pick(rng, VALUES)}"
        present = [i for i, old in enumerate(lines) if old.partition(" =")[0] == key]
        if present:
            lines[pick(rng, present)] = line
        elif f"[{section}]" in lines:
            lines.insert(lines.index(f"[{section}]") + 1, line)
        else:
            lines += [f"[{section}]", line]
    return "\n".join(lines)


def sections(text: str, rng: Random) -> str:
    """Sections are gone, twice, elsewhere, or of another kind."""
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("[")]
    at = pick(rng, heads)
    odd = ["", "[data]", "[[data]]", "[model.options]", "data = 3", "[training.loss.sdr]", "[x]"]
    lines[at] = pick(rng, [*odd, "[" + ".".join("a" * 900) + "]", ".".join("b" * 900) + " = 1"])
    return "\n".join(lines)


def raw(text: str, rng: Random) -> bytes:
    return damaged(text.encode(), rng)
