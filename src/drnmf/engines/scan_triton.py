"""The steps of the Gram form in Triton, which comes with PyTorch for CUDA: for GPUs before Hopper and larger matrices.

`triton_kernels` holds the kernels; they are imported when they are first used, because Triton takes a while to load.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from drnmf.engines.blocks import GramKernels
from drnmf.engines.problem import Problem

MAX_ATOMS = 512  # above these two, one product for all sequences takes less than to stream A for each of them
MAX_SEQUENCES = 1024


class Triton(GramKernels):
    """The Gram form in Triton."""

    name = "triton"
    takes = "float32 on a GPU with Triton installed"

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """On GPUs, by itself up to so many atoms and sequences; by name also where Triton interprets its kernels."""
        x, N = problem.x_BTF, problem.h0_BN.shape[1]
        interpreted = by_name and os.environ.get("TRITON_INTERPRET") == "1"
        able = (x.is_cuda or interpreted) and x.dtype == torch.float32 and find_spec("triton") is not None
        return able and (by_name or (len(x) <= MAX_SEQUENCES and 0 < N <= MAX_ATOMS))

    def steps_(self, rows: Tensor, H: Tensor, A_KNN: Tensor, *, backward: bool) -> None:
        """As `GramKernels` has it."""
        from drnmf.engines import triton_kernels

        triton_kernels.steps_(rows, H, A_KNN, backward=backward)
