"""A GRU over all frames on thread-block clusters, for GPUs that have them (from Hopper); `torch.nn.GRU`, but faster.

    r = sigmoid(g W_ir^T + b_ir + c W_hr^T + b_hr)         z likewise
    n = tanh(g W_in^T + b_in + r m),                       m = c W_hn^T + b_hn
    c' = (1 - z) n + z c

What is heard, g W_i^T + b_i, is one product for all frames. The steps wait for one another: `gru_cluster.cu` takes them
in one kernel, whose clusters hold W_h. Backward, from d = dL/dc' of the last frame to that of the first,

    dn = d (1 - z) (1 - n^2),      dz = d (c - n) z (1 - z),      dm = dn r,      dr = dn m r (1 - r)
    dL/dc = d z + [dr, dz, dm] W_h + what comes from outside

(those of the gates before their functions), and what remains are products over all frames again.
"""

from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from drnmf.engines.cuda_kernel import SHARED, Kernel, available

MOST_UNITS = 384
CLUSTERS = (1, 2, 4, 8)  # blocks in one; fewer are faster to meet, more hold more
FEW_UNITS = 32  # of a block, where a larger cluster can have less
BLOCKS = 112  # that surely run at a time: a cluster lies in one part of the GPU, and leaves some of it over


def usable(g_BTN: Tensor, n_units: int) -> bool:
    """Whether `gru` takes these inputs."""
    fits = g_BTN.numel() > 0 and 0 < n_units <= MOST_UNITS
    return fits and g_BTN.dtype == torch.float32 and available(g_BTN.device)


def gru(
    g_BTN: Tensor, c0_BU: Tensor, weight_ih_GN: Tensor, weight_hh_GU: Tensor, bias_ih_G: Tensor, bias_hh_G: Tensor
) -> Tensor:
    """What `torch.nn.GRU` of one layer returns for each frame, c (B, T, U), differentiable once in all its tensors."""
    tensors = (g_BTN, c0_BU, weight_ih_GN, weight_hh_GU, bias_ih_G, bias_hh_G)
    with torch.autocast(g_BTN.device.type, enabled=False):  # hundreds of dependent steps would add up its rounding
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return cast(Tensor, _GRU.apply(*tensors))  # type: ignore[no-untyped-call]
        return _forward(*tensors, keep=False)[0][1:].transpose(0, 1)


