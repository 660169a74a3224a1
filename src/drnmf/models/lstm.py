"""Stacked LSTM with a sigmoid mask: the paper's neural baseline."""

import torch
from torch import Tensor, nn

from drnmf.errors import InputError
from drnmf.models.base import Separator, State, given
from drnmf.models.drnmf import compressed
from drnmf.models.graph import Frame, Graph


class LSTMMask(Separator):
    """`n_layers` LSTM layers of `n_units`, a dense layer to F, and a sigmoid.

    Weights start as in the original experiments: Glorot uniform from the input, orthogonal from the previous frame,
    zero biases except 1 for the forget gate. With `level` and `power` it hears what DRNMF hears with them.

    Examples:
        >>> import torch
        >>> from drnmf import LSTMMask
        >>> model = LSTMMask(n_layers=2, n_units=54)
        >>> mask, state = model(torch.rand(1, 100, 257))
        >>> mask.shape
        torch.Size([1, 100, 257])
    """

    learning_rate = 1e-4
    gradient_clip = 1.0

    def __init__(
        self,
        n_layers: int,
        n_units: int,
        *,
        level: float | None = None,
        power: float = 1.0,
        n_features: int = 257,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(**given(locals()))
        if n_layers < 1 or n_units < 1:
            raise InputError(f"n_layers and n_units must be at least 1, got {n_layers} and {n_units}")
        if (level is not None and not level > 0) or not power > 0:
            raise InputError(f"level and power must be above 0, got {level} and {power}")
        self.level, self.power = level, power
        loudness = () if level is None else ((2,),)
        self.state_shapes = ((n_layers, n_units), (n_layers, n_units), *loudness)
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
        """Mask (B, T, F) for magnitudes (B, T, F); the state is the layers' (h, c), batch first, and the level."""
        state = self.start(len(magnitude)) if state is None else state
        if magnitude.shape[1] == 0:  # nn.LSTM refuses empty sequences
            return magnitude, state
        x_BTF, loudness = compressed(magnitude, state[2] if self.level else None, level=self.level, power=self.power)
        hidden = tuple(s.transpose(0, 1).contiguous() for s in state[:2])
        y, (h, c) = self.lstm(x_BTF, hidden)
        return torch.sigmoid(self.output(y)), (h.transpose(0, 1), c.transpose(0, 1), *loudness)

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """As `separate`."""
        units = self.config["n_units"]
        loudness = []
        if self.level is not None:
            magnitude, level = graph.levelled(magnitude, state[2], self.level)
            loudness.append(level)
        x = magnitude if self.power == 1 else graph.node("Pow", magnitude, self.power)
        y = graph.node("Reshape", x, [1, 1, self.n_features])
        after = []
        for k in range(self.config["n_layers"]):
            before = [graph.node("Slice", s, [k], [k + 1], [1]) for s in state[:2]]  # (1, 1, units), as ONNX wants them
            weights = [self._gates("weight_ih", k), self._gates("weight_hh", k)]
            biases = torch.cat([self._gates("bias_ih", k), self._gates("bias_hh", k)], 1)
            _, y, c = graph.nodes("LSTM", 3, y, *weights, biases, "", *before, hidden_size=units)
            after.append((y, c))
        y = graph.node("Reshape", y, [1, units])
        z = graph.node("Gemm", y, self.output.weight, self.output.bias, transB=1)
        layers = [graph.node("Concat", *s, axis=1) for s in zip(*after, strict=True)]
        return graph.node("Sigmoid", z), [*layers, *loudness]

    def _gates(self, name: str, layer: int) -> Tensor:
        """PyTorch's gates (input, forget, cell, output) in ONNX's order (input, output, forget, cell)."""
        i, f, c, o = getattr(self.lstm, f"{name}_l{layer}").chunk(4)
        return torch.cat([i, o, f, c])[None]
