"""Thousands of damaged files: none ends in anything but success or one line, none leaves half a file, none eats memory.

They are made from real sound, always the same ones. The decoders are C libraries, so all of it runs in a process of its
own with limited memory: should one of them crash, a test fails and says at which file.
"""

import json
import os
import resource
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch

from drnmf import InputError, save_model
from drnmf.signal import audio
from drnmf.use.files import enhance_file
from examples import build, recording

COUNT = 3000
FORMATS = [
    ("pcm.wav", "PCM_16", 16000, 1),
    ("float.wav", "FLOAT", 22050, 2),
    ("a.flac", "PCM_16", 16000, 2),
    ("vorbis.ogg", "VORBIS", 16000, 1),
    ("opus.ogg", "OPUS", 16000, 1),
    ("a.mp3", "MPEG_LAYER_III", 16000, 1),
]
Random = np.random.Generator


def cut(data: bytearray, random: Random) -> bytearray:
    return data[: random.integers(len(data))]


def flip(data: bytearray, random: Random) -> bytearray:
    for _ in range(random.integers(1, 20)):
        data[random.integers(len(data))] ^= 1 << random.integers(8)
    return data


def lie(data: bytearray, random: Random) -> bytearray:
    """Fields of the header become small, huge or anything."""
    for _ in range(random.integers(1, 4)):
        at, size = random.integers(4, 100), random.choice([1, 2, 4])
        data[at : at + size] = random.choice([b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", random.bytes(4)])[:size]
    return data


def hole(data: bytearray, random: Random) -> bytearray:
    at = random.integers(len(data))
    return data[:at] + data[at + random.integers(1, 3000) :]


def garbage(data: bytearray, random: Random) -> bytearray:
    at = random.integers(len(data))
    return data[:at] + random.bytes(random.integers(1, 500)) + data[at:]


def end_lost(data: bytearray, random: Random) -> bytearray:
    """As after a crash: the length is right, the end is zeros."""
    at = random.integers(len(data))
    return data[:at] + bytes(len(data) - at)


DAMAGES: list[Callable[[bytearray, Random], bytearray]] = [cut, flip, lie, hole, garbage, end_lost]


def damaged(folder: Path, count: int) -> list[Path]:
    """`count` damaged files, of all formats and damages in turn."""
    (folder / "whole").mkdir(parents=True)
    whole = []
    for name, subtype, rate, channels in FORMATS:
        sound = recording("speech/austen_0880", 32000).float()[12000:]
        audio.write(folder / "whole" / name, sound.repeat(channels, 1), rate, subtype=subtype)
        whole.append((folder / "whole" / name).read_bytes())
    paths = []
    for i in range(count):
        random = np.random.default_rng(i)
        damage, which = DAMAGES[i // len(FORMATS) % len(DAMAGES)], i % len(FORMATS)
        path = folder / f"{i}_{damage.__name__}_{FORMATS[which][0]}"
        path.write_bytes(damage(bytearray(whole[which]), random))
        paths.append(path)
    return paths


def main(folder: Path) -> None:
    """Enhance damaged files, and print what became of them as JSON: outcomes counted, and everything that is wrong."""
    torch.set_num_threads(1)
    model, out = build("drnmf").float(), folder / "out"
    paths = damaged(folder / "in", COUNT)
    out.mkdir()
    enhance_file(folder / "in/whole/a.flac", folder / "warm.flac", model)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, resource.RLIM_INFINITY))
    outcomes: Counter[str] = Counter()
    wrong = []
    for path in paths:
        (folder / "current").write_text(path.name)
        kind = "_".join(path.name.split("_")[1:])
        target = out / path.name
        try:
            enhance_file(path, target, model)
            outcomes[f"{kind}: enhanced"] += 1
            if audio.read(target)[0].shape[1] != audio.info(path).samples:
                wrong.append(f"{path.name}: the output is not as long as the input")
        except InputError as error:
            outcomes[f"{kind}: refused"] += 1
            if "\n" in str(error) or path.name not in str(error):
                wrong.append(f"{path.name}: {error}")
        except BaseException:
            wrong.append(f"{path.name}: {traceback.format_exc()}")
        left = [p.name for p in out.iterdir()]
        if left not in ([], [target.name]):
            wrong.append(f"{path.name}: left {left}")
        target.unlink(missing_ok=True)
        path.unlink()
    print(json.dumps({"outcomes": outcomes, "wrong": wrong}))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to limit memory")
def test_no_damage_ends_in_a_traceback_or_half_a_file():
    memory = Path("/dev/shm")  # many small files: a disk would be busier than the test
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        command = [sys.executable, str(Path(__file__)), folder]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(command, capture_output=True, timeout=600, check=False, env=environment)
        current = (Path(folder) / "current").read_text() if (Path(folder) / "current").exists() else "the start"
    assert run.returncode == 0, f"died at {current}: {run.stderr[-1000:]!r}"
    result = json.loads(run.stdout)
    assert result["wrong"] == []
    assert sum(result["outcomes"].values()) == COUNT
    kinds = [f"{damage.__name__}_{name}" for damage in DAMAGES for name, *_ in FORMATS]
    assert {outcome.partition(":")[0] for outcome in result["outcomes"]} == set(kinds)
    enhanced = sum(n for outcome, n in result["outcomes"].items() if outcome.endswith("enhanced"))
    assert 0.2 * COUNT < enhanced < 0.8 * COUNT  # neither was all of it refused, nor did the damage do nothing


def test_damaged_files_among_whole_ones_through_the_command_line(tmp_path):
    save_model(build("drnmf").float(), tmp_path / "model")
    paths = damaged(tmp_path / "in", 2 * len(FORMATS) * len(DAMAGES))
    command = ["enhance", tmp_path / "in", "-o", tmp_path / "out", "-m", tmp_path / "model"]
    run = subprocess.run(
        [sys.executable, "-m", "drnmf.cli", *map(str, command)], capture_output=True, check=False, timeout=120
    )
    said = run.stderr.decode(errors="replace")
    assert run.returncode == 1
    assert "Traceback" not in said
    outputs = [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    failed = [line for line in said.splitlines() if line.startswith("failed: ")]
    assert len(outputs) + len(failed) == len(paths) + len(FORMATS)
    assert said.splitlines()[-1] == f"{len(outputs)} enhanced, {len(failed)} failed"
    for path in outputs:
        source = tmp_path / "in" / path.relative_to(tmp_path / "out")
        assert audio.read(path)[0].shape[1] == audio.info(source).samples
    assert {f"whole/{name}" for name, *_ in FORMATS} <= {str(p.relative_to(tmp_path / "out")) for p in outputs}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
