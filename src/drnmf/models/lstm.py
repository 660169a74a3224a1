"""Stacked LSTM with a sigmoid mask: the paper's neural baseline."""

import torch
from torch import Tensor, nn

from drnmf.errors import InputError
from drnmf.models.base import Separator, State, given
from drnmf.models.graph import Frame, Graph


class LSTMMask(Separator):
    """`n_layers` LSTM layers of `n_units`, a dense layer to F, and a sigmoid.

    Weights start as in the original experiments: Glorot uniform from the input, orthogonal from the previous frame,
    zero biases except 1 for the forget gate.
    """

    learning_rate = 1e-4
    gradient_clip = 1.0

    def __init__(
        self, n_layers: int, n_units: int, *, n_features: int = 257, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(**given(locals()))
        if n_layers < 1 or n_units < 1:
            raise InputError(f"n_layers and n_units must be at least 1, got {n_layers} and {n_units}")
        self.state_shapes = ((n_layers, n_units), (n_layers, n_units))
        self.lstm = nn.LSTM(n_features, n_units, n_layers, batch_first=True)
        self.output = nn.Linear(n_units, n_features)
        self._initialise(generator)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator | None) -> None:
        for name, weight in self.named_parameters():
            if weight.ndim == 1:
                weight.zero_()
                if "bias_ih" in name:  # gates lie in the order input, forget, cell, output
                    weight.view(4, -1)[1] = 1
            elif "weight_hh" in name:
                nn.init.orthogonal_(weight, generator=generator)
            else:
                nn.init.xavier_uniform_(weight, generator=generator)

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); the state is the layers' (h, c), batch first."""
        if magnitude.shape[1] == 0:  # nn.LSTM refuses empty sequences
            zeros = magnitude.new_zeros(len(magnitude), *self.state_shapes[0])
            return magnitude, (zeros, zeros) if state is None else state
        hidden = None if state is None else tuple(s.transpose(0, 1).contiguous() for s in state)
        y, (h, c) = self.lstm(magnitude, hidden)
        return torch.sigmoid(self.output(y)), (h.transpose(0, 1), c.transpose(0, 1))

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """As `separate`."""
        units = self.config["n_units"]
        y = graph.node("Reshape", magnitude, [1, 1, self.n_features])
        after = []
        for k in range(self.config["n_layers"]):
            before = [graph.node("Slice", s, [k], [k + 1], [1]) for s in state]  # (1, 1, units), as ONNX wants them
            weights = [self._gates("weight_ih", k), self._gates("weight_hh", k)]
            biases = torch.cat([self._gates("bias_ih", k), self._gates("bias_hh", k)], 1)
            _, y, c = graph.nodes("LSTM", 3, y, *weights, biases, "", *before, hidden_size=units)
            after.append((y, c))
        y = graph.node("Reshape", y, [1, units])
        z = graph.node("Gemm", y, self.output.weight, self.output.bias, transB=1)
        return graph.node("Sigmoid", z), [graph.node("Concat", *s, axis=1) for s in zip(*after, strict=True)]

    def _gates(self, name: str, layer: int) -> Tensor:
        """PyTorch's gates (input, forget, cell, output) in ONNX's order (input, output, forget, cell)."""
        i, f, c, o = getattr(self.lstm, f"{name}_l{layer}").chunk(4)
        return torch.cat([i, o, f, c])[None]
