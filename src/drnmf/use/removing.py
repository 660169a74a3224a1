"""What to remove from sound at any rate, block by block, in step with the sound.

The network works at 16 kHz. At another rate

    low = x brought to 16 kHz and back,        removed = what the mask removes from low + s (x - low),

where s is the share that the mask removes near the top of its band: what lies above 8 kHz follows its neighbours. When
they get through, it does so at once; when not, it closes slowly, or noise up there would pump with the syllables.
"""

import functools
from typing import TYPE_CHECKING

import numpy as np

from drnmf.signal import HOP, SAMPLE_RATE, WINDOW
from drnmf.signal.audio import Resampler, Samples
from drnmf.signal.short_filters import ShortResampler, takes

if TYPE_CHECKING:
    from drnmf.models.base import SoundStream

_CLOSING = 1 - np.exp(-HOP / SAMPLE_RATE / 0.25)  # of a hop: in a quarter of a second most of the way


class Remover:
    """What to remove from 16 kHz sound (channels, samples), less than one window late: a stream's output in step."""

    def __init__(self, stream: "SoundStream") -> None:
        self._stream = stream
        stream.start()
        self._before = WINDOW - HOP  # output samples that lie before the signal
        self._due = 0  # samples that went in and have not come out

    def feed(self, x: Samples, *, last: bool = False) -> Samples:
        """The next samples in, those that are done out; `last` gives all that are due."""
        self._due += x.shape[1]
        x = np.pad(x, ((0, 0), (0, WINDOW))) if last else x
        out = self._stream.feed(x)
        before = min(self._before, out.shape[1])
        self._before -= before
        out = out[:, before : before + self._due]
        self._due -= out.shape[1]
        return out


class TwoBands:
    """What to remove from sound at another rate than 16 kHz: the formula at the top."""

    def __init__(self, remover: Remover, C: int, rate: int) -> None:
        self._remover, self._rate = remover, rate
        self._input, self._low, self._removed = Queue(C), Queue(C), Queue(C + 1)
        self._to_16_khz = _resampler(rate, SAMPLE_RATE, C)
        self._low_back, self._removed_back = _resampler(SAMPLE_RATE, rate, C), _resampler(SAMPLE_RATE, rate, C + 1)
        self._share = np.zeros((1, 0), np.float32)  # the first value of s
        self._closing = _SlowToClose()

    def feed(self, x: Samples, *, last: bool = False) -> Samples:
        """The next samples in, what to remove from those that are done out; `last` gives all that are due."""
        self._input.put(x)
        x16 = self._to_16_khz.feed(x.astype(np.float32), last=last)
        if last:  # more than is needed, so that the end of what is resampled back lies beyond the end of the sound
            x16 = np.pad(x16, ((0, 0), (0, WINDOW * max(1, SAMPLE_RATE // self._rate))))
        removed16 = self._remover.feed(x16, last=last).astype(np.float32)
        removed16[-1] = self._closing.feed(removed16[-1])
        if not self._share.size:
            self._share = removed16[-1:, :1].copy()
        removed16[-1:] -= self._share  # a resampler takes what it gets to start from 0
        self._low.put(self._low_back.feed(x16, last=last))
        self._removed.put(self._removed_back.feed(removed16, last=last))
        n = min(map(len, (self._input, self._low, self._removed)))
        x, low, removed = self._input.take(n), self._low.take(n), self._removed.take(n)
        rest: Samples = removed[:-1] + (removed[-1:] + self._share) * (x - low)
        return rest


class _SlowToClose:
    """The share s of one hop after the other: falling at once, rising slowly, straight in between."""

    def __init__(self) -> None:
        self._slow = np.inf  # before the first
        self._last = 0.0

    def feed(self, share: Samples) -> Samples:
        """The next samples, whole hops of them unless the sound ends."""
        if share.size and self._slow == np.inf:
            self._slow = self._last = float(share[0])
        out = np.empty_like(share)
        for start in range(0, len(share), HOP):
            hop = share[start : start + HOP]
            goal = float(hop[-1])
            if goal != 0:  # 0 is silence: nothing to close for, and what was known of the noise still holds
                self._slow = min(goal, self._slow + _CLOSING * (goal - self._slow))
                goal = self._slow
            out[start : start + HOP] = self._last + (goal - self._last) * np.arange(1, len(hop) + 1) / len(hop)
            self._last = goal
        return out


class Queue:
    """Samples (rows, n) that wait for others."""

    def __init__(self, rows: int) -> None:
        self._samples: Samples = np.empty((rows, 0), np.float32)

    def __len__(self) -> int:
        return int(self._samples.shape[1])

    def put(self, x: Samples) -> None:
        """More of them, (rows, m)."""
        self._samples = np.concatenate([self._samples, x], 1) if len(self) else x.copy()

    def take(self, n: int) -> Samples:
        """The first n, which then wait no more."""
        taken, self._samples = self._samples[:, :n], self._samples[:, n:]
        return taken


def _resampler(source: int, target: int, channels: int) -> Resampler | ShortResampler:
    """The one that is less late."""
    kind = ShortResampler if takes(source, target) else Resampler
    return kind(source, target, channels)


@functools.cache
def delay(source: int, target: int) -> float:
    """The most seconds by which a resampler's output lies behind its input, measured."""
    resampler, step = _resampler(source, target, 1), max(1, source // 1000)
    fed = given = worst = 0.0
    silence = np.zeros((1, step), np.float32)
    for _ in range(max(500, 10000 // step)):  # several times as long as the blocks it works in
        fed += step / source
        worst = max(worst, fed - given)
        given += resampler.feed(silence).shape[1] / target
    return worst
