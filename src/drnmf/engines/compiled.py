"""The recurrence in C, for CPUs. Where `steps.c` is not compiled, PyTorch does the same, slower.

Sequences do not depend on each other, so each thread takes some of them through all frames and layers. C also computes
the large products: PyTorch's threads keep spinning for a while after one of its own, which would slow the others down.
"""

import ctypes
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from drnmf.engines.library import TYPES, address, agrees, check, function, load, panels_address, type_name
from drnmf.engines.library import panels as library_panels
from drnmf.engines.problem import Engine, Gradients, Layers, Needs, Problem, Sums, by_sparsity

_PLAIN = (Tensor, torch.nn.Parameter)  # not the stand-ins that tracing makes: they have no memory
_BLOCK = 1024  # rows, frames of all sequences, whose activations of all layers are in memory at once
ROWS = 4  # of a tile: fewer sequences are done one by one
_WORK = 2**22  # multiplications below which another thread is not worth starting


@cache
def library() -> ctypes.CDLL | None:
    """The compiled `steps.c`, where there is one and it fits."""
    compiled = load()
    return compiled if compiled is not None and agrees(compiled, "scan", _Scan) else None


def usable(x: Tensor) -> bool:
    """Whether the compiled steps can take tensors like `x`."""
    return x.device.type == "cpu" and type_name(x.dtype) in TYPES and type(x) in _PLAIN and library() is not None


