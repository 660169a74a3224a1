"""A model is a folder: config.json says what it is, model.safetensors holds its weights. No pickle."""

import json
import textwrap
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from drnmf.errors import InputError, needing_pytorch
from drnmf.files import make_folder, write_together
from drnmf.signal import HOP, SAMPLE_RATE, WINDOW

if TYPE_CHECKING:
    from drnmf.models.base import Separator

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_LAST_WITH_ALL = "d82fef1"  # the last commit with all options that were ever written
_FRONT_END = {"sample_rate": SAMPLE_RATE, "window": WINDOW, "hop": HOP}


def save_model(model: "Separator", folder: str | Path) -> None:
    """Write `model` into `folder`, which is created if it is missing; a reader never sees a half-written file."""
    import safetensors.torch

    from drnmf.models.kinds import MODELS

    name = type(model).__name__
    if name not in MODELS:
        raise InputError(f"{name} cannot be saved: it is not in drnmf.models.kinds.MODELS, what a folder can hold")
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

        from drnmf.models.kinds import MODELS
    config = _read_config(folder / CONFIG)
    if config.get("model") not in list(MODELS):  # a list: a foreign file's value need not be hashable
        known = ", ".join(sorted(MODELS))
        raise InputError(f"{folder / CONFIG}: unknown kind of model {config.get('model')!r}; known: {known}")
    try:
        weights = (folder / WEIGHTS).read_bytes()
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError(f"{folder / WEIGHTS}: {problem}; copy the model's folder again") from None
    if sha256(weights).hexdigest() != config.get("sha256"):
        problem = f"damaged, or not the weights of its {CONFIG}"
        raise InputError(f"{folder / WEIGHTS}: {problem}; copy the model's folder again")
    try:
        kind = MODELS[config["model"]]
        model = kind.empty(**_known_options(kind, config["config"]))
        tensors = safetensors.torch.load(weights)
        # copies, since PyTorch aligns its own memory and safetensors does not
        model.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    except InputError as error:
        raise InputError(f"{folder / CONFIG}: {error}") from None
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
    for key, value in _FRONT_END.items():
        if config.get(key) != value:
            raise InputError(f"{path}: {key} is {config.get(key)}, this version works with {value}")
    return config


def _known_options(kind: type["Separator"], options: dict[str, Any]) -> dict[str, Any]:
    """A model's options without those that this version has removed, where the model did not use them."""
    options = dict(options)
    for name, off in kind.removed_options.items():
        value = options.pop(name, off)
        if value != off:
            raise InputError(f"{name} = {value!r} was removed; drnmf's commit {_LAST_WITH_ALL} can read this model")
    return options
