"""Resampling with a short filter, for live sound: 5 ms late where the blocks of soxr take 20 to 60.

    y(t) = sum_n g(t - n) x[n],    g a low pass below the lower of the two Nyquist frequencies, windowed (Kaiser)

Rates such as 44100 and 16000 tick together after few samples, there 441 and 160. From one tick to the next the output
is one matrix times the input around it, so that all of it is a product of two matrices. Beyond the ends there is
silence. A product's sums are in another order for every size of its matrices; in double precision, rounded at the end,
that cannot be seen: blocks of any size give the same samples.
"""

from functools import cache
from math import gcd

import numpy as np

from drnmf.signal.audio import Samples

_HALF = 80  # samples at the lower rate on each side: 5 ms at 16 kHz
_BETA = 9.0  # of the window: 90 dB below, from Nyquist on; flat to 92 % of it
_EDGE = 0.96  # the middle of the slope, in parts of the lower Nyquist frequency
_PERIOD = 80  # samples of either rate in a period at least: shorter ones make many small products
_LONGEST = 1000  # samples of the lower rate in a period at most: of odd rates the matrix would be large


def takes(source: int, target: int) -> bool:
    """Whether the two rates tick together often enough."""
    return min(source, target) // gcd(source, target) <= _LONGEST


class ShortResampler:
    """Block by block, as `audio.Resampler` does it: what is ready comes out, and with `last` the rest."""

    def __init__(self, source: int, target: int, channels: int) -> None:
        self._matrix, self._step, self._before = _matrix(source, target)
        self._waiting: Samples = np.zeros((channels, self._before))  # from a period's first sample on
        self._given = 0  # samples that this period has given already

    def feed(self, x: Samples, *, last: bool = False) -> Samples:
        """The next samples (channels, any number) in, those that are ready out; `last` flushes the rest."""
        self._waiting = np.concatenate([self._waiting, x], 1)
        there = self._waiting.shape[1] - self._before  # samples from the period's first
        known = there if last else there - self._before
        period = len(self._matrix)
        ready = max(self._given, -(-known * period // self._step))  # those before the first unknown sample
        y = self._output(self._given, ready)
        done = ready // period
        self._waiting = self._waiting[:, done * self._step :]
        self._given = ready - done * period
        return y

    def _output(self, start: int, stop: int) -> Samples:
        """Samples of the output from the period's first on; what they need has come, or is silence."""
        x, (period, width) = self._waiting, self._matrix.shape
        if stop <= period:
            there = min(width, x.shape[1])
            return (x[:, :there] @ self._matrix[start:stop, :there].T).astype(np.float32)
        count = -(-stop // period)
        missing = (count - 1) * self._step + width - x.shape[1]
        x = np.concatenate([x, np.zeros((len(x), max(0, missing)))], 1)
        windows = np.lib.stride_tricks.as_strided(
            x, (len(x), count, width), (x.strides[0], x.itemsize * self._step, x.itemsize), writeable=False
        )
        return (windows @ self._matrix.T).reshape(len(x), -1)[:, start:stop].astype(np.float32)


@cache
def _matrix(source: int, target: int) -> tuple[Samples, int, int]:
    """Input around a period to the period's output; the period in input samples, and how many of them before it."""
    common = gcd(source, target)
    step, period = source // common, target // common
    repeated = -(-_PERIOD // min(step, period))
    step, period = repeated * step, repeated * period
    low = min(source, target)
    before = -(-_HALF * source // low)
    at_output = np.arange(period)[:, None] * low / target
    at_input = np.arange(-before, step + before) * low / source
    matrix = low / source * low_pass(at_output - at_input)
    return matrix, step, before


def low_pass(t: Samples) -> Samples:
    """The filter g at times in samples of the lower rate; it passes what that rate can hold."""
    window = np.i0(_BETA * np.sqrt(np.maximum(0, 1 - (t / _HALF) ** 2))) / np.i0(_BETA)
    result: Samples = _EDGE * np.sinc(_EDGE * t) * window * (np.abs(t) <= _HALF)
    return result
