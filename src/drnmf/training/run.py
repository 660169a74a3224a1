"""From recordings to a trained model: the paper's four steps, in a folder that can be resumed at any moment.

The folder holds the recipe as used (recipe.toml), the versions it ran with (versions.json), the dictionaries of steps 1
and 2 (dictionaries.safetensors), the losses (history.csv, tensorboard/), the best model so far (config.json and
model.safetensors: the folder is a model), the state after the last epoch (last.ckpt) and, when all is done, what
came of it (summary.json). A second call with the same recipe goes on where the first was stopped, and ends with the
same weights as if it had not been.
"""

import json
import logging
import os
import platform
import time
import tomllib
import warnings
from dataclasses import replace
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import cast

import lightning as L
import safetensors.torch
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from drnmf.data.batches import Batch, Batches, Dataset
from drnmf.data.chime2 import read_chime2
from drnmf.data.folders import Pool, hold_out, read_pairs
from drnmf.data.manifests import read_manifest
from drnmf.data.mixing import Item
from drnmf.errors import DivergedError, InputError
from drnmf.files import write_atomically
from drnmf.maths.nmf import train_dictionaries, unit_norm
from drnmf.models import MODELS
from drnmf.models.base import Separator
from drnmf.models.folders import load_model, save_model
from drnmf.progress import Progress, silent
from drnmf.signal.spectra import n_frames
from drnmf.training.backpropagation import Backpropagation, ProgressBar, Record
from drnmf.training.initial import dictionary_rows, new_model
from drnmf.training.losses import LOSSES, OVER_SEQUENCES, SHORTEST
from drnmf.training.recipe import DataSettings, ModelSettings, Recipe

log = logging.getLogger("drnmf")
# Lightning's remarks are for those who program it; what a user should know is said here
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")

"""Called with what is being done, how much of it is done, and of how much."""

RECIPE, DICTIONARIES, LAST, SUMMARY = "recipe.toml", "dictionaries.safetensors", "last.ckpt", "summary.json"
_VALIDATION_BATCH = {"cuda": 128, "cpu": 32}  # sequences; no gradients, so more fit, but a CPU's caches want fewer


def train(recipe: Recipe, folder: str | Path, *, dictionaries: Path | None = None, progress: Progress = silent) -> None:
    """Run or continue a recipe in `folder`, which becomes the trained model.

    `dictionaries` is where steps 1 and 2 leave their result, or find it: runs that share it make them once.
    """
    folder = Path(folder)
    if recipe.model.start:
        initial_model(recipe.model, None, 0)  # find out now whether it can be trained
    _open_folder(folder, recipe)
    if (folder / SUMMARY).is_file():
        log.info("%s: this run is finished; delete the folder to repeat it", folder)
        return
    training, validation = _datasets(recipe, progress)
    path = dictionaries or folder / DICTIONARIES
    needs_dictionary = not recipe.model.start and MODELS[recipe.model.kind].from_dictionary is not None
    W = _dictionaries(recipe, path, training, progress) if needs_dictionary else None
    model = initial_model(recipe.model, W, recipe.training.seed)
    if not model.trainable:
        save_model(model, folder)
        return
    try:
        summary = _fit(recipe, folder, model, _Data(recipe, training, validation))
    except DivergedError as error:
        raise DivergedError(
            f"{error}; the best weights before that are kept in {folder}. "
            "Try a lower learning_rate, gradient_clip = 1 or, for DRNMF, alpha_range = 'weighted'"
        ) from None
    if _rank() == 0:
        write_atomically(folder / SUMMARY, json.dumps(summary, indent=2).encode())


def initial_model(settings: ModelSettings, W: Tensor | None, seed: int) -> Separator:
    """Step 3: the model before backpropagation, from the dictionary W (rows, N) where it starts from one.

    With `start`, it is that model as it was trained before.
    """
    if settings.start:
        model = load_model(settings.start).float()
        if not model.trainable:
            raise InputError(f"[model] start = {settings.start!r}: a {type(model).__name__} has nothing to train")
        return model.train()
    return new_model(settings.kind, settings.options, W, seed)


