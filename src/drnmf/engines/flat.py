"""A network as the one flat file that `libdrnmf` reads; its layout stands in `libdrnmf/model.h`."""

import numpy as np

from drnmf.engines.prior_network import PriorNetwork

_MAGIC, _VERSION = b"drnmf C\n", 2


def flat(network: PriorNetwork) -> bytes:
    """The file's content: sizes, a checksum, and all numbers in the order and the panels in which C reads them."""
    (K, N), U = network.sparsity_KN.shape, len(network.gate_bias) // 4
    arrays = (
        *(network.gram_NN, network.rate_KN, network.sparsity_KN, network.heard_NG, network.memory_UG),
        *(network.gate_bias, network.maps_UM, network.map_bias_M, network.scale_N, network.atoms_NF, network.silent),
        *network.origin,
    )
    numbers = np.concatenate([array.ravel() for array in arrays]).astype("<f4")
    sizes = (K - network.n_listening, network.n_listening, network.n_features, N, network.n_speech, U, len(numbers))
    options = np.array([network.level, network.power, network.floor], "<f8")
    head = _MAGIC + np.array([_VERSION, *sizes], "<u4").tobytes() + options.tobytes()
    return head + _checksum(head + numbers.tobytes()) + numbers.tobytes()


def _checksum(content: bytes) -> bytes:
    """Fletcher's: the sum of all 32-bit words, and the sum of its partial sums, which knows their order."""
    partial = np.cumsum(np.frombuffer(content, "<u4"), dtype=np.uint64)
    return np.array([partial[-1], partial.sum()], "<u8").tobytes()
