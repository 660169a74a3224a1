"""A model is a folder: config.json says what it is, model.safetensors holds its weights. No pickle."""

import json
import textwrap
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from drnmf.errors import InputError
from drnmf.files import write_together
from drnmf.models import DRNMF, DeepNMF, ISTAMask, LSTMMask, SistaRNN, SparseNMFMask
from drnmf.models.base import Separator
from drnmf.signal.spectra import HOP, SAMPLE_RATE, WINDOW

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_FRONT_END = {"sample_rate": SAMPLE_RATE, "window": WINDOW, "hop": HOP}
_REMOVED = ("transition", "momentum")  # options of DRNMF that did not help
_LAST_WITH_ALL = "d82fef1"
_MODELS: dict[str, type[Separator]] = {
    model.__name__: model for model in (DRNMF, DeepNMF, ISTAMask, LSTMMask, SistaRNN, SparseNMFMask)
}


def save_model(model: Separator, folder: str | Path) -> None:
    """Write `model` into `folder`, which is made if need be; a reader never sees a half-written file."""
    name = type(model).__name__
    if name not in _MODELS:
        raise InputError(f"{name} cannot be saved: it holds the answer to one mixture, not a model")
    weights = safetensors.torch.save({k: v.detach().contiguous().cpu() for k, v in model.state_dict().items()})
    config = {
        "format": FORMAT,
        "model": name,
        **_FRONT_END,
        "config": model.config,
        "sha256": _digest(weights),
    }
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_together({Path(folder) / WEIGHTS: weights, Path(folder) / CONFIG: json.dumps(config, indent=2) + "\n"})
    except OSError as error:
        raise InputError(f"{folder}: the model cannot be written there ({error.strerror})") from None


def load_model(folder_or_name: str | Path) -> Separator:
    """Read a model from a folder, or one that comes with the package by its name (`bundled_models`)."""
    folder = _find(folder_or_name)
    config = _read_config(folder / CONFIG)
    try:
        weights = (folder / WEIGHTS).read_bytes()
    except OSError as error:
        raise InputError(
            f"{folder / WEIGHTS}: cannot be read ({error.strerror}); copy the model's folder anew"
        ) from None
    if _digest(weights) != config.get("sha256"):
        raise InputError(
            f"{folder / WEIGHTS}: damaged, or not the weights of its {CONFIG}; copy the model's folder anew"
        )
    try:
        tensors = safetensors.torch.load(weights)
        model = _MODELS[config["model"]](**_without_removed(dict(config["config"]), folder / CONFIG))
        dtypes = {t.dtype for t in tensors.values() if t.is_floating_point()}
        model.to(dtype=dtypes.pop() if len(dtypes) == 1 else None)
        model.load_state_dict(tensors)
    except (SafetensorError, RuntimeError, TypeError, KeyError, ValueError) as error:
        reason = textwrap.shorten(str(error), 160)
        raise InputError(f"{folder}: config and weights do not belong together: {reason}") from None
    return model.eval()


def bundled_models() -> list[str]:
    """Names of the models that come with the package."""
    root = resources.files("drnmf") / "bundled"
    return sorted(entry.name for entry in root.iterdir() if (entry / CONFIG).is_file()) if root.is_dir() else []


def _find(folder_or_name: str | Path) -> Path:
    folder = Path(folder_or_name)
    if (folder / CONFIG).is_file():
        return folder
    if str(folder_or_name) in bundled_models():
        return Path(str(resources.files("drnmf") / "bundled" / str(folder_or_name)))
    if folder.is_dir():
        raise InputError(f"{folder}: not a model, it has no {CONFIG}")
    names = ", ".join(bundled_models()) or "none"
    raise InputError(f"{folder_or_name}: no such model folder; bundled models: {names}")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as a model's configuration ({error})") from None
    if not isinstance(config, dict) or not isinstance(config.get("format"), int) or "config" not in config:
        raise InputError(f"{path}: not a drnmf model's configuration")
    if config["format"] > FORMAT:
        raise InputError(f"{path}: written by a newer drnmf (format {config['format']}); upgrade drnmf to read it")
    if config.get("model") not in list(_MODELS):  # a list: a foreign file's value need not be hashable
        raise InputError(f"{path}: unknown kind of model {config.get('model')!r}; known: {', '.join(sorted(_MODELS))}")
    for key, value in _FRONT_END.items():
        if config.get(key) != value:
            raise InputError(f"{path}: {key} is {config.get(key)}, this version works with {value}")
    return config


def _without_removed(options: dict[str, Any], path: Path) -> dict[str, Any]:
    """The options of a model, less those that older versions wrote and that no longer exist."""
    lost = [f"{name} = true" for name in _REMOVED if options.get(name)]
    lost += ["alpha_range = 'stable'"] if options.get("alpha_range") == "stable" else []
    if lost:
        raise InputError(f"{path}: {lost[0]} was removed from drnmf; its commit {_LAST_WITH_ALL} can read this model")
    return {name: value for name, value in options.items() if name not in _REMOVED}


def _digest(weights: bytes) -> str:
    return sha256(weights).hexdigest()