def _open_folder(folder: Path, recipe: Recipe) -> None:
    """Write down what is going to run, or see that it is what has been running."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / RECIPE).is_file() and not _is_written(recipe, folder / RECIPE):
            raise InputError(f"{folder}: holds a run of another recipe; choose another folder, or delete it")
        if _rank() == 0:
            write_atomically(folder / RECIPE, recipe.to_toml().encode())
            write_atomically(folder / "versions.json", json.dumps(_versions(), indent=2).encode())
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None


def _is_written(recipe: Recipe, path: Path) -> bool:
    """Whether a file holds this recipe; settings that are younger than the file had their defaults."""
    try:
        return Recipe.from_tables(tomllib.loads(path.read_text("utf-8")), str(path)) == recipe
    except (InputError, ValueError):  # of another version, or not a recipe
        return False


def _versions() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in ("drnmf", "torch", "numpy") if _installed(name)}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {"python": platform.python_version(), "platform": platform.platform(), "device": device, **packages}


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def _rank() -> int:
    """Which process this is of those that train together, known before they meet."""
    return int(getattr(rank_zero_only, "rank", 0))


def _device(recipe: Recipe) -> torch.device:
    """Where this process trains."""
    if recipe.training.accelerator == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def _datasets(recipe: Recipe, progress: Progress) -> tuple[Dataset, Dataset]:
    """Training and validation set, every file looked at before anything starts."""
    data = recipe.data
    source, held = _sources(data)
    device, seed, in_memory = _device(recipe), recipe.training.seed, data.in_memory
    if data.levels_dbfs is not None:
        pool = source if isinstance(source, Pool) else Pool.from_items(source)
        source = replace(pool, levels_dbfs=(data.levels_dbfs[0], data.levels_dbfs[1]))
    dataset = partial(Dataset, in_memory=in_memory, device=device, progress=progress)
    training = dataset(source, fresh=data.fresh, varied=data.varied, seed=seed)
    validation = dataset(held, seed=seed + 1)
    _check_lengths(recipe, "train on", training)
    _check_lengths(recipe, "validate", validation)
    log.info("%d utterances to train on, %d to validate", len(training), len(validation))
    return training, validation


def _check_lengths(recipe: Recipe, purpose: str, dataset: Dataset) -> None:
    """Find out now if no sequence is long enough for the loss, which would then be 0 for ever."""
    longest = max(min(n_frames(dataset.length(item)), recipe.data.max_frames) for item in dataset.items())
    if recipe.training.loss in OVER_SEQUENCES and longest < SHORTEST:
        raise InputError(
            f"[training] loss = {recipe.training.loss!r} needs sequences of a second, the longest to {purpose} has "
            f"{longest} frames of {SHORTEST}: take signal_approximation"
        )


def _sources(data: DataSettings) -> tuple[list[Item] | Pool, list[Item] | Pool]:
    every = max(2, round(1 / data.held_out))
    if data.speech and data.noise:
        return Pool.from_folders(data.speech, data.noise, data.rooms).hold_out(every)
    items: list[Item] = []
    held: list[Item] = []
    if data.chime2:
        items, held = [*read_chime2(data.chime2, "train")], [*read_chime2(data.chime2, "dev")]
    elif data.noisy and data.clean:
        items = [*read_pairs(data.noisy, data.clean)]
    elif data.train:
        items = [*read_manifest(data.train)]
        held = [*read_manifest(data.validation)] if data.validation else []
    items = items[:: data.subset]
    return (items, held) if held else hold_out(items, every)


def _dictionaries(recipe: Recipe, path: Path, dataset: Dataset, progress: Progress) -> Tensor:
    """Steps 1 and 2, or what they left at `path`."""
    if _rank() > 0:  # on other machines; the first process writes the file for all
        while not path.is_file():
            time.sleep(1)
    if path.is_file():
        return safetensors.torch.load_file(path)["W"]
    tensors = _random_atoms(recipe) if recipe.dictionary.random else _trained_atoms(recipe, dataset, progress)
    write_atomically(path, safetensors.torch.save(tensors))
    return tensors["W"]


def _random_atoms(recipe: Recipe) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(recipe.training.seed)
    rows = dictionary_rows(recipe.model.kind, recipe.model.options)
    W = torch.rand(rows, 2 * recipe.dictionary.rank_per_source, generator=generator)
    return {"W": unit_norm(W)}


def _trained_atoms(recipe: Recipe, dataset: Dataset, progress: Progress) -> dict[str, Tensor]:
    clean, noisy = _dictionary_data(recipe, dataset)
    settings = recipe.dictionary
    result = train_dictionaries(
        clean,
        noisy,
        rank_per_source=settings.rank_per_source,
        beta=settings.beta,
        sparsity=settings.sparsity,
        max_iter=settings.max_iter,
        tol=settings.tol,
        generator=torch.Generator().manual_seed(recipe.training.seed),
        progress=progress,
    )
    log.info("dictionaries: %d and %d iterations", len(result.speech_cost), len(result.noise_cost))
    return {"W": result.W.cpu(), "speech_cost": result.speech_cost, "noise_cost": result.noise_cost}


def _dictionary_data(recipe: Recipe, dataset: Dataset) -> tuple[Tensor, Tensor]:
    """Clean and noisy features (F, T) of the training set, evenly thinned out if there are too many."""
    batches = Batches(dataset, max_frames=None, shuffle=False, batch_size=8, workers=recipe.data.workers)
    total = sum(n_frames(dataset.length(item)) for item in dataset.items())
    step = -(-total // recipe.dictionary.max_frames)
    kept: tuple[list[Tensor], list[Tensor]] = ([], [])
    for batch in batches:
        for spectra, frames in zip(batch.spectra()[::-1], kept, strict=True):
            features = MODELS[recipe.model.kind].features(spectra.abs(), recipe.model.options)
            frames.append(features[batch.mask()][::step])
    clean, noisy = (torch.cat(frames).mT.contiguous() for frames in kept)
    return clean, noisy


class _Data(L.LightningDataModule):
    """The batches of each epoch for this process."""

    def __init__(self, recipe: Recipe, training: Dataset, validation: Dataset) -> None:
        super().__init__()
        self.recipe, self.training, self.validation = recipe, training, validation

    def train_dataloader(self) -> Batches:
        assert self.trainer is not None
        settings = self.recipe.training
        return self._batches(self.training, self.trainer.current_epoch, settings.batch_size, shuffle=True)

    def val_dataloader(self) -> Batches | DataLoader[Batch]:
        batch_size = _VALIDATION_BATCH[self.validation.device.type]
        batches = self._batches(self.validation, 0, batch_size, shuffle=False)
        if not self.validation.recordings.in_memory:
            return batches
        made = cast("TorchDataset[Batch]", list(batches))  # once for all epochs
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


def _fit(recipe: Recipe, folder: Path, model: Separator, data: _Data) -> dict[str, float]:
    """Step 4: backpropagation, from the last checkpoint if there is one. Returns the row of the best epoch."""
    settings = recipe.training
    rate = model.learning_rate if settings.learning_rate is None else settings.learning_rate
    clip = model.gradient_clip if settings.gradient_clip is None else settings.gradient_clip
    module = Backpropagation(
        model, LOSSES[settings.loss], rate, beta2=settings.beta2, falling=settings.schedule == "cosine"
    )
    record = Record(module, folder, settings.patience)
    state = ModelCheckpoint(
        folder, LAST.removesuffix(".ckpt"), save_on_train_epoch_end=True, enable_version_counter=False
    )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic matrix products ask for
    trainer = L.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.nodes,
        strategy="ddp" if settings.devices * settings.nodes > 1 else "auto",
        precision=settings.precision,
        max_epochs=settings.max_epochs,
        gradient_clip_val=clip or None,
        callbacks=[record, ProgressBar(record), state],
        logger=_tensorboard(folder),
        deterministic=True,
        num_sanity_val_steps=-1,  # all of it: the loss at initialisation
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,  # Batches does that
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    last = folder / LAST
    if last.is_file():
        log.info("continuing from %s", last)
    try:
        trainer.fit(module, data, ckpt_path=last if last.is_file() else None)
    except SystemExit:  # what Lightning makes of Ctrl-C
        raise KeyboardInterrupt from None
    if trainer.interrupted:
        raise KeyboardInterrupt
    parameters = sum(p.numel() for p in model.parameters())
    return {**record.best, "epochs": record.rows[-1]["epoch"], "parameters": parameters}


def _tensorboard(folder: Path) -> Logger | bool:
    if util.find_spec("tensorboard") is None:
        log.info("TensorBoard's curves left out: pip install tensorboard")
        return False
    return TensorBoardLogger(folder, name="", version="tensorboard")
