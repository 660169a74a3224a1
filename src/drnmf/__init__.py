"""Deep recurrent NMF for speech separation by unfolding iterative thresholding.

A public name is imported when it is first used: some need PyTorch, which takes longer to import than all else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from drnmf.errors import InputError, needing_pytorch

if TYPE_CHECKING:
    from drnmf.maths.divergence import beta_divergence
    from drnmf.maths.nmf import infer_activations, sparse_nmf, train_dictionaries
    from drnmf.maths.thresholding import fista, ista, lipschitz, step_bounds, warm_start_ista
    from drnmf.models.base import Separator
    from drnmf.models.folders import load_model, save_model
    from drnmf.models.kinds import DRNMF, DeepNMF, ISTAMask, LSTMMask, OracleMask, PriorDRNMF, SistaRNN, SparseNMFMask
    from drnmf.models.masks import ratio_mask
    from drnmf.signal import audio
    from drnmf.signal.spectra import istft, stft
    from drnmf.use.adaptation import adapt
    from drnmf.use.files import enhance
    from drnmf.use.streaming import Streamer

__version__ = "0.2.0.dev0"

__all__ = ["InputError", "Separator", "audio", "load_model", "save_model"]
__all__ += ["DRNMF", "DeepNMF", "ISTAMask", "LSTMMask", "OracleMask", "PriorDRNMF", "SistaRNN", "SparseNMFMask"]
__all__ += ["beta_divergence", "infer_activations", "sparse_nmf", "train_dictionaries"]
__all__ += ["fista", "ista", "lipschitz", "step_bounds", "warm_start_ista"]
__all__ += ["Streamer", "adapt", "enhance", "istft", "ratio_mask", "stft"]

_HOMES = {
    "maths.divergence": "beta_divergence",
    "maths.nmf": "infer_activations sparse_nmf train_dictionaries",
    "maths.thresholding": "fista ista lipschitz step_bounds warm_start_ista",
    "models.kinds": "DRNMF DeepNMF ISTAMask LSTMMask OracleMask PriorDRNMF SistaRNN SparseNMFMask",
    "models.base": "Separator",
    "models.folders": "load_model save_model",
    "models.masks": "ratio_mask",
    "signal.spectra": "istft stft",
    "use.adaptation": "adapt",
    "use.files": "enhance",
    "use.streaming": "Streamer",
}


def __getattr__(name: str) -> Any:
    """The public name, from its home."""
    if name == "audio":
        return import_module("drnmf.signal.audio")
    for home, names in _HOMES.items():
        if name in names.split():
            with needing_pytorch(f"drnmf.{name}"):
                return getattr(import_module(f"drnmf.{home}"), name)
    raise AttributeError(f"module 'drnmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
