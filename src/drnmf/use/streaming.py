"""Sound in, enhanced sound out, block by block: `Streamer.feed` and `flush`. Whole files go the same way.

The part to remove is computed and subtracted from the input. So with strength 0 the input comes back bit for bit, and
the two parts always make up the input. All channels share one mask, made from the root mean square of their
magnitudes, so that voices stay where they are. The network works at 16 kHz. At another rate

    low = x brought to 16 kHz and back,        removed = what the mask removes from low + s (x - low),

where s is the share that the mask removes near the top of its band: what lies above 8 kHz follows its neighbours.
"""

import copy
import functools
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from drnmf.engines.streams import Samples, Stream
from drnmf.errors import InputError
from drnmf.models.base import Separator, State
from drnmf.models.folders import load_model
from drnmf.signal.audio import Resampler
from drnmf.signal.spectra import BINS, HOP, SAMPLE_RATE, WINDOW, overlap_add, sqrt_hann

Array = TypeVar("Array", Tensor, Samples)

RATES = (1000, 768000)  # lowest and highest sample rate in Hz
OVERLAP = 1536  # frames (12 s) that a piece hears before it counts: some models take as long to forget their start
AGREEMENT = 1e-3  # largest relative difference of two pieces' states where they meet
_ROWS = 1024  # frames x pieces computed at a time: bounds the memory, however much is fed
_PART = 2**15  # samples resampled at a time, for the same reason
_PEAK = 1000.0  # louder than any sound whose full scale is 1, softer than most whose full scale is 32768
_TOP = (0.75, 0.9375)  # near the top of the band, 6 to 7.5 kHz at 16 kHz: above it resampling filters set in
_FLOATS = (torch.float32, torch.float64, np.dtype(np.float32), np.dtype(np.float64))
_SILENCE = 1e-5  # sum of magnitudes near the top below which there is nothing to weigh the mask by


class Streamer:
    """Enhances one stream of sound: `feed` blocks of any size, then `flush`; out come as many samples as went in.

    Args:
        model: a model, its folder, or the name of one that comes with the package. The stream keeps a copy.
        sample_rate: of the sound, in Hz.
        channels: blocks are (channels, samples), or (samples,) for one channel.
        strength: how much of the noise to remove, from 0 (nothing) to 1 (all that the mask says).
        pieces: if above 1, a block of many seconds is cut into up to so many pieces, which overlap and run as one
            batch. Where two meet they must agree to -60 dB; if they do not, the later one runs again.
    """

    def __init__(
        self,
        model: Separator | str | Path = "default",
        sample_rate: int = SAMPLE_RATE,
        *,
        channels: int = 1,
        strength: float = 1.0,
        pieces: int = 1,
    ) -> None:
        low, high = RATES
        if not low <= sample_rate <= high or sample_rate != int(sample_rate):
            raise InputError(f"the sample rate must be a whole number from {low} to {high} Hz, got {sample_rate}")
        if channels < 1 or pieces < 1:
            raise InputError(f"there must be at least one channel and one piece, got {channels} and {pieces}")
        if not 0 <= strength <= 1:
            raise InputError(f"strength must lie between 0 and 1, got {strength}")
        self.sample_rate, self.channels, self.strength = int(sample_rate), channels, strength
        top = None if sample_rate == SAMPLE_RATE else min(self.sample_rate, SAMPLE_RATE) / 2
        model = frozen(model)
        kind = _Remover if model.network is None else _CompiledRemover
        remover = kind(model, channels, strength, top, pieces)
        self._remover = remover if top is None else _TwoBands(remover, channels, self.sample_rate)
        self._input = _Queue(channels)
        self._as_array = self._flat = False

    @property
    def latency(self) -> int:
        """How many samples the output lies behind the input at most: one window, and what resampling adds.

        Input sample n has come out when sample n + latency - 1 has gone in.
        """
        if self.sample_rate == SAMPLE_RATE:
            return WINDOW
        seconds = _delay(self.sample_rate, SAMPLE_RATE) + _delay(SAMPLE_RATE, self.sample_rate) + WINDOW / SAMPLE_RATE
        return int(np.ceil(seconds * self.sample_rate))

    def feed(self, x: Array) -> Array:
        """Take the next samples and return those that are done, in the kind and shape of the input."""
        samples = _as_array(x)
        self._as_array, self._flat = samples is x, samples.ndim == 1
        if self._flat and self.channels == 1:
            samples = samples[None]
        if samples.ndim != 2 or len(samples) != self.channels:
            raise InputError(
                f"this stream takes blocks of ({self.channels}, samples), got {tuple(x.shape)}; "
                "transpose (samples, channels), or make the Streamer with channels= their number"
            )
        enhanced: Array = self._like_input(*self._advance(samples))
        return enhanced

    def flush(self) -> Any:
        """The samples that still waited for later ones. The next `feed` starts a new stream."""
        return self._like_input(*self._advance(None))

    def advance(self, x: Tensor | None) -> tuple[Tensor, Tensor]:
        """The next samples (channels, n), or None for the end; those that are done, and what to remove from them."""
        kept, removed = self._advance(None if x is None else x.numpy())
        return torch.from_numpy(kept), torch.from_numpy(removed)

    def _advance(self, x: Samples | None) -> tuple[Samples, Samples]:
        # numpy, not PyTorch: on the few samples of a hop its operations take a third of the time
        last = x is None
        x = self._input.take(0) if x is None else x
        if x.size and not (peak := float(np.abs(x).max())) <= _PEAK:  # not <=: so that NaN is caught
            remedy = "divide by 32768" if np.isfinite(peak) else "there must be no NaN or infinite ones"
            raise InputError(f"samples reach {peak:g}, but full scale is 1; {remedy}")
        self._input.put(x)
        removed = self._remover.feed(x, last=last)
        kept = self._input.take(removed.shape[1])
        if last:
            self._remover.start()
            self._input = _Queue(self.channels)
        return kept, removed.astype(kept.dtype, copy=False)

    def _like_input(self, kept: Samples, removed: Samples) -> Any:
        y = kept - removed
        y = y[0] if self._flat else y
        return y if self._as_array else torch.from_numpy(y)


