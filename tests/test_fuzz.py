"""Some of the random inputs of every class (`make fuzz` tries more), and damaged files through the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command import drnmf
from drnmf import save_model
from drnmf.signal import audio
from fuzz.__main__ import CLASSES
from fuzz.sounds import DAMAGES, FORMATS, model, whole


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to limit memory")
def test_no_input_ends_in_anything_but_success_or_one_line():
    command = [sys.executable, "-m", "fuzz", "--short", "--seconds", "100"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert run.returncode == 0, f"died at {run.stderr.strip().splitlines()[-3:]}"
    found = json.loads(run.stdout)
    assert set(found) == set(CLASSES)
    for name, result in found.items():
        assert result["wrong"] == []
        assert 0 < result["refused"] < result["tried"] or name in ("folders", "faults"), f"{name}: all alike"
        assert result["taken_mb"] < 1000
    assert set(found["faults"]["kinds"]) == {"Ctrl-C", "Input/output error", "No space left on device", "SIGKILL"}


def test_a_fault_is_found(tmp_path):
    """Of the fuzz itself: a class that crashes, hangs up, lies or leaves something is told."""
    (tmp_path / "fuzz").mkdir()
    for path in (Path(__file__).parent / "fuzz").glob("__*.py"):
        (tmp_path / "fuzz" / path.name).write_bytes(path.read_bytes())
    head = '"""A bad one."""\nfrom drnmf import InputError\nSHORT = 3\ndef attempt(random, folder):\n    '
    faults = {
        "bad": "assert random.random() < 0",
        "lines": "raise InputError('a' * 5000)",
        "dies": "import os; os.abort()",
    }
    for name, fault in faults.items():
        (tmp_path / f"fuzz/{name}.py").write_text(head + fault)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "fuzz", "--seconds", "0.1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert run.returncode == 1
    assert "bad 0: Traceback" in run.stdout
    assert "more than one line" in run.stdout
    assert "died with -6 at ['dies 0']" in run.stdout


def test_damaged_files_among_whole_ones_through_the_command_line(tmp_path):
    save_model(model(), tmp_path / "model")
    for name, *form in FORMATS:
        for damage in (None, *DAMAGES):
            path = tmp_path / "in" / ("whole" if damage is None else damage.__name__) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = bytearray(whole(*form))
            path.write_bytes(data if damage is None else damage(data, np.random.default_rng(0)))
    said = drnmf("enhance", tmp_path / "in", "-o", tmp_path / "out", "-m", tmp_path / "model", status=1).stderr
    outputs = [path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*") if path.is_file()]
    failed = [line for line in said.splitlines() if line.startswith("failed: ")]
    assert len(outputs) + len(failed) == len(FORMATS) * (1 + len(DAMAGES))
    assert said.splitlines()[-1] == f"{len(outputs)} enhanced, {len(failed)} failed"
    for path in outputs:
        assert audio.read(tmp_path / "out" / path)[0].shape[1] == audio.info(tmp_path / "in" / path).samples
    assert {Path(f"whole/{name}") for name, *_ in FORMATS} <= set(outputs)
