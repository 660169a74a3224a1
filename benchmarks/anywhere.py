"""Every form of the enhancer on the same sound: `python -m benchmarks.anywhere`, after `make anywhere` has built them.

Size is what has to be copied, model included. Start is the processor's time for no sound at all. Speed is the time of
a sound over the processor's time that it takes beyond that, by one thread. The fastest of several turns counts. Figures
go to docs/results/anywhere.json, from which `python -m benchmarks.pages` makes the table of docs/anywhere.md. Beside
them stand RNNoise and DeepFilterNet3 where `benchmarks.wideband` finds them, called from Python, whose start is part of
theirs. The page is measured by its own clock, with Chromium.
"""

import json
import resource
import subprocess
import sys
import tempfile
import threading
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import soundfile
import soxr

from benchmarks import wideband
from benchmarks.measure import Row, commit, machine

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "results" / "anywhere.json"
LIBRARY, JS = ROOT / "build" / "libdrnmf", ROOT / "js"
TURNS, SECONDS = 5, 120
IN_NODE = """
    import { readFileSync, writeFileSync } from "node:fs";
    import { Drnmf } from "%s";
    const raw = readFileSync(process.argv[1]);
    const drnmf = await Drnmf.load({ rate: 16000 });
    writeFileSync(process.argv[2], drnmf.process(new Float32Array(raw.buffer, raw.byteOffset, raw.length / 4)));
"""
RIVAL = "import sys; from benchmarks import wideband; from benchmarks.anywhere import read; " + (
    "wideband.SYSTEMS[sys.argv[1]][2](read(sys.argv[2]))"
)
LATENCY = {16000: 511, 48000: 2013}  # samples: drnmf_latency, which a test compares with Python's


def sound(seconds: float, rate: int) -> np.ndarray:
    """The demonstration, again and again."""
    with (resources.files("drnmf") / "bundled" / "demo" / "noisy.flac").open("rb") as file:
        x, _ = soundfile.read(file, dtype="float32")
    return np.resize(soxr.resample(x, 16000, rate), round(seconds * rate)).astype(np.float32)


def read(path: str) -> np.ndarray:
    """Samples of a file."""
    return np.asarray(soundfile.read(path, dtype="float32")[0])


def seconds_of(command: list[object]) -> float:
    """The processor's time that a program takes, at best."""
    found = []
    for _ in range(TURNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*map(str, command)], check=True, capture_output=True, timeout=600)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def size(*paths: Path) -> float:
    """In MB."""
    return sum(path.stat().st_size for path in paths) / 1e6


def commands(folder: Path) -> dict[str, tuple[int, float | None, list[object]]]:
    """Each form that is built: its rate, its size, and the program that takes {name} to out."""
    example, plugin = LIBRARY / "drnmf-example", LIBRARY / "ladspa" / "drnmf.so"
    shared, out = LIBRARY / "libdrnmf.so", folder / "out.wav"
    package = [JS / name for name in json.loads((JS / "package.json").read_text())["files"]]
    to_16, to_48 = (["sh", "-c", f"{example} - {rate} < $0 > {out}", folder / "{name}.f32"] for rate in (16000, 48000))
    node = ["node", "--input-type=module", "-e", IN_NODE % (JS / "drnmf.js").as_uri(), folder / "{name}.f32", out]
    ladspa = ["applyplugin", folder / "{name}.wav", out, plugin, "drnmf_mono", 1, 100]
    python = [sys.executable, "-m", "drnmf.cli", "enhance", "--overwrite", folder / "{name}.wav", "-o", out]
    forms: dict[str, tuple[int, list[Path], list[object]]] = {
        "the command `drnmf enhance`": (16000, [], python),
        "C library, 16 kHz": (16000, [shared], to_16),
        "C library, 48 kHz": (48000, [shared], to_48),
        "LADSPA plugin, 48 kHz": (48000, [plugin], ladspa),
        "WebAssembly in Node, 16 kHz": (16000, package, node),
    }
    there = {name: form for name, form in forms.items() if all(path.is_file() for path in form[1])}
    return {name: (rate, size(*files) or None, command) for name, (rate, files, command) in there.items()}


def measure(rate: int, megabytes: float | None, command: list[object], folder: Path) -> Row:
    """One form."""
    times = {}
    for name, seconds in {"short": 0.01, "long": SECONDS}.items():
        x = sound(seconds, rate)
        soundfile.write(folder / f"{name}.wav", x, rate, subtype="PCM_16")
        x.tofile(folder / f"{name}.f32")
        times[name] = seconds_of([str(word).replace("{name}", name) for word in command])
    speed = SECONDS / (times["long"] - times["short"])
    return {"megabytes": megabytes, "start_s": times["short"], "speed": speed, "latency_ms": 1e3 * LATENCY[rate] / rate}


def rivals(folder: Path) -> dict[str, Row]:
    """Others, where they are installed: at 48 kHz, which they are made for."""
    rows = {}
    for name, (module, _, _) in wideband.SYSTEMS.items():
        if wideband.missing(name) is None:
            places = getattr(find_spec(module), "submodule_search_locations", None) or []
            files = [path for place in places for path in Path(place).rglob("*") if path.is_file()]
            row = measure(48000, size(*files), [sys.executable, "-c", RIVAL, name, folder / "{name}.wav"], folder)
            rows[f"{name}, 48 kHz"] = {**row, "latency_ms": 1e3 * wideband.delay(name) / 48000}
    return rows


def in_browser(folder: Path) -> dict[str, Row]:
    """The page, in Chromium, where `make anywhere` has got what drives it."""
    from drnmf.models.folders import load_ready
    from drnmf.use.page import page, server

    modules = ROOT / "build" / "page"
    if not (modules / "node_modules").is_dir():
        return {}
    soundfile.write(folder / "minute.wav", sound(60, 16000), 16000)
    files = page(load_ready("default"))
    with server(files, 0) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        address = f"http://localhost:{served.server_port}"
        drive = ["node", ROOT / "tests" / "use" / "browse.mjs", address, folder / "minute.wav", folder, modules]
        subprocess.run([*map(str, drive)], check=True, capture_output=True, timeout=600)
        served.shutdown()
    seen = json.loads((folder / "seen.json").read_text())
    megabytes = sum(map(len, files.values())) / 1e6
    row = {"megabytes": megabytes, "start_s": seen["loaded"], "speed": seen["speed"], "latency_ms": 1e3 * 511 / 16000}
    return {"the page in Chromium, 16 kHz": row}


def main() -> None:
    """Measure and store."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {name: measure(*form, folder) for name, form in commands(folder).items()}
        rows |= in_browser(folder) | rivals(folder)
    figures = {"commit": commit(), "machine": machine(), "forms": rows}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    for name, row in rows.items():
        print(name, row)


if __name__ == "__main__":
    main()
