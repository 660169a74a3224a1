"""Deep recurrent NMF for speech separation by unfolding iterative thresholding."""

from drnmf.errors import InputError
from drnmf.maths.divergence import beta_divergence
from drnmf.maths.nmf import infer_activations, sparse_nmf, train_dictionaries
from drnmf.maths.thresholding import fista, ista, lipschitz, step_bounds, warm_start_ista
from drnmf.models import DRNMF, DeepNMF, ISTAMask, LSTMMask, OracleMask, SistaRNN, SparseNMFMask
from drnmf.models.base import Separator, ratio_mask
from drnmf.models.folders import load_model, save_model
from drnmf.signal import audio
from drnmf.signal.spectra import istft, stft
from drnmf.use.files import enhance
from drnmf.use.streaming import Streamer

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
    "audio",
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
