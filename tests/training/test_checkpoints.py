"""A run's state is never lost: not by a kill, nor by a damaged file, nor to a file that would run code."""

import os
import pickle
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest
import safetensors.torch
import torch

from drnmf import InputError
from drnmf.training.checkpoints import LAST, PREVIOUS, Checkpoints, exists, read

STATE = {
    "epoch": 3,
    "state_dict": {"model.W": torch.rand(3, 4), "model.b": torch.zeros(2, 3).mT},
    "optimizer_states": [{"state": {0: {"step": torch.tensor(7.0)}}, "param_groups": [{"betas": (0.9, 0.999)}]}],
    "callbacks": {"Record": {"rows": [{"training_loss": float("inf"), "validation_loss": 1 / 3}]}},
    "nothing": None,
    "flag": True,
}


def state(epoch: int) -> dict:
    return STATE | {"epoch": epoch}


def written(folder: Path, *epochs: int) -> Checkpoints:
    io = Checkpoints()
    for epoch in epochs:
        io.save_checkpoint(state(epoch), folder / LAST)
    return io


def same(a: object, b: object) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and a == b


def test_everything_comes_back_as_it_was(tmp_path):
    written(tmp_path, 3)
    assert same(Checkpoints().load_checkpoint(tmp_path / LAST), STATE)
    assert not (tmp_path / PREVIOUS).exists()


def test_the_one_before_is_kept_and_nothing_else(tmp_path):
    written(tmp_path, 1, 2, 3)
    assert {path.name: read(path)["epoch"] for path in tmp_path.iterdir()} == {LAST: 3, PREVIOUS: 2}


def test_it_is_written_beside_its_name_and_synced_before_it_has_it(tmp_path, monkeypatch):
    """The temporary folder may lie on another disk, where moving is copying: a kill then leaves half a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    steps, sync, rename = [], os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        steps.append("sync")
        sync(descriptor)

    def replace(path: Path, target: Path) -> Path:
        assert path.parent == target.parent
        steps.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    written(tmp_path, 1)
    assert steps == ["sync", "rename"]


def test_a_disk_that_is_full_leaves_the_state(tmp_path, monkeypatch):
    io = written(tmp_path, 1, 2)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(InputError, match="No space left"):
        io.save_checkpoint(state(3), tmp_path / LAST)
    monkeypatch.undo()
    assert exists(tmp_path)
    assert {path.name: read(path)["epoch"] for path in tmp_path.iterdir()} == {LAST: 2, PREVIOUS: 1}


def foreign(path: Path, *lines: bytes) -> None:
    """What somebody else could write, with its right digest."""
    rest = b"\n".join(lines)
    path.write_bytes(sha256(rest).hexdigest().encode() + b"\n" + rest)


EMPTY = safetensors.torch.save({})
DAMAGE = {
    "nothing but a digest": foreign,
    "no tensors": lambda path: foreign(path, b'{"dict": []}'),
    "no state": lambda path: foreign(path, b"3", EMPTY),
    "a tensor that is not there": lambda path: foreign(path, b'{"dict": [["a", {"tensor": "0"}]]}', EMPTY),
    "deep": lambda path: foreign(path, b"[" * 100_000, EMPTY),
    "keys that are lists": lambda path: foreign(path, b'{"dict": [[[], 1]]}', EMPTY),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "one bit": lambda path: path.write_bytes(path.read_bytes()[:-9] + bytes([path.read_bytes()[-9] ^ 4]) + b"0" * 8),
    "missing": lambda path: path.unlink(),
    "another file": lambda path: path.write_text("[data]\ntrain = 'a.csv'\n"),
    "half a zip": lambda path: path.write_bytes(b"PK\x03\x04 and no more"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_one_is_told_in_a_line_and_the_one_before_is_used(damage, tmp_path, caplog):
    written(tmp_path, 1, 2)
    damage(tmp_path / LAST)
    io = Checkpoints()
    assert io.load_checkpoint(tmp_path / LAST)["epoch"] == 1
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path / LAST}: ")
    assert "the one before it is used" in line
    io.save_checkpoint(state(2), tmp_path / LAST)  # which must not move the damaged one over the good one
    assert {path.name: read(path)["epoch"] for path in tmp_path.iterdir()} == {LAST: 2, PREVIOUS: 1}


@pytest.mark.parametrize("epochs", [(1,), (1, 2)])
def test_where_none_is_whole_the_remedy_is_named(epochs, tmp_path):
    written(tmp_path, *epochs)
    for path in tmp_path.iterdir():
        DAMAGE["cut"](path)
    with pytest.raises(InputError, match=r"last\.ckpt: .*delete both to train from the beginning$"):
        Checkpoints().load_checkpoint(tmp_path / LAST)


class Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("dump", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_no_file_runs_code(dump, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dump({"epoch": Evil()}, tmp_path / LAST)
    with pytest.raises(InputError, match="delete both"):
        Checkpoints().load_checkpoint(tmp_path / LAST)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_plain_value_is_not_written(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        Checkpoints().save_checkpoint({"epoch": Evil()}, tmp_path / LAST)
    assert not any(tmp_path.iterdir())


def test_those_of_earlier_versions_are_still_read(tmp_path):
    torch.save(STATE, tmp_path / LAST)
    assert same(Checkpoints().load_checkpoint(tmp_path / LAST), STATE)
