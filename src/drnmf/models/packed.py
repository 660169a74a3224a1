"""Models in C, made of a folder's numbers without PyTorch: they are used and looked at, but not trained.

What the weights are as they act is computed here in double precision and rounded once. PyTorch's models are frozen by
the same functions, so that both ways give the same sound, bit for bit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from drnmf.engines import streams
from drnmf.errors import NEEDS_PYTORCH, InputError
from drnmf.signal.audio import Samples
from drnmf.signal.level import levelled

Weights = Mapping[str, Samples]
"""The trained parameters by name, in double precision."""
_LEAST_LOG_WEIGHT = -15.0  # of an atom against that with the most: steps a million times shorter


def cannot_adapt(kind: str) -> str:
    """Why such a model cannot learn a noise."""
    return f"a {kind} cannot learn a noise from a sample: that needs a PriorDRNMF, such as the bundled default"


class PackedModel:
    """A model that is ready for sound: `enhance` and `Streamer` take it. It is what `load_model` gives without PyTorch.

    A kind of model has such a form if it is in `models.folders.PACKED`, by the name of its `Separator`.
    """

    kind: str
    network: streams.Packed
    n_features: int
    n_speech: int  # of the atoms in `spectra`, the first ones
    adaptation: Mapping[str, Any] | None = None  # from what it has learned a noise, and which atoms moved
    before: Self | None = None  # as it was before it learned a noise; a folder does not hold it

    def ready(self) -> Self:
        """As it is."""
        return self

    def stream(self, **settings: Any) -> streams.Stream:
        """`engines.streams.Stream` explains the arguments."""
        return streams.Stream(self.network, **settings)

    def adapted(self, samples: Sequence[Samples]) -> Self:
        """A model that knows a noise, from magnitudes (T, F) of samples of it."""
        raise InputError(cannot_adapt(self.kind))

    def stored(self) -> tuple[dict[str, Any], dict[str, Samples]]:
        """Options and weights, as a folder holds them."""
        raise InputError(f"to save a {self.kind} {NEEDS_PYTORCH}")

    def spectra(self) -> dict[str, Samples]:
        """Its dictionaries [W_speech, W_noise] (F, N) by name, as magnitudes; the mask is made with the last."""
        raise NotImplementedError

    def learned(self) -> dict[str, Samples]:
        """What else its first K layers have learned, (K, 1) or (K, N), by name."""
        raise NotImplementedError

    def look(self, magnitude: Samples) -> tuple[Samples, dict[str, Samples]]:
        """The mask (T, F) for magnitudes (T, F), and what its atoms do over time, (T, N) by name."""
        raise NotImplementedError


def compressed(magnitude_TF: Samples, *, level: float | None, power: float, dtype: Any) -> Samples:
    """Magnitudes at a level, if one is given, to a power: what a network hears, (1, T, F)."""
    x_TF = magnitude_TF if level is None else levelled(magnitude_TF, level)
    return (x_TF**power)[None].astype(dtype)


def unit_columns(log_W: Samples) -> Samples:
    """exp(log W) (..., F, N) with unit-norm columns."""
    # the largest logarithm of each column cancels in the norm; taking it out keeps exp from overflowing
    W = np.exp(log_W - log_W.max(-2, keepdims=True))
    columns: Samples = W / np.sqrt((W * W).sum(-2, keepdims=True))
    return columns


def relative_weights(log_weight_KN: Samples) -> Samples:
    """Of the atoms in each layer, the largest 1."""
    log_v_KN = log_weight_KN - log_weight_KN.max(1, keepdims=True)
    v_KN: Samples = np.exp(np.maximum(log_v_KN, _LEAST_LOG_WEIGHT))
    return v_KN


def weighted_alpha(W_KFN: Samples, log_alpha_KN: Samples, log_weight_KN: Samples) -> Samples:
    """Step sizes with which no layer expands distances: `models.drnmf.weighted_alpha`."""
    v_KN1 = relative_weights(log_weight_KN)[..., None]
    bound_KN = (W_KFN.swapaxes(-1, -2) @ (W_KFN @ v_KN1) / v_KN1)[..., 0]
    alpha_KN: Samples = bound_KN * (0.5 + np.exp(log_alpha_KN))
    return alpha_KN
