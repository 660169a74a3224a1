"""Real sound and a small model for tests of what runs without PyTorch; `examples` has more, for those that need it."""

import functools
import json
import tempfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import safetensors.numpy
import soundfile

from drnmf import Streamer, stft
from drnmf.models.folders import CONFIG, WEIGHTS, load_ready

AUDIO = Path(__file__).parent / "audio"
N_SPEECH = 6


def recording(name: str, length: int | None = None) -> np.ndarray:
    """Samples (float64) of a recording, such as "speech/austen_0880"."""
    return soundfile.read(AUDIO / f"{name}.flac")[0][:length]


def streamed(x: np.ndarray, rate: int = 16000, model="default", *, ahead: bool = False, **options) -> np.ndarray:
    """What a stream makes of (samples,) or (channels, samples); a file's is listened to ahead."""
    streamer = Streamer(model, rate, channels=1 if x.ndim == 1 else len(x), **options)
    if ahead:
        streamer.listen_ahead(np.atleast_2d(x))
    return np.concatenate([streamer.feed(x), streamer.flush()], -1)


@functools.cache
def dictionary() -> np.ndarray:
    """W (257, 12): mean spectra of parts of speech, then of noise."""
    atoms = []
    for name in ("speech/austen_0880", "noise/percussion"):
        X = abs(stft(recording(name)[8000:24000]))
        atoms += [part.mean(0) for part in np.array_split(X[4:-4], N_SPEECH)]
    W = np.stack(atoms, 1)
    return W / np.linalg.norm(W, axis=0)


def save_small_model(folder: Path, dtype: type = np.float32) -> Path:
    """A folder with DR-NMF of three layers, not trained."""
    W, K = dictionary(), 3
    F, N = W.shape
    weights = {
        "log_W": np.log(1e-16 + np.repeat(W[None], K, 0)),
        "log_alpha": np.full((K, 1), np.log(np.linalg.norm(W, 2) ** 2)),
        "log_sparsity": np.full((K, 1), np.log(0.3)),
        "log_h0": np.full(N, np.log(1e-16)),
    }
    content = safetensors.numpy.save({name: value.astype(dtype) for name, value in weights.items()})
    options = {"n_layers": K, "n_atoms": N, "n_speech": N_SPEECH, "n_features": F, "sparsity": 0.3}
    config = {"format": 1, "model": "DRNMF", "sample_rate": 16000, "window": 512, "hop": 128, "config": options}
    folder.mkdir(exist_ok=True)
    (folder / WEIGHTS).write_bytes(content)
    (folder / CONFIG).write_text(json.dumps(config | {"sha256": sha256(content).hexdigest()}))
    return folder


def small_model(dtype: type = np.float32):
    """It, ready for sound: in C where that is compiled, else in PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        return load_ready(save_small_model(Path(folder), dtype))
