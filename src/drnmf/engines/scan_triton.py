"""The steps of the Gram form in Triton, which comes with PyTorch for CUDA: for GPUs before Hopper and larger matrices.

`triton_kernels` holds the kernels; they are imported when they are first used, because Triton takes a while to load.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from drnmf.engines.blocks import KERNEL_ROWS
from drnmf.engines.gram import GramEngine
from drnmf.engines.problem import Problem
from drnmf.engines.products import Layers

MAX_ATOMS = 512  # above these two, one product for all sequences takes less than to stream A for each of them
MAX_SEQUENCES = 1024


class Triton(GramEngine):
    """The Gram form with all steps of a block in one kernel."""

    name = "triton"
    takes = "float32 on a GPU with Triton installed"
    rows = KERNEL_ROWS
    adds = False

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """On GPUs, by itself up to so many atoms and sequences; by name also where Triton interprets its kernels."""
        x, N = problem.x_BTF, problem.h0_BN.shape[1]
        interpreted = by_name and os.environ.get("TRITON_INTERPRET") == "1"
        able = (x.is_cuda or interpreted) and x.dtype == torch.float32 and find_spec("triton") is not None
        return able and (by_name or (len(x) <= MAX_SEQUENCES and 0 < N <= MAX_ATOMS))

    def forward_(self, H: Tensor, layers: Layers) -> None:
        """As `GramEngine` has it."""
        from drnmf.engines import triton_kernels

        triton_kernels.forward_(H, layers.A_KNN())

    def backward_(self, G: Tensor, H: Tensor, layers: Layers) -> None:
        """As `GramEngine` has it."""
        from drnmf.engines import triton_kernels

        triton_kernels.backward_(G, H, layers.A_KNN())
