"""A whole network in C: frame by frame, and from sound to sound, as `streaming` needs it.

Where `steps.c` is not compiled, PyTorch does the same, slower. Nothing here needs it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from drnmf.engines import library
from drnmf.errors import InputError
from drnmf.parallel import Alone
from drnmf.signal import BINS, HOP, WINDOW
from drnmf.signal.audio import Array, Samples, as_array, like

if TYPE_CHECKING:
    from torch import Tensor

_SAMPLES = 4096  # of a channel that go through a network at a time


class CPrior(ctypes.Structure):
    """As in `steps.c`; all zeros: no prior."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("U", "listening", "U_step", "map_step", "M")),
        *((name, ctypes.c_void_p) for name in ("sparsity", "heard", "memory", "bias", "maps", "map_bias", "scale")),
    )


class CNetwork(ctypes.Structure):
    """As in `steps.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("K", "F", "N", "n_speech", "N_step", "F_step")),
        *((name, ctypes.c_int64) for name in ("W_layer", "A_layer", "atoms_layer", "residual_first_layer")),
        *((name, ctypes.c_void_p) for name in ("A", "W", "atoms", "rate", "threshold", "reconstruction", "h0")),
        *((name, ctypes.c_double) for name in ("level", "power", "floor")),
        ("prior", CPrior),
    )


class Packed(Protocol):
    """A whole network as it acts on single frames: what C reads, packed once."""

    @property
    def silent(self) -> Samples:
        """The state after a silent frame: where a stream starts."""

    def struct(self) -> CNetwork:
        """As C takes it; valid as long as this exists."""


class Network(NamedTuple):
    """DR-NMF, packed."""

    W_KFN: Samples | None  # W / alpha, in the Gram form
    A_KNN: Samples | None  # I - W^T W / alpha, in the Gram form
    atoms_KNF: Samples | None  # -W^T, in the factored form
    rate_KN: Samples  # 1 / alpha
    threshold_KN: Samples  # lambda / alpha
    reconstruction_NF: Samples
    h0_N: Samples | None  # where every frame starts, if not where the last one ended
    silent: Samples  # after a silent frame: where a stream starts
    n_features: int
    n_speech: int
    residual_first_layer: bool
    level: float  # to which magnitudes are brought; 0: they are taken as they come
    power: float
    floor: float

    def struct(self) -> CNetwork:
        """As C takes it; valid as long as this exists."""
        (K, N), F, dtype = self.threshold_KN.shape, self.n_features, self.silent.dtype
        F_step = self.reconstruction_NF.shape[-1]
        at = partial(library.address, dtype=dtype)
        in_one = partial(library.panels_address, width=F_step, dtype=dtype, single=True)
        vectors = {
            "rate": at("1 / alpha", self.rate_KN, (K, N)),
            "threshold": at("lambda / alpha", self.threshold_KN, (K, N)),
            "reconstruction": in_one("the mask's dictionary", self.reconstruction_NF, N, F),
            "h0": None if self.h0_N is None else at("h0", self.h0_N, (N,)),
        }
        sizes = {"K": K, "F": F, "N": N, "n_speech": self.n_speech, "F_step": F_step}
        options = {"level": self.level, "power": self.power, "floor": self.floor}
        network = CNetwork(**sizes, **vectors, **options, residual_first_layer=self.residual_first_layer)
        if self.W_KFN is not None and self.A_KNN is not None:
            network.N_step = N_step = self.A_KNN.shape[-1]
            in_panels = partial(library.panels_address, width=N_step, dtype=dtype)
            network.W, network.W_layer = in_panels("W", self.W_KFN, K, F, N), self.W_KFN[0].size
            network.A, network.A_layer = in_panels("A", self.A_KNN, K, N, N), self.A_KNN[0].size
        elif self.atoms_KNF is not None:
            network.atoms, network.atoms_layer = in_one("W", self.atoms_KNF, K, N, F), self.atoms_KNF[0].size
        return network

    def takes(self, x_BTF: Tensor) -> bool:
        """Whether `activations` takes such frames. Where they do not depend on each other, PyTorch is as fast."""
        from drnmf.engines import compiled as steps

        same = steps.usable(x_BTF) and library.type_name(x_BTF.dtype) == str(self.rate_KN.dtype) and self.h0_N is None
        return same and (self.A_KNN is not None or len(x_BTF) < steps.ROWS)

    def activations(self, x_BTF: Tensor, h0_BN: Tensor) -> Tensor:
        """Activations h (B, T, N) of the last layer for x = magnitude^power."""
        if self.W_KFN is not None and self.A_KNN is not None:
            import torch

            from drnmf.engines import compiled as steps

            library.check("frames", x_BTF, (*x_BTF.shape[:2], self.n_features), self.silent.dtype)
            layers = steps.Packed(*map(torch.from_numpy, (self.W_KFN, self.A_KNN, self.threshold_KN)))
            return steps.activations(x_BTF, h0_BN, layers)
        return frames(self, x_BTF, h0_BN)[0]


def frames(network: Packed, x_BTF: Array, state_BS: Array) -> tuple[Array, Array]:
    """What masks are made of, (B, T, N), for frames x = magnitude^power from a state; and the state after them.

    With a prior there is one number more than atoms: the mask's gain.
    """
    struct, dtype = network.struct(), network.silent.dtype
    (B, T, _), S = x_BTF.shape, state_size(struct)
    library.check("frames", x_BTF, (B, T, struct.F), dtype)
    library.check("the state before them", state_BS, (B, S), dtype)
    x, after = np.ascontiguousarray(as_array(x_BTF)), np.array(as_array(state_BS), order="C")
    parts = struct.N + bool(struct.prior.U)
    h_BTP = np.empty((B, T, parts), dtype)
    run, at = library.function("activations", dtype), partial(library.address, dtype=dtype)
    for b in range(B):
        x_at, state_at = at("frames", x[b], (T, struct.F)), at("a state", after[b], (S,))
        h_at = at("activations", h_BTP[b], (T, parts))
        pointers = (ctypes.c_void_p(x_at), ctypes.c_int64(T), ctypes.c_void_p(state_at), ctypes.c_void_p(h_at))
        if not run(ctypes.byref(struct), *pointers):
            raise MemoryError("no memory for a frame")
    return like(x_BTF, h_BTP), like(x_BTF, after)


def state_size(network: CNetwork) -> int:
    """How many numbers a network carries from one frame to the next."""
    return int(2 * network.N + network.prior.U if network.prior.U else network.N)


@cache
def available() -> bool:
    """Whether networks can run: `steps.c` is compiled, and fits."""
    compiled = library.load()
    structs = {"network": CNetwork, "stream": _Stream}
    return compiled is not None and all(library.agrees(compiled, name, struct) for name, struct in structs.items())


def usable(x: Tensor) -> bool:
    """Whether compiled networks can take tensors like `x`."""
    from drnmf.engines import compiled as steps

    return steps.usable(x) and available()


def pack(
    W_KFN: Samples,
    *,
    alpha_KN: Samples,
    sparsity_KN: Samples,
    reconstruction_FN: Samples,
    n_speech: int,
    level: float,
    power: float,
    floor: float,
    h0_N: Samples,
    warm_start: bool = True,
    residual_first_layer: bool = True,
    dtype: str = "float32",
) -> Network:
    """Pack a network in the form that reads less memory: the Gram form only reads the rows of A of active atoms.

    `h0_N` is where the first frame starts, and without `warm_start` every other. All numbers are computed as precisely
    as they are given, and rounded once, to `dtype`.
    """
    K, F, N = W_KFN.shape
    alpha_KN = np.broadcast_to(alpha_KN, (K, N))
    W, A, atoms = None, None, None
    if N <= F:
        scaled_KFN = W_KFN / alpha_KN[:, None]
        A_KNN = np.eye(N) - W_KFN.swapaxes(1, 2) @ scaled_KFN
        A_KNN[0] = A_KNN[0] if residual_first_layer else np.eye(N)
        W, A = (library.panels(matrices.astype(dtype)) for matrices in (scaled_KFN, A_KNN))
    else:
        # one panel: rows are multiplied by a vector as well
        atoms = library.panels(-W_KFN.swapaxes(1, 2).astype(dtype), F)
    out = library.panels(reconstruction_FN.T.astype(dtype), F)
    rate, threshold, h0 = (x.astype(dtype, order="C") for x in (1 / alpha_KN, sparsity_KN / alpha_KN, h0_N))
    arrays = W, A, atoms, rate, threshold, out, None if warm_start else h0, h0
    network = Network(*arrays, F, n_speech, residual_first_layer, level, power, floor)
    _, after = frames(network, np.zeros((1, 1, F), dtype), h0[None])
    return network._replace(silent=after[0])


class _Stream(ctypes.Structure):
    """As in `steps.c`."""

    _fields_ = (
        ("network", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("channels", "in_step", "out_step", "waits", "top", "top_end")),
        *((name, ctypes.c_double) for name in ("strength", "most", "silence", "loudness", "peak")),
        *((name, ctypes.c_void_p) for name in ("window", "turns", "waiting", "tail", "h", "in", "out", "room")),
        *((name, ctypes.c_void_p) for name in ("active", "kept", "seen")),
    )


class Stream:
    """Takes sound (channels, samples) through a network, hop by hop, and returns what its mask removes.

    Args:
        network: what makes the mask.
        channels: how many share one mask.
        strength: the share of what the mask removes that is returned.
        most: of a bin that is returned, from 0 to 1.
        top: if given, one more row of the output holds the share that is removed in these bins.
        silence: where the magnitudes in these bins add up to less, that share is scaled down.

    Attributes:
        watch: if set, it is called with the magnitudes (F,) and the mask (F,) of every frame, valid until it returns.
            What it returns, if not None, is the network to go on with.
    """

    watch: Callable[[Samples, Samples], Packed | None] | None = None

    def __init__(
        self,
        network: Packed,
        *,
        channels: int,
        strength: float,
        most: float = 1.0,
        top: slice | None = None,
        silence: float = 0.0,
    ) -> None:
        struct, silent = network.struct(), network.silent
        bins = _check_stream(struct, silent, channels, top)
        dtype, rows = silent.dtype, channels + (top is not None)
        angles = 2 * np.pi * np.arange(WINDOW) / WINDOW
        turns = np.stack([np.cos(angles), np.sin(angles)]).astype(dtype)
        window = np.sqrt(0.5 - 0.5 * np.cos(angles)).astype(dtype)  # `signal.spectra.sqrt_hann`
        self._waiting, self._tail = np.zeros((channels, WINDOW), dtype), np.zeros((rows, WINDOW), dtype)
        self._state = np.zeros_like(silent)
        # sound passes through buffers of our own: asking numpy for an address at every call would take too long
        self._in, self._out = np.zeros((channels, _SAMPLES), dtype), np.zeros((rows, _SAMPLES + HOP), dtype)
        room, active = _room(struct, channels, dtype)
        self._seen = np.zeros(struct.F + 2 * struct.N, dtype)
        self._magnitude, self._mask = room[2 * channels * BINS :][:BINS], self._seen[:BINS]  # where C leaves them
        arrays = (window, turns, self._waiting, self._tail, self._state, self._in, self._out, room, active)
        pointers = (library.address("a buffer", array, array.shape, array.dtype) for array in arrays)
        sizes = (channels, _SAMPLES, _SAMPLES + HOP, 0, *bins)
        self._stream = _Stream(ctypes.addressof(struct), *sizes, strength, most, silence, 0.0, 0.0, *pointers)
        self._address = ctypes.c_void_p(ctypes.addressof(self._stream))
        self._silent = silent
        self._network = network, struct  # this and the next keep alive what the addresses above point to
        self._memory = window, turns, room, active
        self._feed = library.function("feed", dtype)
        self._alone = Alone("a stream")
        self.start()

    @property
    def strength(self) -> float:
        """The share of what the mask removes that is returned."""
        return float(self._stream.strength)

    @strength.setter
    def strength(self, value: float) -> None:
        self._stream.strength = value

    @property
    def most(self) -> float:
        """Of a bin that is returned."""
        return float(self._stream.most)

    @most.setter
    def most(self, value: float) -> None:
        self._stream.most = value

    def start(self) -> None:
        """Start anew, after a window of zeros whose frame is done."""
        with self._alone:
            self._waiting[:], self._tail[:], self._state[:] = 0, 0, self._silent
            self._stream.waits, self._stream.loudness, self._stream.peak = WINDOW - HOP, 0.0, 0.0

    def replace(self, network: Packed) -> None:
        """Go on with another network of the same sizes, from the next frame on; all sound on its way stays."""
        with self._alone:
            self._replace(network)

    def _replace(self, network: Packed) -> None:
        struct, before = network.struct(), self._network[1]
        _check_stream(struct, network.silent, len(self._in), None)
        if _sizes(struct) != _sizes(before) or network.silent.dtype != self._silent.dtype:
            raise InputError("a stream goes on with a network of the same sizes and type only")
        self._stream.network = ctypes.addressof(struct)
        self._network, self._silent = (network, struct), network.silent

    def feed(self, x: Samples) -> Samples:
        """Take the next samples (channels, n); return what is removed from those they complete (rows, hops x HOP)."""
        channels = len(self._in)
        if x.ndim != 2 or len(x) != channels or x.dtype.kind != "f":
            raise InputError(f"a stream takes samples ({channels}, n), got {x.shape} of {x.dtype}")
        with self._alone:
            if self.watch is not None:
                return self._feed_watched(x, self.watch)
            parts = [self._feed_some(x[:, i : i + _SAMPLES]) for i in range(0, max(1, x.shape[1]), _SAMPLES)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, 1)

    def _feed_watched(self, x: Samples, watch: Callable[[Samples, Samples], Packed | None]) -> Samples:
        """Frame by frame."""
        self._stream.seen = library.address("what is seen", self._seen, self._seen.shape, self._seen.dtype)
        parts = [self._out[:, :0]]
        while x.shape[1]:
            missing = WINDOW - self._stream.waits
            parts.append(self._feed_some(x[:, :missing]))
            x = x[:, missing:]
            following = watch(self._magnitude, self._mask) if parts[-1].size else None
            if following is not None:
                self._replace(following)
        return np.concatenate(parts, 1)

    def _feed_some(self, x: Samples) -> Samples:
        n = x.shape[1]
        self._in[:, :n] = x
        hops = self._feed(self._address, n)
        return self._out[:, : hops * HOP].copy()


def _sizes(network: CNetwork) -> tuple[int, ...]:
    """What a stream's memory depends on."""
    return network.F, network.N, network.F_step, network.prior.U


