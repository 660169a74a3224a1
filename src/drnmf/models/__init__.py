"""The models: each a Separator; nothing else knows which one it has."""

from drnmf.models.deep_nmf import DeepNMF
from drnmf.models.drnmf import DRNMF
from drnmf.models.ista import ISTAMask
from drnmf.models.lstm import LSTMMask
from drnmf.models.oracle import OracleMask
from drnmf.models.sista import SistaRNN
from drnmf.models.snmf import SparseNMFMask

__all__ = ["DRNMF", "DeepNMF", "ISTAMask", "LSTMMask", "OracleMask", "SistaRNN", "SparseNMFMask"]
