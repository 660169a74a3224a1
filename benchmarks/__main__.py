"""`python -m benchmarks`: measure, print one table, and store it in benchmarks/results.json.

The file holds each part with its date, commit and machine. `--only PART` replaces that part and leaves the others.
"""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import dictionaries, enhance, floor, growth, rivals, scan, separators
from benchmarks.measure import Row, commit, machine

PARTS = {
    "dictionaries": dictionaries.run,
    "separators": separators.run,
    "scan": scan.run,
    "rivals": rivals.run,
    "floor": floor.run,
    "enhance": enhance.run,
    "growth": growth.run,
}
RESULTS = Path(__file__).parent / "results.json"


def table(rows: list[Row]) -> Table:
    """All rows below each other, a line between the parts."""
    drawn = Table(
        title="Speed and memory",
        caption="One thread; scan: all cores. Faster than sparse NMF of as many atoms; scan: than the readable loop.",
    )
    for heading in ("part", "case"):
        drawn.add_column(heading)
    for heading in ("time", "real-time\nfactor", "times\nfaster", "memory\n(MB)", "parameters"):
        drawn.add_column(heading, justify="right")
    last = None
    for row in rows:
        if last not in (None, row["part"]):
            drawn.add_section()
        drawn.add_row(
            row["part"] if row["part"] != last else "",
            row["case"],
            f"{row['milliseconds']:,.{1 if row['milliseconds'] > 1 else 3}f} ms / {row['per']}",
            _number(row, "real_time_factor", ".4f"),
            _number(row, "times_faster_than_sparse_nmf", ".1f") or _number(row, "times_faster_than_loop", ".2f"),
            _number(row, "memory_mb", ".0f"),
            _number(row, "parameters", ",d"),
        )
        last = row["part"]
    return drawn


def _number(row: Row, key: str, form: str) -> str:
    return format(row[key], form) if row.get(key) else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=list(PARTS), help="measure one part")
    parser.add_argument("--quick", action="store_true", help="small cases, each measured once, nothing stored")
    arguments = parser.parse_args()
    start = time.perf_counter()
    console = Console(width=None if sys.stdout.isatty() else 140)  # a file has no width to keep to
    found: dict[str, list[Row]] = {}
    for name in [arguments.only] if arguments.only else PARTS:
        described = machine()
        with console.status(f"measuring {name} ..."):
            found[name] = PARTS[name](quick=arguments.quick)
        if not arguments.quick:
            store(name, described, found[name])
    console.print(table([row for rows in found.values() for row in rows]))
    console.print(", ".join(f"{key} {value}" for key, value in described.items()))
    console.print(f"{time.perf_counter() - start:.0f} s")


def store(part: str, described: Row, rows: list[Row]) -> None:
    """Put one part into the file, in place of its earlier figures."""
    stored = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    stored[part] = {"commit": commit(), "date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": described}
    stored[part]["rows"] = [{key: value for key, value in row.items() if key != "part"} for row in rows]
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
