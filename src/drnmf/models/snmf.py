"""Sparse NMF as a separator: multiplicative updates on every frame, the baseline of the paper's table 1."""

from typing import Any, Self

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.maths.nmf import check_dictionary, infer_activations, unit_norm
from drnmf.models.base import Separator, State, given
from drnmf.models.graph import Frame, Graph
from drnmf.models.masks import dictionary_mask, split_sources


class SparseNMFMask(Separator):
    """`n_iter` multiplicative updates of h for every frame on its own, then the ratio mask; nothing is trained.

    Examples:
        >>> import torch
        >>> from drnmf import SparseNMFMask
        >>> model = SparseNMFMask.from_dictionary(torch.rand(257, 20), n_iter=10)
        >>> mask, _ = model(torch.rand(1, 100, 257))
        >>> mask.shape
        torch.Size([1, 100, 257])
    """

    trainable = False
    W: Tensor

    def __init__(
        self,
        *,
        n_atoms: int,
        n_speech: int | None = None,
        n_features: int = 257,
        n_iter: int = 200,
        beta: float = 2.0,
        sparsity: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        n_speech = split_sources(n_atoms, n_speech)
        super().__init__(**given(locals()))
        if n_iter < 1:
            raise InputError(f"n_iter must be at least 1, got {n_iter}")
        if sparsity < 0:
            raise InputError(f"sparsity must not be negative, got {sparsity}")
        self.n_speech, self.n_iter, self.beta, self.sparsity = n_speech, n_iter, beta, sparsity
        W = torch.rand(n_features, n_atoms, generator=generator)
        self.register_buffer("W", unit_norm(W))

    @classmethod
    def from_dictionary(cls, W: Tensor, **options: Any) -> Self:
        """A separator with the trained dictionary W = [W_speech, W_noise] (F, N); the options are the constructor's."""
        check_dictionary(W)
        model = cls.empty(n_features=W.shape[0], n_atoms=W.shape[1], **options)
        model.W = W.detach().clone()
        return model

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); there is no state."""
        h = self._activations(magnitude.flatten(0, 1))
        return dictionary_mask(h, self.W, self.n_speech).view_as(magnitude), ()

    def _activations(self, magnitude: Tensor) -> Tensor:
        """Activations (T, N) of frames (T, F)."""
        V = magnitude.mT
        return infer_activations(V, self.W, n_iter=self.n_iter, beta=self.beta, sparsity=self.sparsity).mT

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """As `separate`."""
        h = graph.node("Gemm", magnitude, self.W)
        for _ in range(self.n_iter):
            h = graph.multiplicative_step(h, magnitude, self.W, beta=self.beta, sparsity=self.sparsity)
        return graph.dictionary_mask(h, self.W, self.n_speech), []

    def spectra(self) -> dict[str, Tensor]:
        """The dictionary."""
        return {"all iterations": self.W}

    def heard(self, magnitude: Tensor) -> dict[str, Tensor]:
        """The activations."""
        return {"activations": self._activations(magnitude)}
