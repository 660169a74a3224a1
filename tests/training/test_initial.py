"""The options of models, and the page that lists them."""

import re
import types
import typing
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from drnmf.models.kinds import MODELS
from drnmf.training.initial import known_options

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def words(hint: object) -> str:
    """A type as the page names it."""
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(typing.get_args(hint))
    parts = typing.get_args(hint) or [hint]
    return " or ".join("none" if part is types.NoneType else part.__name__ for part in parts)


def default(field: FieldInfo) -> str:
    return "" if field.is_required() else str(field.default).lower()


def test_the_page_has_every_kind():
    assert set(SECTIONS) == set(MODELS)


@pytest.mark.parametrize("kind", MODELS)
def test_the_page_has_every_option_with_its_type_and_default(kind):
    rows = [line.strip("|").split("|") for line in SECTIONS[kind].splitlines() if line.startswith("| `")]
    written = [tuple(cell.strip() for cell in row[:3]) for row in rows]
    fields = known_options(MODELS[kind]).model_fields
    assert written == [(f"`{name}`", words(field.annotation), default(field)) for name, field in fields.items()]
    assert all(row[3].strip() for row in rows)
