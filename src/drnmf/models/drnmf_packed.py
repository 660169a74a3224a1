"""DR-NMF in C, without PyTorch; `models.drnmf` trains it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from drnmf.engines import streams
from drnmf.engines.streams import frames
from drnmf.errors import InputError
from drnmf.models.masks import MASK_FLOOR, dictionary_mask, split_sources
from drnmf.models.packed import PackedModel, Weights, compressed, unit_columns, weighted_alpha
from drnmf.signal.audio import Samples

Per = Literal["layer", "atom"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """As `DRNMF` explains them."""

    removed_options: ClassVar[Mapping[str, object]] = {"transition": False, "momentum": False}

    n_layers: int
    n_atoms: int
    n_speech: int | None = None
    n_features: int = 257
    sparsity: float = 1.0
    train_sparsity: bool = False
    sparsity_per: Per = "layer"
    alpha_per: Per = "layer"
    alpha_range: Literal["free", "weighted"] = "free"
    first_layer: Literal["paper", "original"] = "paper"
    reconstruction: Literal["shared", "separate"] = "shared"
    level: float | None = None
    power: float = 1.0
    warm_start: bool = True
    tied: bool = False
    epsilon: float = 1e-16

    def __post_init__(self) -> None:
        split_sources(self.n_atoms, self.n_speech)
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise InputError(f"{name} must be one of {', '.join(get_args(hint))}, got {getattr(self, name)!r}")
        for name in ("n_layers", "n_features"):
            if not getattr(self, name) >= 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("level", "power", "epsilon"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be positive, got {value}")
        if not self.sparsity >= 0:
            raise InputError(f"sparsity must not be negative, got {self.sparsity}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the trained parameters, by name."""
        K, F, N = self.n_layers, self.n_features, self.n_atoms
        shapes: dict[str, tuple[int, ...]] = {
            "log_W": (1 if self.tied else K, F, N),
            "log_alpha": (K, N if self.alpha_per == "atom" else 1),
            "log_sparsity": (K, N if self.sparsity_per == "atom" else 1),
            "log_h0": (N,),
        }
        if self.alpha_range == "weighted":
            shapes["log_weight"] = (K, N)
        if self.reconstruction == "separate":
            shapes["log_reconstruction"] = (F, N)
        return shapes


class _Acting(NamedTuple):
    """The weights as they act; alpha and lambda may be (K, 1)."""

    W_KFN: Samples
    alpha_KN: Samples
    sparsity_KN: Samples
    h0_N: Samples
    reconstruction_FN: Samples


def _acting(options: Options, weights: Weights) -> _Acting:
    F, N = options.n_features, options.n_atoms
    W_KFN = np.broadcast_to(unit_columns(weights["log_W"]), (options.n_layers, F, N))  # tied layers share it
    if options.alpha_range == "free":
        alpha_KN = np.exp(weights["log_alpha"])
    else:
        alpha_KN = weighted_alpha(W_KFN, weights["log_alpha"], weights["log_weight"])
    reconstruction_FN = np.exp(weights["log_reconstruction"]) if options.reconstruction == "separate" else W_KFN[-1]
    return _Acting(W_KFN, alpha_KN, np.exp(weights["log_sparsity"]), np.exp(weights["log_h0"]), reconstruction_FN)


def pack(options: Options, weights: Weights, dtype: str) -> streams.Network:
    """The network for C."""
    return streams.pack(
        **_acting(options, weights)._asdict(),
        warm_start=options.warm_start,
        residual_first_layer=options.first_layer == "paper",
        n_speech=split_sources(options.n_atoms, options.n_speech),
        level=options.level or 0.0,
        power=options.power,
        floor=MASK_FLOOR,
        dtype=dtype,
    )


class PackedDRNMF(PackedModel):
    """K layers h <- relu(h + (W_k^T (x - W_k h) - lambda_k) / alpha_k), from the previous frame's h; then the mask."""

    kind = "DRNMF"
    network: streams.Network

    def __init__(self, options: Options, weights: Weights, dtype: str) -> None:
        self.options = options
        self.network = pack(options, weights, dtype)
        self.n_features, self.n_speech = options.n_features, self.network.n_speech
        self._acting = _acting(options, weights)

    def spectra(self) -> dict[str, Samples]:
        """The dictionary of each layer and, where it is another one, of the mask."""
        W = {f"layer {k}": W for k, W in enumerate(self._acting.W_KFN, 1)}
        if self.options.reconstruction == "separate":
            W["mask"] = self._acting.reconstruction_FN
        return {name: atoms ** (1 / self.options.power) for name, atoms in W.items()}

    def learned(self) -> dict[str, Samples]:
        """Step sizes and sparsities of the layers."""
        return {"inverse step size α": self._acting.alpha_KN, "sparsity λ": self._acting.sparsity_KN}

    def look(self, magnitude: Samples) -> tuple[Samples, dict[str, Samples]]:
        """The mask, and the activations of the last layer, as magnitudes."""
        options, dtype = self.options, self.network.silent.dtype
        x_1TF = compressed(magnitude, level=options.level, power=options.power, dtype=dtype)
        h_1TN, _ = frames(self.network, x_1TF, self._acting.h0_N[None].astype(dtype))
        mask_TF = dictionary_mask(h_1TN[0], self._acting.reconstruction_FN, self.n_speech)
        return mask_TF, {"activations": h_1TN[0] ** (1 / options.power)}
