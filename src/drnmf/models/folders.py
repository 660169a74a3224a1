"""A model is a folder: config.json says what it is, model.safetensors holds its weights. No pickle."""

import json
import math
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors import numpy as arrays_as_bytes

from drnmf.engines import streams
from drnmf.engines.library import type_name
from drnmf.errors import NEEDS_PYTORCH, InputError, shown
from drnmf.files import make_folder, read_plain, write_together
from drnmf.models import drnmf_packed, prior_packed
from drnmf.models.options import check_names, check_options, check_size
from drnmf.models.packed import PackedModel
from drnmf.signal import HOP, SAMPLE_RATE, WINDOW
from drnmf.signal.arrays import Samples

if TYPE_CHECKING:
    from drnmf.models.base import Separator

PACKED: dict[str, tuple[Any, Any]] = {
    "DRNMF": (drnmf_packed.PackedDRNMF, drnmf_packed.Options),
    "PriorDRNMF": (prior_packed.PackedPriorDRNMF, prior_packed.Options),
}
"""Kinds of models that have a form in C, and that form's options."""
FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
MOST_CONFIG = 2**20
_MOST_HEADER = 2**16  # a tensor's share of the weights' header is its name, type and shape
_LAST_WITH_ALL = "d82fef1"  # the last commit with all options that were ever written
_FRONT_END = {"sample_rate": SAMPLE_RATE, "window": WINDOW, "hop": HOP}
_TYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


def save_model(model: "Separator | PackedModel", folder: str | Path) -> None:
    """Write `model` into `folder`, which is created if it is missing; a reader never sees a half-written file.

    Examples:
        >>> from drnmf import LSTMMask, load_model, save_model
        >>> save_model(LSTMMask(n_layers=1, n_units=8), "my_lstm")
        >>> load_model("my_lstm").config["n_units"]
        8
    """
    name, options, weights = _stored(model)
    digest = sha256(weights).hexdigest()
    config = {"format": FORMAT, "model": name, **_FRONT_END, "config": options, "sha256": digest}
    if model.adaptation is not None:
        config["adaptation"] = model.adaptation
    make_folder(folder)
    write_together({Path(folder) / WEIGHTS: weights, Path(folder) / CONFIG: json.dumps(config, indent=2) + "\n"})


