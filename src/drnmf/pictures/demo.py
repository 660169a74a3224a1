"""The demonstration: clean a noisy recording with the model that comes with the package.

    python -m drnmf.pictures.demo FOLDER

leaves noisy.wav, enhanced.wav, removed.wav and demo.png in FOLDER.
"""

import argparse
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.files import make_folder
from drnmf.models.folders import load_model
from drnmf.pictures import show
from drnmf.signal import audio
from drnmf.signal.metrics import sdr
from drnmf.signal.spectra import SAMPLE_RATE
from drnmf.use.files import enhance

MODEL = "default"


@dataclass(frozen=True)
class Result:
    """SDR in dB before and after."""

    noisy_sdr: float
    enhanced_sdr: float


def run(folder: Path | str) -> Result:
    """Enhance, score and draw; everything goes into `folder`, which is created if it is missing."""
    folder = Path(folder)
    make_folder(folder)
    clean, noisy, model = recording("clean"), recording("noisy"), load_model(MODEL)
    enhanced = enhance(noisy, SAMPLE_RATE, model)
    result = Result(float(sdr(noisy, clean)), float(sdr(enhanced, clean)))
    for name, sound in (("noisy", noisy), ("enhanced", enhanced), ("removed", noisy - enhanced)):
        audio.write(folder / f"{name}.wav", sound, SAMPLE_RATE)
    titles = f"Noisy: SDR {result.noisy_sdr:.1f} dB", f"Enhanced: SDR {result.enhanced_sdr:.1f} dB"
    show.save(show.draw_file(model, folder / "noisy.wav", name=MODEL, titles=titles), folder / "demo.png")
    return result


def recording(name: str) -> Tensor:
    """One of the recordings that come with the package, (samples,): clean or noisy."""
    with resources.as_file(resources.files("drnmf") / "bundled" / "demo" / f"{name}.flac") as path:
        return audio.read(path, channel=0)[0][0]


def main() -> None:
    """Run into the folder named on the command line, and say what happened."""
    torch.set_num_threads(1)  # arrays this small gain nothing from threads, which on a busy machine mostly wait
    parser = argparse.ArgumentParser(
        prog="python -m drnmf.pictures.demo", description="Enhance the bundled noisy recording."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("demo"), help="where to leave sound and picture")
    folder: Path = parser.parse_args().folder
    try:
        result = run(folder)
    except InputError as error:
        sys.exit(f"drnmf: {error}")
    gain = result.enhanced_sdr - result.noisy_sdr
    print(f"SDR before {result.noisy_sdr:5.2f} dB")
    print(f"SDR after  {result.enhanced_sdr:5.2f} dB   ({gain:+.2f} dB)")
    print(f"Listen to {folder}/noisy.wav, enhanced.wav and removed.wav; look at {folder}/demo.png")


if __name__ == "__main__":
    main()
