"""Sound in memory of any shape, kind, order and content.

What is accepted comes back in the same shape, finite; in blocks of any size it is the same to the last bit.
"""

from pathlib import Path

import numpy as np
import torch

from drnmf import Streamer, enhance
from fuzz.sounds import Random, model

SHORT = 100


def attempt(random: Random, folder: Path) -> None:
    """Each thing is right with a chance of nine in ten."""

    def draw(right: list, wrong: list) -> object:
        values = right if random.random() < 0.9 else wrong
        return values[random.integers(len(values))]

    shape = draw([(3000,), (1025,), (2, 3000), (3000, 2), (1, 1024)], [(), (0,), (1,), (5, 5), (3, 0), (2, 3, 4000)])
    x = np.asarray(10.0 ** random.uniform(-9, 2) * random.standard_normal(shape)).astype(
        draw(["float32", "float64"], ["float16", "int16", "complex64", ">f4"])
    )
    if x.size and x.dtype.kind == "f":
        x.flat[random.integers(x.size)] = draw([0, 0.5], [np.nan, np.inf, 1e4])
    if x.ndim and random.random() < 0.3:
        x = x[..., :: int(random.choice([-1, 2, -3]))]
    if x.ndim == 2 and random.random() < 0.3:
        x = np.asfortranarray(x)
    given = x
    if random.random() < 0.3 and x.dtype.isnative and min(x.strides, default=0) >= 0:
        given = torch.from_numpy(x)
    rate, axis = draw([1000, 8000, 16000, 44100], [0, -1, 999, 16000.5, np.nan, 10**9]), draw([None], [0, 1, -1, 5])
    y = enhance(given, rate, model(), strength=draw([0, 0.5, 1], [2, -1, np.nan]), axis=axis)
    assert type(y) is type(given)
    assert y.shape == given.shape
    assert np.isfinite(np.asarray(y)).all()
    if x.ndim == 1:
        streamer = Streamer(model(), rate)
        streamer.listen_ahead(x[None])
        blocks, place = [], 0
        while place < len(x):
            size = int(random.choice([1, 127, 500, 4096]))
            blocks.append(np.asarray(streamer.feed(given[place : place + size])))
            place += size
        streamed = np.concatenate([*blocks, np.asarray(streamer.flush())])
        assert np.array_equal(streamed, np.asarray(enhance(given, rate, model())))
