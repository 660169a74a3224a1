"""What all models have in common: a mask for magnitudes, and a state carried from frame to frame."""

import copy
from typing import Any, Self

import torch
from torch import Tensor, nn

from drnmf.engines.streams import Network
from drnmf.errors import InputError

State = tuple[Tensor, ...]
"""What a model carries from one call to the next, batch first; empty for models that look at single frames."""


class Separator(nn.Module):
    """A model that turns magnitudes into a speech mask, one block of frames at a time.

    `mask, state = model(magnitude, state)` takes (batch, frames, F) and returns a mask of that shape with values in
    [0, 1]; passing the state on continues the sequence, `None` starts one. A subclass keeps in `config` the keyword
    arguments that make it anew, in `state_shapes` the shape of each tensor of its state after the batch dimension, and
    implements `separate`.
    """

    state_shapes: tuple[tuple[int, ...], ...] = ()
    network: Network | None = None  # the weights of a frozen model as compiled code takes them, where it can

    def __init__(self, n_features: int, **config: Any) -> None:
        super().__init__()
        self.n_features = n_features
        self.config: dict[str, Any] = {"n_features": n_features, **config}

    def forward(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The checked call; `separate` is the same without the checks, for training loops and export."""
        self.check(magnitude, state)
        return self.separate(magnitude, state)

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) and next state for magnitudes (B, T, F) that are known to be sound."""
        raise NotImplementedError

    def freeze(self) -> Self:
        """A copy to be used as it is: no gradients, and whatever depends on the weights alone computed once."""
        return copy.deepcopy(self).eval().requires_grad_(False)

    def check(self, magnitude: Tensor, state: State | None) -> None:
        """Refuse magnitudes and states that do not fit this model."""
        weight = next((t for t in [*self.parameters(), *self.buffers()] if t.is_floating_point()), magnitude)
        if magnitude.ndim != 3 or magnitude.shape[2] != self.n_features or magnitude.shape[0] == 0:
            raise InputError(f"magnitudes must be (batch, frames, {self.n_features}), got {tuple(magnitude.shape)}")
        if magnitude.dtype != weight.dtype or magnitude.device != weight.device:
            ours, theirs = (f"{t.dtype} on {t.device}" for t in (weight, magnitude))
            raise InputError(f"magnitudes are {theirs}, the model is {ours}")
        if not torch.isfinite(magnitude).all():
            raise InputError("magnitudes hold NaN or infinite values")
        if (magnitude < 0).any():
            raise InputError("magnitudes hold negative values: pass stft(x).abs()")
        if state is not None:
            expected = [(len(magnitude), *shape) for shape in self.state_shapes]
            given = [tuple(s.shape) for s in state]
            if given != expected:
                raise InputError(f"the state has shapes {given}, this model and these magnitudes need {expected}")
            if any(s.is_floating_point() and (s.dtype, s.device) != (weight.dtype, weight.device) for s in state):
                raise InputError(f"the state is not {weight.dtype} on {weight.device} as the model is")


MASK_FLOOR = 1e-5
"""Below the spectrum of the rounding noise of 16-bit audio, which is about 1e-4 per bin."""


def ratio_mask(speech: Tensor, noise: Tensor, *, floor: float = MASK_FLOOR) -> Tensor:
    """Equation (2), M = Y / (Y + V), with the sum held above `floor`: at silence M is 0 and its gradient finite."""
    return speech / (speech + noise).clamp_min(floor)


def split_sources(n_atoms: int, n_speech: int | None) -> int:
    """Number of leading speech atoms: half of them unless told."""
    n_speech = n_atoms // 2 if n_speech is None else n_speech
    if not 0 < n_speech < n_atoms:
        raise InputError(f"of {n_atoms} atoms at least one must be speech and one noise, got {n_speech} speech atoms")
    return n_speech


def dictionary_mask(h: Tensor, W: Tensor, n_speech: int) -> Tensor:
    """The ratio mask of activations h (..., N) under W = [W_speech, W_noise] (F, N)."""
    speech = h[..., :n_speech] @ W[:, :n_speech].mT
    noise = h[..., n_speech:] @ W[:, n_speech:].mT
    return ratio_mask(speech, noise)
