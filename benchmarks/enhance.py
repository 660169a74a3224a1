"""Enhancing: memory and time of long files, and time per hop of a live stream.

Beside the model that comes with the package stand some that are not trained.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.measure import Row, in_fresh_process, peak_memory_mb

if TYPE_CHECKING:  # imported in functions: memory is counted from a bare interpreter with torch
    from drnmf import Separator

BARE_MB = peak_memory_mb()
UNTRAINED = {"DR-NMF K=2 N=200": 2, "DR-NMF K=5 N=200": 5}
HOURS = 1.0
FILES = {  # rate, channels, encoding
    "16 kHz mono": (16000, 1, "PCM_16"),
    "48 kHz stereo": (48000, 2, "PCM_24"),
}


def models() -> list[str]:
    from drnmf.models.folders import bundled_models

    return [*UNTRAINED, *(name for name in bundled_models() if name == "default")]


def model(name: str) -> "Separator":
    from benchmarks.separators import dictionary
    from drnmf import DRNMF, load_model

    return DRNMF.from_dictionary(dictionary(200, 1), UNTRAINED[name]) if name in UNTRAINED else load_model(name)


def noisy(seconds: float) -> torch.Tensor:
    """The bundled noisy recording again and again, its level going up and down, (samples,)."""
    from drnmf.pictures.demo import recording

    n = round(16000 * seconds)
    sound = torch.from_numpy(recording("noisy")).repeat(n // 80000 + 1)[:n]
    return sound * (0.5 + 0.4 * torch.sin(torch.arange(n) / 16000))


def write(path: Path, hours: float, rate: int, channels: int, subtype: str) -> None:
    """A long file, in small blocks."""
    from drnmf.signal import audio

    minute = audio.resample(noisy(60).repeat(channels, 1), 16000, rate)
    with audio.Writer(path, rate, channels, subtype=subtype) as writer:
        for _ in range(round(60 * hours)):
            writer.write(minute)


def measure_file(name: str, path: str) -> Row:
    """Time of a file, and memory above the bare interpreter with torch."""
    from drnmf.signal import audio
    from drnmf.use.files import enhance_file

    network, source = model(name), Path(path)
    start = time.perf_counter()
    enhance_file(source, source.with_name("out.wav"), network, overwrite=True)
    seconds = time.perf_counter() - start
    length = audio.info(source).samples / audio.info(source).rate
    return {
        "milliseconds": 1000 * seconds,
        "per": f"{length / 60:.0f} min",
        "real_time_factor": seconds / length,
        "memory_mb": peak_memory_mb() - BARE_MB,
    }


def measure_hops(name: str, seconds: str) -> Row:
    """Time per hop of 8 ms, one block after the other as from a sound card, and that of the processor alone."""
    from drnmf import Streamer
    from drnmf.signal import HOP, SAMPLE_RATE

    streamer, blocks = Streamer(model(name)), noisy(float(seconds)).split(HOP)
    wall, processor = [], []
    for block in blocks[:-1]:
        start = time.perf_counter(), time.thread_time()
        streamer.feed(block)
        wall.append(time.perf_counter() - start[0])
        processor.append(time.thread_time() - start[1])
    warm = slice(100, None)  # whatever is set up at first use is over
    p50, p99, cpu99 = (
        1000 * torch.tensor(times[warm]).quantile(q).item()
        for times, q in ((wall, 0.5), (wall, 0.99), (processor, 0.99))
    )
    return {
        "milliseconds": p99,
        "per": "hop, 99 of 100",
        "real_time_factor": p50 / 1000 * SAMPLE_RATE / HOP,
        "median_milliseconds": p50,
        "processor_milliseconds": cpu99,  # without the time that other programs had
        "latency_milliseconds": 1000 * streamer.latency / SAMPLE_RATE,
    }


def run(*, quick: bool = False) -> list[Row]:
    """All cases, each in a process of its own."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, form in FILES.items():
            for hours in (HOURS, 2 * HOURS) if not quick else (HOURS / 6, HOURS / 3):
                write(Path(folder) / "in.wav", hours, *form)
                row = in_fresh_process("benchmarks.enhance", "file", models()[-1], f"{folder}/in.wav")
                rows.append({"case": f"file, {kind}, {models()[-1]}", **row})
    for name in models():
        row = in_fresh_process("benchmarks.enhance", "hops", name, "10" if quick else "60")
        rows.append({"case": f"live, {name} ({row['processor_milliseconds']:.2f} ms of processor)", **row})
    return [{"part": "enhance", **row} for row in rows]


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure = {"file": measure_file, "hops": measure_hops}[sys.argv[1]]
    print(json.dumps(measure(*sys.argv[2:])))
