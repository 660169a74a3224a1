"""What the GPU engines do around their kernels, on any machine: PyTorch plays the kernels."""

import pytest
import torch
from torch import Tensor

from drnmf.engines import scan_cluster, scan_grid
from drnmf.engines.scan import scan
from drnmf.maths.thresholding import unfolded_ista
from engines.problems import NAMES, OF_FRAMES, assert_same, problem, values_and_gradients, with_sparsity_of_frames


def gram_forward(H: Tensor, A_KNN: Tensor) -> None:
    s = H[-1, 0]
    for t in range(1, H.shape[1]):
        for k, A in enumerate(A_KNN):
            s = H[k, t].add_(s @ A).relu_()


def gram_backward(G: Tensor, H: Tensor, A_KNN: Tensor) -> None:
    u = torch.zeros_like(G[-1, 0])
    for t in range(H.shape[1] - 1, 0, -1):
        u = u + G[-1, t]
        for k in reversed(range(len(A_KNN))):
            G[k, t] = torch.where(H[k, t] > 0, u, 0)
            u = G[k, t] @ A_KNN[k].mT
    G[-1, 0] = u


def grid_forward(H, x_TBF, W_KFN, alpha_KN, threshold_KN, *, residual, e_KTBF=None):
    s = H[-1, 0]
    for t, x in enumerate(x_TBF):
        for k, W in enumerate(W_KFN):
            e = x - s @ W.mT if k or residual else x
            if e_KTBF is not None:
                e_KTBF[k, t, :, : len(W)] = e
            H[k, t + 1] = s = torch.relu(s - threshold_KN[k] + e @ (W / alpha_KN[k]))


def grid_backward(G, H, W_KFN, alpha_KN, *, residual, q_KTBF):
    u = torch.zeros_like(G[-1, 0])
    for t in range(H.shape[1] - 1, 0, -1):
        u = u + G[-1, t]
        for k in reversed(range(len(W_KFN))):
            G[k, t] = torch.where(H[k, t] > 0, u, 0)
            q_KTBF[k, t - 1] = (G[k, t] / alpha_KN[k]) @ W_KFN[k].mT
            u = G[k, t] - q_KTBF[k, t - 1] @ W_KFN[k] if k or residual else G[k, t]
    G[-1, 0] = u


@pytest.fixture(params=["cluster", "grid"])
def form(request, monkeypatch) -> str:
    monkeypatch.setattr(scan_cluster, "usable", lambda *_: True)
    monkeypatch.setattr(scan_cluster, "forward_", gram_forward)
    monkeypatch.setattr(scan_cluster, "backward_", gram_backward)
    monkeypatch.setattr(scan_grid, "usable", lambda *_: True)
    monkeypatch.setattr(scan_grid, "forward_", grid_forward)
    monkeypatch.setattr(scan_grid, "backward_", grid_backward)
    for engine in (scan_cluster.Cluster, scan_grid.Grid):
        monkeypatch.setattr(engine, "rows", 9)  # so that a few frames are several blocks
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full_like(x, torch.nan))  # kernels must not need zeros
    return request.param


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("needed", [NAMES, NAMES[:1], NAMES[1:]], ids=["all", "x", "parameters"])
def test_values_and_gradients(form, residual, warm_start, needed):
    arguments = problem(3, 8, 3, 5, 7, per_atom=True)
    options = {"residual_first_layer": residual, "warm_start": warm_start}
    expected = values_and_gradients(unfolded_ista, arguments, needed=needed, **options)
    assert_same(values_and_gradients(scan, arguments, needed=needed, form=form, **options), expected)


@pytest.mark.parametrize("form", ["cluster"], indirect=True)
@pytest.mark.parametrize("layers", [1, 3])
def test_a_sparsity_for_every_frame(form, layers):
    arguments = with_sparsity_of_frames(problem(3, 8, 3, 5, 7), layers)
    needed = (*NAMES, OF_FRAMES)
    expected = values_and_gradients(unfolded_ista, arguments, needed=needed)
    assert_same(values_and_gradients(scan, arguments, needed=needed, form=form), expected)
