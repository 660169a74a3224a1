"""From the sources' spectra to a mask: equation (2) of the paper."""

from drnmf.errors import InputError
from drnmf.signal.arrays import Array, functions

MASK_FLOOR = 1e-5
"""Below the spectrum of the rounding noise of 16-bit audio, which is about 1e-4 per bin."""


def ratio_mask(speech: Array, noise: Array, *, floor: float = MASK_FLOOR) -> Array:
    """Equation (2), M = Y / (Y + V), with the sum held above `floor`: at silence M is 0 and its gradient finite.

    Examples:
        >>> import torch
        >>> from drnmf import ratio_mask
        >>> ratio_mask(torch.tensor([3.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0]))
        tensor([0.7500, 0.5000, 0.0000])
    """
    total = speech + noise
    mask: Array = speech / functions(total).clip(total, floor, None)
    return mask


def dictionary_mask(h: Array, W: Array, n_speech: int) -> Array:
    """The ratio mask of activations h (..., N) under W = [W_speech, W_noise] (F, N), or one for each sequence."""
    speech = h[..., :n_speech] @ W[..., :n_speech].mT
    noise = h[..., n_speech:] @ W[..., n_speech:].mT
    return ratio_mask(speech, noise)


def split_sources(n_atoms: int, n_speech: int | None) -> int:
    """Number of leading speech atoms, by default half of all."""
    n_speech = n_atoms // 2 if n_speech is None else n_speech
    if not 0 < n_speech < n_atoms:
        raise InputError(f"of {n_atoms} atoms at least one must be speech and one noise, got {n_speech} speech atoms")
    return n_speech