def check_new(folder: Path, like: str | Path, overwrite: bool) -> None:
    """Refuse to write a model made from another where a file is, or the other one, or one that may not be replaced."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; a model is a folder, choose another name")
    if folder.exists() and folder.samefile(_find(like)):
        raise InputError(f"{folder}: is the input itself; choose another output")
    if (folder / CONFIG).exists() and not overwrite:
        raise InputError(f"{folder}: exists already; choose another name, or use --overwrite")


def weights_digest(model: "Separator | PackedModel") -> str:
    """The sha256 that a folder of this model has in its configuration."""
    return sha256(_stored(model)[2]).hexdigest()


def _stored(model: "Separator | PackedModel") -> tuple[str, dict[str, Any], bytes]:
    """What a folder holds of a model: its kind by name, its options, its weights."""
    if isinstance(model, PackedModel):
        options, weights = model.stored()
        return model.kind, options, arrays_as_bytes.save(weights)
    import safetensors.torch

    from drnmf.models.kinds import name_of

    name = name_of(model)
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in model.state_dict().items()}
    return name, model.config, safetensors.torch.save(tensors)


def load_model(folder_or_name: str | Path) -> "Separator":
    """Read a model from its folder or, by its name, one that comes with the package (`bundled_models`).

    Where there is no PyTorch the result is a `PackedModel`, which can be used and looked at, but not trained.

    Examples:
        >>> from drnmf import load_model
        >>> model = load_model("default")  # or "my_model", a folder
        >>> type(model).__name__, model.n_features
        ('PriorDRNMF', 257)
    """
    folder = _find(folder_or_name)
    try:
        from drnmf.models.kinds import kind_of
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _load_packed(folder) or _refuse(folder, folder_or_name)  # type: ignore[return-value]
    import safetensors.torch

    config = _read_config(folder / CONFIG)
    try:
        kind = kind_of(config.get("model"))
    except InputError as error:
        raise InputError(f"{folder / CONFIG}: {error}") from None
    # shapes first: then nothing is read that could not belong to them
    with _about_options(folder / CONFIG, kind.__name__):
        model = kind.empty(**_checked_options(kind, config["config"], kind.__name__))
    sizes = [tensor.numel() for tensor in model.state_dict().values()]
    weights = _read_weights(folder / WEIGHTS, sizes, config.get("sha256"))
    with _about_weights(folder):
        tensors = safetensors.torch.load(weights)
        # copies, since PyTorch aligns its own memory and safetensors does not
        model.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    numbers = [tensor for tensor in model.state_dict().values() if tensor.is_floating_point() or tensor.is_complex()]
    types = {type_name(tensor.dtype) for tensor in numbers}
    _check_numbers(types, lambda: all(bool(tensor.isfinite().all()) for tensor in numbers), folder / WEIGHTS)
    model.adaptation = _adaptation(config, folder / CONFIG)
    return model.eval()


def load_ready(folder_or_name: str | Path) -> "Separator | PackedModel":
    """A model to be used as it is: in C if it can be, since importing PyTorch would take longest of all."""
    return _load_packed(_find(folder_or_name)) or load_model(folder_or_name)


def _load_packed(folder: Path) -> PackedModel | None:
    """A model in C, without PyTorch; None if it has no such form, or nothing is compiled here."""
    config = _read_config(folder / CONFIG)
    name = config.get("model")
    if not isinstance(name, str) or name not in PACKED or not streams.available():
        return None
    kind, options_of = PACKED[name]
    with _about_options(folder / CONFIG, name):
        options = options_of(**_checked_options(options_of, config["config"], name))
        shapes = options.shapes()
        sizes = [math.prod(shape) for shape in shapes.values()]
        check_size(sum(sizes))
    content = _read_weights(folder / WEIGHTS, sizes, config.get("sha256"))
    with _about_weights(folder):
        arrays = _arrays(content, shapes)
    types = {str(array.dtype) for array in arrays.values()}
    _check_numbers(types, lambda: all(np.isfinite(array).all() for array in arrays.values()), folder / WEIGHTS)
    weights = {name: array.astype(np.float64) for name, array in arrays.items()}
    model: PackedModel = kind(options, weights, "float64" if types == {"float64"} else "float32")
    model.adaptation = _adaptation(config, folder / CONFIG)
    return model


def _arrays(content: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Samples]:
    """Arrays of these names and shapes, and no others."""
    stored = dict(deserialize(content))  # type: ignore[no-untyped-call]
    found = {name: (part["dtype"], tuple(part["shape"]), part["data"]) for name, part in stored.items()}
    for name in [*(found.keys() - shapes.keys()), *(shapes.keys() - found.keys())]:
        raise KeyError(f"{name} is in one of them only")
    for name, (_, shape, _) in found.items():
        if shape != shapes[name]:
            raise KeyError(f"size mismatch for {name}: {shape} is stored, {shapes[name]} needed")
    return {name: _array(*stored) for name, stored in found.items()}


def _array(type_: str, shape: tuple[int, ...], data: bytes) -> Samples:
    if type_ == "BF16":  # which numpy does not have: the upper half of a float32
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if type_ not in _TYPES:
        raise KeyError(f"numbers of type {type_}")
    return np.frombuffer(data, _TYPES[type_]).reshape(shape)


def _refuse(folder: Path, folder_or_name: str | Path) -> NoReturn:
    """Say why a model cannot be used without PyTorch."""
    kind = _read_config(folder / CONFIG).get("model")
    if kind in list(PACKED):
        raise InputError(f"the compiled part of drnmf is missing, and without it {folder_or_name} {NEEDS_PYTORCH}")
    raise InputError(f"{folder_or_name}: is of the kind {shown(kind)}, which has no compiled form and {NEEDS_PYTORCH}")


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


def _adaptation(config: Mapping[str, Any], path: Path) -> Mapping[str, Any] | None:
    """What the configuration says of a noise that was learned, if anything."""
    adaptation = config.get("adaptation")
    if adaptation is None or isinstance(adaptation, dict):
        return adaptation
    raise InputError(f"{path}: adaptation is {shown(adaptation)}, not a table of what was learned; remove the entry")


def _checked_options(kind: Any, options: Any, name: str) -> dict[str, Any]:
    """Options that the constructor of a kind of model takes."""
    known = _known_options(kind, options)
    check_options(kind, known)
    check_names(kind, known, name)
    return known


@contextmanager
def _about_options(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{path}: no {name} has such options: {textwrap.shorten(str(error), 160)}") from None


@contextmanager
def _about_weights(folder: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, RuntimeError, KeyError) as error:
        reason = textwrap.shorten(str(error), 160)
        raise InputError(f"{folder}: config and weights do not belong together: {reason}") from None


def _read_weights(path: Path, sizes: Sequence[int], digest: object) -> bytes:
    """The file's content, if it can hold weights of these sizes and no more."""
    most = sum(8 * size + _MOST_HEADER for size in sizes)
    try:
        weights = read_plain(path, most)
    except InputError as error:
        raise InputError(f"{error}; copy the model's folder again") from None
    if sha256(weights).hexdigest() != digest:
        raise InputError(f"{path}: damaged, or not the weights of its {CONFIG}; copy the model's folder again")
    return weights


def _check_numbers(types: Set[str], are_finite: Callable[[], bool], path: Path) -> None:
    """Refuse weights that would make sound of NaN, or that can be stored but not computed with."""
    if len(types) > 1 or not types <= {"float16", "bfloat16", "float32", "float64"}:
        raise InputError(f"{path}: its weights are {' and '.join(sorted(types))}; save them as float32")
    if not are_finite():
        raise InputError(f"{path}: holds weights that are NaN or infinite; use another model")


def _known_options(kind: Any, options: dict[str, Any]) -> dict[str, Any]:
    """A model's options without those that this version has removed, where the model did not use them."""
    options = dict(options)
    for name, off in kind.removed_options.items():
        value = options.pop(name, off)
        if value != off:
            raise InputError(
                f"{name} = {shown(value)} was removed; drnmf's commit {_LAST_WITH_ALL} can read this model"
            )
    return options
