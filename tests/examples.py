"""Real material that several tests share: spectra of the recordings, a dictionary, one small model of every kind."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import drnmf
from drnmf.models.deep_nmf import stack_context
from drnmf.signal import audio

AUDIO = Path(__file__).parent / "audio"
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")),
]
N_SPEECH = 6


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def recording(name: str, length: int | None = None) -> Tensor:
    """Samples (float64) of a recording, such as "speech/austen_0880"."""
    return audio.read(AUDIO / f"{name}.flac")[0][0, :length].double()


@functools.cache
def spectra() -> tuple[Tensor, Tensor]:
    """Speech and noise, complex (T, F), float64, one second each: speech frames with a pause among them."""
    return tuple(drnmf.stft(x[8000:24000]) for x in (recording("speech/austen_0880"), recording("noise/percussion")))


def clean() -> Tensor:
    """Magnitudes (T, F) of the speech."""
    return spectra()[0].abs()


def noisy() -> Tensor:
    """Magnitudes (T, F) of the mixture."""
    return sum(spectra()).abs()


@functools.cache
def dictionary(context: int = 1) -> Tensor:
    """W (context * F, N): six atoms of speech, then six of noise, trained on the two recordings."""
    V_clean, V_noisy = (stack_context(x, context).mT.contiguous() for x in (clean(), noisy()))
    return drnmf.train_dictionaries(V_clean, V_noisy, rank_per_source=N_SPEECH, max_iter=60, generator=seeded()).W


def expecting(model: drnmf.PriorDRNMF, seed: int = 0) -> drnmf.PriorDRNMF:
    """The same network after its weights have moved: maps, scales and layers are no longer those of the start."""
    generator = seeded(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


MODELS: dict[str, Callable[[Callable[[int], Tensor]], drnmf.Separator]] = {
    "drnmf": lambda W: drnmf.DRNMF.from_dictionary(W(1), 3),
    "drnmf_options": lambda W: drnmf.DRNMF.from_dictionary(
        W(1),
        2,
        n_speech=1,
        h0=torch.linspace(0, 1, W(1).shape[1]),
        sparsity=0.3,
        train_sparsity=True,
        sparsity_per="atom",
        alpha_per="atom",
        alpha_range="weighted",
        first_layer="original",
        reconstruction="separate",
        power=0.7,
    ),
    "drnmf_level": lambda W: drnmf.DRNMF.from_dictionary(W(1), 2, level=1.5, power=0.5, sparsity=0.3),
    "drnmf_cold": lambda W: drnmf.DRNMF.from_dictionary(W(1), 2, sparsity=0.1, warm_start=False),
    "drnmf_random": lambda W: drnmf.DRNMF(
        n_layers=2, n_features=len(W(1)), n_atoms=4, n_speech=3, sparsity=0.1, generator=seeded()
    ).double(),
    "prior_drnmf": lambda W: expecting(
        drnmf.PriorDRNMF.from_dictionary(W(1), n_layers=3, n_units=5, generator=seeded())
    ),
    "lstm": lambda W: drnmf.LSTMMask(2, 3, n_features=len(W(1)), generator=seeded()).double(),
    "lstm_level": lambda W: drnmf.LSTMMask(
        1, 3, level=1.6, power=0.5, n_features=len(W(1)), generator=seeded()
    ).double(),
    "snmf": lambda W: drnmf.SparseNMFMask.from_dictionary(W(1), n_iter=20),
    "ista": lambda W: drnmf.ISTAMask.from_dictionary(W(1), n_iter=4),
    "ista_cold": lambda W: drnmf.ISTAMask.from_dictionary(W(1), n_iter=4, warm_start=False),
    "deep_nmf": lambda W: drnmf.DeepNMF.from_dictionary(W(1), 5, n_untied=2),
    "deep_nmf_context": lambda W: drnmf.DeepNMF.from_dictionary(W(3), 4, n_untied=2, context=3, beta=0.5),
    "sista": lambda W: drnmf.SistaRNN.from_dictionary(W(1), 3, sparsity=0.2),
}
"""Recipes for separators in float64, given the dictionary for a number of frames of context."""


def build(name: str, W: Callable[[int], Tensor] = dictionary) -> drnmf.Separator:
    return MODELS[name](W)
