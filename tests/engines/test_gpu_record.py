"""The record of the GPU kernels' last pass: it notices a change, and only a whole pass is written."""

import json
import shutil
import warnings
from types import SimpleNamespace

import pytest

from engines import gpu_record
from engines.gpu_record import Recorder, sources, untested

COMMIT = "0123456789abcdef" * 2 + "01234567"


def test_the_kernels_have_not_changed_since_they_last_passed():
    """A warning, not a failure: who changes a kernel may have no GPU."""
    if change := untested():
        warnings.warn(change, stacklevel=1)


def passing(record) -> Recorder:
    recorder = Recorder(COMMIT, "a GPU", record)
    recorder.pytest_runtest_logreport(SimpleNamespace(when="call", passed=True))
    return recorder


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda folder: None, ""),
        (lambda folder: (folder / "csrc" / "scan_grid.cu").open("a").write("//"), "scan_grid.cu"),
        (lambda folder: (folder / "csrc" / "new.cu").touch(), "new.cu"),
        (lambda folder: (folder / "triton_kernels.py").unlink(), "triton_kernels.py"),
    ],
    ids=["none", "changed", "added", "removed"],
)
def test_a_change_of_a_kernel_is_noticed(change, found, tmp_path):
    folder = tmp_path / "engines"
    shutil.copytree(gpu_record.ENGINES, folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    passing(tmp_path / "record.json").pytest_sessionfinish(0)
    change(folder)
    told = untested(tmp_path / "record.json", folder)
    assert found in told
    assert (told != "") == (found != "")


def test_no_record_is_told(tmp_path):
    assert "no record" in untested(tmp_path / "record.json")


def test_every_kernel_is_in_the_record(tmp_path):
    passing(tmp_path / "record.json").pytest_sessionfinish(0)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["sources"] == sources()
    assert (record["commit"], record["gpu"], record["passed"]) == (COMMIT, "a GPU", 1)
    kernels = {"csrc/gru_cluster.cu", "csrc/scan_cluster.cu", "csrc/scan_grid.cu", "triton_kernels.py"}
    assert kernels <= {*record["sources"]}


def test_only_a_whole_pass_is_written(tmp_path):
    record = tmp_path / "record.json"
    passing(record).pytest_sessionfinish(1)
    Recorder(COMMIT, "a GPU", record).pytest_sessionfinish(0)
    some = passing(record)
    some.pytest_deselected([None])
    some.pytest_sessionfinish(0)
    assert not record.exists()


@pytest.mark.parametrize(
    ("commit", "gpu", "args", "message"),
    [
        ("HEAD", True, gpu_record.TESTS, "40 digits"),
        (COMMIT, False, gpu_record.TESTS, "needs a GPU"),
        (COMMIT, True, gpu_record.TESTS[:1], "nothing else"),
        (COMMIT, True, [f"{gpu_record.TESTS[0]}::test_bfloat16", gpu_record.TESTS[1]], "nothing else"),
        (COMMIT, True, [*gpu_record.TESTS, gpu_record.TESTS[0].parent], "nothing else"),
    ],
)
def test_a_record_that_would_say_too_much_is_refused(commit, gpu, args, message, monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    config = SimpleNamespace(args=[*map(str, args)], invocation_params=SimpleNamespace(dir=tmp_path))
    with pytest.raises(pytest.UsageError, match=message):
        gpu_record.start(config, commit)
