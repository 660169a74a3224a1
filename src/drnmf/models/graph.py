"""One frame of a model as a graph of ONNX operations, built node by node; `use.export` makes a file of it.

Tracing would be shorter to write, but exponentials, normalisations and step sizes are constants here, each dictionary
is stored once, and a DR-NMF layer is five nodes where tracing makes seventy.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from drnmf.maths.divergence import FLOOR
from drnmf.models.masks import MASK_FLOOR
from drnmf.signal.level import ATTACK, RELEASE, SILENCE

Frame = tuple[str, list[str]]
"""Names of the mask and of the next states."""
Value = str | Tensor | float | list[int]
"""The name of a value, or a constant to store."""


class Node(NamedTuple):
    """One operation: its ONNX name, the names of what goes in and comes out, its attributes."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]


class Graph:
    """Nodes and constants of a graph that grows; values are known by their names, and equal ones are made once."""

    def __init__(self) -> None:
        self.operations: list[Node] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self._made: dict[object, list[str]] = {}

    def constant(self, value: Tensor | float | list[int]) -> str:
        """A stored array: int64 for a list, else float32."""
        dtype = torch.int64 if isinstance(value, list) else torch.float32
        array = torch.as_tensor(value).to(dtype).contiguous().numpy()
        key = array.shape, array.dtype, array.tobytes()
        if key not in self._made:
            name = f"constant_{len(self.constants)}"
            self._made[key] = [name]
            self.constants[name] = array
        return self._made[key][0]

    def node(self, op: str, *inputs: Value, **attributes: Any) -> str:
        """The result of an operation."""
        return self.nodes(op, 1, *inputs, **attributes)[0]

    def nodes(self, op: str, count: int, *inputs: Value, **attributes: Any) -> list[str]:
        """All `count` results of an operation."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        key = op, *names, *sorted(attributes.items())
        if key not in self._made:
            self._made[key] = [f"{op.lower()}_{len(self.operations)}" + "_" * i for i in range(count)]
            self.operations.append(Node(op, names, self._made[key], attributes))
        return self._made[key]

    def levelled(self, magnitude: str, state: str, level: float) -> tuple[str, str]:
        """Magnitudes at a level, and the running level's next state: `signal.level` has the formula."""
        loudness = self.node("Slice", state, [0], [1], [1])
        peak = self.node("Slice", state, [1], [2], [1])
        power = self.node("ReduceMean", self.node("Mul", magnitude, magnitude), axes=(1,))
        loudness = self.node("Add", loudness, self.node("Mul", self.node("Sub", power, loudness), ATTACK))
        peak = self.node("Max", self.node("Mul", peak, RELEASE), loudness)
        gain = self.node("Div", level, self.node("Max", self.node("Sqrt", peak), SILENCE))
        return self.node("Mul", magnitude, gain), self.node("Concat", loudness, peak, axis=1)

    def ista_step(
        self,
        h: str,
        x: str,
        W: Tensor,
        *,
        alpha: Tensor,
        sparsity: Tensor,
        factor: str | None = None,
        with_residual: bool = True,
    ) -> str:
        """relu(h + (W^T (x - W h) - factor sparsity) / alpha); without the residual, W h is left out.

        The factored form, x - W h first, needs one matrix in the file instead of two, and far less work for many atoms.
        """
        error = self.node("Gemm", h, W, x, transB=1, alpha=-1.0) if with_residual else x
        threshold: Value = -sparsity if factor is None else self.node("Mul", factor, -sparsity)
        step = self.node("Mul", self.node("Gemm", error, W, threshold), 1 / alpha)
        return self.node("Relu", self.node("Add", h, step))

    def gru_step(self, c: str, x: str, gru: nn.GRU) -> str:
        """What a GRU of one layer remembers, (1, U), after c and x (1, N)."""

        def gates(name: str) -> Tensor:
            """PyTorch's gates (reset, update, new) in ONNX's order (update, reset, new)."""
            r, z, n = getattr(gru, f"{name}_l0").chunk(3)
            return torch.cat([z, r, n])[None]

        x_11N = self.node("Reshape", x, [1, 1, gru.input_size])
        c_11U = self.node("Reshape", c, [1, 1, gru.hidden_size])
        biases = torch.cat([gates("bias_ih"), gates("bias_hh")], 1)
        inputs = (x_11N, gates("weight_ih"), gates("weight_hh"), biases, "", c_11U)
        _, after = self.nodes("GRU", 2, *inputs, hidden_size=gru.hidden_size, linear_before_reset=1)
        return self.node("Reshape", after, [1, gru.hidden_size])

    def bounded_exponential(self, c: str, to: nn.Linear, bound: float) -> str:
        """exp(bound tanh(a / bound)) of a = to(c)."""
        a = self.node("Gemm", c, to.weight, to.bias, transB=1)
        return self.node("Exp", self.node("Mul", self.node("Tanh", self.node("Mul", a, 1 / bound)), bound))

    def multiplicative_step(self, h: str, x: str, W: Tensor, *, beta: float, sparsity: float) -> str:
        """One of `nmf.multiplicative_updates`; what does not depend on h is made once."""
        model = self.node("Max", self.node("Gemm", h, W, transB=1), FLOOR)
        gain = x if beta == 2 else self.node("Mul", x, self.node("Pow", model, beta - 2))
        power = model if beta == 2 else self.node("Pow", model, beta - 1)
        denominator = self.node("Max", self.node("Gemm", power, W, torch.tensor([sparsity])), FLOOR)
        ratio = self.node("Div", self.node("Gemm", gain, W), denominator)
        if not 1 <= beta <= 2:
            gamma = 1 / (2 - beta) if beta < 1 else 1 / (beta - 1)
            ratio = self.node("Pow", self.node("Max", ratio, FLOOR), gamma)
        return self.node("Mul", h, ratio)

    def sources(self, h: str, W: Tensor, n_speech: int) -> tuple[str, str]:
        """Reconstructions of speech and noise. The other's activations are zeroed: so W, stored anyway, stays whole."""
        is_speech = (torch.arange(W.shape[1]) < n_speech).to(W)[None]
        speech = self.node("Gemm", self.node("Mul", h, is_speech), W, transB=1)
        noise = self.node("Gemm", self.node("Mul", h, 1 - is_speech), W, transB=1)
        return speech, noise

    def ratio_mask(self, speech: str, noise: str) -> str:
        """`masks.ratio_mask`."""
        return self.node("Div", speech, self.node("Max", self.node("Add", speech, noise), MASK_FLOOR))

    def dictionary_mask(self, h: str, W: Tensor, n_speech: int) -> str:
        """`masks.dictionary_mask`."""
        return self.ratio_mask(*self.sources(h, W, n_speech))
