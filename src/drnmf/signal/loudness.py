"""Loudness by ITU-R BS.1770, measured block by block, and the gain that brings a recording to a wanted one.

    z = mean square of the K-weighted sound, summed over channels, of blocks of 0.4 s that begin every 0.1 s
    loudness = -0.691 + 10 log10(mean of the z above -70 LUFS, and above 10 LU below the mean of those), in LUFS

The true peak is that of the sound at 192 kHz, or eight times its rate. Both are kept for frames of 5 ms, 6 MB an hour:
the gain of each frame, and what loudness the frames will then have, can be computed before a sample is changed.
pyloudnorm, the tests' oracle, takes whole recordings.
"""

import math
from dataclasses import dataclass

import numpy as np

from drnmf.errors import InputError
from drnmf.signal.audio import Resampler, Samples

LOUDNESS = (-60.0, -5.0)  # LUFS that can be asked for
TRUE_PEAK = (-20.0, 0.0)  # dBTP
FRAMES = 200  # a second
_STEP, _BLOCK = FRAMES // 10, 4 * FRAMES // 10  # frames from one gating block to the next, and in one
_GATE, _RELATIVE_GATE = -70.0, -10.0
_SURROUND = {5: (1, 1, 1, 1.41, 1.41), 6: (1, 1, 1, 0, 1.41, 1.41)}  # weights of channels; the fourth of six is bass
_SMOOTH = 5  # frames on each side over which the limiter's gain moves: 25 ms
_MAKE_UP = 10 ** (6 / 20)  # the most that the gain makes up for what the limiter takes; more would be crushed sound
_TRIES = 30


@dataclass(frozen=True)
class Level:
    """How loud a recording shall be: its integrated loudness in LUFS, and the limit of its true peak in dBTP."""

    loudness: float
    true_peak: float = -1.0

    def __post_init__(self) -> None:
        for value, unit, (low, high) in ((self.loudness, "LUFS", LOUDNESS), (self.true_peak, "dBTP", TRUE_PEAK)):
            if not low <= value <= high:  # so that NaN is caught
                raise InputError(f"{unit} can be {low:g} to {high:g}, got {value:g}")


