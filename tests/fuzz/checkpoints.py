"""Checkpoints and dictionaries of a training run, damaged: as this version writes them, and as earlier ones did."""

import functools
import pickle
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import safetensors.torch
import torch

from drnmf.training.checkpoints import LAST, Checkpoints, read
from drnmf.training.dictionaries import _read
from fuzz.sounds import Random, damaged, pick

SHORT = 150
STATE = {"epoch": 3, "state_dict": {"W": torch.rand(9, 4)}, "optimizer_states": [{"state": {0: (0.9, None)}}]}


@functools.cache
def contents() -> dict[str, bytes]:
    """Whole ones, by name."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        Checkpoints().save_checkpoint(STATE, folder / LAST)
        torch.save(STATE, folder / "old.ckpt")
        (folder / "pickle.ckpt").write_bytes(pickle.dumps(STATE))
        (folder / "W").write_bytes(safetensors.torch.save({"W": torch.rand(257, 4)}))
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def attempt(random: Random, folder: Path) -> None:
    name = pick(random, sorted(contents()))
    path = folder / name
    content = damaged(contents()[name], random)
    if name == LAST and random.random() < 0.5:  # whoever means harm writes the digest, too
        _, _, rest = contents()[name].partition(b"\n")
        rest = pick(random, (damaged(rest, random), b"[" * 10**5, b'{"dict":[[[],1]]}\n' + rest.partition(b"\n")[2]))
        content = sha256(rest).hexdigest().encode() + b"\n" + rest
    path.write_bytes(content)
    if name == "W":
        _read(path, 257)
    else:
        read(path)
