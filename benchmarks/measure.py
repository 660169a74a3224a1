"""How things are measured: the best of several runs, memory in a process of its own, and on what machine.

Other programs can only make a run slower, so the fastest run is the one closest to what the machine can do.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported in functions: some measure memory from a bare interpreter on
    from torch import Tensor

Row = dict[str, Any]
"""One line of the table: `part`, `case`, and what was measured, in the units its key names."""


def training_sound(kind: str) -> "Tensor":
    """All "speech" or "noise" among the tests' recordings, one after the other, (samples,)."""
    import torch

    from drnmf.signal import audio

    folder = Path(__file__).parents[1] / "tests" / "audio" / kind
    return torch.cat([audio.read(path)[0][0] for path in sorted(folder.iterdir())])


def best_seconds(function: Callable[[], object], *, repeats: int) -> float:
    """Fastest of `repeats` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory_mb() -> float:
    """Most memory this process has held so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # not getrusage: a child's starts at what its parent held
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def in_fresh_process(module: str, *arguments: str) -> Row:
    """Run `python -m module arguments` on one thread and read the row it prints as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, env=environment, check=True
    )
    row: Row = json.loads(done.stdout)
    return row


def commit() -> str:
    """The commit that is measured, with "-dirty" where files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False, timeout=10)
    return done.stdout.strip() or "unknown"


def machine() -> Row:
    """What the numbers are measured on; to be asked before measuring, since it says what else is running."""
    import torch

    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_before": round(os.getloadavg()[0], 1),  # above 0: other programs had a share in the numbers
    }


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
