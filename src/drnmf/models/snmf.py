"""Sparse NMF as a separator: multiplicative updates on every frame, the baseline of the paper's table 1."""

from typing import Self

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.maths.nmf import check_dictionary, infer_activations, unit_norm
from drnmf.models.base import Separator, State, dictionary_mask, split_sources


class SparseNMFMask(Separator):
    """`n_iter` multiplicative updates of h for every frame on its own, then the ratio mask; nothing is trained."""

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
        super().__init__(n_features, n_atoms=n_atoms, n_speech=n_speech, n_iter=n_iter, beta=beta, sparsity=sparsity)
        if n_iter < 1:
            raise InputError(f"n_iter must be at least 1, got {n_iter}")
        if sparsity < 0:
            raise InputError(f"sparsity must not be negative, got {sparsity}")
        self.n_speech, self.n_iter, self.beta, self.sparsity = n_speech, n_iter, beta, sparsity
        self.register_buffer("W", unit_norm(torch.rand(n_features, n_atoms, generator=generator)))

    @classmethod
    def from_dictionary(
        cls,
        W: Tensor,
        *,
        n_speech: int | None = None,
        n_iter: int = 200,
        beta: float = 2.0,
        sparsity: float = 1.0,
    ) -> Self:
        """A separator with the trained dictionary W = [W_speech, W_noise] (F, N)."""
        check_dictionary(W)
        F, N = W.shape
        model = cls(n_features=F, n_atoms=N, n_speech=n_speech, n_iter=n_iter, beta=beta, sparsity=sparsity)
        model.W = W.detach().clone()
        return model

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); there is no state."""
        V = magnitude.flatten(0, 1).mT
        H = infer_activations(V, self.W, n_iter=self.n_iter, beta=self.beta, sparsity=self.sparsity)
        return dictionary_mask(H.mT, self.W, self.n_speech).view_as(magnitude), ()
