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


def output(name: str, dtype: str, model: object) -> np.ndarray:
    sound, run = CASES[name]
    y = run(sound().astype(dtype), model)
    assert y.dtype == dtype
    return y[..., ::EVERY]


def by_pytorch(name: str, dtype: str) -> np.ndarray:
    torch = pytest.importorskip("torch")
    return output(name, dtype, load_model("default").to(getattr(torch, dtype)))


def assert_close_in_single_precision(rounded: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(rounded, expected, rtol=0, atol=1e-4)
    assert np.sqrt(np.mean((rounded - expected) ** 2)) < 1e-5


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "PyTorch"])
@pytest.mark.parametrize("name", CASES)
def test_the_default_sounds_as_it_did(name, compiled, monkeypatch):
    pytest.importorskip("torch")
    if not compiled:
        monkeypatch.setattr("drnmf.engines.compiled.library", lambda: None)
    expected = np.load(REFERENCE)[name]
    np.testing.assert_allclose(by_pytorch(name, "float64"), expected, rtol=0, atol=1e-5)
    assert_close_in_single_precision(by_pytorch(name, "float32"), expected)


@pytest.mark.parametrize("name", CASES)
def test_by_its_name_it_sounds_as_it_did(name):
    """As most people use it: without PyTorch, where it is compiled."""
    assert_close_in_single_precision(output(name, "float32", "default"), np.load(REFERENCE)[name])


def test_what_is_held_is_not_the_input():
    reference = np.load(REFERENCE)
    for name, (sound, _) in CASES.items():
        assert np.abs(reference[name] - sound()[..., ::EVERY]).max() > 0.01


if __name__ == "__main__":
    np.savez_compressed(REFERENCE, **{name: np.float32(by_pytorch(name, "float64")) for name in CASES})
