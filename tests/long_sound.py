"""Ten hours of sound, and five gigabytes of it: bounded memory, the right length, and RF64 where WAV ends.

    make long     # some minutes, and 7 GB of disk

The inputs are sparse files: silence, with speech at the beginning, in the middle and at the very end.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import soundfile

from drnmf import enhance, load_model, save_model
from examples import build, recording

ROOT = Path(__file__).parents[1]
RATE = 16000
MOST_MB = 1000


@dataclass(frozen=True)
class Case:
    """Sound to be made and enhanced."""

    what: str
    seconds: int
    channels: int
    subtype: str
    piped: bool = False  # by a program that does not know the length

    @property
    def samples(self) -> int:
        return self.seconds * RATE

    @property
    def frame(self) -> int:
        return self.channels * np.dtype(self.dtype).itemsize

    @property
    def dtype(self) -> str:
        return {"PCM_16": "<i2", "DOUBLE": "<f8"}[self.subtype]

    @property
    def places(self) -> list[int]:
        """Where speech begins."""
        return [0, self.samples // 2, self.samples - RATE]


CASES = [
    Case("10 hours, mono, 16 bits", 36000, 1, "PCM_16"),
    Case("21 minutes, 32 channels, 64 bits", 1260, 32, "DOUBLE"),
    Case("the same from a pipe that does not say its length", 1260, 32, "DOUBLE", piped=True),
]


def speech() -> np.ndarray:
    return recording("speech/austen_0880", 28000).numpy()[12000:]


def header(case: Case) -> bytes:
    """As the standards have it."""
    size, unknown = case.samples * case.frame, 0xFFFFFFFF
    tag, bits = (1, 16) if case.subtype == "PCM_16" else (3, 64)
    form = b"fmt " + struct.pack("<IHHIIHH", 16, tag, case.channels, RATE, RATE * case.frame, case.frame, bits)
    if case.piped:
        return b"RIFF" + struct.pack("<I", unknown) + b"WAVE" + form + b"data" + struct.pack("<I", unknown)
    if size < unknown:
        return b"RIFF" + struct.pack("<I", 36 + size) + b"WAVE" + form + b"data" + struct.pack("<I", size)
    lengths = b"ds64" + struct.pack("<IQQQI", 28, 72 + size, size, case.samples, 0)
    return b"RF64" + struct.pack("<I", unknown) + b"WAVE" + lengths + form + b"data" + struct.pack("<I", unknown)


def make_input(path: Path, case: Case) -> None:
    x = speech() * (32768 if case.subtype == "PCM_16" else 1)
    x = np.repeat(x[:, None], case.channels, 1).astype(case.dtype)
    start = header(case)
    with path.open("wb") as file:
        file.write(start)
        for place in case.places:
            file.seek(len(start) + place * case.frame)
            file.write(x.tobytes())
        assert file.tell() == len(start) + case.samples * case.frame


def run(case: Case, source: Path, target: Path, model: Path) -> tuple[float, float]:
    """Seconds and peak memory in MB of the command."""
    command = [sys.executable, "-m", "drnmf.cli", "enhance", "-m", str(model)]
    begun = time.monotonic()
    if case.piped:
        with source.open("rb") as stdin, target.open("wb") as stdout:
            process = subprocess.Popen([*command, "-"], stdin=stdin, stdout=stdout)
    else:
        process = subprocess.Popen([*command, str(source), "-o", str(target)])
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"status {status}"
    return time.monotonic() - begun, usage.ru_maxrss / 1024


def check(case: Case, path: Path, model: Path) -> str:
    """Length, header and samples, by soundfile and by the standard; what the header says that it is."""
    info = soundfile.info(path)
    found = info.frames, info.samplerate, info.channels, info.subtype
    assert found == (case.samples, RATE, case.channels, case.subtype), found
    with path.open("rb") as file:
        head = file.read(48)
    size = case.samples * case.frame
    if size < 2**32 - 100:
        assert (head[:4], struct.unpack("<I", head[4:8])[0]) == (b"RIFF", path.stat().st_size - 8)
    else:
        assert (head[:4], head[8:16]) == (b"RF64", b"WAVEds64")
        assert struct.unpack("<QQQ", head[20:44]) == (path.stat().st_size - 8, size, case.samples)
    expected = enhance(speech(), RATE, load_model(model))
    for place in case.places:
        x, _ = soundfile.read(path, start=place, frames=RATE, always_2d=True)
        assert np.abs(x).max() > 0.1 * np.abs(expected).max(), f"no speech at {place}"
        if place == 0:  # the network is in another state later
            assert np.abs(x[:-1000, 0] - expected[:-1000]).max() < 1e-3
    silence, _ = soundfile.read(path, start=case.places[1] - 10**6, frames=10**6 - 512)  # one window before the speech
    assert not silence.any()
    return head[:4].decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, help="JSON file to write the figures to")
    parser.add_argument("--folder", type=Path, help="where 7 GB are free; default: the one for temporary files")
    options = parser.parse_args()
    rows = []
    with TemporaryDirectory(dir=options.folder) as name:
        source, target, model = (Path(name) / part for part in ("in.wav", "out.wav", "model"))
        save_model(build("drnmf").float(), model)
        for case in CASES:
            make_input(source, case)
            seconds, memory = run(case, source, target, model)
            kind = check(case, target, model)
            assert memory < MOST_MB, f"{memory} MB"
            figures = {"bytes": target.stat().st_size, "seconds": round(seconds), "peak_mb": round(memory)}
            rows.append({"what": case.what, "header": kind, **figures})
            target.unlink()
            print(json.dumps(rows[-1]), flush=True)
    if options.save is not None:
        git = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
        about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit}
        options.save.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
