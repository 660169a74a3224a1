"""Steps 1 and 2 of the paper's training: sparse NMF of the training set gives the dictionaries a model starts from."""

import json
import logging
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from drnmf.data.batches import Batches, Dataset
from drnmf.data.endless import Endless, Epoch
from drnmf.errors import InputError
from drnmf.files import read_plain, write_atomically
from drnmf.maths.nmf import check_dictionary, train_dictionaries, unit_norm
from drnmf.models.kinds import kind_of
from drnmf.progress import Progress, silent
from drnmf.signal.spectra import BINS, n_frames
from drnmf.training.initial import dictionary_rows
from drnmf.training.recipe import Recipe

log = logging.getLogger("drnmf")

_MOST_BYTES = 2**31


def make_dictionaries(
    recipe: Recipe, path: Path, dataset: Dataset | Endless, *, wait: bool = False, progress: Progress = silent
) -> Tensor:
    """W (rows, N), or what an earlier call left at `path`; `wait` until another process has made it."""
    while wait and not path.is_file():
        time.sleep(1)
    if path.is_file():
        return _read(path, dictionary_rows(recipe.model.kind, recipe.model.options))
    tensors = _random_atoms(recipe) if recipe.dictionary.random else _trained_atoms(recipe, dataset, progress)
    write_atomically(path, safetensors.torch.save(tensors))
    return tensors["W"]


def _read(path: Path, rows: int) -> Tensor:
    """The dictionary in a file, which somebody else may have made."""
    content = read_plain(path, _MOST_BYTES)
    try:
        W = safetensors.torch.load(content)["W"]
        check_dictionary(W, signed=True)  # whether it may be, the model says
    except (SafetensorError, KeyError, InputError) as error:
        raise InputError(f"{path}: holds no dictionary W ({error}); delete it, and it is made again") from None
    if len(W) != rows:
        raise InputError(f"{path}: its atoms have {len(W)} values, this model's have {rows}; delete it")
    return W


def _random_atoms(recipe: Recipe) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(recipe.training.seed)
    rows = dictionary_rows(recipe.model.kind, recipe.model.options)
    W = torch.rand(rows, 2 * recipe.dictionary.rank_per_source, generator=generator)
    return {"W": unit_norm(W)}


def _trained_atoms(recipe: Recipe, dataset: Dataset | Endless, progress: Progress) -> dict[str, Tensor]:
    clean, noisy = _features(recipe, dataset)
    generator = torch.Generator().manual_seed(recipe.training.seed)
    settings = recipe.dictionary.model_dump(exclude={"max_frames", "random"})
    result = train_dictionaries(clean, noisy, **settings, generator=generator, progress=progress)
    log.info("dictionaries: %d and %d iterations", len(result.speech_cost), len(result.noise_cost))
    return {"W": result.W.cpu(), "speech_cost": result.speech_cost, "noise_cost": result.noise_cost}


def _features(recipe: Recipe, dataset: Dataset | Endless) -> tuple[Tensor, Tensor]:
    """Clean and noisy features (F, T) of the training set, evenly thinned out if there are too many."""
    batches: Batches | Epoch
    if isinstance(dataset, Endless):
        batches = dataset.epoch(0)
        total = len(batches) * recipe.training.batch_size * recipe.data.max_frames
    else:
        batches = Batches(dataset, max_frames=None, shuffle=False, batch_size=8, workers=recipe.data.workers)
        total = sum(n_frames(dataset.length(item)) for item in dataset.items())
    step = -(-total // recipe.dictionary.max_frames)
    kept: tuple[list[Tensor], list[Tensor]] = ([], [])
    for batch in batches:
        for spectra, frames in zip(batch.spectra()[::-1], kept, strict=True):
            features = kind_of(recipe.model.kind).features(spectra.abs(), recipe.model.options)
            frames.append(features[batch.mask()][::step])
    clean, noisy = (torch.cat(frames).mT.contiguous() for frames in kept)
    return clean, noisy


def dictionaries_name(recipe: Recipe) -> str:
    """A file name that two recipes share if they have the same dictionaries: some settings, and a hash of all."""
    settings, seed = recipe.dictionary, recipe.training.seed
    shown = f"every{recipe.data.subset}-n{2 * settings.rank_per_source}-lambda{settings.sparsity:g}-seed{seed}"
    digest = sha256(json.dumps(_deciding(recipe), sort_keys=True).encode()).hexdigest()[:10]
    return f"{shown}{'-random' if settings.random else ''}-{digest}.safetensors"


def _deciding(recipe: Recipe) -> dict[str, Any]:
    """All that decides the dictionaries."""
    settings, seed = recipe.dictionary, recipe.training.seed
    if settings.random:
        rows = dictionary_rows(recipe.model.kind, recipe.model.options)
        return {"random": [rows, settings.rank_per_source, seed]}
    # how sequences are cut, decoded and validated decides nothing, but for the files that are held out
    data = recipe.data.model_dump(exclude={"max_frames", "in_memory", "workers", "validation", "held_out"})
    if recipe.data.endless:
        data["chunks"] = [recipe.training.batch_size, recipe.data.max_frames]
    else:
        del data["endless"]
    if not recipe.data.validation and not recipe.data.chime2:
        data["held_out"] = recipe.data.held_out
    return {"dictionary": dict(settings), "data": data, "seed": seed, "features": _features_of_a_ramp(recipe)}


def _features_of_a_ramp(recipe: Recipe) -> list[str]:
    """What the model makes of some magnitudes: models that do the same with them can share dictionaries."""
    ramp = torch.linspace(0.01, 10, 4 * BINS).view(1, 4, BINS)
    features = kind_of(recipe.model.kind).features(ramp, recipe.model.options)
    return [f"{value:.3g}" for value in features.flatten().tolist()]
