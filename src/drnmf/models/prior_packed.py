"""DR-NMF with a recurrent prior in C, without PyTorch; `models.prior_drnmf` trains it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np

from drnmf.engines import prior_network
from drnmf.engines.prior_network import Expectation, Layers, PriorNetwork
from drnmf.engines.streams import frames
from drnmf.errors import InputError
from drnmf.maths.adaptation import moved_atoms
from drnmf.maths.expectation import BOUND
from drnmf.models.masks import MASK_FLOOR, dictionary_mask, split_sources
from drnmf.models.packed import PackedModel, Weights, compressed, relative_weights, unit_columns, weighted_alpha
from drnmf.signal.audio import Samples

_LEAST = 1e-6  # of an atom's largest value: logarithms are stored


@dataclass(frozen=True, kw_only=True)
class Options:
    """As `PriorDRNMF` explains them."""

    removed_options: ClassVar[Mapping[str, object]] = {}

    n_layers: int = 5
    n_listening: int = 2
    n_atoms: int = 200
    n_units: int = 256
    n_speech: int | None = None
    n_features: int = 257
    sparsity: float = 0.3
    level: float = 1.6
    power: float = 0.5
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        split_sources(self.n_atoms, self.n_speech)
        for name in ("n_layers", "n_listening", "n_units", "n_features", "sparsity", "level", "power", "epsilon"):
            value = getattr(self, name)
            if not value > 0:
                raise InputError(f"{name} must be above 0, got {value}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the trained parameters, by name."""
        F, N, U = self.n_features, self.n_atoms, self.n_units
        shapes: dict[str, tuple[int, ...]] = {"log_W": (F, N), "log_scale": (N,)}
        for part, K in (("listener", self.n_listening), ("explainer", self.n_layers)):
            shapes |= {f"{part}.log_{name}": (K, N) for name in ("alpha", "weight", "sparsity")}
            shapes[f"{part}.log_h0"] = (N,)
        shapes |= {"gru.weight_ih_l0": (3 * U, N), "gru.weight_hh_l0": (3 * U, U)}
        shapes |= {"gru.bias_ih_l0": (3 * U,), "gru.bias_hh_l0": (3 * U,)}
        for name, rows in (("to_sparsity", N), ("to_weight", N), ("to_gain", 1)):
            shapes |= {f"{name}.weight": (rows, U), f"{name}.bias": (rows,)}
        return shapes


def _layers(weights: Weights, part: str, W_FN: Samples) -> Layers:
    """Layers as they act with a dictionary."""
    alpha, weight, sparsity, h0 = (weights[f"{part}.log_{name}"] for name in ("alpha", "weight", "sparsity", "h0"))
    return Layers(weighted_alpha(W_FN[None], alpha, weight), np.exp(sparsity), np.exp(h0))


