"""Deep recurrent NMF for speech separation by unfolding iterative thresholding."""

from drnmf.checkpoint import load_model, save_model
from drnmf.divergence import beta_divergence
from drnmf.enhance import enhance
from drnmf.errors import InputError
from drnmf.ista import fista, ista, lipschitz, step_bounds, warm_start_ista
from drnmf.models import DRNMF, DeepNMF, ISTAMask, LSTMMask, OracleMask, SistaRNN, SparseNMFMask
from drnmf.nmf import infer_activations, sparse_nmf, train_dictionaries
from drnmf.separator import Separator, ratio_mask
from drnmf.stft import istft, stft
from drnmf.streaming import Streamer

__version__ = "0.1.0"

__all__ = [
    "DRNMF",
    "DeepNMF",
    "ISTAMask",
    "InputError",
    "LSTMMask",
    "OracleMask",
    "Separator",
    "SistaRNN",
    "SparseNMFMask",
    "Streamer",
    "beta_divergence",
    "enhance",
    "fista",
    "infer_activations",
    "ista",
    "istft",
    "lipschitz",
    "load_model",
    "ratio_mask",
    "save_model",
    "sparse_nmf",
    "step_bounds",
    "stft",
    "train_dictionaries",
    "warm_start_ista",
]
