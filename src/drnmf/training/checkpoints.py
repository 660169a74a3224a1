"""A run's state on disk, in JSON and safetensors: reading it runs no code, as a pickle could.

The newest is `last.ckpt`, the one before it `previous.ckpt`. A file has a line with the digest of all that follows, a
line of JSON, and then the tensors that it names.
"""

import io
import json
import logging
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from lightning.fabric.plugins import CheckpointIO
from safetensors import SafetensorError
from torch import Tensor

from drnmf.errors import InputError
from drnmf.files import read_plain, write_atomically

log = logging.getLogger("drnmf")

_MOST_BYTES = 2**32
LAST, PREVIOUS = "last.ckpt", "previous.ckpt"


class Checkpoints(CheckpointIO):
    """How Lightning writes and reads the checkpoints of one run."""

    _whole = False  # whether the newest can be read: a damaged one must not replace the one before

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a new one, and keep the one before."""
        path = Path(path)
        write_atomically(path, _encoded(checkpoint), keep=path.with_name(PREVIOUS) if self._whole else None)
        self._whole = True

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read the newest or, where it is damaged or missing, the one before; there never is more than weights."""
        path = Path(path)
        for candidate in (path, path.with_name(PREVIOUS)):
            try:
                checkpoint = read(candidate)
            except InputError as error:
                log.warning("%s; the one before it is used", error)
                continue
            self._whole = candidate == path
            return checkpoint
        raise InputError(f"{path}: can be read no more, nor one before; delete both to train from the beginning")

    def remove_checkpoint(self, path: str | Path) -> None:
        """Lightning's word for one that it does not need."""
        Path(path).unlink(missing_ok=True)


def exists(folder: Path) -> bool:
    """Whether there is a state to continue from."""
    return any((folder / name).is_file() for name in (LAST, PREVIOUS))


def read(path: Path) -> dict[str, Any]:
    """The state in a file, its tensors on the CPU."""
    content = read_plain(path, _MOST_BYTES)
    if content.startswith(b"PK"):
        return _read_old(path, content)
    digest, _, rest = content.partition(b"\n")
    if sha256(rest).hexdigest().encode() != digest:
        raise InputError(f"{path}: this checkpoint is damaged")
    text, _, tensors = rest.partition(b"\n")
    try:
        checkpoint = _with_tensors(json.loads(text), safetensors.torch.load(tensors))
    except (ValueError, TypeError, KeyError, RecursionError, SafetensorError):
        checkpoint = None
    if not isinstance(checkpoint, dict):
        raise InputError(f"{path}: this checkpoint is not one of drnmf's")
    return checkpoint


def _read_old(path: Path, content: bytes) -> dict[str, Any]:
    """What earlier versions left: PyTorch's format, of which only plain values and tensors are read."""
    try:
        checkpoint: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # any: what it stumbles over in a damaged file has many names
        raise InputError(f"{path}: this checkpoint is damaged, or holds more than numbers") from None
    return checkpoint


def _encoded(checkpoint: dict[str, Any]) -> bytes:
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_without_tensors(checkpoint, tensors))
    rest = text.encode() + b"\n" + safetensors.torch.save(tensors)
    return sha256(rest).hexdigest().encode() + b"\n" + rest


def _without_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """As JSON, which has neither tensors, nor tuples, nor keys that are numbers; tensors are added to `tensors`."""
    match value:
        case Tensor():
            name = str(len(tensors))
            tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
            return {"tensor": name}
        case dict():
            return {"dict": [[key, _without_tensors(inner, tensors)] for key, inner in value.items()]}
        case tuple():
            return {"tuple": [_without_tensors(inner, tensors) for inner in value]}
        case list():
            return [_without_tensors(inner, tensors) for inner in value]
    return value


def _with_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `_without_tensors`."""
    match value:
        case {"tensor": name}:
            return tensors[name]
        case {"dict": pairs}:
            return {key: _with_tensors(inner, tensors) for key, inner in pairs}
        case {"tuple": inner}:
            return tuple(_with_tensors(each, tensors) for each in inner)
        case list():
            return [_with_tensors(each, tensors) for each in value]
    return value
