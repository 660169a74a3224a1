"""Settings that are checked when they are made: a wrong key, type or range is one line that names it."""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from drnmf.errors import InputError, shown

CHECKED = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
"""Nothing changes after the check, no value is converted to another type, and every key and number is known."""

_RULES = {
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "int_type": "must be a whole number",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be {le:g} or less",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "model_type": "must be a section",
    "string_too_short": "must not be empty",
    "string_type": "must be a string",
    "too_long": "must have {max_length} values",
    "too_short": "must have {min_length} values",
}


class Settings(BaseModel):
    """One section of a recipe."""

    model_config = CHECKED
    section: ClassVar[str]

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(f"[{self.section}] {first_mistake(error, list(type(self).model_fields))}") from None

    def replace(self, **changes: Any) -> Self:
        """These settings with some of them changed, and checked again."""
        return type(self)(**{**dict(self), **changes})


def first_mistake(error: ValidationError, known: list[str]) -> str:
    """The first of a section's mistakes in words; `known` are the keys that it may have."""
    mistakes = error.errors()
    misspelt = [mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"]
    mistake = (misspelt or mistakes)[0]  # a misspelt key is often missing too: naming it says both
    kind, context = mistake["type"], mistake.get("ctx", {})
    if kind == "value_error":  # a check of several settings, in its own words
        return str(context["error"])
    key, *inside = mistake["loc"]
    if kind == "extra_forbidden":
        return f"has no setting {shown(key)}; known: {', '.join(known)}"
    if kind == "missing":
        return f"needs {key}; known: {', '.join(known)}"
    rule = _RULES[kind].format_map(context) if kind in _RULES else mistake["msg"]
    place = "".join(f"[{index}]" for index in inside if isinstance(index, int))
    return f"{key}{place} {rule}, got {shown(mistake['input'])}"
