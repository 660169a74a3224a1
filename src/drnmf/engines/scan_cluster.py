"""The steps of the Gram form on thread-block clusters, for GPUs that have them (from Hopper).

One step is a vector times a matrix for each sequence. Read from the second-level cache, the matrices make it wait;
here a cluster of blocks holds all layers' matrices in its shared memory, K N^2 floats that are read once, and only the
vectors travel between the blocks. `scan_cluster.cu` is the kernel.
"""

from functools import cache

import torch
from torch import Tensor

from drnmf.engines.blocks import KERNEL_ROWS
from drnmf.engines.cuda_kernel import SHARED, Kernel, available, layer_rows
from drnmf.engines.gram import GramEngine
from drnmf.engines.problem import Problem
from drnmf.engines.products import Layers

LANES, COLUMNS = 8, 2  # as in the kernel: threads and columns of a group
CLUSTERS = (1, 2, 4, 8)  # blocks in one; fewer are faster to meet, more hold more
MOST_COLUMNS = 52  # of a block, where a larger cluster can have less


class Cluster(GramEngine):
    """The Gram form with all steps of a block in one kernel."""

    name = "cluster"
    takes = "float32 on a GPU from Hopper on, with matrices that fit into the shared memory of a cluster"
    rows = KERNEL_ROWS
    adds = False

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Where the matrices fit."""
        K, _, N = problem.W_KFN.shape
        return usable(problem.x_BTF, K, N)

    def forward_(self, H: Tensor, layers: Layers) -> None:
        """As `GramEngine` has it."""
        forward_(H, layers.A_KNN())

    def backward_(self, G: Tensor, H: Tensor, layers: Layers) -> None:
        """As `GramEngine` has it."""
        backward_(G, H, layers.A_KNN())


def usable(x: Tensor, K: int, N: int) -> bool:
    """Whether the kernels can run on tensors like `x`: a GPU with clusters, whose shared memory holds the matrices."""
    return x.dtype == torch.float32 and available(x.device) and _size(K, N, 4) is not None


def forward_(H_KTBN: Tensor, A_KNN: Tensor) -> None:
    """Turn b in H[:, 1:] into the activations h, in place, from the state H[-1, 0]; A_k maps a state s to s A_k."""
    _run(H_KTBN, H_KTBN, A_KNN, backward=False)


def backward_(G_KTBN: Tensor, H_KTBN: Tensor, A_KNN: Tensor) -> None:
    """Turn dL/dh of the last layer in G[-1, 1:] into g in G[:, 1:], in place, and put that of H[-1, 0] into G[-1, 0].

    What later frames send back must already be part of G[-1, -1]; H is what `forward_` left.
    """
    _run(G_KTBN, H_KTBN, A_KNN, backward=True)


def _run(rows_KTBN: Tensor, H_KTBN: Tensor, A_KNN: Tensor, *, backward: bool) -> None:
    K, T, B, N = len(H_KTBN), H_KTBN.shape[1] - 1, *H_KTBN.shape[2:]
    if not B or not T:
        return
    sequences = sequences_of(B)
    size = _size(K, N, sequences)
    if size is None:
        raise ValueError(f"{K} matrices of {N} x {N} do not fit into the shared memory of a cluster")
    cluster, columns, shared = size
    with torch.cuda.device(H_KTBN.device):
        _kernel(K, N, cluster, columns, sequences, backward, H_KTBN.device)(
            A_KNN.contiguous(), rows_KTBN, layer_rows(rows_KTBN), H_KTBN, layer_rows(H_KTBN), B, T,
            blocks=-(-B // sequences) * cluster, threads=-(-columns // COLUMNS * LANES // 32) * 32, shared=shared,
        )  # fmt: skip


def sequences_of(B: int) -> int:
    """Sequences of a cluster: about 16 clusters run at a time."""
    return 1 if B <= 16 else 2 if B <= 32 else 4


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
