"""The bundled models beside published enhancers, on the same sound and one thread: a live stream and a recording.

The rivals are ONNX files that are not part of this project. The environment variable DRNMF_RIVALS names the folder with
`dtln1.onnx` and `dtln2.onnx` (DTLN, Westhausen and Meyer, 2020), `gtcrn.onnx` (GTCRN, Rong et al., 2024),
`fastenhancer_t.onnx` and `fastenhancer_b.onnx` (FastEnhancer, github.com/aask1357/fastenhancer); what is not there is
left out. They are driven frame by frame with numpy and onnxruntime, with as little around the networks as they need;
that is also how they take a recording, because they have no other way. All take turns in one process, many times over;
the fastest turn of each counts, and in it the median hop. Time is the processor's, so that other programs do not count
but for what they take of the caches.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Row, in_fresh_process

MODELS = {"DR-NMF (default)": "default"}
OURS = "DR-NMF (default)"
RATE = 16000
WINDOW = 512
Frames = np.ndarray[Any, np.dtype[np.float32]]
Feed = Callable[[Frames], Frames]
"""Takes a hop of samples, returns a hop."""


def folder() -> Path | None:
    """Where the rivals lie, if they are here."""
    name = os.environ.get("DRNMF_RIVALS")
    return Path(name) if name else None


def rivals() -> dict[str, tuple[int, Callable[[], Feed]]]:
    """Hop in samples, and what makes a stream, by name; empty where they are not."""
    path = folder()
    return {} if path is None else {name: RIVALS[name] for name, file in FILES.items() if (path / file).is_file()}


def session(name: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = folder()
    assert path is not None
    return onnxruntime.InferenceSession(str(path / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])


def dtln() -> Feed:
    """Two networks, one on magnitudes and one on samples; overlap-add without a window."""
    first, second = session("dtln1"), session("dtln2")
    mask_in, mask_state_in = (value.name for value in first.get_inputs())
    block_in, block_state_in = (value.name for value in second.get_inputs())
    waiting, tail = np.zeros(WINDOW, np.float32), np.zeros(WINDOW, np.float32)
    states = [np.zeros((1, 2, 128, 2), np.float32) for _ in range(2)]

    def feed(x: Frames) -> Frames:
        waiting[:-128], waiting[-128:] = waiting[128:], x
        X = np.fft.rfft(waiting)
        magnitude = np.abs(X)[None, None]
        mask, states[0] = first.run(None, {mask_in: magnitude, mask_state_in: states[0]})
        block = np.fft.irfft(mask[0] * X).astype(np.float32, copy=False)[None]
        block, states[1] = second.run(None, {block_in: block, block_state_in: states[1]})
        tail[:-128], tail[-128:] = tail[128:], 0
        np.add(tail, block[0, 0], out=tail)
        return tail[:128].copy()

    return feed


def gtcrn() -> Feed:
    """One network on complex spectra, with square-root Hann windows."""
    network = session("gtcrn")
    caches = [np.zeros(shape, np.float32) for shape in ((2, 1, 16, 16, 33), (2, 3, 1, 1, 16), (2, 1, 33, 16))]
    window = np.sqrt(np.hanning(WINDOW + 1)[:-1]).astype(np.float32)
    waiting, tail = np.zeros(WINDOW, np.float32), np.zeros(WINDOW, np.float32)

    def feed(x: Frames) -> Frames:
        nonlocal caches
        waiting[:256], waiting[256:] = waiting[256:], x
        X = np.fft.rfft(waiting * window).astype(np.complex64, copy=False)
        inputs = (X.view(np.float32).reshape(1, 257, 1, 2), *caches)
        names = ("mix", "conv_cache", "tra_cache", "inter_cache")
        Y, *caches = network.run(None, dict(zip(names, inputs, strict=True)))
        tail[:256], tail[256:] = tail[256:], 0
        np.add(tail, np.fft.irfft(Y.reshape(-1).view(np.complex64)) * window, out=tail)
        return tail[:256].copy()

    return feed


def fastenhancer(size: str) -> Feed:
    """One network on complex spectra; Hann windows on both sides, divided by the sum of their squares."""
    network = session(f"fastenhancer_{size}")
    caches = {value.name: np.zeros(value.shape, np.float32) for value in network.get_inputs()[1:]}
    window = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
    halves = np.square(window).reshape(2, -1)
    synthesis = window / np.tile(halves.sum(0), 2)
    waiting, tail = np.zeros(WINDOW, np.float32), np.zeros(WINDOW, np.float32)

    def feed(x: Frames) -> Frames:
        waiting[:256], waiting[256:] = waiting[256:], x
        X = np.fft.rfft(waiting * window).astype(np.complex64, copy=False)
        Y, *following = network.run(None, {"spec_in": X.view(np.float32).reshape(1, 257, 1, 2), **caches})
        caches.update(zip(caches, following, strict=True))
        tail[:256], tail[256:] = tail[256:], 0
        np.add(tail, np.fft.irfft(Y.reshape(-1).view(np.complex64)) * synthesis, out=tail)
        return tail[:256].copy()

    return feed


RIVALS: dict[str, tuple[int, Callable[[], Feed]]] = {
    "DTLN": (128, dtln),
    "GTCRN": (256, gtcrn),
    "FastEnhancer-T": (256, partial(fastenhancer, "t")),
    "FastEnhancer-B": (256, partial(fastenhancer, "b")),
}
FILES = {
    "DTLN": "dtln1.onnx",
    "GTCRN": "gtcrn.onnx",
    "FastEnhancer-T": "fastenhancer_t.onnx",
    "FastEnhancer-B": "fastenhancer_b.onnx",
}


def drnmf(model: str) -> Feed:
    """Ours."""
    from drnmf import Streamer

    return Streamer(model).feed


def recording(name: str, x: Frames) -> Frames:
    """A whole recording by a rival: as long as it was, and not delayed."""
    hop, make = rivals()[name]
    feed, delay = make(), WINDOW - hop  # its output lies that far behind its input
    padded = np.pad(x, (0, delay + -(len(x) + delay) % hop))
    y = np.concatenate([feed(padded[i : i + hop]) for i in range(0, len(padded), hop)])
    return y[delay : delay + len(x)].astype(np.float32, copy=False)


def whole(make: Callable[[], Feed], hop: int, x: Frames) -> None:
    """A recording through a stream, hop after hop."""
    feed = make()
    np.concatenate([feed(x[i : i + hop]) for i in range(0, len(x) - hop + 1, hop)])


def median_hop(make: Callable[[], Feed], hop: int, x: Frames) -> float:
    """Seconds for a second of sound: those of the median hop."""
    feed, times = make(), []
    for i in range(0, len(x) - hop + 1, hop):
        start = time.thread_time()
        feed(x[i : i + hop])
        times.append(time.thread_time() - start)
    return float(np.median(times[100:])) * RATE / hop


def measure(rounds: int, seconds: float) -> list[Row]:
    import torch

    from benchmarks.enhance import noisy
    from drnmf import enhance

    torch.set_num_threads(1)
    ours = {name: (128, partial(drnmf, model)) for name, model in MODELS.items()}
    x, streams = noisy(seconds).numpy(), {**ours, **rivals()}
    few = x[: 4 * RATE]  # for hops: in a short turn a busy machine is more often quiet from beginning to end
    live: dict[str, list[float]] = {name: [] for name in streams}
    file: dict[str, list[float]] = {name: [] for name in streams}
    for _ in range(rounds):
        for name, (hop, make) in streams.items():
            live[name] += [median_hop(make, hop, few) for _ in range(3)]
            start = time.thread_time()
            if name in MODELS:
                enhance(x, RATE, MODELS[name])
            else:
                whole(make, hop, x)
            file[name].append((time.thread_time() - start) / seconds)
    rows = []
    for kind, found in (("live", live), ("recording", file)):
        for name, factors in found.items():
            factor = min(factors)
            row = {"case": f"{kind}, {name}", "milliseconds": 8 * factor, "per": "8 ms of sound"}
            row |= {"real_time_factor": factor, "times_faster_than_ours": min(found[OURS]) / factor}
            rows.append(row)
    return rows


def run(*, quick: bool = False) -> list[Row]:
    """All of them, or ours alone where the rivals are not here."""
    rows: list[Row] = in_fresh_process("benchmarks.rivals", *(("1", "5") if quick else ("8", "20")))["rows"]
    for row in rows:
        if not any(name in row["case"] for name in MODELS):
            row["case"] += f": ours is {1 / row['times_faster_than_ours']:.1f} times faster"
    if folder() is None:
        rows[-1]["case"] += " (rivals are left out: DRNMF_RIVALS is not set)"
    return [{"part": "rivals", **row} for row in rows]


if __name__ == "__main__":
    print(json.dumps({"rows": measure(int(sys.argv[1]), float(sys.argv[2]))}))