class Compiled(Engine):
    """The Gram form in C."""

    name = "compiled"
    takes = "float32 and float64 frames on a CPU that need no gradient"

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Where `steps.c` is compiled; it does not have dL/dx."""
        able = usable(problem.x_BTF) and not problem.x_BTF.requires_grad and problem.h0_BN.shape[1] > 0
        if problem.sparsity_KBTN is not None:  # what was compiled before this was added does not have it
            able = able and hasattr(library(), "backward_frames_f32")
        return able and (by_name or problem.cheaper_by_gram())

    def forward(self, problem: Problem, needs: Needs | None) -> tuple[Tensor, list[Tensor]]:
        """Return h (B, T, N), and all activations for parts of the sequences."""
        layers = Layers.of(problem, gram=True)
        packed = Packed(panels(layers.scaled_KFN), panels(layers.A_KNN), layers.threshold_KN.contiguous())
        threshold_KBTN = None
        if problem.sparsity_KBTN is not None:
            lambda_KBTN = problem.sparsity_KN[:, None, None] + problem.sparsity_KBTN
            threshold_KBTN = lambda_KBTN / problem.alpha_KN[:, None, None]
        if needs is None:
            return activations(problem.x_BTF, problem.h0_BN, packed, threshold_KBTN), []
        return forward(problem.x_BTF, problem.h0_BN, packed, threshold_KBTN)

    def backward(self, dh_BTN: Tensor, problem: Problem, kept: list[Tensor], needs: Needs) -> Gradients:
        """The gradients of all tensors but x."""
        sums = Sums(Layers.of(problem, gram=True))
        (K, F, N), of_frames = problem.W_KFN.shape, problem.sparsity_KBTN
        x_BTF, A_T = _rows_together(problem.x_BTF), panels(sums.layers.A_KNN.mT)
        ds_BN = x_BTF.new_zeros(problem.h0_BN.shape)
        eg_KFN, sg_KNN, g_KTBN, calls = [], [], [], []
        ends = itertools.accumulate((H.shape[2] for H in kept), initial=0)
        for H, (begin, end) in zip(kept, itertools.pairwise(ends), strict=True):
            x, dh = x_BTF[begin:end], dh_BTN[begin:end]
            eg_KFN.append(x.new_zeros(K, F + 1, N))
            sg_KNN.append(x.new_zeros(K, N, N))
            tensors = [dh, ds_BN[begin:end], eg_KFN[-1], sg_KNN[-1]]
            if of_frames is not None:
                g_KTBN.append(x.new_zeros(K, x.shape[1], len(x), N))
                tensors.append(g_KTBN[-1])
            name = "backward" if of_frames is None else "backward_frames"
            calls.append(partial(_call, name, _struct(x, dh, H, A_T), *tensors))
        _in_threads(calls)
        sums.eg_KFN, sums.sg_K = torch.stack(eg_KFN).sum(0), torch.stack(sg_KNN).sum(0)
        if not problem.residual_first_layer:
            sums.sg_K[0] = 0  # that layer's matrix is the identity, whatever W is
        dsparsity = None
        if of_frames is not None:
            g_KBTN = torch.cat(g_KTBN, 2).transpose(1, 2)
            sums.lambda_g_KN = (of_frames * g_KBTN).sum((1, 2))
            dsparsity = by_sparsity(g_KBTN, sums.layers, shared=len(of_frames) == 1)
        return None, ds_BN, *sums.gradients(problem.sparsity_KN), dsparsity


class _Scan(ctypes.Structure):
    """As in `steps.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("K", "T", "B", "F", "N", "N_step", "W_layer", "A_layer")),
        *((name, ctypes.c_int64) for name in ("x_sequence", "x_frame", "h_sequence", "h_frame", "h_atom")),
        *((name, ctypes.c_void_p) for name in ("x", "W", "A", "threshold", "H")),
    )


class Packed(NamedTuple):
    """What the Gram form multiplies by: matrices in panels."""

    W_KFN: Tensor  # W / alpha
    A_KNN: Tensor  # I - W^T W / alpha
    threshold_KN: Tensor  # lambda / alpha


def panels(A: Tensor) -> Tensor:
    """`library.panels` of tensors."""
    return torch.from_numpy(library_panels(A.detach().numpy()))


def activations(x_BTF: Tensor, h0_BN: Tensor, layers: Packed, threshold_KBTN: Tensor | None = None) -> Tensor:
    """Activations h (B, T, N) of the last layer; those of the others are kept for a block of frames only.

    `threshold_KBTN` is lambda / alpha of every frame, instead of that of the layers.
    """
    (B, T, _), N = x_BTF.shape, layers.A_KNN.shape[-2]
    h_BTN, state = x_BTF.new_empty(B, T, N), h0_BN
    n = max(1, _BLOCK // max(1, B))
    for t in range(0, T, n):
        thresholds = None if threshold_KBTN is None else threshold_KBTN[:, :, t : t + n]
        h, _ = forward(x_BTF[:, t : t + n], state, layers, thresholds)
        h_BTN[:, t : t + n], state = h, h[:, -1]
    return h_BTN


def forward(
    x_BTF: Tensor, h0_BN: Tensor, layers: Packed, threshold_KBTN: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Activations h (B, T, N) of the last layer, and of all layers (K, 1 + T, b, N) for parts of the sequences.

    The first frame of the last layer is the state before, h0; that of the others is not used.
    """
    (B, T, _), (K, _, N, _) = x_BTF.shape, layers.A_KNN.shape
    check("the state before the first frame", h0_BN, (B, N), x_BTF.dtype)
    x_BTF, h_BTN, kept, calls = _rows_together(x_BTF), x_BTF.new_empty(B, T, N), [], []
    for part in _parts(x_BTF, K * N * N):
        x, h = x_BTF[part], h_BTN[part]
        H = x.new_empty(K, 1 + T, len(x), N)
        H[-1, 0] = h0_BN[part]
        struct = _struct(x, h, H, layers.A_KNN, layers)
        if threshold_KBTN is not None:
            H[:, 1:] = -threshold_KBTN[:, part].transpose(1, 2)
            struct.threshold = None
        kept.append(H)
        calls.append(partial(_call, "forward", struct, h))
    _in_threads(calls)
    return h_BTN, kept


def _rows_together(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _struct(x: Tensor, h: Tensor, H: Tensor, A: Tensor, layers: Packed | None = None) -> _Scan:
    (B, T, F), (K, _, N, N_step) = x.shape, A.shape
    check("h", h, (B, T, N), x.dtype)
    at, panels_at = partial(address, dtype=x.dtype), partial(panels_address, width=N_step, dtype=x.dtype)
    sizes = (K, T, B, F, N, N_step, layers.W_KFN.stride(0) if layers else 0, A.stride(0), *x.stride()[:2], *h.stride())
    return _Scan(
        *sizes,
        x=at("frames", x, (B, T, F), strided=2),
        W=panels_at("W", layers.W_KFN, K, F, N) if layers else None,
        A=panels_at("A", A, K, N, N),
        threshold=at("thresholds", layers.threshold_KN, (K, N)) if layers else None,
        H=at("activations", H, (K, 1 + T, B, N)),
    )


def _parts(x_BTF: Tensor, work: int) -> list[slice]:
    """Sequences, with so much `work` in a frame, shared out among the threads that PyTorch may use."""
    B, T, _ = x_BTF.shape
    n = max(1, min(torch.get_num_threads(), B // ROWS, B * T * work // _WORK))
    cuts = [round(B / ROWS * i / n) * ROWS for i in range(n)] + [B]
    return [slice(*pair) for pair in itertools.pairwise(cuts)]


def _in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """All calls at the same time."""
    if len(calls) == 1:
        calls[0]()
        return
    with ThreadPoolExecutor(len(calls)) as pool:  # not kept: a forked process would wait for threads it does not have
        for done in [pool.submit(call) for call in calls]:
            done.result()


def _call(name: str, struct: _Scan, *tensors: Tensor) -> None:
    """Forward with h; backward with dL/dh, and what becomes dL/ds, [x, 1]^T g, s^T g and, if it is asked for, g."""
    K, T, B, F, N = (getattr(struct, size) for size in "KTBFN")
    if not B * T:
        return
    shapes = ((B, T, N), (B, N), (K, F + 1, N), (K, N, N), (K, T, B, N))
    dtype, strided = tensors[0].dtype, 2 if name == "forward" else 3
    first = address("h", tensors[0], shapes[0], dtype, strided=strided)
    others = (address("a sum", tensor, shape, dtype) for tensor, shape in zip(tensors[1:], shapes[1:], strict=False))
    if not function(name, dtype)(ctypes.byref(struct), *map(ctypes.c_void_p, (first, *others))):
        raise MemoryError(f"no memory for the {name} pass of {B} x {T} frames")
