"""Masks computed from the answer: upper bounds for every other model."""

from typing import Literal

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.models.base import Separator, State
from drnmf.models.masks import ratio_mask


class OracleMask(Separator):
    """The ideal mask for known speech and noise spectra (B, T, F), complex; it is usable frame by frame like any model.

    `kind` is "ratio", |S| / (|S| + |N|), or "phase_sensitive", |S| / |X| cos(S, X) cut to [0, 1]: the mask in [0, 1]
    with the smallest squared error. The state counts the frames already given out.

    Examples:
        >>> from drnmf import OracleMask, audio, istft, stft
        >>> from drnmf.metrics import sdr
        >>> clean, noisy = (audio.read(name)[0] for name in ("clean.wav", "noisy.wav"))
        >>> S, X = stft(clean), stft(noisy)
        >>> mask, _ = OracleMask(S, X - S, kind="phase_sensitive")(X.abs())
        >>> best = istft(mask * X, noisy.shape[-1])
        >>> [round(float(sdr(sound, clean))) for sound in (noisy, best)]  # dB: as recorded, and at best
        [0, 12]
    """

    mask: Tensor

    def __init__(self, speech: Tensor, noise: Tensor, *, kind: Literal["ratio", "phase_sensitive"] = "ratio") -> None:
        if speech.shape != noise.shape or speech.ndim != 3 or not (speech.is_complex() and noise.is_complex()):
            raise InputError(
                f"speech and noise must be complex (batch, frames, F), got {tuple(speech.shape)}, {tuple(noise.shape)}"
            )
        if kind == "ratio":
            mask = ratio_mask(speech.abs(), noise.abs())
        elif kind == "phase_sensitive":
            mixture = speech + noise
            mask = ((speech * mixture.conj()).real / mixture.abs().square().clamp_min(1e-20)).clamp(0, 1)
        else:
            raise InputError(f"kind must be ratio or phase_sensitive, got {kind!r}")
        super().__init__(speech.shape[-1])
        self.state_shapes = ((),)
        self.register_buffer("mask", mask)

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The mask of the next frames; they must be those of the mixture it was made from."""
        start = 0 if state is None else int(state[0][0])
        end = start + magnitude.shape[1]
        if len(magnitude) != len(self.mask) or end > self.mask.shape[1]:
            raise InputError(
                f"the oracle knows a batch of {len(self.mask)} with {self.mask.shape[1]} frames, "
                f"asked for frames {start} to {end} of {len(magnitude)}"
            )
        return self.mask[:, start:end], (torch.full((len(magnitude),), end),)