def _room(network: CNetwork, channels: int, dtype: np.dtype[Any]) -> tuple[Samples, npt.NDArray[np.int32]]:
    """What a frame is computed in."""
    compiled, at = library.load(), ctypes.byref(network)
    assert compiled is not None
    compiled.room_of_stream.restype = compiled.indices_of_stream.restype = ctypes.c_int64
    numbers = compiled.room_of_stream(at, ctypes.c_int64(channels))
    return np.empty(numbers, dtype), np.empty(compiled.indices_of_stream(at), np.int32)


def _check_stream(network: CNetwork, silent: Samples, channels: int, top: slice | None) -> tuple[int, int]:
    """Refuse a stream whose numbers would not lie where C looks for them; return the bins of `top`."""
    if network.F != BINS or not 0 <= network.n_speech <= network.N:
        raise InputError(f"a stream needs frames of {BINS} bins and some atoms for speech, got {network.F} bins")
    library.check("the state after silence", silent, (state_size(network),), silent.dtype)
    if channels < 1:
        raise InputError(f"there must be at least one channel, got {channels}")
    if top is None:
        return 0, 0
    if not (isinstance(top.start, int) and isinstance(top.stop, int) and 0 <= top.start < top.stop <= BINS):
        raise InputError(f"top must be a slice of the {BINS} bins, got {top}")
    return top.start, top.stop
