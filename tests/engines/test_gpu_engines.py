"""What the GPU engines do around their kernels, on any machine: PyTorch plays the kernels."""

import pytest
import torch
from torch import Tensor

from drnmf.engines import scan_cluster, scan_grid
from drnmf.engines.problem import Layers
from drnmf.engines.scan import scan
from drnmf.maths.thresholding import unfolded_ista
from engines.problems import NAMES, OF_FRAMES, assert_same, problem, values_and_gradients, with_sparsity_of_frames


def gram_steps(self, rows: Tensor, H: Tensor, A_KNN: Tensor, *, backward: bool) -> None:
    if not backward:
        s = H[-1, 0]
        for t in range(1, H.shape[1]):
            for k, A in enumerate(A_KNN):
                s = H[k, t].add_(s @ A).relu_()
        return
    u = torch.zeros_like(rows[-1, 0])
    for t in range(H.shape[1] - 1, 0, -1):
        u = u + rows[-1, t]
        for k in reversed(range(len(A_KNN))):
            rows[k, t] = torch.where(H[k, t] > 0, u, 0)
            u = rows[k, t] @ A_KNN[k].mT
    rows[-1, 0] = u


def grid_steps(rows: Tensor, H: Tensor, x_TBF: Tensor | None, layers: Layers, kept: Tensor | None) -> None:
    W_KFN, alpha_KN, residual = layers.W_KFN, layers.alpha_KN, layers.residual_K[0]
    if x_TBF is not None:
        s = H[-1, 0]
        for t, x in enumerate(x_TBF):
            for k, W in enumerate(W_KFN):
                e = x - s @ W.mT if k or residual else x
                if kept is not None:
                    kept[k, t, :, : len(W)] = e
                H[k, t + 1] = s = torch.relu(s - layers.threshold_KN[k] + e @ (W / alpha_KN[k]))
        return
    u = torch.zeros_like(rows[-1, 0])
    for t in range(H.shape[1] - 1, 0, -1):
        u = u + rows[-1, t]
        for k in reversed(range(len(W_KFN))):
            rows[k, t] = torch.where(H[k, t] > 0, u, 0)
            kept[k, t - 1] = (rows[k, t] / alpha_KN[k]) @ W_KFN[k].mT
            u = rows[k, t] - kept[k, t - 1] @ W_KFN[k] if k or residual else rows[k, t]
    rows[-1, 0] = u


@pytest.fixture(params=["cluster", "grid"])
def form(request, monkeypatch) -> str:
    monkeypatch.setattr(scan_cluster.Cluster, "steps_", gram_steps)
    monkeypatch.setattr(scan_grid, "steps_", grid_steps)
    for engine in (scan_cluster.Cluster, scan_grid.Grid):
        monkeypatch.setattr(engine, "usable", lambda *_, **__: True)
        monkeypatch.setattr(engine, "rows", 9)  # so that a few frames are several blocks
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
