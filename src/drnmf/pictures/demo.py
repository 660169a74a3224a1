"""The demonstration: clean a noisy recording with the model that comes with the package.

    python -m drnmf.pictures.demo FOLDER

leaves noisy.wav, enhanced.wav, removed.wav and, where matplotlib is installed, demo.png in FOLDER.
"""

import argparse
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from drnmf.errors import InputError
from drnmf.files import make_folder
from drnmf.models.folders import load_ready
from drnmf.parallel import use_one_thread
from drnmf.signal import SAMPLE_RATE, audio
from drnmf.signal.arrays import Samples
from drnmf.signal.metrics import sdr
from drnmf.use.files import enhance

MODEL = "default"


@dataclass(frozen=True)
class Result:
    """SDR in dB before and after; and the picture, or why there is none."""

    noisy_sdr: float
    enhanced_sdr: float
    picture: Path | str


def run(folder: Path | str) -> Result:
    """Enhance, score and draw; everything goes into `folder`, which is created if it is missing."""
    folder = Path(folder)
    make_folder(folder)
    clean, noisy, model = recording("clean"), recording("noisy"), load_ready(MODEL)
    enhanced = enhance(noisy, SAMPLE_RATE, model)
    scores = float(sdr(noisy, clean)), float(sdr(enhanced, clean))
    for name, sound in (("noisy", noisy), ("enhanced", enhanced), ("removed", noisy - enhanced)):
        audio.write(folder / f"{name}.wav", sound, SAMPLE_RATE)
    try:
        from drnmf.pictures import show
    except InputError as no_matplotlib:
        return Result(*scores, str(no_matplotlib))
    titles = f"Noisy: SDR {scores[0]:.1f} dB", f"Enhanced: SDR {scores[1]:.1f} dB"
    show.save(show.draw_file(model, folder / "noisy.wav", name=MODEL, titles=titles), folder / "demo.png")
    return Result(*scores, folder / "demo.png")


def recording(name: str) -> Samples:
    """One of the recordings that come with the package, (samples,): clean or noisy."""
    with resources.as_file(resources.files("drnmf") / "bundled" / "demo" / f"{name}.flac") as path:
        sound: Samples = audio.read_array(path, channel=0)[0][0]
        return sound


def main() -> None:
    """Run into the folder named on the command line, and say what happened."""
    use_one_thread()
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
    seen = f"look at {result.picture}" if isinstance(result.picture, Path) else result.picture
    print(f"Listen to {folder}/noisy.wav, enhanced.wav and removed.wav; {seen}")


if __name__ == "__main__":
    main()
