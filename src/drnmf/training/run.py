"""From recordings to a trained model: the paper's four steps, in a folder that can be resumed at any moment.

docs/training.md says what the folder holds. A second call with the same recipe continues where the first was stopped,
and ends with the same weights as if it had not been stopped.
"""

import json
import logging
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from drnmf.errors import DivergedError, InputError, shown
from drnmf.files import make_folder, write_atomically
from drnmf.models.base import Separator
from drnmf.models.folders import load_model, save_model
from drnmf.models.kinds import kind_of
from drnmf.progress import Progress, silent
from drnmf.training import checkpoints
from drnmf.training.backpropagation import Backpropagation, ProgressBar, Record
from drnmf.training.board import Board
from drnmf.training.datasets import EpochData, datasets
from drnmf.training.dictionaries import make_dictionaries
from drnmf.training.endless import EndlessBackpropagation
from drnmf.training.recipe import Recipe, read_tables
from drnmf.training.sections import ModelSettings, TrainingSettings

log = logging.getLogger("drnmf")
# Lightning's remarks are for its programmers; what users should know is logged here
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")

RECIPE, VERSIONS, DICTIONARIES = "recipe.toml", "versions.json", "dictionaries.safetensors"
SUMMARY, FIRST = "summary.json", "first"


def train(recipe: Recipe, folder: str | Path, *, dictionaries: Path | None = None, progress: Progress = silent) -> None:
    """Run or continue a recipe in `folder`, which becomes the trained model.

    `dictionaries` is where steps 1 and 2 leave their result, or find it: runs that share it make them once.
    """
    folder = Path(folder)
    start = _start(recipe, folder, progress)
    if start.start:
        initial_model(start, None, 0)  # find out now whether it can be trained
    is_longer = _is_longer(recipe, folder)
    if (folder / SUMMARY).is_file() and not is_longer:
        log.info("%s: this run is finished; delete the folder to repeat it", folder)
        return
    if is_longer and _rank() == 0:
        (folder / SUMMARY).unlink(missing_ok=True)  # before the recipe is written: a folder never claims too much
    with _begun(folder, recipe):
        training, validation = datasets(recipe, progress)
        W = None
        if not recipe.model.start and kind_of(recipe.model.kind).from_dictionary is not None:
            path = dictionaries or folder / DICTIONARIES
            W = make_dictionaries(recipe, path, training, wait=_rank() > 0, progress=progress)
        model = initial_model(start, W, recipe.training.seed)
        if recipe.data.endless and recipe.data.endless.sample_share:
            model.moved(model.like.new_zeros(1, 1, model.n_features))  # which refuses where it cannot
        if recipe.training.objective:
            model.separate_and_judge(model.like.new_zeros(1, 1, model.n_features))  # likewise
    if not model.trainable:
        save_model(model, folder)
        return
    try:
        summary = _fit(recipe, folder, model, EpochData(recipe, training, validation))
    except DivergedError as error:
        raise DivergedError(
            f"{error}; the best weights before that are kept in {folder}. "
            "Try a lower learning_rate, gradient_clip = 1 or, for DRNMF, alpha_range = 'weighted'"
        ) from None
    if _rank() == 0:
        write_atomically(folder / SUMMARY, json.dumps(summary, indent=2).encode())


def _start(recipe: Recipe, folder: Path, progress: Progress) -> ModelSettings:
    """The recipe's model. One that starts from another recipe's is trained by that first, with the same seed."""
    path = recipe.model.start
    if path is None or not path.endswith(".toml"):
        return recipe.model
    _is_longer(recipe, folder)  # refuse now what would be refused after hours
    first = Recipe.read(path)
    if first.model.start is not None and first.model.start.endswith(".toml"):
        raise InputError(f"{path}: starts from a recipe, too; one before another is the most")
    settings = {key: getattr(recipe.training, key) for key in ("seed", "accelerator", "devices", "nodes")}
    log.info("first, the model to start from, by %s", Path(path).name)
    train(first.replace(training=settings), folder / FIRST, progress=progress)
    return recipe.model.replace(start=str(folder / FIRST))


def initial_model(settings: ModelSettings, W: Tensor | None, seed: int) -> Separator:
    """Step 3: the model before backpropagation, from the dictionary W (rows, N) where it starts from one.

    With `start`, it is that model as it was trained before.
    """
    if settings.start:
        model = load_model(settings.start).float()
        if not model.trainable:
            raise InputError(f"[model] start = {settings.start!r}: a {type(model).__name__} has nothing to train")
        return model.train()
    return kind_of(settings.kind).begin(settings.options, W=W, generator=torch.Generator().manual_seed(seed))


@contextmanager
def _begun(folder: Path, recipe: Recipe) -> Iterator[None]:
    """Write down what is going to run. What fails inside, before anything is made, leaves no trace."""
    if _rank() > 0:
        yield
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    before = set(folder.iterdir())
    write_atomically(folder / RECIPE, recipe.to_toml())
    write_atomically(folder / VERSIONS, json.dumps(_versions(), indent=2))
    try:
        yield
    except BaseException:
        new = set(folder.iterdir()) - before
        if new == {folder / RECIPE, folder / VERSIONS}:
            for path in new:
                path.unlink()
            for path in missing:
                path.rmdir()
        raise


