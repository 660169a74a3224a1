"""ISTA and warm-start ISTA as separators: what DR-NMF is before it is trained, with any number of iterations."""

from typing import Any, Self

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.maths.nmf import check_dictionary, unit_norm
from drnmf.maths.thresholding import check_alpha, ista_step, lipschitz, unfolded_ista
from drnmf.models.base import Separator, State, given
from drnmf.models.graph import Frame, Graph
from drnmf.models.masks import dictionary_mask, split_sources


class ISTAMask(Separator):
    """`n_iter` ISTA iterations per frame from the previous frame's h or, without `warm_start`, from zero; then a mask.

    Nothing is trained; the dictionary and alpha are those given to `from_dictionary`.

    Examples:
        >>> import torch
        >>> from drnmf import ISTAMask
        >>> model = ISTAMask.from_dictionary(torch.rand(257, 20), n_iter=5)
        >>> mask, state = model(torch.rand(1, 100, 257))
        >>> mask.shape
        torch.Size([1, 100, 257])
    """

    trainable = False
    W: Tensor
    alpha: Tensor

    def __init__(
        self,
        *,
        n_atoms: int,
        n_speech: int | None = None,
        n_features: int = 257,
        n_iter: int = 5,
        sparsity: float = 1.0,
        warm_start: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        n_speech = split_sources(n_atoms, n_speech)
        super().__init__(**given(locals()))
        if n_iter < 1:
            raise InputError(f"n_iter must be at least 1, got {n_iter}")
        if sparsity < 0:
            raise InputError(f"sparsity must not be negative, got {sparsity}")
        self.n_speech, self.n_iter, self.sparsity, self.warm_start = n_speech, n_iter, sparsity, warm_start
        self.state_shapes = ((n_atoms,),) if warm_start else ()
        W = unit_norm(torch.rand(n_features, n_atoms, generator=generator))
        self.register_buffer("W", W)
        self.register_buffer("alpha", torch.ones(1))
        if not W.is_meta:
            self.alpha.fill_(lipschitz(W))

    @classmethod
    def from_dictionary(cls, W: Tensor, *, alpha: float | None = None, **options: Any) -> Self:
        """Use W = [W_speech, W_noise] (F, N) and alpha, by default its Lipschitz constant; options as above."""
        check_dictionary(W)
        model = cls.empty(n_features=W.shape[0], n_atoms=W.shape[1], **options)
        model.W = W.detach().clone()
        model.alpha = W.new_full((1,), check_alpha(alpha, lipschitz(W)))
        return model

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); with warm start the state is the last frame's h (B, N)."""
        state = self.start(len(magnitude)) if state is None else state
        h = self._activations(magnitude, state)
        last = (h[:, -1],) if self.warm_start and h.shape[1] else state
        return dictionary_mask(h, self.W, self.n_speech), last

    def _activations(self, magnitude: Tensor, state: State) -> Tensor:
        """Activations (B, T, N) of magnitudes (B, T, F)."""
        if not self.warm_start:  # every frame on its own: all at once
            h = magnitude.new_zeros(*magnitude.shape[:2], self.W.shape[1])
            for _ in range(self.n_iter):
                h = ista_step(h, magnitude, self.W, alpha=self.alpha, sparsity=self.sparsity)
            return h
        return unfolded_ista(
            magnitude,
            self.W.expand(self.n_iter, -1, -1),
            alpha_KN=self.alpha.expand(self.n_iter, 1),
            sparsity_KN=torch.full_like(self.alpha, self.sparsity).expand(self.n_iter, 1),
            h0_BN=state[0],
        )

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """As `separate`."""
        h = state[0] if self.warm_start else graph.constant(torch.zeros(1, self.W.shape[1]))
        sparsity = torch.tensor([self.sparsity])
        for _ in range(self.n_iter):
            h = graph.ista_step(h, magnitude, self.W, alpha=self.alpha, sparsity=sparsity)
        return graph.dictionary_mask(h, self.W, self.n_speech), [h] if self.warm_start else []

    def spectra(self) -> dict[str, Tensor]:
        """The dictionary."""
        return {"all iterations": self.W}

    def heard(self, magnitude: Tensor) -> dict[str, Tensor]:
        """The activations."""
        return {"activations": self._activations(magnitude[None], self.start(1))[0]}
