"""The steps of the Gram form on thread-block clusters, for GPUs that have them (from Hopper).

One step is a vector times a matrix for each sequence. Read from the second-level cache, the matrices make it wait;
here a cluster of blocks holds all layers' matrices in its shared memory, K N^2 floats that are read once, and only the
vectors travel between the blocks. `scan_cluster.cu` is the kernel.
"""

from functools import cache

import torch
from torch import Tensor

from drnmf.engines.blocks import GramKernels
from drnmf.engines.cuda_kernel import SHARED, Kernel, available, layer_rows
from drnmf.engines.problem import Problem

LANES, COLUMNS = 8, 2  # as in the kernel: threads and columns of a group
CLUSTERS = (1, 2, 4, 8)  # blocks in one; fewer are faster to meet, more hold more
MOST_COLUMNS = 52  # of a block, where a larger cluster can have less


class Cluster(GramKernels):
    """The Gram form on clusters."""

    name = "cluster"
    takes = "float32 on a GPU from Hopper on, with matrices that fit into the shared memory of a cluster"

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Where the matrices fit, beside the most sequences that a cluster takes."""
        x, (K, _, N) = problem.x_BTF, problem.W_KFN.shape
        return x.dtype == torch.float32 and available(x.device) and fits(K, N)

    def steps_(self, rows: Tensor, H: Tensor, A_KNN: Tensor, *, backward: bool) -> None:
        """As `GramKernels` has it; A may be (B, K, N, N), for sequences with matrices of their own."""
        K, T, B, N = len(H), H.shape[1] - 1, *H.shape[2:]
        own = A_KNN.ndim == 4
        sequences = 1 if own or B <= 16 else 2 if B <= 32 else 4  # of a cluster: about 16 clusters run at a time
        size = _size(K, N, sequences)
        assert size is not None, "usable() has seen that they fit"
        cluster, columns, shared = size
        with torch.cuda.device(H.device):
            _kernel(K, N, cluster, columns, sequences, backward, H.device)(
                A_KNN.contiguous(), rows, layer_rows(rows), H, layer_rows(H), B, T, int(own),
                blocks=-(-B // sequences) * cluster, threads=-(-columns // COLUMNS * LANES // 32) * 32, shared=shared,
            )  # fmt: skip


def fits(K: int, N: int) -> bool:
    """Whether the matrices of K layers of N atoms fit into a cluster."""
    return _size(K, N, 4) is not None


def _size(K: int, N: int, sequences: int) -> tuple[int, int, int] | None:
    """Blocks of a cluster, columns of a block, and its bytes of shared memory; None if no cluster is large enough."""
    for cluster in CLUSTERS:
        columns = -(-N // (4 * cluster)) * 4  # messages have four
        shared = 4 * (K * columns + 2 * sequences) * cluster * columns + 16
        if shared <= SHARED and (columns <= MOST_COLUMNS or cluster == CLUSTERS[-1]):
            return cluster, columns, shared
    return None


@cache
def _kernel(K: int, N: int, cluster: int, columns: int, sequences: int, backward: bool, device: torch.device) -> Kernel:
    """Compiled for one size and device."""
    sizes = {"K": K, "N": N, "R": cluster, "n": columns, "S": sequences, "P": cluster * columns, "BACKWARD": backward}
    return Kernel("scan_cluster.cu", **sizes)
