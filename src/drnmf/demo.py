"""The demonstration: learn speech and noise from a few seconds each, then clean a recording that holds both.

    python -m drnmf.demo FOLDER

leaves noisy.wav, enhanced.wav, removed.wav and demo.png in FOLDER.
"""

import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from drnmf import audio, plots
from drnmf.errors import InputError
from drnmf.metrics import sdr
from drnmf.models import SparseNMFMask
from drnmf.nmf import Dictionaries, infer_activations, train_dictionaries
from drnmf.stft import SAMPLE_RATE, istft, stft


@dataclass(frozen=True)
class Result:
    """SDR in dB before and after."""

    noisy_sdr: float
    enhanced_sdr: float


def run(folder: Path | str, *, rank_per_source: int = 40, max_iter: int = 100) -> Result:
    """Train, enhance, score and draw; everything goes into `folder`, which is made if need be."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror}); choose another name") from None
    clean, noisy = recording("clean"), recording("noisy")
    dictionaries = learn(rank_per_source, max_iter)
    model = SparseNMFMask.from_dictionary(dictionaries.W, n_speech=dictionaries.n_speech)

    X = stft(noisy)
    mask = model(X.abs()[None])[0][0]
    enhanced = istft(mask * X, len(noisy))
    result = Result(float(sdr(noisy, clean)), float(sdr(enhanced, clean)))

    for name, sound in (("noisy", noisy), ("enhanced", enhanced), ("removed", noisy - enhanced)):
        audio.write(folder / f"{name}.wav", sound, SAMPLE_RATE)
    titles = (f"Noisy: SDR {result.noisy_sdr:.1f} dB", f"Enhanced: SDR {result.enhanced_sdr:.1f} dB")
    H = infer_activations(X.abs().mT, dictionaries.W)
    figure = plots.separation(X.abs(), mask, dictionaries.W, H.mT, dictionaries.n_speech, titles=titles)
    figure.savefig(folder / "demo.png", dpi=100)
    return result


def learn(rank_per_source: int, max_iter: int) -> Dictionaries:
    """Dictionaries from the bundled training sound: clean speech, and the same with noise that is equally loud."""
    speech, noise = recording("train_speech"), recording("train_noise")
    noise = noise.repeat(-(-len(speech) // len(noise)))[: len(speech)]
    noise = noise * (speech.norm() / noise.norm())
    return train_dictionaries(
        stft(speech).abs().mT,
        stft(speech + noise).abs().mT,
        rank_per_source=rank_per_source,
        max_iter=max_iter,
        generator=torch.Generator().manual_seed(2016),
    )


def recording(name: str) -> Tensor:
    """One of the recordings that come with the package, (samples,): clean, noisy, train_speech or train_noise."""
    with resources.as_file(resources.files("drnmf") / "bundled" / "demo" / f"{name}.flac") as path:
        return audio.read(path, channel=0)[0][0]


def main() -> None:
    """Run into the folder named on the command line, and say what happened."""
    torch.set_num_threads(1)  # arrays this small gain nothing from threads, which on a busy machine mostly wait
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    print("Learning 40 spectra of speech and 40 of noise from 19 s of sound, then separating 5 s ...", flush=True)
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