class _GRU(torch.autograd.Function):
    """The arguments of `gru`."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        c_TBU, gates_TB4U = _forward(*tensors, keep=True)
        ctx.save_for_backward(*tensors, c_TBU, gates_TB4U)
        return c_TBU[1:].transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dc_BTU: Tensor) -> tuple[Tensor | None, ...]:
        g_BTN, _, weight_ih_GN, weight_hh_GU, _, _, c_TBU, gates_TB4U = ctx.saved_tensors
        needs_g, _, needs_ih, needs_hh, needs_bias_ih, needs_bias_hh = ctx.needs_input_grad
        B, T, N = g_BTN.shape
        with torch.autocast(dc_BTU.device.type, enabled=False):
            dheard, dremembered, dc0_BU = steps_backward(
                weight_hh_GU, c_TBU, gates_TB4U, dc_BTU.transpose(0, 1).contiguous()
            )
            dheard_RG, dremembered_RG = dheard.flatten(0, 1), dremembered.flatten(0, 1)
            dg = (dheard_RG @ weight_ih_GN).view(T, B, N).transpose(0, 1) if needs_g else None
            dweight_ih = dheard_RG.mT @ _rows(g_BTN) if needs_ih else None
            dweight_hh = dremembered_RG.mT @ c_TBU[:-1].flatten(0, 1) if needs_hh else None
            dbias_ih = dheard_RG.sum(0) if needs_bias_ih else None
            dbias_hh = dremembered_RG.sum(0) if needs_bias_hh else None
        return dg, dc0_BU, dweight_ih, dweight_hh, dbias_ih, dbias_hh


def _forward(
    g_BTN: Tensor,
    c0_BU: Tensor,
    weight_ih_GN: Tensor,
    weight_hh_GU: Tensor,
    bias_ih_G: Tensor,
    bias_hh_G: Tensor,
    *,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """The states before each frame and after the last one; to `keep`, also r, z, n and m, otherwise nothing there."""
    (B, T, _), (G, U) = g_BTN.shape, weight_hh_GU.shape
    heard_TBG = torch.addmm(bias_ih_G, _rows(g_BTN), weight_ih_GN.mT).view(T, B, G)
    c_TBU = g_BTN.new_empty(T + 1, B, U)
    c_TBU[0] = c0_BU
    gates_TB4U = g_BTN.new_empty(T, B, 4, U) if keep else g_BTN.new_empty(0)
    steps_forward_(c_TBU, gates_TB4U, heard_TBG, weight_hh_GU, bias_hh_G)
    return c_TBU, gates_TB4U


def _rows(g_BTN: Tensor) -> Tensor:
    """The first frame of all sequences, then the second one."""
    return g_BTN.transpose(0, 1).reshape(-1, g_BTN.shape[2])


def steps_forward_(
    c_TBU: Tensor, gates_TB4U: Tensor, heard_TBG: Tensor, weight_hh_GU: Tensor, bias_hh_G: Tensor
) -> None:
    """Fill all states but the first; and the gates, where there are any."""
    arguments = (weight_hh_GU.contiguous(), c_TBU, gates_TB4U, heard_TBG, bias_hh_G.contiguous())
    _launch(c_TBU, *arguments, backward=False)


def steps_backward(
    weight_hh_GU: Tensor, c_TBU: Tensor, gates_TB4U: Tensor, dc_TBU: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of what the gates hear, [dr, dz, dn], of what they remember, [dr, dz, dm], and of the first state."""
    T, B, U = dc_TBU.shape
    dheard_TBG, dremembered_TBG, dc0_BU = (dc_TBU.new_empty(*size) for size in ((T, B, 3 * U), (T, B, 3 * U), (B, U)))
    arguments = (weight_hh_GU.mT.contiguous(), c_TBU, gates_TB4U, dc_TBU, dheard_TBG, dremembered_TBG, dc0_BU)
    _launch(c_TBU, *arguments, backward=True)
    return dheard_TBG, dremembered_TBG, dc0_BU


def _launch(c_TBU: Tensor, *arguments: Tensor, backward: bool) -> None:
    """All steps in one kernel."""
    T, B, U = c_TBU.shape
    size = _size(U, B, backward=backward)
    clusters = -(-B // size.sequences)
    with torch.cuda.device(c_TBU.device):
        _kernel(U, size, backward, c_TBU.device)(
            *arguments, B, T - 1, blocks=clusters * size.cluster, threads=size.threads, shared=size.shared
        )


class _Size(NamedTuple):
    """How the units and sequences are divided."""

    cluster: int  # blocks of one
    units: int  # of a block
    sequences: int  # of a cluster
    threads: int  # of a block
    held: int  # rounds of 128 terms whose weights are in registers
    shared: int  # bytes of a block


def _size(U: int, B: int, *, backward: bool) -> _Size:
    """As few blocks as have not too many units, and as few sequences as let all clusters run at a time."""
    cluster = next((c for c in CLUSTERS if -(-U // c) <= FEW_UNITS), CLUSTERS[-1])
    units = -(-U // (4 * cluster)) * 4  # a warp has four
    sequences = next((s for s in (1, 2, 4) if -(-B // s) * cluster <= BLOCKS), 8)
    columns, terms = (1, 3 * cluster * units) if backward else (3, cluster * units)
    registers = 96 if units <= FEW_UNITS else 48  # of a thread, for weights
    held = min(-(-terms // 128), registers // (16 * columns))
    shared = 4 * (2 * sequences * terms + units * columns * max(0, terms - 128 * held)) + 16
    assert shared <= SHARED, "MOST_UNITS fit"
    return _Size(cluster, units, sequences, 8 * units, held, shared)


@cache
def _kernel(U: int, size: _Size, backward: bool, device: torch.device) -> Kernel:
    """Compiled for one size and device."""
    P = size.cluster * size.units
    sizes = {"U": U, "R": size.cluster, "n": size.units, "P": P, "S": size.sequences}
    return Kernel("gru_cluster.cu", **sizes, HELD=size.held, THREADS=size.threads, BACKWARD=backward)
