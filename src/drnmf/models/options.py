"""Options of models, as a stranger's file may name them: checked against a constructor's before anything is made."""

import inspect
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from drnmf.errors import InputError, shown

MOST, MOST_WEIGHTS = 1_000_000, 2**26
"""Of any number that is an option, and of weights: far above what is ever trained."""
MOST_OF = {"n_layers": 1000, "n_listening": 1000, "n_iter": 10_000, "n_atoms": 10_000}


def check_options(kind: Any, options: Mapping[str, Any]) -> None:
    """Refuse options of other types than the constructor's, and models larger than any that one would make.

    Whoever reads options from a file asks this first: a few bytes can name a model of terabytes.
    """
    hints = typing.get_type_hints(kind.__init__)
    for name, value in options.items():
        if name in hints and not _is_a(hints[name], value):
            raise InputError(f"{name} must be {_words(hints[name])}, got {shown(value)}")
        if isinstance(value, int | float) and not abs(value) <= MOST:
            raise InputError(f"{name} must be a finite number of at most {MOST}, got {shown(value)}")
    parameters = inspect.signature(kind.__init__).parameters
    names = [name for name in ("n_layers", "n_features", "n_atoms", "context") if name in parameters]
    sizes = {name: options.get(name, parameters[name].default) for name in names}
    check_size(math.prod(size for size in sizes.values() if isinstance(size, int)))
    for name, most in MOST_OF.items():
        if options.get(name, 1) > most:
            raise InputError(f"{name} must be at most {most}, got {options[name]}")


def check_names(kind: Any, options: Mapping[str, Any], kind_name: str) -> None:
    """Refuse options that the constructor does not have, and tell one that it needs, with those it knows."""
    parameters = dict(inspect.signature(kind).parameters)
    parameters.pop("generator", None)
    is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [name for name in options if name not in parameters and not is_open]
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in options and not is_open]
    if unknown or missing:
        mistake = f"has no option {shown(unknown[0])}" if unknown else f"needs {missing[0]}"
        raise InputError(f"{kind_name} {mistake}; known: {', '.join(parameters)}")


def check_size(weights: int) -> None:
    """Refuse a model of more numbers than any that one would make."""
    if weights > MOST_WEIGHTS:
        raise InputError(f"a model with {weights} weights is too large; {MOST_WEIGHTS} is the most")


def _is_a(hint: Any, value: object) -> bool:
    """Whether a value is what a type hint says; a whole number is a float, but neither is true nor false."""
    match typing.get_origin(hint):
        case types.UnionType | typing.Union:
            return any(_is_a(inner, value) for inner in typing.get_args(hint))
        case typing.Literal:
            return value in typing.get_args(hint)
    wanted = int | float if hint is float else hint
    return isinstance(value, wanted) and (hint is bool or not isinstance(value, bool))


def _words(hint: Any) -> str:
    """A type hint for people."""
    words = {int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(typing.get_args(hint))}"
    return " or ".join(words.get(inner, inner.__name__) for inner in typing.get_args(hint) or [hint])
