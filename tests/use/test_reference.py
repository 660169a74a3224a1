"""The bundled default's output, held to what it was when tests/golden/default.npz was written.

The file holds what the model does in double precision, which is the same on all machines. In single precision, as it is
used, the rounding of thousands of steps moves single samples by up to 3e-5, differently on every kind of processor.
`python tests/use/test_reference.py` writes the file anew, for a new default.
"""

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch

from drnmf import Streamer, enhance, load_model

REFERENCE = Path(__file__).parents[1] / "golden" / "default.npz"
EVERY = 37  # samples, of which one is kept: every place in a hop comes up


def demonstration() -> np.ndarray:
    noisy = resources.files("drnmf") / "bundled" / "demo" / "noisy.flac"
    with noisy.open("rb") as file:
        return soundfile.read(file)[0]


def stereo() -> np.ndarray:
    """The demonstration at 44.1 kHz, in the second channel softer and 44 ms later."""
    x = demonstration()
    channels = [x, 0.7 * np.roll(x, 700)]
    return np.stack([soxr.resample(channel, 16000, 44100) for channel in channels])


def hop_by_hop(x, model) -> np.ndarray:
    streamer = Streamer(model)
    hops = [streamer.feed(x[i : i + 128]) for i in range(0, len(x), 128)]
    return np.concatenate([*hops, streamer.flush()])


CASES = {
    "demonstration": (demonstration, lambda x, model: enhance(x, 16000, model)),
    "stereo": (stereo, lambda x, model: enhance(x, 44100, model)),
    "hop_by_hop": (demonstration, hop_by_hop),
}


def output(name: str, dtype: torch.dtype) -> np.ndarray:
    sound, run = CASES[name]
    y = run(torch.from_numpy(sound()).to(dtype).numpy(), load_model("default").to(dtype))
    return np.asarray(y)[..., ::EVERY]


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "PyTorch"])
@pytest.mark.parametrize("name", CASES)
def test_the_default_sounds_as_it_did(name, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr("drnmf.engines.compiled.library", lambda: None)
    expected = np.load(REFERENCE)[name]
    np.testing.assert_allclose(output(name, torch.float64), expected, rtol=0, atol=1e-5)
    rounded = output(name, torch.float32)
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded, expected, rtol=0, atol=1e-4)
    assert np.sqrt(np.mean((rounded - expected) ** 2)) < 1e-5


def test_what_is_held_is_not_the_input():
    reference = np.load(REFERENCE)
    for name, (sound, _) in CASES.items():
        assert np.abs(reference[name] - sound()[..., ::EVERY]).max() > 0.01


if __name__ == "__main__":
    np.savez_compressed(REFERENCE, **{name: np.float32(output(name, torch.float64)) for name in CASES})