def _expectation(weights: Weights) -> Expectation:
    gru = (f"gru.{name}_l0" for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh"))
    maps = (f"to_{to}.{part}" for to in ("sparsity", "weight", "gain") for part in ("weight", "bias"))
    return Expectation(*(weights[name] for name in chain(gru, maps)))


def pack(options: Options, weights: Weights, dtype: str) -> PriorNetwork:
    """The network for C."""
    W_FN = unit_columns(weights["log_W"])
    of_layers = [relative_weights(weights[f"{part}.log_weight"]) for part in ("listener", "explainer")]
    return prior_network.pack(
        W_FN,
        listener=_layers(weights, "listener", W_FN),
        explainer=_layers(weights, "explainer", W_FN),
        expectation=_expectation(weights),
        weight_KN=np.concatenate(of_layers),
        scale_N=np.exp(weights["log_scale"]),
        n_speech=split_sources(options.n_atoms, options.n_speech),
        level=options.level,
        power=options.power,
        floor=MASK_FLOOR,
        dtype=dtype,
    )


def adapted(options: Options, weights: Weights, samples: Sequence[Samples]) -> dict[str, Samples]:
    """The weights of a network whose noise atoms have moved towards magnitudes (T, F) of samples of a noise."""
    heard = [compressed(x_TF, level=options.level, power=options.power, dtype=np.float64)[0] for x_TF in samples]
    n_speech = split_sources(options.n_atoms, options.n_speech)
    W_FR = moved_atoms(np.concatenate(heard), unit_columns(weights["log_W"])[:, n_speech:])
    log_W = weights["log_W"].copy()
    log_W[:, n_speech:] = np.log(W_FR + _LEAST * W_FR.max(0))
    return {**weights, "log_W": log_W}


class PackedPriorDRNMF(PackedModel):
    """A small DR-NMF listens, a GRU expects, DR-NMF explains the frame under what is expected."""

    kind = "PriorDRNMF"
    network: PriorNetwork

    def __init__(self, options: Options, weights: Weights, dtype: str) -> None:
        self.options, self._weights, self._dtype = options, weights, dtype
        self.network = pack(options, weights, dtype)
        self.n_features, self.n_speech = options.n_features, self.network.n_speech
        self._W_FN = unit_columns(weights["log_W"])
        self._listener, self._explainer = (_layers(weights, part, self._W_FN) for part in ("listener", "explainer"))
        self._to_sparsity = weights["to_sparsity.weight"], weights["to_sparsity.bias"]

    def adapted(self, samples: Sequence[Samples]) -> Self:
        """A network whose noise atoms have moved."""
        weights = adapted(self.options, self._weights, samples)
        log_W = weights["log_W"].astype(self._dtype).astype(np.float64)  # rounded, as a folder will hold it
        model = type(self)(self.options, {**weights, "log_W": log_W}, self._dtype)
        model.before = self.before or self
        return model

    def stored(self) -> tuple[dict[str, Any], dict[str, Samples]]:
        """Options and weights, as a folder holds them."""
        return asdict(self.options), {name: array.astype(self._dtype) for name, array in self._weights.items()}

    def spectra(self) -> dict[str, Samples]:
        """The one dictionary."""
        return {"all layers": self._W_FN ** (1 / self.options.power)}

    def learned(self) -> dict[str, Samples]:
        """Step sizes and sparsities of the layers that explain."""
        return {"inverse step size α": self._explainer.alpha_KN, "sparsity λ": self._explainer.sparsity_KN}

    def look(self, magnitude: Samples) -> tuple[Samples, dict[str, Samples]]:
        """The mask; the activations it is made of, as magnitudes; and lambda of the last layer: low is expected."""
        options, N, dtype = self.options, self.options.n_atoms, self.network.silent.dtype
        x_1TF = compressed(magnitude, level=options.level, power=options.power, dtype=dtype)
        starts = (self._explainer.h0_N, self._listener.h0_N, np.zeros(options.n_units))
        state_1S = np.concatenate(starts)[None].astype(dtype)
        parts, memories = [], []
        for t in range(x_1TF.shape[1]):  # one by one: C gives the memory after the last frame only
            part_11P, state_1S = frames(self.network, x_1TF[:, t : t + 1], state_1S)
            parts.append(part_11P[0, 0])
            memories.append(state_1S[0, 2 * N :])
        parts_TP, c_TU = np.stack(parts), np.stack(memories)
        weighted_TN, gain_T1 = parts_TP[:, :N], parts_TP[:, N:]
        mask_TF = gain_T1 * dictionary_mask(weighted_TN, self._W_FN, self.n_speech)
        # the mask knows ratios within a frame only: here a frame is as loud as it was heard
        explained_T1 = (weighted_TN @ self._W_FN.T).sum(1, keepdims=True)
        weighted_TN = weighted_TN * x_1TF[0].sum(1, keepdims=True) / np.maximum(explained_T1, MASK_FLOOR)
        to_NU, bias_N = self._to_sparsity
        factor_TN = np.exp(BOUND * np.tanh((c_TU @ to_NU.T + bias_N) / BOUND))
        sparsity_TN = self._explainer.sparsity_KN[-1] * factor_TN
        return mask_TF, {"activations": weighted_TN ** (1 / options.power), "expected sparsity λ": sparsity_TN}
