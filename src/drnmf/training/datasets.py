"""What a recipe trains on and is validated on, and the batches of each epoch."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader

from drnmf.data.batches import Batch, Batches, Dataset
from drnmf.data.chime2 import read_chime2
from drnmf.data.endless import Conditions, Endless, Epoch
from drnmf.data.folders import Pool, hold_out, read_pairs
from drnmf.data.manifests import read_manifest
from drnmf.data.mixing import Item
from drnmf.errors import InputError
from drnmf.progress import Progress
from drnmf.signal.spectra import n_frames
from drnmf.training.losses import OVER_SEQUENCES, SHORTEST
from drnmf.training.recipe import Recipe
from drnmf.training.sections import DataSettings

log = logging.getLogger("drnmf")

_VALIDATION_BATCH = {"cuda": 128, "cpu": 32}  # sequences; no gradients, so more fit, but a CPU's caches want fewer


def datasets(recipe: Recipe, progress: Progress) -> tuple[Dataset | Endless, Dataset]:
    """The training set and the validation set, every file checked before anything starts."""
    data = recipe.data
    source, held = _sources(data)
    device, seed, in_memory = _device(recipe), recipe.training.seed, data.in_memory
    if data.levels_dbfs is not None:
        pool = source if isinstance(source, Pool) else Pool.from_items(source)
        source = replace(pool, levels_dbfs=(data.levels_dbfs[0], data.levels_dbfs[1]))
    dataset = partial(Dataset, in_memory=in_memory, device=device, progress=progress)
    if data.endless:
        validation = dataset(held, seed=seed + 1)
        _check_lengths(recipe, "validate", validation)
        return _endless(recipe, source, device, progress), validation
    training = dataset(source, fresh=data.fresh, varied=data.varied, seed=seed)
    validation = dataset(held, seed=seed + 1)
    _check_lengths(recipe, "train on", training)
    _check_lengths(recipe, "validate", validation)
    log.info("%d utterances to train on, %d to validate", len(training), len(validation))
    return training, validation


def _endless(recipe: Recipe, source: Sequence[Item] | Pool, device: torch.device, progress: Progress) -> Endless:
    assert recipe.data.endless is not None
    pool = source if isinstance(source, Pool) else Pool.from_items(source)
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in recipe.data.endless
    }
    training = Endless(
        pool,
        Conditions(**given),
        batch_size=recipe.training.batch_size,
        max_frames=recipe.data.max_frames,
        seed=recipe.training.seed,
        device=device,
        progress=progress,
    )
    log.info("endless mixtures of %d utterances: %d steps an epoch", len(pool.speech), len(training))
    return training


def _check_lengths(recipe: Recipe, purpose: str, dataset: Dataset) -> None:
    """Refuse a set without a single sequence that is long enough for the loss: the loss would always be 0."""
    longest = max(min(n_frames(dataset.length(item)), recipe.data.max_frames) for item in dataset.items())
    loss = recipe.training.loss
    name = loss if isinstance(loss, str) else "weighted"
    if name in (*OVER_SEQUENCES, "weighted") and longest < SHORTEST:
        raise InputError(
            f"[training] loss = {name!r} needs sequences of a second ({SHORTEST} frames), and the "
            f"longest to {purpose} has {longest}: use longer recordings or loss = 'signal_approximation'"
        )


def _sources(data: DataSettings) -> tuple[Sequence[Item] | Pool, Sequence[Item] | Pool]:
    """What to train on, and what to validate on."""
    every = max(2, round(1 / data.held_out))
    if data.speech and data.noise:
        return Pool.from_folders(data.speech, data.noise, data.rooms).hold_out(every)
    if data.chime2:
        return read_chime2(data.chime2, "train")[:: data.subset], read_chime2(data.chime2, "dev")
    if data.noisy and data.clean:
        return hold_out(read_pairs(data.noisy, data.clean)[:: data.subset], every)
    assert data.train is not None
    items = read_manifest(data.train)[:: data.subset]
    return (items, read_manifest(data.validation)) if data.validation else hold_out(items, every)


def _device(recipe: Recipe) -> torch.device:
    """Where this process trains."""
    wanted = recipe.training.accelerator
    if wanted in ("gpu", "cuda") and not torch.cuda.is_available():
        raise InputError(f"[training] accelerator = {wanted!r}: PyTorch finds no GPU here; use auto or cpu")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


class EpochData(L.LightningDataModule):
    """The batches of each epoch for this process."""

    def __init__(self, recipe: Recipe, training: Dataset | Endless, validation: Dataset) -> None:
        super().__init__()
        self.recipe, self.training, self.validation = recipe, training, validation

    def train_dataloader(self) -> Batches | Epoch:
        """Those of the current epoch."""
        assert self.trainer is not None
        if isinstance(self.training, Endless):
            return self.training.epoch(self.trainer.current_epoch)
        settings = self.recipe.training
        return self._batches(self.training, self.trainer.current_epoch, settings.batch_size, shuffle=True)

    def val_dataloader(self) -> Batches | DataLoader[Batch]:
        """The same for every epoch."""
        batch_size = _VALIDATION_BATCH[self.validation.device.type]
        batches = self._batches(self.validation, 0, batch_size, shuffle=False)
        if not self.validation.recordings.in_memory:
            return batches
        made: Any = list(batches)  # once for all epochs
        return DataLoader(made, batch_size=None, collate_fn=lambda batch: batch)

    def _batches(self, dataset: Dataset, epoch: int, batch_size: int, *, shuffle: bool) -> Batches:
        assert self.trainer is not None
        return Batches(
            dataset,
            epoch,
            batch_size=batch_size,
            max_frames=self.recipe.data.max_frames,
            shuffle=shuffle,
            workers=self.recipe.data.workers,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
        )
