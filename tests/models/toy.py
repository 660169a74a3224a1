"""A model that the package does not have, as one would add it: all of it is in this file."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from drnmf.models.base import Separator, State, given
from drnmf.models.graph import Frame, Graph
from drnmf.models.masks import dictionary_mask, split_sources


class ToyMask(Separator):
    """h_t = decay h_(t-1) + relu(x_t W), where x is the square root of the magnitudes; then the ratio mask."""

    learning_rate = 3e-3

    def __init__(self, *, n_atoms: int, n_speech: int | None = None, n_features: int = 257, decay: float = 0.5) -> None:
        n_speech = split_sources(n_atoms, n_speech)
        super().__init__(**given(locals()))
        self.n_speech = n_speech
        self.decay = decay
        self.state_shapes = ((n_atoms,),)
        self.log_W = nn.Parameter(torch.zeros(n_features, n_atoms))

    @classmethod
    def from_dictionary(cls, W: Tensor, **options: Any) -> Self:
        model = cls.empty(W, n_features=W.shape[0], n_atoms=W.shape[1], **options)
        model.log_W.data.copy_(torch.log(W + 1e-3))
        return model

    @classmethod
    def features(cls, magnitude: Tensor, options: Mapping[str, Any]) -> Tensor:
        return magnitude.sqrt()

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        h_BTN, state = self._activations(magnitude, state)
        return dictionary_mask(h_BTN, self.log_W.exp(), self.n_speech), state

    def _activations(self, magnitude: Tensor, state: State | None) -> tuple[Tensor, State]:
        h_BN = magnitude.new_zeros(len(magnitude), self.log_W.shape[1]) if state is None else state[0]
        frames = []
        for new_BN in (magnitude.sqrt() @ self.log_W.exp()).unbind(1):
            h_BN = self.decay * h_BN + new_BN
            frames.append(h_BN)
        return torch.stack(frames, 1), (h_BN,)

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        W = self.log_W.exp()
        new = graph.node("Gemm", graph.node("Sqrt", magnitude), W)
        h = graph.node("Add", new, graph.node("Mul", *state, self.decay))
        return graph.dictionary_mask(h, W, self.n_speech), [h]

    def spectra(self) -> dict[str, Tensor]:
        return {"the only layer": self.log_W.exp().square()}

    def heard(self, magnitude: Tensor) -> dict[str, Tensor]:
        return {"activations": self._activations(magnitude[None], None)[0][0]}
