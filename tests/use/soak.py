"""A live stream for a long time: random rates and blocks, silence, clipping, and blocks that must be refused.

What comes out must be what `enhance_file` makes of the same sound, sample by sample, and memory must not grow.

    make soak MINUTES=60      # figures go to docs/results/reliability/soak.json
"""

import ctypes
import gc
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
from benchmarks.measure import commit

from drnmf import DRNMF, InputError, LSTMMask, Separator, Streamer, load_model
from drnmf.signal import audio
from drnmf.use.files import enhance_file
from examples import AUDIO, build

FIGURES = Path(__file__).parents[2] / "docs" / "results" / "reliability" / "soak.json"
RATES = (8000, 11025, 16000, 16000, 16000, 22050, 44100, 48000, 96000)
MOST_MB = 5.0  # of growth
_WARM = 0.2  # of the time, until every model, rate and buffer has been in use


@dataclass
class Figures:
    """What a soak has seen."""

    minutes: float = 0.0
    streams: int = 0
    blocks: int = 0
    refused: int = 0
    sound_hours: float = 0.0
    different_samples: int = 0  # of models in C: none may be
    largest_difference: float = 0.0  # of models in PyTorch, which rounds otherwise for other sizes
    growth_mb: float = 0.0

    def failure(self) -> str:
        """What must not be, if anything is."""
        found = {
            "samples are not those of the file": self.different_samples,
            "is how far others are from the file's": self.largest_difference if self.largest_difference > 1e-5 else 0,
            "MB of memory were not given back": self.growth_mb if self.growth_mb > MOST_MB else 0,
        }
        return "; ".join(f"{value:g} {what}" for what, value in found.items() if value)


def models() -> dict[str, Separator]:
    """Both forms of DR-NMF, the one with a prior, all in C; and one that runs in PyTorch."""
    factored = DRNMF(n_layers=2, n_features=257, n_atoms=600, generator=torch.Generator().manual_seed(0))
    known = {"default": load_model("default"), "factored": factored}
    return known | {name: build(name).float() for name in ("drnmf", "lstm")}


def sound(random: Random, channels: int, samples: int) -> audio.Samples:
    """Speech and noise as they were recorded, faint, clipped, and nothing at all, in turn."""
    files = sorted(AUDIO.rglob("*.flac"))
    parts = []
    while sum(len(part) for part in parts) < samples:
        recording = audio.read(random.choice(files))[0][0].numpy()
        begin = random.randrange(len(recording))
        part = recording[begin : begin + random.randrange(1, samples)]
        kind = random.choice(("as it is", "as it is", "silence", "faint", "clipped"))
        gain = {"silence": 0.0, "faint": 1e-4, "clipped": 100.0}.get(kind, 1.0)
        parts.append(np.clip(gain * part, -1, 1).astype(np.float32))
    mono = np.concatenate(parts)[:samples]
    return np.stack([np.roll(mono, 100 * c) / (1 + c) for c in range(channels)]).astype(np.float32)


def bad_block(random: Random, channels: int) -> np.ndarray:
    """One that a stream must refuse, and then go on as if nothing had been."""
    n = random.randrange(1, 2000)
    block = np.zeros((channels, n), np.float32)
    place = random.randrange(channels), random.randrange(n)
    kind = random.randrange(6)
    if kind < 4:
        block[place] = (np.nan, np.inf, -np.inf, 32767.0)[kind]
        return block
    return block.astype(np.int16) if kind == 4 else np.zeros((channels + 1, n), np.float32)


def one_stream(random: Random, model: Separator, seconds: float, folder: Path, figures: Figures) -> None:
    """The same sound live and by a file."""
    rate, channels, strength = random.choice(RATES), random.choice((1, 1, 2)), random.choice((1.0, 1.0, 0.5))
    x = sound(random, channels, max(2000, round(seconds * rate)))
    audio.write(folder / "in.wav", x, rate, subtype="FLOAT")
    enhance_file(folder / "in.wav", folder / "out.wav", model, strength=strength, overwrite=True)
    expected = audio.read(folder / "out.wav", sample_rate=None)[0].numpy()

    streamer = Streamer(model, rate, channels=channels, strength=strength)
    streamer.listen_ahead(x)
    parts, at = [], 0
    while at < x.shape[1]:
        if random.random() < 0.1:
            refuse(streamer, bad_block(random, channels))
            figures.refused += 1
        size = round(2 ** (14 * random.random()))  # from 1 sample to a second
        parts.append(streamer.feed(x[:, at : at + size]))
        at += size
    y = np.concatenate([*parts, streamer.flush()], 1)
    figures.streams += 1
    figures.blocks += len(parts)
    figures.sound_hours += x.shape[1] / rate / 3600
    assert y.shape == expected.shape
    if isinstance(model, LSTMMask):
        figures.largest_difference = max(figures.largest_difference, float(np.abs(y - expected).max()))
    else:
        figures.different_samples += int((y != expected).sum())


def refuse(streamer: Streamer, block: np.ndarray) -> None:
    """Feed a block that must not be taken."""
    try:
        streamer.feed(block)
    except InputError:
        return
    raise AssertionError(f"a block of {block.shape} {block.dtype} with a peak of {np.abs(block).max()} was taken")


def memory_mb() -> float:
    """What this process holds of the machine's memory, without what only waits to be used again; 0 if unknown."""
    gc.collect()
    if sys.platform != "linux":
        return 0.0
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def soak(minutes: float, seed: int = 0) -> Figures:
    """Streams one after the other for so long."""
    random, figures, kinds = Random(seed), Figures(), models()
    begin, before = time.monotonic(), math.nan
    with tempfile.TemporaryDirectory() as folder:
        while figures.minutes < minutes:
            for model in kinds.values():
                one_stream(random, model, 60 * random.random() ** 3, Path(folder), figures)
            figures.minutes = (time.monotonic() - begin) / 60
            now = memory_mb()
            if math.isnan(before) and figures.minutes >= _WARM * minutes:
                before = now
            figures.growth_mb = 0.0 if math.isnan(before) else now - before
            print(f"{figures.minutes:5.1f} min, {now:.1f} MB, {figures.streams} streams", flush=True)
    return figures


def main() -> None:
    """`python -m use.soak MINUTES`."""
    figures = soak(min(60.0, float(sys.argv[1])))
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    rounded = {
        name: float(f"{value:.3g}") if type(value) is float else value for name, value in asdict(figures).items()
    }
    FIGURES.write_text(json.dumps({"commit": commit(), **rounded}, indent=1) + "\n")
    print(json.dumps(rounded))
    if failure := figures.failure():
        sys.exit(f"the soak failed: {failure}")


if __name__ == "__main__":
    main()
