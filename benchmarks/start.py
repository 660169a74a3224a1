"""How long a command takes to start, without PyTorch and through it.

    python -m benchmarks.start --save

All are run in turn, several times, and the best of each counts. Processor time is given beside the clock's: it hardly
depends on what else the machine does. `drnmf enhance` leaves PyTorch alone, also where it is installed; through PyTorch
is what it did before, loading the model there and packing it for the same C.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Row, commit

RESULTS = Path(__file__).parent / "start.json"
SOUND = Path(__file__).parents[1] / "tests" / "audio" / "speech" / "austen_0880.flac"
COMMAND = "from drnmf.cli import main; main()"
THROUGH_PYTORCH = """
import sys
from drnmf import load_model
from drnmf.use.files import enhance_file
enhance_file(sys.argv[2], sys.argv[4], load_model("default"))
"""
CASES = {
    "drnmf --help": (COMMAND, ["--help"]),
    "drnmf enhance, a file of 3 s": (COMMAND, ["enhance", str(SOUND), "-o", "out.wav"]),
    "the same through PyTorch": (THROUGH_PYTORCH, ["enhance", str(SOUND), "-o", "out.wav"]),
    "python that does nothing": ("pass", []),
}


def seconds(case: str) -> tuple[float, float]:
    """By the clock, and of the processor."""
    program, arguments = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        before, start = os.times(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, timeout=300, check=True
        )
        after = os.times()
    return time.perf_counter() - start, sum(after[2:4]) - sum(before[2:4])


def run(repeats: int) -> list[Row]:
    measured: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    for _ in range(repeats):
        for case, times in measured.items():
            times.append(seconds(case))
    best = {case: [min(column) for column in zip(*times, strict=True)] for case, times in measured.items()}
    slow = best["the same through PyTorch"]
    return [
        {
            "case": case,
            "seconds": round(clock, 3),
            "processor_seconds": round(processor, 3),
            "times_faster_than_through_pytorch": round(slow[1] / processor, 1),
        }
        for case, (clock, processor) in best.items()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How long a command takes to start.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help=f"store the rows in {RESULTS.name}")
    options = parser.parse_args()
    load = os.getloadavg()[0]  # what else the machine did: with more than one for each core, the clock says little
    rows = run(options.repeats)
    for row in rows:
        print(json.dumps(row))
    if options.save:
        found = {"commit": commit(), "load": round(load, 1), "cores": os.cpu_count(), "rows": rows}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
