"""DNSMOS: what listeners would say of a recording, from 1 to 5, heard by a network instead and without a reference.

Microsoft's networks (Reddy et al., 2021 and 2022; github.com/microsoft/DNS-Challenge, folder DNSMOS/DNSMOS) are files
that are not part of this package, in one folder:

    sig_bak_ovr.onnx   ITU-T P.835: the speech, the background and the whole, `sig`, `bak` and `ovrl`
    model_v8.onnx      ITU-T P.808: the whole, `p808`; left out where the file is not there

A network hears 9.01 s of 16 kHz sound. As in Microsoft's script, a shorter recording is doubled until it is long
enough, a longer one is heard in pieces that begin one second apart, and the score is the mean over the pieces. A
polynomial takes the output of the first network to the scale of its listeners. The optional package onnxruntime runs
the networks.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from drnmf.errors import InputError
from drnmf.signal.audio import Samples
from drnmf.signal.metrics import optional_package

RATE = 16000
PIECE = 144160  # 9.01 s
POLYNOMIALS = {
    "sig": (-0.08397278, 1.22083953, 0.0052439),
    "bak": (-0.13166888, 1.60915514, -0.39604546),
    "ovrl": (-0.06766283, 1.11546468, 0.04602535),
}
P835, P808 = "sig_bak_ovr.onnx", "model_v8.onnx"

_FRAME, _HOP, _MELS = 321, 160, 120

Array = np.ndarray[Any, np.dtype[np.float64]]


class Listener:
    """The networks of a folder, ready to listen."""

    def __init__(self, folder: Path | str) -> None:
        folder = Path(folder)
        if not (folder / P835).is_file():
            raise InputError(f"{folder}: has no {P835}; DNSMOS's files are in github.com/microsoft/DNS-Challenge")
        self._p835 = _network(folder / P835)
        self._p808 = _network(folder / P808) if (folder / P808).is_file() else None

    def score(self, x: Samples) -> dict[str, float]:
        """Scores of one signal (samples,) at 16 kHz."""
        if x.ndim != 1 or not x.size:
            raise InputError(f"DNSMOS takes one signal (samples,), got shape {x.shape}")
        heard = [self._hear(piece) for piece in pieces(x.astype(np.float32))]
        return {name: float(np.mean([scores[name] for scores in heard])) for name in heard[0]}

    def _hear(self, piece: Samples) -> dict[str, float]:
        raw = self._p835.run(None, {"input_1": piece[None]})[0][0]
        scores = {
            name: float(np.polyval(polynomial, value))
            for (name, polynomial), value in zip(POLYNOMIALS.items(), raw, strict=True)
        }
        if self._p808 is not None:
            spectrum = mel_spectrum(piece[:-_HOP]).astype(np.float32)
            scores["p808"] = float(self._p808.run(None, {"input_1": spectrum[None]})[0][0][0])
        return scores


def pieces(x: Samples) -> list[Samples]:
    """What the networks hear of a recording."""
    while len(x) < PIECE:
        x = np.concatenate([x, x])
    count = int(len(x) // RATE - PIECE / RATE) + 1
    starts = [second * RATE for second in range(count)]
    return [x[start : start + PIECE] for start in starts if start + PIECE <= len(x)]


def mel_spectrum(x: Samples) -> Array:
    """What the second network hears: levels (frames, 120) of mel bands, 1 the loudest, -1 from 80 dB below it on."""
    padded = np.pad(x, _FRAME // 2)
    framed = np.lib.stride_tricks.sliding_window_view(padded, _FRAME)[::_HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FRAME) / _FRAME)
    power = np.square(np.abs(np.fft.rfft(framed * window)))
    level = 10 * np.log10(np.maximum(power @ _mel_bands().T, 1e-10))
    level -= level.max()
    scaled: Array = (np.maximum(level, -80) + 40) / 40
    return scaled


@cache
def _mel_bands() -> Array:
    """Triangles (120, bins) of equal area on Slaney's mel scale: linear below 1 kHz, then logarithmic."""
    linear, step = 200 / 3, np.log(6.4) / 27
    top = 15 + np.log(RATE / 2 / 1000) / step
    mels = np.linspace(0, top, _MELS + 2)
    edges = np.where(mels < 15, linear * mels, 1000 * np.exp(step * (mels - 15)))
    bins = np.fft.rfftfreq(_FRAME, 1 / RATE)
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    bands: Array = triangles * (2 / (edges[2:] - edges[:-2]))[:, None]
    return bands


def _network(path: Path) -> Any:
    package = optional_package("onnxruntime", "DNSMOS")
    options = package.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # recordings are scored in processes
    try:
        return package.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for every reason
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: is no network that onnxruntime can run ({reason})") from None
