"""Deep NMF: unfolded multiplicative updates (Le Roux, Hershey and Weninger, 2015)."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from drnmf.errors import InputError
from drnmf.maths.nmf import check_dictionary, multiplicative_updates, unit_norm
from drnmf.models.base import Separator, State, given, numbered
from drnmf.models.graph import Frame, Graph
from drnmf.models.masks import dictionary_mask, split_sources


class DeepNMF(Separator):
    """`n_layers` multiplicative updates per frame, the last `n_untied` with dictionaries of their own that are trained.

    h <- h * (W_k^T (x Wh^(beta-2)) / (W_k^T Wh^(beta-1) + sparsity)), from h = W^T x; the mask is made with the last
    layer's dictionary. x is the frame with the `context` - 1 before it, so dictionaries are (context * F, N); the mask
    uses the newest frame's rows. Trained dictionaries are exponentials with unit-norm columns, as in DR-NMF.

    Examples:
        >>> import torch
        >>> from drnmf import DeepNMF
        >>> model = DeepNMF.from_dictionary(torch.rand(257, 20), n_layers=4, n_untied=2)
        >>> mask, state = model(torch.rand(1, 100, 257))
        >>> mask.shape
        torch.Size([1, 100, 257])
    """

    W: Tensor

    def __init__(
        self,
        *,
        n_layers: int,
        n_untied: int,
        n_atoms: int,
        n_speech: int | None = None,
        n_features: int = 257,
        context: int = 1,
        beta: float = 2.0,
        sparsity: float = 1.0,
        epsilon: float = 1e-16,
        generator: torch.Generator | None = None,
    ) -> None:
        n_speech = split_sources(n_atoms, n_speech)
        super().__init__(**given(locals()))
        if not 1 <= n_untied <= n_layers or context < 1:
            raise InputError(
                f"1 <= n_untied <= n_layers and context >= 1 needed, got {n_untied}, {n_layers}, {context}"
            )
        if not sparsity >= 0 or not epsilon > 0:
            raise InputError(f"sparsity must not be negative and epsilon be above 0, got {sparsity} and {epsilon}")
        self.n_speech, self.n_tied, self.context = n_speech, n_layers - n_untied, context
        self.state_shapes = ((context - 1, n_features),) if context > 1 else ()
        self.beta, self.sparsity, self.epsilon = beta, sparsity, epsilon
        self.register_buffer("W", torch.empty(context * n_features, n_atoms))
        self.log_W = nn.Parameter(torch.empty(n_untied, context * n_features, n_atoms))
        if not self.W.is_meta:
            self._initialise(torch.rand(context * n_features, n_atoms, generator=generator))

    @classmethod
    def from_dictionary(cls, W: Tensor, n_layers: int, *, n_untied: int, context: int = 1, **options: Any) -> Self:
        """Start as sparse NMF with W (context * F, N), trained on frames stacked oldest first; see `stack_context`."""
        check_dictionary(W)
        if context < 1 or W.shape[0] % context:
            raise InputError(f"a dictionary over context = {context} frames cannot have {W.shape[0]} rows")
        F, N = W.shape[0] // context, W.shape[1]
        sizes = {"n_layers": n_layers, "n_untied": n_untied, "n_features": F, "n_atoms": N, "context": context}
        model = cls.empty(W, **sizes, **options)
        model._initialise(W)
        return model

    @torch.no_grad()
    def _initialise(self, W: Tensor) -> None:
        W = unit_norm(W)
        self.W.copy_(W)
        self.log_W.copy_(torch.log(self.epsilon + W))

    @classmethod
    def features(cls, magnitude: Tensor, options: Mapping[str, Any]) -> Tensor:
        """Frames with their context; before the first one is silence."""
        context = options.get("context", 1)
        if context < 1:
            raise InputError(f"context must be at least 1, got {context}")
        return stack_context(torch.nn.functional.pad(magnitude, (0, 0, context - 1, 0)), context)

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); the state is the last context - 1 frames."""
        past = self.start(len(magnitude)) if state is None else state
        frames = torch.cat([*past, magnitude], 1)
        state = (frames[:, frames.shape[1] - self.context + 1 :],) if self.context > 1 else ()
        if magnitude.shape[1] == 0:
            return magnitude, state
        x = stack_context(frames, self.context)
        W_untied = self._untied()
        updates = partial(multiplicative_updates, x, beta=self.beta, sparsity=self.sparsity)
        h = updates(self.W, x @ self.W, self.n_tied)
        for W in W_untied:
            h = updates(W, h, 1)
        newest = W_untied[-1, -self.n_features :]
        return dictionary_mask(h, newest, self.n_speech), state

    def _untied(self) -> Tensor:
        """The trained dictionaries (n_untied, context * F, N)."""
        return unit_norm(torch.exp(self.log_W))

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """As `separate`."""
        F = self.n_features
        frames = graph.node("Reshape", magnitude, [1, 1, F])
        if state:
            frames = graph.node("Concat", *state, frames, axis=1)
        x = graph.node("Reshape", frames, [1, self.context * F])
        W_untied = self._untied()
        h = graph.node("Gemm", x, self.W)
        for W in [*[self.W] * self.n_tied, *W_untied]:
            h = graph.multiplicative_step(h, x, W, beta=self.beta, sparsity=self.sparsity)
        mask = graph.dictionary_mask(h, W_untied[-1, -F:], self.n_speech)
        return mask, [graph.node("Slice", frames, [1], [self.context], [1])] if state else []

    def spectra(self) -> dict[str, Tensor]:
        """The newest frame's rows of each layer's dictionary."""
        newest = slice(-self.n_features, None)
        tied = {f"layers 1 to {self.n_tied}": self.W[newest]} if self.n_tied else {}
        return {**tied, **numbered(self._untied()[:, newest], self.n_tied + 1)}


def stack_context(frames: Tensor, context: int) -> Tensor:
    """Frames (..., T, F) each with the `context` - 1 before it, oldest first: (..., T - context + 1, context * F)."""
    return frames.unfold(-2, context, 1).mT.flatten(-2)