class Meter:
    """Feed it a recording, close it, and read the `energies` and `peaks` of its frames; the last may be cut short."""

    def __init__(self, rate: int, channels: int) -> None:
        self._rate = rate
        self._weights = np.array(_SURROUND.get(channels, (1,) * channels))
        self._past = math.ceil(rate / 4)  # after a quarter of a second the filters' responses are below 1e-16
        self._response = _k_weighting(rate, self._past + rate)
        self._factor = min(8, math.ceil(192000 / rate))
        self._finer = Resampler(rate, self._factor * rate, channels)
        self._waiting: Samples = np.zeros((channels, self._past), np.float32)
        self._finer_waiting: Samples = np.zeros((channels, 0), np.float32)
        self._energies: list[Samples] = []
        self._peaks: list[Samples] = []
        self._samples = 0

    def feed(self, x: Samples) -> None:
        """The next samples (channels, any number)."""
        self._samples += x.shape[1]
        x = x.astype(np.float32, copy=False)
        self._measure(x, self._finer.feed(x) if self._factor > 1 else x)

    def close(self) -> None:
        """After the last sample, silence: it fills up the last second."""
        end = np.zeros((len(self._waiting), self._rate), np.float32)
        finer = end.repeat(self._factor, 1)
        if self._factor > 1:
            finer = np.concatenate([self._finer.feed(end[:, :0], last=True), finer], 1)
        self._measure(end, finer)

    def _measure(self, x: Samples, finer: Samples) -> None:
        """What makes whole seconds, of the sound and of that at the higher rate."""
        self._waiting = np.concatenate([self._waiting, x], 1)
        self._finer_waiting = np.concatenate([self._finer_waiting, finer], 1)
        while self._waiting.shape[1] >= self._past + self._rate:
            self._energies.append(self._energy(self._waiting[:, : self._past + self._rate]))
            self._waiting = self._waiting[:, self._rate :]
        second = self._factor * self._rate
        while self._finer_waiting.shape[1] >= second:
            self._peaks.append(_frames(np.maximum, np.abs(self._finer_waiting[:, :second]).max(0)))
            self._finer_waiting = self._finer_waiting[:, second:]

    def _energy(self, x: Samples) -> Samples:
        """Of the frames of a second, after what came before it."""
        weighted = np.fft.irfft(np.fft.rfft(x) * self._response, n=x.shape[1])[:, self._past :]
        return _frames(np.add, self._weights @ weighted**2) * (FRAMES / self._rate)

    @property
    def energies(self) -> Samples:
        """Mean squares of the K-weighted sound, one for each frame."""
        return self._whole(self._energies)

    @property
    def peaks(self) -> Samples:
        """True peaks, one for each frame; the loudest channel's."""
        return self._whole(self._peaks)

    def _whole(self, seconds: list[Samples]) -> Samples:
        frames = -(-self._samples * FRAMES // self._rate)
        return np.concatenate([*seconds, np.zeros(0, np.float32)])[:frames]


def _frames(take: np.ufunc, x: Samples) -> Samples:
    """Sum or maximum of a second's samples, frame by frame."""
    starts = np.arange(FRAMES) * len(x) // FRAMES
    result: Samples = take.reduceat(x, starts).astype(np.float32)
    return result


def _k_weighting(rate: int, n: int) -> Samples:
    """The response of the standard's two filters, a shelf and a high pass, to n samples' frequencies.

    The standard gives coefficients for 48 kHz; these are the same filters at any rate.
    """
    z = np.exp(-2j * np.pi * np.arange(n // 2 + 1) / n)
    K, Q = np.tan(np.pi * min(1681.974450955533, 0.45 * rate) / rate), 0.7071752369554196
    V = 10 ** (3.999843853973347 / 20)
    shelf = [V + V**0.4996667741545416 * K / Q + K * K, 2 * (K * K - V), V - V**0.4996667741545416 * K / Q + K * K]
    response = np.polyval(shelf[::-1], z) / np.polyval([1 - K / Q + K * K, 2 * (K * K - 1), 1 + K / Q + K * K], z)
    K, Q = np.tan(np.pi * 38.13547087602444 / rate), 0.5003270373238773
    norm = 1 + K / Q + K * K
    high_pass = (1 - z) ** 2 * norm / np.polyval([1 - K / Q + K * K, 2 * (K * K - 1), norm], z)
    result: Samples = response * high_pass
    return result


def integrated(energies: Samples) -> float:
    """The loudness of frames in LUFS; -inf for silence, and for less than 0.4 s."""
    if len(energies) < _BLOCK:
        return -math.inf
    sums = np.concatenate([[0.0], np.cumsum(energies, dtype=float)])
    z = (sums[_BLOCK:] - sums[:-_BLOCK])[::_STEP] / _BLOCK
    above = z[z > _energy_of(_GATE)]
    if not above.size:
        return -math.inf
    above = above[above > above.mean() * 10 ** (_RELATIVE_GATE / 10)]
    return float(-0.691 + 10 * np.log10(above.mean()))


def _energy_of(loudness: float) -> float:
    return float(10 ** ((loudness + 0.691) / 10))


def gains(meter: Meter, level: Level) -> tuple[Samples, float]:
    """The gain of each frame's middle, and the loudness that is reached.

    One gain for all, and where a peak would go beyond the limit a lower one, which is reached and left smoothly. A
    limiter takes some loudness: the one gain makes up for it. There is no gain for what has no loudness.
    """
    energies, peaks = meter.energies, meter.peaks
    loudness = integrated(energies)
    if loudness == -math.inf:
        return np.ones(len(energies), np.float32), loudness
    gain = 10 ** ((level.loudness - loudness) / 20)
    most = _MAKE_UP * gain
    for _ in range(_TRIES):
        curve = gain * _limited(gain * peaks, 10 ** (level.true_peak / 20))
        loudness = integrated(energies * curve**2)
        if abs(level.loudness - loudness) < 0.001 or gain == most:
            break
        gain = min(most, gain * 10 ** ((level.loudness - loudness) / 20))
    return curve.astype(np.float32), loudness


def _limited(peaks: Samples, limit: float) -> Samples:
    """Gains that bring the peaks below the limit, smooth: the mean, under a window, of the least in reach of it."""
    needed = np.minimum(1.0, limit / np.maximum(peaks, limit))
    reach = _SMOOTH + 1  # one more than the window: between two frames' middles the gain is between theirs
    around = np.lib.stride_tricks.sliding_window_view(np.pad(needed, reach, mode="edge"), 2 * reach + 1)
    least = np.pad(around.min(1), _SMOOTH, mode="edge")
    window = np.hanning(2 * _SMOOTH + 3)[1:-1]
    result: Samples = np.convolve(least, window / window.sum(), mode="valid")
    return result


def apply(x: Samples, start: int, rate: int, curve: Samples) -> Samples:
    """Samples (channels, n), the first of which is the recording's sample `start`, with the gain of their time."""
    time = (start + np.arange(x.shape[1])) * (FRAMES / rate) - 0.5  # in frames, from the first one's middle
    near = slice(max(0, math.floor(start * FRAMES / rate) - 1), math.ceil((start + x.shape[1]) * FRAMES / rate) + 1)
    gain = np.interp(time, np.arange(len(curve))[near], curve[near])
    return (x * gain).astype(x.dtype)
