"""The models: each a Separator that answers for itself; nothing outside this folder asks which one it has."""

from drnmf.models.base import Separator
from drnmf.models.deep_nmf import DeepNMF
from drnmf.models.drnmf import DRNMF
from drnmf.models.ista_mask import ISTAMask
from drnmf.models.lstm import LSTMMask
from drnmf.models.oracle import OracleMask
from drnmf.models.prior_drnmf import PriorDRNMF
from drnmf.models.sista import SistaRNN
from drnmf.models.snmf import SparseNMFMask

MODELS: dict[str, type[Separator]] = {
    model.__name__: model for model in (DRNMF, PriorDRNMF, DeepNMF, SistaRNN, LSTMMask, SparseNMFMask, ISTAMask)
}
"""What can be trained, saved and loaded, by the name that recipes and folders use."""

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
