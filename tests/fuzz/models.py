"""Models' folders as a stranger could give them: wrong options, weights that lie about themselves, no files at all."""

import functools
import json
import os
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from drnmf import Streamer, load_model, save_model
from drnmf.models.folders import CONFIG, WEIGHTS
from examples import build
from fuzz.sounds import Random, damaged, naming, pick

SHORT = 150
KINDS = ("drnmf_options", "drnmf_level", "prior_drnmf", "lstm_level", "snmf", "ista", "deep_nmf_context", "sista")
NUMBERS = (0, -1, 1, 2, 3, 257, 1000, 10**6, 2**31, 2**63, 10**400, 0.5, 100.5, -0.0, 1e-320, 1e300)
OTHERS = (float("nan"), float("inf"), True, False, None, "", "3", "é\0\n", "a" * 10**4, [], [3], {}, {"a": [{}]})
FLOATS = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, -200.0, 200.0, 0.0, 1e-45)
TYPES = ("F32", "F64", "F16", "BF16", "F8_E4M3", "I64", "U8", "BOOL", "C64", "F99", "", None)
SOUND = (0.1 * np.random.default_rng(0).standard_normal(2000)).astype(np.float32)


@functools.cache
def contents(kind: str) -> dict[str, bytes]:
    """The files of a whole model."""
    with TemporaryDirectory() as folder:
        save_model(build(kind).float(), folder)
        return {name: (Path(folder) / name).read_bytes() for name in (CONFIG, WEIGHTS)}


def attempt(random: Random, folder: Path) -> None:
    for name, content in contents(pick(random, KINDS)).items():
        (folder / name).write_bytes(content)
    change = pick(random, (options, options, front, text, header, header, values, values, raw, special))
    change(folder, random)
    with naming(folder):
        model = load_model(folder)
    streamer = Streamer(model)
    enhanced = np.concatenate([streamer.feed(SOUND), streamer.flush()])
    assert enhanced.shape == SOUND.shape
    assert np.isfinite(enhanced).all()


def value(random: Random) -> Any:
    return pick(random, NUMBERS if random.random() < 0.6 else OTHERS)


def options(folder: Path, random: Random) -> None:
    config = json.loads((folder / CONFIG).read_text())
    for _ in range(random.integers(1, 3)):
        config["config"][pick(random, [*config["config"], "generator", "new"])] = value(random)
    (folder / CONFIG).write_text(json.dumps(config))


def front(folder: Path, random: Random) -> None:
    config = json.loads((folder / CONFIG).read_text())
    name = pick(random, list(config))
    if random.random() < 0.3:
        del config[name]
    else:
        config[name] = pick(random, ["DRNMF", "LSTMMask", "OracleMask"]) if name == "model" else value(random)
    (folder / CONFIG).write_text(json.dumps(config))


def text(folder: Path, random: Random) -> None:
    content = (folder / CONFIG).read_bytes()
    deep = pick(random, [b"[", b'{"config":', b'{"a":[']) * int(random.integers(1, 10**5))
    (folder / CONFIG).write_bytes(deep if random.random() < 0.2 else damaged(content, random))


def header(folder: Path, random: Random) -> None:
    """The names, types, shapes and places of the weights."""
    content = (folder / WEIGHTS).read_bytes()
    size = int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8 : 8 + size])
    tensor = tensors[pick(random, [name for name in tensors if name != "__metadata__"])]
    match random.integers(5):
        case 0:
            tensor["dtype"] = pick(random, TYPES)
        case 1:
            tensor["shape"] = pick(random, [[], [0], [-1], [2**62, 4], [1.5], "3", tensor["shape"][::-1], None])
        case 2:
            tensor["data_offsets"] = pick(random, [[0, 0], [0, 2**63], [-4, 4], [8, 4], [0], None, [0, 4], [3, 7]])
        case 3:
            tensors[pick(random, ["new", "log_W", "é" * 1000, ""])] = dict(tensor)
        case 4:
            del tensor[pick(random, list(tensor))]
    changed = json.dumps(tensors).encode()
    length = len(changed) if random.random() < 0.9 else int(pick(random, [0, 2**63 - 1, 2**30, len(changed) - 1]))
    write_weights(folder, length.to_bytes(8, "little") + changed + content[8 + size :])


def values(folder: Path, random: Random) -> None:
    """Some of the weights are any numbers."""
    content = bytearray((folder / WEIGHTS).read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    weights = np.frombuffer(content, "<f4", offset=begin)
    some = random.random(len(weights)) < pick(random, [1e-4, 0.01, 1.0])
    some[random.integers(len(weights))] = True
    weights[some] = pick(random, FLOATS)
    write_weights(folder, bytes(content))


def raw(folder: Path, random: Random) -> None:
    write_weights(folder, damaged((folder / WEIGHTS).read_bytes(), random), honest=random.random() < 0.8)


def special(folder: Path, random: Random) -> None:
    """What is no plain file, or one of a terabyte that takes no room."""
    path = folder / pick(random, [CONFIG, WEIGHTS])
    path.unlink()
    match random.integers(6):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to(pick(random, ["/dev/zero", "/dev/null", path.name, "nowhere", "/proc/self/mem"]))
        case 2:
            path.mkdir()
        case 3:
            path.touch()
            os.truncate(path, int(pick(random, [0, 1, 2**16, 2**40])))


def write_weights(folder: Path, content: bytes, *, honest: bool = True) -> None:
    """With the digest that belongs to them: whoever means harm writes it, too."""
    (folder / WEIGHTS).write_bytes(content)
    config = json.loads((folder / CONFIG).read_text())
    if honest:
        config["sha256"] = sha256(content).hexdigest()
    (folder / CONFIG).write_text(json.dumps(config))
