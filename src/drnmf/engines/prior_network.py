"""DR-NMF with a recurrent prior in C (`csrc/prior.h`), packed for `streams.Stream`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from drnmf.engines import library
from drnmf.engines.streams import CNetwork, CPrior, frames
from drnmf.errors import InputError
from drnmf.maths import expectation
from drnmf.signal.audio import Samples

if TYPE_CHECKING:
    from torch import Tensor

Layers = expectation.Layers[Samples]
Expectation = expectation.Expectation[Samples]


class Origin(NamedTuple):
    """What a network was made of. No frame needs it, but a file holds it: C makes the network anew as it learns."""

    weight_KN: Samples  # v, from which with W alpha follows
    start_2N: Samples  # h and g before any frame


class PriorNetwork(NamedTuple):
    """All that a frame needs; rows of layers are the listener's, then the explainer's."""

    gram_NN: Samples  # -W^T W
    rate_KN: Samples  # 1 / alpha
    sparsity_KN: Samples
    heard_NG: Samples  # gates n, r, z
    memory_UG: Samples  # gates r, z, n
    gate_bias: Samples  # (4 U): heard n; r and z of both; remembered n
    maps_UM: Samples  # to lambda's factor, to the weight, to the gain: M = 2 N + 1
    map_bias_M: Samples
    scale_N: Samples
    atoms_NF: Samples  # W^T, a single panel
    silent: Samples  # h, g and c after a silent frame: where a stream starts
    origin: Origin
    n_listening: int
    n_features: int
    n_speech: int
    level: float
    power: float
    floor: float

    def struct(self) -> CNetwork:
        """As C takes it; valid as long as this exists."""
        (K, N), U, F = self.sparsity_KN.shape, len(self.gate_bias) // 4, self.n_features
        M = 2 * N + 1
        U_step, map_step, F_step = self.heard_NG.shape[-1], self.maps_UM.shape[-1], self.atoms_NF.shape[-1]
        at, panels = (partial(f, dtype=self.silent.dtype) for f in (library.address, library.panels_address))
        prior = CPrior(
            *(U, self.n_listening, U_step, map_step, M),
            sparsity=at("lambda", self.sparsity_KN, (K, N)),
            heard=panels("the GRU's input", self.heard_NG, N, 3 * U, width=U_step),
            memory=panels("the GRU's memory", self.memory_UG, U, 3 * U, width=U_step),
            bias=at("the GRU's bias", self.gate_bias, (4 * U,)),
            maps=panels("maps", self.maps_UM, U, M, width=map_step),
            map_bias=at("the maps' bias", self.map_bias_M, (M,)),
            scale=at("scale", self.scale_N, (N,)),
        )
        return CNetwork(
            K=K - self.n_listening,
            F=F,
            N=N,
            n_speech=self.n_speech,
            N_step=self.gram_NN.shape[-1],
            F_step=F_step,
            A=panels("W^T W", self.gram_NN, N, N, width=self.gram_NN.shape[-1]),
            rate=at("1 / alpha", self.rate_KN, (K, N)),
            reconstruction=panels("W", self.atoms_NF, N, F, width=F_step, single=True),
            level=self.level,
            power=self.power,
            floor=self.floor,
            prior=prior,
        )

    def takes(self, x_BTF: Tensor) -> bool:
        """Whether `weighted` is for such frames: PyTorch takes many sequences at once."""
        from drnmf.engines import compiled as steps

        same = library.type_name(x_BTF.dtype) == str(self.silent.dtype)
        return same and steps.usable(x_BTF) and len(x_BTF) < steps.ROWS

    def weighted(self, x_BTF: Tensor, h_BN: Tensor, g_BN: Tensor, c_BU: Tensor) -> tuple[Tensor, ...]:
        """The mask's s v h (B, T, N) and r (B, T, 1) for x = magnitude^power; then h, g and c after the last frame."""
        import torch

        B, N, U = len(x_BTF), len(self.scale_N), len(self.gate_bias) // 4
        for name, tensor, size in (("h", h_BN, N), ("g", g_BN, N), ("c", c_BU, U)):
            library.check(f"the state {name}", tensor, (B, size), self.silent.dtype)
        parts_BTP, state_BS = frames(self, x_BTF, torch.cat([h_BN, g_BN, c_BU], 1))
        return *parts_BTP.tensor_split((N,), 2), *state_BS.tensor_split((N, 2 * N), 1)


def pack(
    W_FN: Samples,
    *,
    listener: Layers,
    explainer: Layers,
    expectation: Expectation,
    weight_KN: Samples,
    scale_N: Samples,
    n_speech: int,
    level: float,
    power: float,
    floor: float,
    dtype: str = "float32",
) -> PriorNetwork:
    """Pack a network; C trusts the shapes, so they are looked at here.

    All numbers are computed as precisely as they are given, and rounded once, to `dtype`.
    """
    F, N = W_FN.shape
    e = expectation
    U = len(e.memory_bias_G) // 3
    for layers in (listener, explainer):
        _check_shapes(layers, K=len(layers.alpha_KN), N=N)
    _check_shapes(expectation, N=N, U=U, G=3 * U, **{"1": 1})
    if scale_N.shape != (N,) or not 0 < n_speech < N:
        raise InputError(f"{N} atoms need as many scales and fewer speech atoms, got {len(scale_N)} and {n_speech}")
    if weight_KN.shape != (len(listener.alpha_KN) + len(explainer.alpha_KN), N):
        raise InputError(f"weights must be those of all layers and {N} atoms, got {weight_KN.shape}")

    def array(*parts: Samples) -> Samples:
        return np.ascontiguousarray(np.concatenate(parts), dtype)

    heard_r, heard_z, heard_n = np.split(e.heard_GN, 3)
    bias_r, bias_z, heard_bias_n = np.split(e.heard_bias_G, 3)
    remembered_r, remembered_z, remembered_n = np.split(e.memory_bias_G, 3)
    network = PriorNetwork(
        gram_NN=library.panels(array(-W_FN.T @ W_FN)),
        rate_KN=array(1 / listener.alpha_KN, 1 / explainer.alpha_KN),
        sparsity_KN=array(listener.sparsity_KN, explainer.sparsity_KN),
        heard_NG=library.panels(array(heard_n, heard_r, heard_z).T),
        memory_UG=library.panels(array(e.memory_GU).T),
        gate_bias=array(heard_bias_n, bias_r + remembered_r, bias_z + remembered_z, remembered_n),
        maps_UM=library.panels(array(e.sparsity_NU, e.weight_NU, e.gain_1U).T),
        map_bias_M=array(e.sparsity_bias_N, e.weight_bias_N, e.gain_bias_1),
        scale_N=array(scale_N),
        atoms_NF=library.panels(array(W_FN).T, F),
        silent=array(explainer.h0_N, listener.h0_N, np.zeros(U)),
        origin=Origin(array(weight_KN), array(explainer.h0_N, listener.h0_N)),
        n_listening=len(listener.alpha_KN),
        n_features=F,
        n_speech=n_speech,
        level=level,
        power=power,
        floor=floor,
    )
    _, after = frames(network, np.zeros((1, 1, F), dtype), network.silent[None])
    return network._replace(silent=after[0])


def _check_shapes(values: Layers | Expectation, **sizes: int) -> None:
    """Names end in their shapes."""
    for name, array in values._asdict().items():
        expected = tuple(sizes[letter] for letter in name.rpartition("_")[2])
        if array.shape != expected:
            raise InputError(f"{name} must be {expected}, got {array.shape}")
