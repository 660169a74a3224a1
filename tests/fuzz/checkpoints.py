"""Checkpoints and dictionaries of a training run, damaged: as this version writes them, and as earlier ones did."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import safetensors.torch
import torch

from drnmf.training.checkpoints import LAST, Checkpoints, read
from drnmf.training.dictionaries import _read
from fuzz.damage import Case, Random, damaged, pick

STATE = {"epoch": 3, "state_dict": {"W": torch.rand(9, 4)}, "optimizer_states": [{"state": {0: (0.9, None)}}]}


def cases(rng: Random, folder: Path) -> Iterator[Case]:
    """Without end."""
    Checkpoints().save_checkpoint(STATE, folder / LAST)
    torch.save(STATE, folder / "old.ckpt")
    (folder / "pickle.ckpt").write_bytes(pickle.dumps(STATE))
    (folder / "W").write_bytes(safetensors.torch.save({"W": torch.rand(257, 4)}))
    originals = {name: (folder / name).read_bytes() for name in (LAST, "old.ckpt", "pickle.ckpt", "W")}
    while True:
        name = pick(rng, list(originals))
        path = folder / f"damaged {name}"
        path.write_bytes(damaged(originals[name], rng))
        yield name, lambda path=path: _read(path, 257) if path.name.endswith("W") else read(path)
