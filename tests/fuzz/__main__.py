"""Run classes of random inputs, each in a process of its own: `python -m fuzz [CLASS ...]`."""

import argparse
import importlib
import itertools
import json
import logging
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fuzz
from drnmf.errors import InputError

CLASSES = sorted(module.name for module in pkgutil.iter_modules(fuzz.__path__) if module.name != "__main__")
MEMORY = 3 * 2**29  # bytes that inputs may take beyond what the process has at the start
LONGEST = 60  # seconds for one input
ROOT = Path(__file__).parents[2]


class Hang(BaseException):
    """One input takes too long."""


def hang(*_: object) -> None:
    raise Hang(f"took more than {LONGEST} s")


def run(name: str, seed: int, numbers: range | itertools.count | None, seconds: float) -> dict:
    """Try inputs of one class in this process; None: as many as the suite tries."""
    module = importlib.import_module(f"fuzz.{name}")
    numbers = range(module.SHORT) if numbers is None else numbers
    found = {"what": module.__doc__.splitlines()[0].rstrip("."), "seed": seed, "tried": 0, "refused": 0, "wrong": []}
    kinds: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, hang)
    begun, before = time.monotonic(), None
    memory = Path("/dev/shm")  # many small files: a disk would be busier than the test
    for number in numbers:
        if time.monotonic() - begun > seconds:
            break
        print(f"{name} {number}", file=sys.stderr, flush=True)  # should the process die, this is why
        with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
            try:
                signal.alarm(LONGEST)
                kinds[module.attempt(np.random.default_rng((seed, number)), Path(folder))] += 1
            except InputError as error:
                found["refused"] += 1
                if not str(error).isprintable() or len(str(error)) > 2000:
                    found["wrong"].append(f"{name} {number}: {str(error)[:200]!r} is more than one line")
            except (Exception, Hang):
                found["wrong"].append(f"{name} {number}: {traceback.format_exc()}")
            finally:
                signal.alarm(0)
        found["tried"] += 1
        if before is None:  # the first one has loaded what all of them need
            before = peak()
            limit_memory()
    found["kinds"] = {kind: kinds[kind] for kind in sorted(filter(None, kinds))}
    found["peak_mb"], found["taken_mb"] = round(peak()), round(peak() - (before or 0))
    found["seconds"] = round(time.monotonic() - begun)
    return found


def peak() -> float:
    """The most memory that this process, or a child of it, has had so far, in MB."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


def run_apart(name: str, seed: int, seconds: float) -> dict:
    """The same in a process of its own: the decoders are C libraries, and one that crashes is a failure like others."""
    command = [sys.executable, "-m", "fuzz", name, "--here", "--seed", str(seed), "--seconds", str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    limit = 2 * seconds + 2 * LONGEST
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=environment)
    if done.returncode == 0:
        return json.loads(done.stdout)[name]
    last = done.stderr.strip().splitlines()[-1:]
    return {"what": name, "seed": seed, "tried": 0, "refused": 0, "wrong": [f"died with {done.returncode} at {last}"]}


def store(path: Path, found: dict) -> None:
    """Add figures to those of classes that were not tried now."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit}
    before = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(before | {name: {**about, **result} for name, result in found.items()}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz", description=fuzz.__doc__)
    parser.add_argument("classes", nargs="*", default=CLASSES, metavar="CLASS", help=f"of {', '.join(CLASSES)}")
    parser.add_argument("--seconds", type=float, default=20, help="for each class")
    parser.add_argument("--short", action="store_true", help="only what the suite tries, in this process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at", type=int, help="only the input of this number, in this process")
    parser.add_argument("--here", action="store_true", help="in this process; prints JSON")
    parser.add_argument("--save", type=Path, help="JSON file to write the figures to")
    options = parser.parse_args()
    logging.getLogger("drnmf").setLevel(logging.CRITICAL)
    numbers = None if options.short else itertools.count()
    numbers = numbers if options.at is None else range(options.at, options.at + 1)
    here = options.here or options.short or options.at is not None
    found = {}
    for name in options.classes:
        seconds = options.seconds
        found[name] = run(name, options.seed, numbers, seconds) if here else run_apart(name, options.seed, seconds)
        if not here:
            print(f"{name}: {found[name]['tried']} tried, {len(found[name]['wrong'])} wrong", *found[name]["wrong"])
    if here:
        print(json.dumps(found))
    if options.save is not None:
        store(options.save, found)
    if any(result["wrong"] for result in found.values()) and not here:
        sys.exit(1)


if __name__ == "__main__":
    main()