def _is_longer(recipe: Recipe, folder: Path) -> bool:
    """Whether a recipe only adds epochs to the run that a folder holds. A run of any other is refused."""
    if not (folder / RECIPE).is_file():
        return False
    refused = f"{folder}: holds a run of another recipe ({{}}); choose another folder, or delete it"
    try:  # settings that are younger than the file had their defaults
        there = Recipe.from_tables(read_tables(folder / RECIPE), RECIPE)
    except InputError as error:  # of another version, or not a recipe
        raise InputError(refused.format(error)) from None
    if there == recipe:
        return False
    epochs = recipe.training.max_epochs
    if there.replace(training={"max_epochs": epochs}) == recipe and epochs > there.training.max_epochs:
        if recipe.training.schedule == "constant":
            return True
        refused = refused.replace("({})", "({}, which sets how the rate falls)")
    raise InputError(refused.format(_differences(there, recipe)))


def _differences(there: Recipe, here: Recipe) -> str:
    """The first settings in which two recipes differ, and how many more."""
    old, new = (_flat(recipe.model_dump()) for recipe in (there, here))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    told = [f"{key} = {shown(old.get(key))} there, {shown(new.get(key))} here" for key in keys[:3]]
    more = [f"and {len(keys) - 3} more"] if len(keys) > 3 else []
    return "; ".join([*told, *more])


def _flat(tables: dict[str, Any], section: str = "") -> dict[str, Any]:
    """Nested tables as one: "[data.endless] snrs_db"."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            inner = section if key == "options" else f"{section}.{key}".lstrip(".")  # a model's stand in [model]
            flat |= _flat(value, inner)
        else:
            flat[f"[{section}] {key}"] = value
    return flat


def _versions() -> dict[str, str]:
    found = [package for name in ("drnmf", "torch", "numpy") for package in metadata.distributions(name=name)]
    packages = {package.name: package.version for package in found}  # without drnmf where it is not installed
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {"python": platform.python_version(), "platform": platform.platform(), "device": device, **packages}


def _rank() -> int:
    """Which process this is of those that train together, known before they meet."""
    return int(getattr(rank_zero_only, "rank", 0))


def _fit(recipe: Recipe, folder: Path, model: Separator, data: EpochData) -> dict[str, float]:
    """Step 4: backpropagation, from the last checkpoint if there is one. Returns the row of the epoch that is kept."""
    settings = recipe.training
    clip = model.gradient_clip if settings.gradient_clip is None else settings.gradient_clip
    module = _module(recipe, model, clip)
    keep_last = settings.keep == "last"
    record = Record(module, folder, settings.patience, settings.validate_every, keep_last=keep_last)
    callbacks = [record, ProgressBar(record), Board(record, data.validation)]
    trainer = _trainer(
        settings, folder, callbacks, 0.0 if recipe.data.endless else clip
    )  # endless: the optimiser clips
    last = folder / checkpoints.LAST if checkpoints.exists(folder) else None
    if last is not None:
        log.info("continuing from %s", last)
    try:
        trainer.fit(module, data, ckpt_path=last)
    except SystemExit:  # what Lightning makes of Ctrl-C
        raise KeyboardInterrupt from None
    if trainer.interrupted:
        raise KeyboardInterrupt
    parameters = sum(p.numel() for p in model.parameters())
    seconds = round(record.seconds, 1)
    return {**record.kept, "epochs": record.rows[-1]["epoch"], "parameters": parameters, "seconds": seconds}


def _module(recipe: Recipe, model: Separator, clip: float) -> Backpropagation:
    """What is trained, by which loss and at which rates."""
    settings = recipe.training
    rate = model.learning_rate if settings.learning_rate is None else settings.learning_rate
    loss, falling = settings.loss_function(), settings.schedule == "cosine"
    adam = {"beta2": settings.beta2, "epsilon": settings.epsilon}
    if not recipe.data.endless:
        return Backpropagation(model, loss, rate, falling=falling, **adam)
    return EndlessBackpropagation(
        model,
        loss,
        rate,
        recurrent_rate=settings.recurrent_rate or rate,
        falling=falling,
        warmup_steps=settings.warmup_steps,
        objective=settings.objective,
        adam={**adam, "clip": clip, "average": settings.average, "share": settings.average_share},
    )


def _trainer(settings: TrainingSettings, folder: Path, callbacks: list[L.Callback], clip: float) -> L.Trainer:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic matrix products ask for
    state = ModelCheckpoint(folder, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    return L.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.nodes,
        strategy="ddp" if settings.devices * settings.nodes > 1 else "auto",
        precision=settings.precision,
        max_epochs=settings.max_epochs,
        gradient_clip_val=clip or None,
        check_val_every_n_epoch=settings.validate_every,
        callbacks=[*callbacks, state],
        plugins=[checkpoints.Checkpoints()],
        logger=_tensorboard(folder),
        deterministic=True,
        num_sanity_val_steps=-1,  # all of it: the loss at initialisation
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,  # Batches does that
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
    )


def _tensorboard(folder: Path) -> Logger | bool:
    if util.find_spec("tensorboard") is None:
        log.info("TensorBoard's curves left out: pip install tensorboard")
        return False
    return TensorBoardLogger(folder, name="", version="tensorboard")
