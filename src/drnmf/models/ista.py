"""ISTA and warm-start ISTA as separators: what DR-NMF is before it is trained, with any number of iterations."""

from typing import Self

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.ista import ista, lipschitz, warm_start_ista
from drnmf.nmf import unit_norm
from drnmf.separator import Separator, State, dictionary_mask, split_sources


class ISTAMask(Separator):
    """`n_iter` ISTA iterations per frame, from the previous frame's h or, without `warm_start`, from zero; then the mask."""

    W: Tensor

    def __init__(
        self,
        *,
        n_atoms: int,
        n_speech: int | None = None,
        n_features: int = 257,
        n_iter: int = 5,
        alpha: float | None = None,
        sparsity: float = 1.0,
        warm_start: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        n_speech = split_sources(n_atoms, n_speech)
        super().__init__(
            n_features,
            n_atoms=n_atoms,
            n_speech=n_speech,
            n_iter=n_iter,
            alpha=alpha,
            sparsity=sparsity,
            warm_start=warm_start,
        )
        if n_iter < 1:
            raise InputError(f"n_iter must be at least 1, got {n_iter}")
        self.n_speech, self.n_iter, self.sparsity, self.warm_start = n_speech, n_iter, sparsity, warm_start
        self.register_buffer("W", unit_norm(torch.rand(n_features, n_atoms, generator=generator)))

    @classmethod
    def from_dictionary(
        cls,
        W: Tensor,
        *,
        n_speech: int | None = None,
        n_iter: int = 5,
        alpha: float | None = None,
        sparsity: float = 1.0,
        warm_start: bool = True,
    ) -> Self:
        """A separator with the dictionary W = [W_speech, W_noise] (F, N); alpha defaults to its Lipschitz constant."""
        model = cls(
            n_features=W.shape[0],
            n_atoms=W.shape[1],
            n_speech=n_speech,
            n_iter=n_iter,
            alpha=lipschitz(W) if alpha is None else alpha,
            sparsity=sparsity,
            warm_start=warm_start,
        )
        model.W = W.clone()
        return model

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); with warm start the state is the last frame's h (B, N)."""
        options = {"n_iter": self.n_iter, "alpha": self.config["alpha"], "sparsity": self.sparsity}
        if not self.warm_start:
            return dictionary_mask(ista(magnitude, self.W, **options), self.W, self.n_speech), ()
        h0 = magnitude.new_zeros(len(magnitude), self.W.shape[1]) if state is None else state[0]
        h = warm_start_ista(magnitude, self.W, h0=h0, **options)
        return dictionary_mask(h, self.W, self.n_speech), (h[:, -1] if h.shape[1] else h0,)
