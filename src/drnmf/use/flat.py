"""A model as one flat file for the C library, the plugin and the browser (`libdrnmf/drnmf.h`)."""

from pathlib import Path
from typing import TYPE_CHECKING

from drnmf.engines.flat import flat
from drnmf.engines.prior_network import PriorNetwork
from drnmf.errors import InputError
from drnmf.files import write_atomically

if TYPE_CHECKING:
    from drnmf.models.base import Separator
    from drnmf.models.packed import PackedModel


def flat_model(model: "Separator | PackedModel") -> bytes:
    """A model as libdrnmf reads it, in single precision."""
    network = getattr(model.ready(), "network", None)
    if not isinstance(network, PriorNetwork):
        remedy = "export PriorDRNMF, or leave --c out for ONNX"
        raise InputError(f"{type(model).__name__} has no form for the C library; {remedy}")
    return flat(network)


def export_flat(model: "Separator | PackedModel", path: Path | str) -> None:
    """Write `model` for libdrnmf; a reader never sees a half-written file."""
    write_atomically(path, flat_model(model))
