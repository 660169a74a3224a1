"""The sounds of docs/sounds, before, after and what was removed: `python -m benchmarks.sounds`.

Of some, also what comes out after the model has learned the noise, from the three seconds that follow what is heard.

To be run when the default model has changed; `python -m benchmarks.pages` then makes the page's table. The recordings
are those of tests/audio.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from drnmf import enhance
from drnmf.files import write_atomically
from drnmf.signal import SAMPLE_RATE, audio
from drnmf.signal.arrays import Samples
from drnmf.signal.metrics import sdr

ROOT = Path(__file__).parents[1]
AUDIO = ROOT / "tests" / "audio"
SOUNDS = ROOT / "docs" / "sounds"
SECONDS, SAMPLE = 5, 3
LEVEL = 0.05  # root mean square of the speech
MP3 = {"bitrate_mode": "CONSTANT", "compression_level": 0.7}  # 56 kb/s


class Example(NamedTuple):
    """A sentence and a noise at an SNR in dB; without a noise it is a good recording."""

    title: str
    speech: str
    noise: str | None = None
    snr_db: float = 0.0
    learned: bool = False


EXAMPLES = {
    "drums": Example("speech and drums", "austen_0890", "percussion", 0, learned=True),
    "printer": Example("speech and a printer", "austen_0920", "printer_sauna", 5, learned=True),
    "guitar": Example("speech and a guitar", "austen_0870", "guitar", 5, learned=True),
    "hum": Example("speech and a hum", "austen_0880", "hum", 0, learned=True),
    "good": Example("speech alone", "austen_0930"),
}


def recordings(example: Example) -> tuple[Samples, Samples]:
    """Clean and noisy, (samples,)."""
    clean = audio.read_array(AUDIO / "speech" / f"{example.speech}.flac")[0][0, : SECONDS * SAMPLE_RATE]
    clean = clean * (LEVEL / _level(clean))
    if example.noise is None:
        return clean, clean
    noise = audio.read_array(AUDIO / "noise" / f"{example.noise}.flac", count=len(clean))[0][0]
    return clean, clean + noise * (LEVEL / _level(noise) * 10 ** (-example.snr_db / 20))


def _level(x: Samples) -> float:
    return float(np.sqrt(np.mean(x**2)))


def made(example: Example) -> tuple[dict[str, Samples], dict[str, float]]:
    """The sounds by name, and the scores."""
    clean, noisy = recordings(example)
    enhanced = enhance(noisy, SAMPLE_RATE)
    sounds = {"noisy": noisy, "enhanced": enhanced, "removed": noisy - enhanced}
    scores = {} if example.noise is None else {"before": float(sdr(noisy, clean)), "after": float(sdr(enhanced, clean))}
    if example.learned:
        path = AUDIO / "noise" / f"{example.noise}.flac"
        sample = audio.read_array(path, start=SECONDS * SAMPLE_RATE, count=SAMPLE * SAMPLE_RATE)[0][0]
        sounds["learned"] = enhance(noisy, SAMPLE_RATE, noise=sample)
        scores["learned"] = float(sdr(sounds["learned"], clean))
    return sounds, scores


def main() -> None:
    scores = {}
    SOUNDS.mkdir(exist_ok=True)
    for name, example in EXAMPLES.items():
        sounds, sdrs = made(example)
        scores[name] = {"title": example.title, **{key: round(value, 2) for key, value in sdrs.items()}}
        for kind, sound in sounds.items():
            path = SOUNDS / f"{name}-{kind}.mp3"
            with audio.Writer(path, SAMPLE_RATE, 1, encoder=MP3) as writer:
                writer.write(sound[None])
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")
    write_atomically(SOUNDS / "scores.json", json.dumps(scores, indent=2).encode() + b"\n")


if __name__ == "__main__":
    main()
