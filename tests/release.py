"""What a release must do where it has been installed: python tests/release.py

It needs drnmf alone, not pytest: cibuildwheel runs it with every wheel, and `make release` where there is no compiler.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile

import drnmf
from drnmf.engines import library

AUDIO = Path(__file__).parent / "audio"


def check_install() -> None:
    assert "site-packages" in drnmf.__file__, f"{drnmf.__file__}: this is the checkout, not what was installed"
    assert library.load() is not None, "the compiled part is missing"


def check_use(folder: Path) -> None:
    """Real speech in real noise as loud comes out with less of it; sound that is handed on as it was has 0 dB less."""
    speech, rate = soundfile.read(AUDIO / "speech" / "austen_0880.flac")
    noise, _ = soundfile.read(AUDIO / "noise" / "percussion.flac")
    noise = noise[: rate + len(speech)]
    noise *= np.sqrt((speech**2).mean() / (noise**2).mean())
    noisy = noise + np.pad(speech, (rate, 0))
    soundfile.write(folder / "noisy.wav", noisy / 4, rate)
    command = [Path(sys.executable).with_name("drnmf"), "enhance", folder / "noisy.wav"]
    subprocess.run(command, check=True, timeout=300)
    enhanced, _ = soundfile.read(folder / "noisy.enhanced.wav")
    error = 4 * enhanced - np.pad(speech, (rate, 0))
    gain = 10 * np.log10((noise**2).mean() / (error**2).mean())
    assert gain > 2, f"only {gain:.1f} dB of noise were removed"
    print(f"drnmf {drnmf.__version__}: {gain:.1f} dB of noise removed from a real recording")


if __name__ == "__main__":
    check_install()
    with tempfile.TemporaryDirectory() as folder:
        check_use(Path(folder))
