"""The check that a recipe's options make a model, before anything is trained."""

import inspect
import typing
import warnings
from typing import Any

import torch
from pydantic import BaseModel, ValidationError, create_model

from drnmf.errors import InputError
from drnmf.models.base import Separator
from drnmf.models.kinds import kind_of
from drnmf.models.options import check_options
from drnmf.signal.spectra import BINS
from drnmf.training.settings import CHECKED, first_mistake

_FROM_DATA = ("self", "W", "h0", "n_atoms", "n_features", "n_speech", "generator")


def dictionary_rows(kind: str, options: dict[str, Any]) -> int:
    """How many features a frame has for the model's dictionary."""
    return kind_of(kind).features(torch.zeros(1, 1, BINS), options).shape[2]


def check_model(kind: str, options: dict[str, Any]) -> None:
    """Refuse an unknown kind, and options that it does not have or cannot take."""
    model = kind_of(kind)
    known = known_options(model)
    try:
        known(**options)
    except ValidationError as error:
        raise InputError(first_mistake(error, ["kind", *known.model_fields])) from None
    check_options(model, options)
    if model.from_dictionary is None:
        model.empty(**options)
        return
    # orthogonal atoms: every other dictionary has a larger norm, so that an alpha too small here is so everywhere
    W = torch.eye(dictionary_rows(kind, options), 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of alpha is about this dictionary
        model.begin(options, W=W, generator=torch.Generator())


def check_size(kind: str, options: dict[str, Any], n_atoms: int) -> None:
    """Refuse a model that is too large with so many atoms, before they are learned."""
    try:
        check_options(kind_of(kind), {**options, "n_atoms": n_atoms})
    except InputError as error:
        raise InputError(f"[dictionary] rank_per_source gives {n_atoms} atoms: {error}") from None


def known_options(kind: type[Separator]) -> type[BaseModel]:
    """The arguments that make a model of this kind, less those that come from the data."""
    fields: dict[str, Any] = {}
    for make in (kind.__init__, kind.from_dictionary):
        if make is None:
            continue
        hints = typing.get_type_hints(make)
        for name, parameter in inspect.signature(make).parameters.items():
            if name not in _FROM_DATA and parameter.kind is not parameter.VAR_KEYWORD:
                fields[name] = (hints[name], ... if parameter.default is parameter.empty else parameter.default)
    return create_model(kind.__name__, __config__=CHECKED, **fields)
