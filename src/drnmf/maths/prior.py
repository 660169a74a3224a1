"""A recurrent prior over the atoms: what DR-NMF expects of a frame after the frames before it.

In MAP estimation lambda is the rate of an exponential prior on each activation, p(h) = lambda exp(-lambda h). The
paper's network has the same rates in every frame. A prior may depend on the past, and here it does:

    listen     g_t       a few layers of warm-start ISTA, from g_{t-1}
    expect     c_t       a GRU that hears g_t
               lambda_t  = lambda exp(bounded(U c_t))                  it stays positive
    explain    h_t       the layers of DR-NMF under lambda_t, from h_{t-1}
    weigh      v_t       = exp(bounded(V c_t))
               r_t       = exp(bounded(R c_t))                         one number: it keeps the speech's level
               mask      = r_t W_s (s v_t h_t)_s / W (s v_t h_t)       s: a trained scale of each atom

All layers share one dictionary W. While U = V = R = 0 and s = 1, this is DR-NMF with tied layers. Names of tensors end
in their shape: B sequences, T frames, F bins, N atoms, K layers, U units, G = 3 U gates.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from drnmf.maths import expectation
from drnmf.maths.expectation import BOUND as BOUND
from drnmf.maths.thresholding import unfolded_ista

Layers = expectation.Layers[Tensor]
Expectation = expectation.Expectation[Tensor]

_SILENT = 1e-3  # energy of features


class Memory(NamedTuple):
    """What is carried from frame to frame."""

    h_BN: Tensor
    g_BN: Tensor
    c_BU: Tensor


def gru_step(c_BU: Tensor, g_BN: Tensor, e: Expectation) -> Tensor:
    """A step of the GRU: c <- (1 - z) n + z c.

    r, z = sigmoid(heard + remembered), n = tanh(heard + r remembered).
    """
    heard_BG = g_BN @ e.heard_GN.mT + e.heard_bias_G
    remembered_BG = c_BU @ e.memory_GU.mT + e.memory_bias_G
    heard_r, heard_z, heard_n = heard_BG.chunk(3, -1)
    remembered_r, remembered_z, remembered_n = remembered_BG.chunk(3, -1)
    r_BU = torch.sigmoid(heard_r + remembered_r)
    z_BU = torch.sigmoid(heard_z + remembered_z)
    n_BU = torch.tanh(heard_n + r_BU * remembered_n)
    return (1 - z_BU) * n_BU + z_BU * c_BU


def bounded(a: Tensor) -> Tensor:
    """The identity near 0 that never leaves +-BOUND: BOUND tanh(a / BOUND)."""
    return BOUND * torch.tanh(a / BOUND)


def sparsity_change(c_BTU: Tensor, sparsity_KN: Tensor, e: Expectation) -> Tensor:
    """lambda_t - lambda, (K, B, T, N), where lambda_t = lambda exp(bounded(U c_t))."""
    factor_BTN = torch.exp(bounded(c_BTU @ e.sparsity_NU.mT + e.sparsity_bias_N))
    return sparsity_KN[:, None, None] * (factor_BTN - 1)


def weights(c_BTU: Tensor, e: Expectation) -> Tensor:
    """v_t = exp(bounded(V c_t)), (B, T, N)."""
    return torch.exp(bounded(c_BTU @ e.weight_NU.mT + e.weight_bias_N))


def gains(c_BTU: Tensor, e: Expectation) -> Tensor:
    """r_t = exp(bounded(R c_t)), (B, T, 1)."""
    return torch.exp(bounded(c_BTU @ e.gain_1U.mT + e.gain_bias_1))


def expecting_ista(
    x_BTF: Tensor, W_FN: Tensor, *, listener: Layers, explainer: Layers, expectation: Expectation, start: Memory
) -> tuple[Tensor, Tensor, Tensor, Memory]:
    """Listen, expect and explain, frame by frame: h and v (B, T, N), r (B, T, 1), and the memory after all."""
    c_BU = start.c_BU
    g_BTN = _layers(x_BTF, W_FN, listener, start.g_BN, None)
    memories = []
    for g_BN in g_BTN.unbind(1):
        c_BU = gru_step(c_BU, g_BN, expectation)
        memories.append(c_BU)
    c_BTU = torch.stack(memories, 1)
    change_KBTN = sparsity_change(c_BTU, explainer.sparsity_KN, expectation)
    h_BTN = _layers(x_BTF, W_FN, explainer, start.h_BN, change_KBTN)
    after = Memory(h_BTN[:, -1], g_BTN[:, -1], c_BU)
    return h_BTN, weights(c_BTU, expectation), gains(c_BTU, expectation), after


def objective(x_BTF: Tensor, W_FN: Tensor, h_BTN: Tensor, *, sparsity: float) -> Tensor:
    """Equation (1), |x - W h|^2 / 2 + lambda sum(h), over what it is for h = 0, |x|^2 / 2; W may be (B, F, N)."""
    rest = (x_BTF - h_BTN @ W_FN.mT).square().sum()
    return (rest + 2 * sparsity * h_BTN.sum()) / x_BTF.square().sum().clamp_min(_SILENT)


def _layers(x_BTF: Tensor, W_FN: Tensor, layers: Layers, h0_BN: Tensor, change_KBTN: Tensor | None) -> Tensor:
    return unfolded_ista(
        x_BTF,
        W_FN.expand(len(layers.alpha_KN), -1, -1),
        alpha_KN=layers.alpha_KN,
        sparsity_KN=layers.sparsity_KN,
        h0_BN=h0_BN,
        sparsity_KBTN=change_KBTN,
    )
