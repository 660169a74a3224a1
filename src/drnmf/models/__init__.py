"""The models, by name as soon as one is used: they need PyTorch, and `folders` only when it loads or saves one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drnmf.models.kinds import (
        DRNMF,
        MODELS,
        DeepNMF,
        ISTAMask,
        LSTMMask,
        OracleMask,
        PriorDRNMF,
        SistaRNN,
        SparseNMFMask,
    )

__all__ = [
    "DRNMF",
    "MODELS",
    "DeepNMF",
    "ISTAMask",
    "LSTMMask",
    "OracleMask",
    "PriorDRNMF",
    "SistaRNN",
    "SparseNMFMask",
]


def __getattr__(name: str) -> Any:
    """The public name, from the list of models."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("drnmf.models.kinds"), name)
