"""A model is a folder: config.json says what it is, model.safetensors holds its weights. No pickle."""

import json
import os
import textwrap
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from drnmf.errors import InputError, needing_pytorch, shown
from drnmf.files import make_folder, read_plain, write_together
from drnmf.signal import HOP, SAMPLE_RATE, WINDOW

if TYPE_CHECKING:
    from drnmf.models.base import Separator

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
MOST_CONFIG = 2**20
_MOST_HEADER = 2**16  # a tensor's share of the weights' header is its name, type and shape
_LAST_WITH_ALL = "d82fef1"  # the last commit with all options that were ever written
_FRONT_END = {"sample_rate": SAMPLE_RATE, "window": WINDOW, "hop": HOP}


def save_model(model: "Separator", folder: str | Path) -> None:
    """Write `model` into `folder`, which is created if it is missing; a reader never sees a half-written file."""
    import safetensors.torch

    from drnmf.models.kinds import name_of

    name = name_of(model)
    weights = safetensors.torch.save({k: v.detach().contiguous().cpu() for k, v in model.state_dict().items()})
    digest = sha256(weights).hexdigest()
    config = {"format": FORMAT, "model": name, **_FRONT_END, "config": model.config, "sha256": digest}
    make_folder(folder)
    write_together({Path(folder) / WEIGHTS: weights, Path(folder) / CONFIG: json.dumps(config, indent=2) + "\n"})


def load_model(folder_or_name: str | Path) -> "Separator":
    """Read a model from its folder or, by its name, one that comes with the package (`bundled_models`)."""
    folder = _find(folder_or_name)
    with needing_pytorch(f"the model {folder_or_name}"):
        import safetensors.torch

        from drnmf.models.kinds import kind_of
    config = _read_config(folder / CONFIG)
    try:
        kind = kind_of(config.get("model"))
    except InputError as error:
        raise InputError(f"{folder / CONFIG}: {error}") from None
    # shapes first: then nothing is read that could not belong to them
    model = _empty(kind, config["config"], folder / CONFIG)
    weights = _read_weights(folder / WEIGHTS, model, config.get("sha256"))
    try:
        tensors = safetensors.torch.load(weights)
        # copies, since PyTorch aligns its own memory and safetensors does not
        model.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    except (SafetensorError, RuntimeError, KeyError) as error:
        reason = textwrap.shorten(str(error), 160)
        raise InputError(f"{folder}: config and weights do not belong together: {reason}") from None
    _check_numbers(model, folder / WEIGHTS)
    return model.eval()


def bundled_models() -> list[str]:
    """Names of the models that come with the package."""
    root = resources.files("drnmf") / "bundled"
    return sorted(entry.name for entry in root.iterdir() if (entry / CONFIG).is_file()) if root.is_dir() else []


def _find(folder_or_name: str | Path) -> Path:
    folder = Path(folder_or_name)
    if os.path.isfile(folder / CONFIG):  # which, unlike Path's, takes names of any length and content
        return folder
    if str(folder_or_name) in bundled_models():
        return Path(str(resources.files("drnmf") / "bundled" / str(folder_or_name)))
    if os.path.isdir(folder):
        raise InputError(f"{folder}: not a model, it has no {CONFIG}")
    names = ", ".join(bundled_models()) or "none"
    raise InputError(f"{shown(str(folder_or_name))[1:-1]}: no such model folder; bundled models: {names}")


def _read_config(path: Path) -> dict[str, Any]:
    content = read_plain(path, MOST_CONFIG)
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable as a model's configuration ({error})") from None
    if not isinstance(config, dict) or not isinstance(config.get("format"), int) or "config" not in config:
        raise InputError(f"{path}: not a drnmf model's configuration")
    if config["format"] > FORMAT:
        raise InputError(
            f"{path}: written by a newer drnmf (format {shown(config['format'])}); upgrade drnmf to read it"
        )
    for key, value in _FRONT_END.items():
        if config.get(key) != value:
            raise InputError(f"{path}: {key} is {shown(config.get(key))}, this version works with {value}")
    return config


def _empty(kind: type["Separator"], options: Any, path: Path) -> "Separator":
    """A model of the shapes that its configuration names, without memory for them."""
    from drnmf.models.base import check_names, check_options

    try:
        options = _known_options(kind, options)
        check_options(kind, options)
        check_names(kind, options)
        return kind.empty(**options)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{path}: no {kind.__name__} has such options: {textwrap.shorten(str(error), 160)}") from None


def _read_weights(path: Path, model: "Separator", digest: object) -> bytes:
    """The file's content, if it can hold the weights of this model and no more."""
    most = sum(8 * tensor.numel() + _MOST_HEADER for tensor in model.state_dict().values())
    try:
        weights = read_plain(path, most)
    except InputError as error:
        raise InputError(f"{error}; copy the model's folder again") from None
    if sha256(weights).hexdigest() != digest:
        raise InputError(f"{path}: damaged, or not the weights of its {CONFIG}; copy the model's folder again")
    return weights


def _check_numbers(model: "Separator", path: Path) -> None:
    """Refuse weights that would make sound of NaN, or that PyTorch stores but does not compute with."""
    import torch

    numbers = [tensor for tensor in model.state_dict().values() if tensor.is_floating_point() or tensor.is_complex()]
    types = {str(tensor.dtype).removeprefix("torch.") for tensor in numbers}
    if len(types) > 1 or not types <= {"float16", "bfloat16", "float32", "float64"}:
        raise InputError(f"{path}: its weights are {' and '.join(sorted(types))}; save them as float32")
    if not all(torch.isfinite(tensor).all() for tensor in numbers):
        raise InputError(f"{path}: holds weights that are NaN or infinite; use another model")


def _known_options(kind: type["Separator"], options: dict[str, Any]) -> dict[str, Any]:
    """A model's options without those that this version has removed, where the model did not use them."""
    options = dict(options)
    for name, off in kind.removed_options.items():
        value = options.pop(name, off)
        if value != off:
            raise InputError(
                f"{name} = {shown(value)} was removed; drnmf's commit {_LAST_WITH_ALL} can read this model"
            )
    return options