class _Remover:
    """What to remove from 16 kHz sound (channels, samples), less than one window late.

    With `top`, the highest frequency in Hz of the sound, a further row tells the share that is removed just below it.
    The arithmetic is that of `stft` and `istft` on the whole signal.
    """

    def __init__(self, model: Separator, channels: int, strength: float, top: float | None, pieces: int) -> None:
        weight = next((t for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()), torch.empty(0))
        self._model, self._channels, self._strength, self._most_pieces = model, channels, strength, pieces
        self._window = sqrt_hann(weight.dtype, weight.device)
        self._top = _top_bins(top)
        self.start()

    @torch.inference_mode()
    def start(self) -> None:
        """Forget all sound. The first frame, nothing but zeros that `stft` puts before the signal, is done here."""
        zeros = self._window.new_zeros
        self._state = self._model.separate(zeros(1, 1, BINS))[1]
        self._waiting = zeros(self._channels, WINDOW - HOP)  # samples of which later frames will be made
        self._tail = zeros(self._channels + (self._top is not None), WINDOW - HOP)  # output that they will add to
        self._before = WINDOW - HOP  # output samples that lie before the signal
        self._due = 0  # samples that went in and have not come out
        self._pieces = self._most_pieces

    def feed(self, x: Samples, *, last: bool = False) -> Samples:
        """The next samples in, those that are done out; `last` gives all that are due."""
        self._due += x.shape[1]
        x = np.pad(x, ((0, 0), (0, WINDOW))) if last else x
        out = self._complete(x)
        if self._before:
            before, self._before = self._before, max(0, self._before - out.shape[1])
            out = out[:, before:]
        out = out if out.shape[1] <= self._due else out[:, : self._due]
        self._due -= out.shape[1]
        return out

    @torch.inference_mode()
    def _complete(self, x: Samples) -> Samples:
        """Output (C or C + 1, samples) of the hops that the samples x complete."""
        x = x if x.flags.writeable else x.copy()  # else PyTorch warns
        samples = torch.cat([self._waiting, torch.from_numpy(x).to(self._window)], 1)
        T = (samples.shape[1] - WINDOW + HOP) // HOP
        if T == 0:
            self._waiting = samples
            return self._tail[:, :0].cpu().numpy()
        out = self._run(samples.unfold(1, WINDOW, HOP))
        self._waiting, self._tail = samples[:, T * HOP :].clone(), out[:, T * HOP :].clone()
        return out[:, : T * HOP].cpu().numpy()

    def _run(self, frames: Tensor) -> Tensor:
        """Output of frames (C, T, 512), to whose last WINDOW - HOP samples later frames will add."""
        T, done = frames.shape[1], 0
        out = torch.nn.functional.pad(self._tail, (0, T * HOP))
        P = min(self._pieces, T // (2 * OVERLAP))
        if P > 1:
            parts = self._in_pieces(frames[:, : T // P * P].view(len(frames), P, T // P, WINDOW))
            for part in parts.unbind(1):
                out[:, done * HOP :][:, : part.shape[1]] += part
                done += T // P
        if done < T:
            parts, self._state = self._steps(frames[:, None, done:], self._state)
            out[:, done * HOP :] += parts[:, 0]
        return out

    def _in_pieces(self, pieces: Tensor) -> Tensor:
        """Output (C or C + 1, P, samples) of pieces (C, P, L, 512) that follow each other, as one batch.

        Each starts after a warm-up. What did not start as the one before it ended runs again, from that end.
        """
        starts = self._warm_up(pieces)
        out, ends = self._steps(pieces, starts)
        rounds = 1
        while again := _disagreeing(ends, starts):
            rounds += 1
            for start, end in zip(starts, ends, strict=True):
                start[again] = end[[p - 1 for p in again]]
            out[:, again], new_ends = self._steps(pieces, tuple(start[again] for start in starts), again)
            for end, new in zip(ends, new_ends, strict=True):
                end[again] = new
        if rounds > 2:
            self._pieces = 1  # this model remembers longer than a piece lasts: in sequence it is faster
        self._state = tuple(end[-1:] for end in ends)
        return out

    def _warm_up(self, pieces: Tensor) -> State:
        """States (P, ...) to start pieces (C, P, L, 512) from: the first goes on, the others hear what came before."""
        _, P, L, _ = pieces.shape
        state = None
        for first in range(L - OVERLAP, L, _ROWS // P):
            frames = pieces[:, :-1, first : first + _ROWS // P]
            state = self._model.separate(_magnitude(torch.fft.rfft(frames * self._window)), state)[1]
        assert state is not None
        return tuple(torch.cat(pair) for pair in zip(self._state, state, strict=True))

    def _steps(self, pieces: Tensor, state: State, which: list[int] | None = None) -> tuple[Tensor, State]:
        """Output (C or C + 1, P, samples) of pieces (C, P, L, 512), or only of some, and the states at their ends."""
        _, P, L, _ = pieces.shape
        out = None
        for first in range(0, L, _ROWS // P):
            frames = pieces[:, :, first : first + _ROWS // P]
            part, state = self._step(frames if which is None else frames[:, which], state)
            if out is None and part.shape[2] == L * HOP + WINDOW - HOP:
                return part, state
            if out is None:
                out = part.new_zeros(*part.shape[:2], L * HOP + WINDOW - HOP)
            out[:, :, first * HOP :][:, :, : part.shape[2]] += part
        assert out is not None
        return out, state

    def _step(self, frames: Tensor, state: State) -> tuple[Tensor, State]:
        """What to remove for frames (C, P, n, 512), overlap-added to (C or C + 1, P, samples); and the next state."""
        X = torch.fft.rfft(frames * self._window)
        magnitude = _magnitude(X)  # (P, n, F)
        mask, state = self._model.separate(magnitude, state)
        remove = self._strength * (1 - mask)
        removed = torch.fft.irfft(remove * X, n=WINDOW) * self._window
        if self._top is not None:
            weight = magnitude[..., self._top]
            share = (remove[..., self._top] * weight).sum(-1) / weight.sum(-1).clamp_min(_SILENCE)
            # both windows, as sound gets them: a share that does not change comes out as it is
            removed = torch.cat([removed, (share[..., None] * self._window.square())[None]])
        # a frame alone, as in a live stream, has nothing to overlap with: half of it is what `overlap_add` makes of it
        return removed[..., 0, :] / 2 if removed.shape[-2] == 1 else overlap_add(removed), state


class _CompiledRemover(_Remover):
    """The same for a network that C has, which is as fast in sequence as in pieces."""

    def __init__(self, model: Separator, channels: int, strength: float, top: float | None, pieces: int) -> None:
        assert model.network is not None
        self._stream = Stream(model.network, channels=channels, strength=strength, top=_top_bins(top), silence=_SILENCE)
        super().__init__(model, channels, strength, top, pieces)

    def start(self) -> None:
        """Forget all sound."""
        super().start()
        self._stream.start(self._state[0][0])

    def _complete(self, x: Samples) -> Samples:
        return self._stream.feed(x)


def _magnitude(X: Tensor) -> Tensor:
    """One magnitude for all channels (C, ...): their root mean square."""
    return X[0].abs() if len(X) == 1 else X.abs().square().mean(0).sqrt()


def _disagreeing(ends: State, starts: State) -> list[int]:
    """The pieces that started in another state than the one before them ended in."""
    different = torch.zeros(len(ends[0]) if ends else 0, dtype=torch.bool)
    for end, start in zip(ends, starts, strict=True):
        before, after = end[:-1].flatten(1), start[1:].flatten(1)
        different[1:] |= ((before - after).norm(dim=1) > AGREEMENT * before.norm(dim=1)).cpu()
    return [int(p) for p in different.nonzero()]


def _top_bins(top: float | None) -> slice | None:
    """Bins just below the highest frequency in Hz, if one is given."""
    return None if top is None else slice(*(round(WINDOW * part * top / SAMPLE_RATE) for part in _TOP))


class _TwoBands:
    """What to remove from sound at another rate than 16 kHz: see the formula at the top."""

    def __init__(self, remover: _Remover, channels: int, sample_rate: int) -> None:
        self._remover, self._channels, self._rate = remover, channels, sample_rate
        self.start()

    def start(self) -> None:
        """Forget all sound."""
        C, rate = self._channels, self._rate
        self._remover.start()
        self._input, self._low, self._removed = _Queue(C), _Queue(C), _Queue(C + 1)
        self._to_16_khz = Resampler(rate, SAMPLE_RATE, C)
        self._low_back, self._removed_back = Resampler(SAMPLE_RATE, rate, C), Resampler(SAMPLE_RATE, rate, C + 1)
        self._share = np.zeros((1, 0), np.float32)  # the first value of s

    def feed(self, x: Samples, *, last: bool = False) -> Samples:
        """The next samples in, what to remove from those that are done out; `last` gives all that are due."""
        self._input.put(x)
        x16 = _resampled(self._to_16_khz, x.astype(np.float32), last)
        if last:  # more than is needed, so that the end of what is resampled back lies beyond the end of the sound
            x16 = np.pad(x16, ((0, 0), (0, WINDOW * max(1, SAMPLE_RATE // self._rate))))
        removed16 = self._remover.feed(x16, last=last).astype(np.float32)
        if not self._share.size:
            self._share = removed16[-1:, :1].copy()
        removed16[-1:] -= self._share  # a resampler takes what it gets to start from 0
        self._low.put(_resampled(self._low_back, x16, last))
        self._removed.put(_resampled(self._removed_back, removed16, last))
        n = min(map(len, (self._input, self._low, self._removed)))
        x, low, removed = self._input.take(n), self._low.take(n), self._removed.take(n)
        rest: Samples = removed[:-1] + (removed[-1:] + self._share) * (x - low)
        return rest


def _resampled(resampler: Resampler, x: Samples, last: bool) -> Samples:
    """A block in parts: a resampler keeps as much memory as the largest one it was given."""
    sound = torch.from_numpy(x)
    parts = [resampler.feed(sound[:, i : i + _PART]) for i in range(0, x.shape[1], _PART)]
    resampled: Samples = torch.cat([*parts, resampler.feed(sound[:, :0], last=last)], 1).numpy()
    return resampled


class _Queue:
    """Samples (rows, n) that wait for others."""

    def __init__(self, rows: int) -> None:
        self._samples: Samples = np.empty((rows, 0), np.float32)

    def __len__(self) -> int:
        n: int = self._samples.shape[1]
        return n

    def put(self, x: Samples) -> None:
        self._samples = np.concatenate([self._samples, x], 1) if len(self) else x.copy()

    def take(self, n: int) -> Samples:
        taken, self._samples = self._samples[:, :n], self._samples[:, n:]
        return taken


@functools.cache
def _delay(source: int, target: int) -> float:
    """Most seconds by which a resampler's output lies behind its input, found by trying."""
    resampler, step = Resampler(source, target, 1), max(1, source // 1000)
    fed = given = worst = 0.0
    silence = torch.zeros(1, step)
    for _ in range(max(500, 10000 // step)):  # several times as long as the blocks it works in
        fed += step / source
        worst = max(worst, fed - given)
        given += resampler.feed(silence).shape[1] / target
    return worst


def frozen(model: Separator | str | Path) -> Separator:
    """A copy of a model for use, its weights computed once, half precision turned into single."""
    model = model if isinstance(model, Separator) else load_model(model)
    if model.n_features != BINS:
        raise InputError(f"the model takes frames of {model.n_features} bins, sound at 16 kHz has {BINS}")
    if any(t.dtype in (torch.float16, torch.bfloat16) for t in model.state_dict().values()):
        model = copy.deepcopy(model).float()
    return model.freeze()


def as_samples(x: Tensor | Samples) -> Tensor:
    """Float samples on the CPU, in memory of their own."""
    return torch.from_numpy(np.array(_as_array(x), order="C"))


def _as_array(x: Tensor | Samples) -> Samples:
    """Float samples as they lie in memory; an array is returned as it is."""
    if not isinstance(x, Tensor | np.ndarray):
        raise InputError(f"samples must be a numpy array or a torch tensor, got {type(x).__name__}")
    if x.dtype not in _FLOATS:
        floating = x.is_floating_point() if isinstance(x, Tensor) else x.dtype.kind == "f"
        remedy = "convert them" if floating else "divide integers by their full scale"
        raise InputError(f"samples must be float32 or float64 with full scale 1, got {x.dtype}; {remedy}")
    return x if isinstance(x, np.ndarray) else x.detach().cpu().numpy()
