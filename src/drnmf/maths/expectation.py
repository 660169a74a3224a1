"""What a recurrent prior is made of, as tensors or as arrays: `maths.prior` has its equations.

Names end in their shapes: F bins, N atoms, K layers, U units, G = 3 U gates.
"""

from typing import Generic, NamedTuple, TypeVar

BOUND = 4.0  # of a logarithm: an expectation changes a threshold by a factor of at most 55
Numbers = TypeVar("Numbers")  # tensors or arrays


class Layers(NamedTuple, Generic[Numbers]):
    """What the iterations over one dictionary have of their own."""

    alpha_KN: Numbers
    sparsity_KN: Numbers
    h0_N: Numbers


class Expectation(NamedTuple, Generic[Numbers]):
    """A GRU, its gates in the order reset, update, new; and the three maps of what it remembers."""

    heard_GN: Numbers
    heard_bias_G: Numbers
    memory_GU: Numbers
    memory_bias_G: Numbers
    sparsity_NU: Numbers
    sparsity_bias_N: Numbers
    weight_NU: Numbers
    weight_bias_N: Numbers
    gain_1U: Numbers
    gain_bias_1: Numbers
