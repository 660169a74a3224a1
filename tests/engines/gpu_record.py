"""When the GPU kernels last passed their tests: `tests/gpu-record.json`, because the ordinary suite has no GPU.

`pytest` of the three files in TESTS with `--gpu-record=COMMIT` writes it on a machine
with a GPU, when all tests passed.
"""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
import torch

RECORD = Path(__file__).parents[1] / "gpu-record.json"
TESTS = [Path(__file__).with_name(name) for name in ("test_scan_cuda.py", "test_gru_cluster.py", "test_scan_own.py")]
ENGINES = Path(__file__).parents[2] / "src" / "drnmf" / "engines"
PYTHON = ("cuda_kernel", "gru_cluster", "scan_cluster", "scan_grid", "scan_own", "scan_triton", "triton_kernels")
KERNELS = ("csrc/*.cu*", *(f"{name}.py" for name in PYTHON))
"""What runs on a GPU only; all else around them is tested everywhere."""


def sources(folder: Path = ENGINES) -> dict[str, str]:
    """The SHA-256 of each source of a kernel, whatever the ends of its lines."""
    found = sorted(path for pattern in KERNELS for path in folder.glob(pattern))
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_text("utf-8").encode()).hexdigest()
        for path in found
    }


def untested(record: Path = RECORD, folder: Path = ENGINES) -> str:
    """What has changed since the kernels last passed, in one line; nothing if that is nothing."""
    remedy = "CONTRIBUTING.md says how to run them"
    if not record.exists():
        return f"no record says that the GPU kernels ever passed their tests: {remedy}"
    passed, now = json.loads(record.read_text("utf-8")), sources(folder)
    names = sorted(name for name in {*passed["sources"], *now} if passed["sources"].get(name) != now.get(name))
    if not names:
        return ""
    when = f"their tests last passed, at {passed['commit'][:7]} on {passed['gpu']}"
    return f"GPU kernels have changed since {when}: {', '.join(names)}; {remedy}"


def start(config: pytest.Config, commit: str) -> "Recorder":
    """Refuse a run whose record would say too much."""
    if not re.fullmatch("[0-9a-f]{40}", commit):
        raise pytest.UsageError(f"--gpu-record needs the commit, 40 digits from git rev-parse HEAD, got {commit!r}")
    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        raise pytest.UsageError("--gpu-record needs a GPU")
    if [Path(config.invocation_params.dir, name).resolve() for name in config.args] != TESTS:
        names = " ".join(f"tests/engines/{path.name}" for path in TESTS)
        raise pytest.UsageError(f"--gpu-record needs {names}, and nothing else")
    return Recorder(commit, torch.cuda.get_device_name())


class Recorder:
    """A plugin of pytest that writes the record when all tests of the kernels have passed."""

    def __init__(self, commit: str, gpu: str, record: Path = RECORD) -> None:
        self._commit, self._gpu, self._record = commit, gpu, record
        self._tested = sources()  # as they were before, should they be changed meanwhile
        self._passed = self._left_out = 0
        self._end = "not written: not all tests of the kernels passed"

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._left_out += len(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed += report.when == "call" and report.passed

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus or self._left_out or not self._passed:
            return
        versions = {"gpu": self._gpu, "torch": torch.__version__, "cuda": torch.version.cuda}
        record = {"commit": self._commit, **versions, "passed": self._passed, "sources": self._tested}
        self._record.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        self._end = "written"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"{self._record}: {self._end}")
