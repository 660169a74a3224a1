"""How time and memory grow: with the length of a recording, and with the number of atoms. Drawn in docs/.

A recording is enhanced in memory by the bundled model; memory is how much the peak grew, the recording not counted. The
networks of other sizes (K = 5, not trained) enhance eight seconds; their memory is what is packed for them.
"""

import json
import sys
from pathlib import Path

import torch

from benchmarks.measure import Row, best_seconds, in_fresh_process, peak_memory_mb

MINUTES = (0.5, 1, 2, 4, 8, 16)
ATOMS = (100, 200, 400, 800, 1200, 1600, 2000)
FOLDER = Path(__file__).parents[1] / "docs"


def measure_length(minutes: str) -> Row:
    from benchmarks.enhance import noisy
    from drnmf import enhance, load_model

    model, half = load_model("default"), noisy(30.0)
    x = torch.empty(round(2 * float(minutes)), len(half))
    x[:] = half  # in place: whatever making it needs more would count
    x = x.flatten()
    enhance(half, 16000, model)
    before = peak_memory_mb()
    seconds = best_seconds(lambda: enhance(x, 16000, model), repeats=3)
    return {"minutes": float(minutes), "milliseconds": 1000 * seconds, "memory_mb": peak_memory_mb() - before}


def measure_atoms(N: str) -> Row:
    from benchmarks.enhance import noisy
    from benchmarks.separators import dictionary
    from drnmf import DRNMF, Streamer

    streamer, x = Streamer(DRNMF.from_dictionary(dictionary(int(N), 1), 5)), noisy(8.0).numpy()
    seconds = best_seconds(lambda: streamer.feed(x), repeats=5) / (len(x) // 128)
    network = DRNMF.from_dictionary(dictionary(int(N), 1), 5).freeze().network
    packed = [tensor for tensor in network or () if isinstance(tensor, torch.Tensor)]
    return {"atoms": int(N), "milliseconds": 1000 * seconds, "memory_mb": sum(t.nbytes for t in packed) / 1e6}


def draw(rows: list[Row], folder: Path) -> None:
    """performance-length.png and performance-atoms.png: time on the left, memory on the right."""
    from matplotlib.figure import Figure

    labels = ("minutes", "length of the sound (minutes)", "time (s)"), ("atoms", "atoms N", "time of a hop (µs)")
    for key, label, per in labels:
        points = [row for row in rows if key in row]
        figure = Figure(figsize=(8, 3), layout="constrained")
        scale = 1e-3 if key == "minutes" else 1e3
        for axes, name, factor, unit in zip(
            figure.subplots(1, 2), ("milliseconds", "memory_mb"), (scale, 1), (per, "memory (MB)"), strict=True
        ):
            axes.plot([row[key] for row in points], [factor * row[name] for row in points], "o-")
            axes.set(xlabel=label, ylabel=unit, xlim=(0, None), ylim=(0, None))
            axes.grid(alpha=0.3)
        figure.savefig(folder / f"performance-{'length' if key == 'minutes' else key}.png", dpi=150)


def run(*, quick: bool = False) -> list[Row]:
    """All points, each in a process of its own; a full run draws them."""
    minutes, atoms = (MINUTES[:2], ATOMS[:2]) if quick else (MINUTES, ATOMS)
    rows = [in_fresh_process("benchmarks.growth", "length", str(m)) for m in minutes]
    rows += [in_fresh_process("benchmarks.growth", "atoms", str(N)) for N in atoms]
    if not quick:
        draw(rows, FOLDER)
    names = [f"{row['minutes']:g} minutes" if "minutes" in row else f"{row['atoms']} atoms" for row in rows]
    per = ["recording" if "minutes" in row else "hop" for row in rows]
    return [
        {"part": "growth", "case": name, "per": unit, **row} for name, unit, row in zip(names, per, rows, strict=True)
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure = {"length": measure_length, "atoms": measure_atoms}[sys.argv[1]]
    print(json.dumps(measure(sys.argv[2])))
