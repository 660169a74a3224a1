"""Resampling by a whole factor with a short filter, for live sound: 5 ms late where the blocks of soxr take 20 to 60.

    g = a low pass below the lower of the two Nyquist frequencies, symmetric, windowed (Kaiser)
    down by R    y[k] = sum_j g[j] x[k R - j]
    up by R      y[n] = R sum_k g[n - k R] x[k]

Both are made of R short filters, one for each phase. Beyond the ends there is silence.
"""

import numpy as np

from drnmf.signal.audio import Samples

_HALF = 80  # samples at the lower rate on each side: 5 ms at 16 kHz
_BETA = 9.0  # of the window: 90 dB below, from Nyquist on; flat to 92 % of it


def takes(source: int, target: int) -> bool:
    """Whether one rate is a multiple of the other."""
    return max(source, target) % min(source, target) == 0


class ShortResampler:
    """Block by block, as `audio.Resampler` does it: what is ready comes out, and with `last` the rest."""

    def __init__(self, source: int, target: int, channels: int) -> None:
        self._down, self._factor = source > target, max(source, target) // min(source, target)
        R = self._factor
        taps = low_pass(R)
        late = _HALF * R if self._down else _HALF
        self._waiting: Samples = np.zeros((channels, late), np.float32)
        if self._down:
            taps = np.pad(taps, (0, R - 1))
            self._phases = [taps[phase::R] for phase in range(R)]
        else:
            taps = R * np.pad(taps, (0, R - 1))
            self._phases = [taps[phase::R][::-1] for phase in range(R)]

    def feed(self, x: Samples, *, last: bool = False) -> Samples:
        """The next samples (channels, any number) in, those that are ready out; `last` flushes the rest."""
        R = self._factor
        waiting = np.concatenate([self._waiting, x.astype(np.float32, copy=False)], 1)
        if last:
            waiting = np.pad(waiting, ((0, 0), (0, (_HALF + 1) * R if self._down else _HALF)))
        frame = R if self._down else 1  # samples that make one step of all phases
        steps = max(0, waiting.shape[1] // frame - 2 * _HALF)
        y = self._filter(waiting, steps) if steps else waiting[:, :0]
        self._waiting = waiting[:, steps * frame :]
        return y

    def _filter(self, waiting: Samples, steps: int) -> Samples:
        R, used = self._factor, steps + 2 * _HALF
        if self._down:
            sums = [
                sum(np.correlate(row[phase::R][:used], taps) for phase, taps in enumerate(self._phases))
                for row in waiting
            ]
            return np.stack(sums).astype(np.float32, copy=False)
        y = np.empty((len(waiting), steps, R), np.float32)
        for c, row in enumerate(waiting):
            for phase, taps in enumerate(self._phases):
                y[c, :, phase] = np.correlate(row[:used], taps)
        return y.reshape(len(waiting), steps * R)


def low_pass(R: int) -> Samples:
    """The filter g, (2 * 80 R + 1) taps at the higher rate, that passes what the R times lower rate can hold."""
    n = np.arange(-_HALF * R, _HALF * R + 1)
    edge = 0.96 / R  # the middle of its slope, in parts of the higher Nyquist frequency
    taps = edge * np.sinc(edge * n) * np.kaiser(len(n), _BETA)
    taps /= taps.sum()
    result: Samples = taps.astype(np.float32)
    return result
