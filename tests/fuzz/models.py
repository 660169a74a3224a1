"""Models' folders as a stranger could give them: wrong options, weights that lie about themselves, no files at all."""

import json
import os
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from drnmf import Streamer, load_model, save_model
from drnmf.models.folders import CONFIG, WEIGHTS
from examples import build
from fuzz.damage import Case, Random, damaged, pick

KINDS = ("drnmf_options", "drnmf_level", "prior_drnmf", "lstm_level", "snmf", "ista", "deep_nmf_context", "sista")
NUMBERS = (0, -1, 1, 2, 3, 257, 1000, 10**6, 2**31, 2**63, 10**400, 0.5, 100.5, -0.0, 1e-320, 1e300)
OTHERS = (float("nan"), float("inf"), True, False, None, "", "3", "é\0\n", "a" * 10**4, [], [3], {}, {"a": [{}]})
FLOATS = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, -200.0, 200.0, 0.0, 1e-45)
TYPES = ("F32", "F64", "F16", "BF16", "F8_E4M3", "I64", "U8", "BOOL", "C64", "F99", "", None)
SOUND = (0.1 * np.random.default_rng(0).standard_normal(2000)).astype(np.float32)


def cases(rng: Random, folder: Path) -> Iterator[Case]:
    """Without end."""
    originals = []
    for kind in KINDS:
        save_model(build(kind).float(), folder / kind)
        originals.append((kind, (folder / kind / CONFIG).read_bytes(), (folder / kind / WEIGHTS).read_bytes()))
    changes = (options, options, front, text, header, header, values, values, raw, special)
    while True:
        kind, config, weights = pick(rng, originals)
        change = pick(rng, changes)
        target = folder / "case"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        (target / CONFIG).write_bytes(config)
        (target / WEIGHTS).write_bytes(weights)
        change(target, rng)
        yield f"{kind}, {change.__name__}", lambda target=target: use(target)


def use(folder: Path) -> None:
    streamer = Streamer(load_model(folder))
    enhanced = np.concatenate([streamer.feed(SOUND), streamer.flush()])
    assert enhanced.shape == SOUND.shape
    assert np.isfinite(enhanced).all()


def value(rng: Random) -> Any:
    return pick(rng, NUMBERS if rng.random() < 0.6 else OTHERS)


def options(folder: Path, rng: Random) -> None:
    config = json.loads((folder / CONFIG).read_text())
    for _ in range(rng.integers(1, 3)):
        config["config"][pick(rng, [*config["config"], "generator", "new"])] = value(rng)
    (folder / CONFIG).write_text(json.dumps(config))


def front(folder: Path, rng: Random) -> None:
    config = json.loads((folder / CONFIG).read_text())
    name = pick(rng, list(config))
    if rng.random() < 0.3:
        del config[name]
    else:
        config[name] = pick(rng, ["DRNMF", "LSTMMask", "OracleMask"]) if name == "model" else value(rng)
    (folder / CONFIG).write_text(json.dumps(config))


def text(folder: Path, rng: Random) -> None:
    content = (folder / CONFIG).read_bytes()
    deep = pick(rng, [b"[", b'{"config":', b'{"a":[']) * int(rng.integers(1, 10**5))
    (folder / CONFIG).write_bytes(deep if rng.random() < 0.2 else damaged(content, rng))


def header(folder: Path, rng: Random) -> None:
    """The names, types, shapes and places of the weights."""
    content = (folder / WEIGHTS).read_bytes()
    size = int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8 : 8 + size])
    tensor = tensors[pick(rng, [name for name in tensors if name != "__metadata__"])]
    match rng.integers(5):
        case 0:
            tensor["dtype"] = pick(rng, TYPES)
        case 1:
            tensor["shape"] = pick(rng, [[], [0], [-1], [2**62, 4], [1.5], "3", tensor["shape"][::-1], None])
        case 2:
            tensor["data_offsets"] = pick(rng, [[0, 0], [0, 2**63], [-4, 4], [8, 4], [0], None, [0, 4], [3, 7]])
        case 3:
            tensors[pick(rng, ["new", "log_W", "é" * 1000, ""])] = dict(tensor)
        case 4:
            del tensor[pick(rng, list(tensor))]
    changed = json.dumps(tensors).encode()
    length = len(changed) if rng.random() < 0.9 else int(pick(rng, [0, 2**63 - 1, 2**30, len(changed) - 1]))
    write_weights(folder, length.to_bytes(8, "little") + changed + content[8 + size :])


def values(folder: Path, rng: Random) -> None:
    """Some of the weights are any numbers."""
    content = bytearray((folder / WEIGHTS).read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    weights = np.frombuffer(content, "<f4", offset=begin)
    some = rng.random(len(weights)) < pick(rng, [1e-4, 0.01, 1.0])
    some[rng.integers(len(weights))] = True
    weights[some] = pick(rng, FLOATS)
    write_weights(folder, bytes(content))


def raw(folder: Path, rng: Random) -> None:
    write_weights(folder, damaged((folder / WEIGHTS).read_bytes(), rng), honest=rng.random() < 0.8)


def special(folder: Path, rng: Random) -> None:
    """What is no plain file, or one of a terabyte that takes no room."""
    path = folder / pick(rng, [CONFIG, WEIGHTS])
    path.unlink()
    match rng.integers(6):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to(pick(rng, ["/dev/zero", "/dev/null", path.name, "nowhere", "/proc/self/mem"]))
        case 2:
            path.mkdir()
        case 3:
            path.touch()
            os.truncate(path, int(pick(rng, [0, 1, 2**16, 2**40])))


def write_weights(folder: Path, content: bytes, *, honest: bool = True) -> None:
    """With the digest that belongs to them: whoever means harm writes it, too."""
    (folder / WEIGHTS).write_bytes(content)
    config = json.loads((folder / CONFIG).read_text())
    if honest:
        config["sha256"] = sha256(content).hexdigest()
    (folder / CONFIG).write_text(json.dumps(config))
