"""The models: each a Separator that answers for itself; nothing outside this folder asks which one it has."""

from drnmf.errors import InputError, shown
from drnmf.models.base import Separator
from drnmf.models.deep_nmf import DeepNMF
from drnmf.models.drnmf import DRNMF
from drnmf.models.ista_mask import ISTAMask
from drnmf.models.lstm import LSTMMask
from drnmf.models.oracle import OracleMask
from drnmf.models.own import is_own, own
from drnmf.models.prior_drnmf import PriorDRNMF
from drnmf.models.sista import SistaRNN
from drnmf.models.snmf import SparseNMFMask

MODELS: dict[str, type[Separator]] = {
    model.__name__: model for model in (DRNMF, PriorDRNMF, DeepNMF, SistaRNN, LSTMMask, SparseNMFMask, ISTAMask)
}
"""What can be trained, saved and loaded, by the name that recipes and folders use."""


def kind_of(name: object) -> type[Separator]:
    """The kind of model that goes by a name, or by the import path of one's own: "module:Class"."""
    if is_own(name):
        kind = own(str(name))
        if not (isinstance(kind, type) and issubclass(kind, Separator)):
            raise InputError(f"{shown(name)} is not a class that derives from drnmf.Separator")
        return kind
    if name not in list(MODELS):  # a list: a foreign file's value need not be hashable
        raise InputError(f"unknown kind of model {shown(name)}; known: {', '.join(MODELS)}, or module:Class")
    return MODELS[str(name)]


def name_of(model: Separator) -> str:
    """The name that `kind_of` finds a model's kind by."""
    kind = type(model)
    if kind.__name__ in MODELS:
        return kind.__name__
    if kind.__module__.partition(".")[0] in ("drnmf", "__main__") or "." in kind.__qualname__:
        raise InputError(
            f"{kind.__name__} cannot be saved: it is not in drnmf.models.kinds.MODELS, nor in a module of its own"
        )
    return f"{kind.__module__}:{kind.__name__}"


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
    "kind_of",
    "name_of",
]
