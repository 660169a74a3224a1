"""SISTA-RNN: the network that DR-NMF descends from (Wisdom, Powers, Pitton and Atlas, 2017)."""

import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from drnmf.errors import InputError
from drnmf.maths.nmf import check_dictionary, unit_norm
from drnmf.maths.thresholding import check_alpha, lipschitz
from drnmf.models.base import Separator, State, given, numbered
from drnmf.models.graph import Frame, Graph
from drnmf.models.masks import ratio_mask, split_sources


def sista_step(
    h: Tensor, x: Tensor, previous: Tensor, W: Tensor, *, alpha: Tensor, sparsity: Tensor, coupling: Tensor
) -> Tensor:
    """One step on 0.5 ||x - W h||^2 + coupling / 2 ||W h - previous||^2 + sparsity ||h||_1, h of either sign."""
    reconstruction = h @ W.mT
    z = h + ((x - reconstruction) + coupling * (previous - reconstruction)) @ W / alpha
    return z.sign() * torch.relu(z.abs() - sparsity / alpha)  # the paper's equation for soft thresholding


class SistaRNN(Separator):
    """Sequential ISTA, unfolded: coefficients of either sign, drawn towards the previous frame's reconstruction.

    Layers k = 1 ... K have their own dictionary W_k (unit-norm columns of either sign), step, sparsity and coupling,
    all trained. Frames start from the previous frame's coefficients: the original's start W^T W h would explode here,
    since its dictionaries were orthonormal and magnitude spectra are far from it. The mask compares the absolute values
    of the two sources' reconstructions.

    Examples:
        >>> import torch
        >>> from drnmf import SistaRNN
        >>> model = SistaRNN.from_dictionary(torch.rand(257, 20), n_layers=2)
        >>> mask, state = model(torch.rand(1, 100, 257))
        >>> mask.shape
        torch.Size([1, 100, 257])
    """

    def __init__(
        self,
        *,
        n_layers: int,
        n_atoms: int,
        n_speech: int | None = None,
        n_features: int = 257,
        sparsity: float = 1.0,
        coupling: float = 0.1,
        generator: torch.Generator | None = None,
    ) -> None:
        n_speech = split_sources(n_atoms, n_speech)
        super().__init__(**given(locals()))
        if n_layers < 1 or not sparsity > 0 or not coupling > 0:
            raise InputError(
                f"SISTA-RNN needs n_layers >= 1, sparsity > 0, coupling > 0; got {n_layers}, {sparsity}, {coupling}"
            )
        self.n_speech, self.state_shapes = n_speech, ((n_atoms,),)
        self.W = nn.Parameter(torch.empty(n_layers, n_features, n_atoms))
        self.log_alpha = nn.Parameter(torch.empty(n_layers))
        self.log_sparsity = nn.Parameter(torch.empty(n_layers))
        self.log_coupling = nn.Parameter(torch.empty(n_layers))
        self.h0 = nn.Parameter(torch.empty(n_atoms))
        if not self.W.is_meta:
            self._initialise(torch.randn(n_features, n_atoms, generator=generator), None)

    @classmethod
    def from_dictionary(cls, W: Tensor, n_layers: int, *, alpha: float | None = None, **options: Any) -> Self:
        """Start every layer from W (F, N); alpha defaults to the Lipschitz constant, (1 + coupling) ||W||^2."""
        check_dictionary(W, signed=True)
        model = cls.empty(W, n_layers=n_layers, n_features=W.shape[0], n_atoms=W.shape[1], **options)
        model._initialise(W, alpha)
        return model

    @torch.no_grad()
    def _initialise(self, W: Tensor, alpha: float | None) -> None:
        W = unit_norm(W)
        self.W.copy_(W)
        L = (1 + self.config["coupling"]) * lipschitz(W)
        self.log_alpha.fill_(math.log(check_alpha(alpha, L)))
        self.log_sparsity.fill_(math.log(self.config["sparsity"]))
        self.log_coupling.fill_(math.log(self.config["coupling"]))
        self.h0.zero_()

    def start(self, n_sequences: int) -> State:
        """h0."""
        return (self.h0.expand(n_sequences, -1),)

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); the state is the last frame's coefficients (B, N)."""
        (h,) = self.start(len(magnitude)) if state is None else state
        W_KFN = unit_norm(self.W)
        steps = list(zip(W_KFN, self.log_alpha.exp(), self.log_sparsity.exp(), self.log_coupling.exp(), strict=True))
        frames = []
        for x in magnitude.unbind(1):
            previous = h @ W_KFN[-1].mT
            for W, alpha, sparsity, coupling in steps:
                h = sista_step(h, x, previous, W, alpha=alpha, sparsity=sparsity, coupling=coupling)
            frames.append(h)
        if not frames:
            return magnitude, (h,)
        h_BTN, n = torch.stack(frames, 1), self.n_speech
        speech, noise = h_BTN[..., :n] @ W_KFN[-1, :, :n].mT, h_BTN[..., n:] @ W_KFN[-1, :, n:].mT
        return ratio_mask(speech.abs(), noise.abs()), (h,)

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """As `separate`, but the state is h - h0, which starts at zero."""
        W_KFN = unit_norm(self.W)
        h0 = self.h0[None]
        h = graph.node("Add", *state, h0)
        previous = graph.node("Gemm", h, W_KFN[-1], transB=1)
        logs = torch.stack([self.log_alpha, self.log_sparsity, self.log_coupling], 1)
        for W, (alpha, sparsity, coupling) in zip(W_KFN, logs.exp().tolist(), strict=True):
            target = graph.node("Add", magnitude, graph.node("Mul", previous, coupling))
            error = graph.node("Gemm", h, W, target, transB=1, alpha=-(1 + coupling))
            z = graph.node("Gemm", error, W, h, alpha=1 / alpha)
            h = graph.node("Shrink", z, lambd=sparsity / alpha, bias=sparsity / alpha)  # soft thresholding
        speech, noise = (graph.node("Abs", source) for source in graph.sources(h, W_KFN[-1], self.n_speech))
        return graph.ratio_mask(speech, noise), [graph.node("Sub", h, h0)]

    def spectra(self) -> dict[str, Tensor]:
        """The absolute values of each layer's dictionary."""
        return numbered(unit_norm(self.W).abs())

    def learned(self) -> dict[str, Tensor]:
        """Step sizes, sparsities and couplings of the layers."""
        logs = {"inverse step size α": self.log_alpha, "sparsity λ": self.log_sparsity, "coupling": self.log_coupling}
        return {name: value.exp()[:, None] for name, value in logs.items()}
