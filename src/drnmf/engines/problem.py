"""What the scan asks of an engine: a problem in, activations out, and gradients on the way back."""

from typing import NamedTuple, Protocol

from torch import Tensor


class Problem(NamedTuple):
    """T frames of B sequences, and the K layers that each frame passes."""

    x_BTF: Tensor
    h0_BN: Tensor
    W_KFN: Tensor
    alpha_KN: Tensor
    sparsity_KN: Tensor
    sparsity_KBTN: Tensor | None  # what single frames add to sparsity_KN; its K may be 1: the same for all layers
    residual_first_layer: bool

    def cheaper_by_gram(self) -> bool:
        """Whether a step costs fewer multiplications in the Gram form, which also has to make W^T W for all rows."""
        (B, T, F), N = self.x_BTF.shape, self.h0_BN.shape[1]
        return N * N * (1 + F / max(B * T, 1)) < 2 * F * N


class Needs(NamedTuple):
    """Which tensors of a problem need a gradient."""

    x_BTF: bool
    h0_BN: bool
    W_KFN: bool
    alpha_KN: bool
    sparsity_KN: bool
    sparsity_KBTN: bool

    @property
    def parameters(self) -> bool:
        """Whether sums over all frames are needed."""
        return self.W_KFN or self.alpha_KN or self.sparsity_KN


Gradients = tuple[Tensor | None, ...]  # in the order of `Needs`; None or anything where none is needed


class Engine(Protocol):
    """One way to take all steps."""

    @property
    def name(self) -> str:
        """What `scan(form=...)` calls it."""

    @property
    def takes(self) -> str:
        """The problems it is for, as an error message says it."""

    def usable(self, problem: Problem, *, by_name: bool) -> bool:
        """Whether it can solve the problem and, unless asked for by name, is likely to be fast at it."""

    def forward(self, problem: Problem, needs: Needs | None) -> tuple[Tensor, list[Tensor]]:
        """Return h (B, T, N), and what `backward` will ask for; nothing if no gradient is needed."""

    def backward(self, dh_BTN: Tensor, problem: Problem, kept: list[Tensor], needs: Needs) -> Gradients:
        """The gradients of a problem's tensors from that of h."""
