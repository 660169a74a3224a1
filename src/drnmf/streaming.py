"""Sound in, enhanced sound out, block by block: `Streamer.feed` and `flush`. Whole files go the same way.

What is removed is computed and subtracted from the input, so what the network never sees is kept, and with strength 0
the input comes back bit for bit. All channels share one mask, made from the root mean square of their magnitudes, so
that voices stay where they are. The network works at 16 kHz. For sound at another rate

    low     = x brought to 16 kHz and back
    output  = x - removed part of low - s * (x - low)

where s is the share that the mask removes near the top of the band, so what lies above 8 kHz follows its neighbours.
"""

import copy
import functools
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from drnmf.audio import Resampler
from drnmf.checkpoint import load_model
from drnmf.errors import InputError
from drnmf.models import DRNMF
from drnmf.separator import Separator, State
from drnmf.stft import BINS, HOP, SAMPLE_RATE, WINDOW, overlap_add, sqrt_hann

Array = TypeVar("Array", Tensor, np.ndarray[Any, Any])

RATES = (1000, 768000)  # lowest and highest sample rate in Hz
OVERLAP = 512  # frames by which a piece starts earlier, to forget that it did not hear what came before (4 s)
AGREEMENT = 1e-3  # largest relative difference of two pieces' states where they meet
_ROWS = 1024  # frames x pieces computed at a time: bounds the memory, however much is fed
_PEAK = 1000.0  # louder than any sound with full scale 1, softer than most that was not divided by 32768
_TOP = (0.75, 0.9375)  # the top of the band, 6 to 7.5 kHz at 16 kHz: below what resampling filters take away
_SILENCE = 1e-5  # sum of magnitudes near the top below which there is nothing to weigh the mask by


class Streamer:
    """Enhances one stream of sound: `feed` blocks of any size, then `flush`; out come as many samples as went in.

    Args:
        model: a model, its folder, or the name of one that comes with the package. The stream keeps a copy.
        sample_rate: of the sound, in Hz.
        channels: blocks are (channels, samples), or (samples,) for one channel.
        strength: how much of the noise to remove, from 0 (nothing) to 1 (all that the mask says).
        pieces: with more than 1, a block of many seconds is cut into up to so many pieces that overlap and run as one
            batch. Where they meet they must agree to -60 dB, or the block is done in sequence after all.
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
        if channels < 1:
            raise InputError(f"sound must have at least one channel, got {channels}")
        if not 0 <= strength <= 1:
            raise InputError(f"strength must lie between 0 and 1, got {strength}")
        if pieces < 1:
            raise InputError(f"pieces must be at least 1, got {pieces}")
        self.sample_rate, self.channels, self.strength = int(sample_rate), channels, strength
        top = None if self.sample_rate == SAMPLE_RATE else min(self.sample_rate, SAMPLE_RATE) / 2
        self._remover = _Remover(frozen(model), channels, strength, top, pieces)
        self._as_array = self._flat = False
        self._start()

    @property
    def latency(self) -> int:
        """How many samples the output lies behind the input at most: one window, and what resampling adds.

        Input sample n comes out when sample n + latency - 1 goes in, or earlier.
        """
        if self.sample_rate == SAMPLE_RATE:
            return WINDOW
        there, back = (self.sample_rate, SAMPLE_RATE), (SAMPLE_RATE, self.sample_rate)
        seconds = _delay(*there) + _delay(*back) + (WINDOW + HOP) / SAMPLE_RATE  # + HOP: its blocks are not in step
        return int(np.ceil(seconds * self.sample_rate))

    def feed(self, x: Array) -> Array:
        """Take the next samples and return those that are done, in the kind and shape of the input."""
        samples = _samples(x)
        self._as_array, self._flat = isinstance(x, np.ndarray), samples.ndim == 1
        if self._flat and self.channels == 1:
            samples = samples[None]
        if samples.ndim != 2 or len(samples) != self.channels:
            raise InputError(
                f"this stream takes blocks of ({self.channels}, samples), got {tuple(x.shape)}; "
                f"transpose (samples, channels), or make the Streamer with channels={x.shape[0] if x.ndim else 1}"
            )
        kept, removed = self.advance(samples)
        return self._like_input(kept - removed)

    def flush(self) -> Any:
        """The samples that still waited for later ones. The next `feed` starts a new stream."""
        kept, removed = self.advance(self._input.take(0), last=True)
        return self._like_input(kept - removed)

    @torch.inference_mode()
    def advance(self, x: Tensor, *, last: bool = False) -> tuple[Tensor, Tensor]:
        """The next samples (channels, n) in; out come the input samples that are done, and what to remove from them."""
        if x.numel() and not (peak := float(x.abs().max())) <= _PEAK:  # not <=: true for NaN as well
            what = "are divided by 32768" if np.isfinite(peak) else "hold no NaN or infinite values"
            raise InputError(f"samples reach {peak:g}, full scale is 1; make sure that they {what}")
        self._input.put(x)
        removed = self._removed_at_16_khz(x, last) if self._resamplers is None else self._removed(x, last)
        kept = self._input.take(removed.shape[1])
        removed = removed.to(kept)
        if last:
            self._start()
        return kept, removed

    def _start(self) -> None:
        """Forget all sound."""
        C, rate = self.channels, self.sample_rate
        self._remover.start()
        self._input, self._low, self._high = _Queue(C), _Queue(C), _Queue(C + 1)
        self._resamplers = None
        if rate != SAMPLE_RATE:
            # to 16 kHz; and back, once the sound itself and once what is removed of it with s as the last row
            back = Resampler(SAMPLE_RATE, rate, C), Resampler(SAMPLE_RATE, rate, C + 1)
            self._resamplers = Resampler(rate, SAMPLE_RATE, C), *back

    def _removed_at_16_khz(self, x: Tensor, last: bool) -> Tensor:
        removed = self._remover.feed(x)
        return torch.cat([removed, self._remover.flush()], 1) if last else removed

    def _removed(self, x: Tensor, last: bool) -> Tensor:
        assert self._resamplers is not None
        down, up, up_removed = self._resamplers
        x16 = down.feed(x.float(), last=last)
        removed16 = self._removed_at_16_khz(x16, last).float()
        if last:  # some more zeros, so that rounding of the lengths cannot leave the way back too short
            x16, removed16 = (torch.nn.functional.pad(y, (0, 2)) for y in (x16, removed16))
        self._low.put(up.feed(x16, last=last))
        self._high.put(up_removed.feed(removed16, last=last))
        n = len(self._input) if last else min(map(len, (self._input, self._low, self._high)))
        x, low, removed = self._input.peek(n), self._low.take(n), self._high.take(n)
        return removed[:-1] + removed[-1:] * (x - low)

    def _like_input(self, y: Tensor) -> Any:
        y = y[0] if self._flat else y
        return y.numpy() if self._as_array else y.clone()  # clone: out of inference mode, free for any use


class _Remover:
    """What to remove from 16 kHz sound (channels, samples), all of it delayed by less than one window.

    With `top`, the highest frequency in Hz of the sound, a further row tells the share that is removed just below it.
    The arithmetic is that of `stft` and `istft` on the whole signal.
    """

    def __init__(self, model: Separator, channels: int, strength: float, top: float | None, pieces: int) -> None:
        weight = next((t for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()), torch.empty(0))
        self._model, self._channels, self._strength = model, channels, strength
        self._pieces = self._most_pieces = pieces
        self._kind = {"dtype": weight.dtype, "device": weight.device}
        self._window = sqrt_hann(weight.dtype, weight.device)
        low, high = (round(WINDOW * part * (top or 0) / SAMPLE_RATE) for part in _TOP)
        self._top = None if top is None else slice(low, high)

    @torch.inference_mode()
    def start(self) -> None:
        """The state after the first frame, which holds nothing but the zeros that `stft` puts before the signal."""
        zeros = functools.partial(torch.zeros, **self._kind)  # type: ignore[arg-type]
        rows = self._channels + (self._top is not None)
        self._state: State = self._model.separate(zeros(1, 1, BINS))[1]
        self._waiting = zeros(self._channels, WINDOW - HOP)  # samples, of which the next frame has too few
        self._tail = zeros(rows, WINDOW - HOP)  # output samples, to which later frames will add
        self._before = WINDOW - HOP  # output samples that lie before the signal
        self._due = 0  # input samples whose output has not been given
        self._pieces = self._most_pieces

    def feed(self, x: Tensor) -> Tensor:
        """The next samples in, those that are done out."""
        self._due += x.shape[1]
        samples = torch.cat([self._waiting, x.to(**self._kind)], 1)  # type: ignore[call-overload]
        T = (samples.shape[1] - WINDOW + HOP) // HOP
        if T == 0:
            self._waiting = samples
            return self._tail[:, :0].cpu()
        out = self._run(samples.unfold(1, WINDOW, HOP))
        self._waiting, self._tail = samples[:, T * HOP :].clone(), out[:, T * HOP :].clone()
        out = out[:, self._before : T * HOP]
        self._before = max(0, self._before - T * HOP)
        self._due -= out.shape[1]
        return out.cpu()

    def flush(self) -> Tensor:
        """The samples that are still due."""
        due = self._due
        return self.feed(torch.zeros(self._channels, WINDOW))[:, :due]

    def _run(self, frames: Tensor) -> Tensor:
        """Output of frames (C, T, 512), to whose last WINDOW - HOP samples later frames will add."""
        T, out, done = frames.shape[1], self._blank(frames.shape[1]), 0
        P = min(self._pieces, T // (2 * OVERLAP))
        if P > 1:
            pieces = frames[:, : T // P * P].unflatten(1, (P, T // P))
            starts = self._warm_up(pieces)
            ends = self._steps(pieces, starts, out)
            if _agree(ends, starts):
                self._state, done = tuple(s[-1:] for s in ends), T // P * P
            else:  # this model remembers longer than the pieces overlap, and will so in later blocks
                self._pieces, out = 1, self._blank(T)
        if done < T:
            self._state = self._steps(frames[:, None, done:], self._state, out[:, done * HOP :])
        return out

    def _blank(self, T: int) -> Tensor:
        out = self._tail.new_zeros(len(self._tail), T * HOP + WINDOW - HOP)
        out[:, : WINDOW - HOP] = self._tail
        return out

    def _warm_up(self, pieces: Tensor) -> State:
        """States (P, ...) to start pieces (C, P, L, 512) from: the first goes on, the others hear what came before."""
        state = None
        for frames in pieces[:, :-1, -OVERLAP:].split(_ROWS // pieces.shape[1], 2):
            state = self._model.separate(_magnitude(torch.fft.rfft(frames * self._window)), state)[1]
        assert state is not None
        return tuple(torch.cat(pair) for pair in zip(self._state, state, strict=True))

    def _steps(self, pieces: Tensor, state: State, out: Tensor) -> State:
        """Add the output of pieces (C, P, L, 512), which lie side by side, to `out`; the states at their ends."""
        _, P, L, _ = pieces.shape
        for first in range(0, L, _ROWS // P):
            part, state = self._step(pieces[:, :, first : first + _ROWS // P], state)
            out[:, first * HOP :].unfold(1, part.shape[2], L * HOP)[:, :P].add_(part)
        return state

    def _step(self, frames: Tensor, state: State) -> tuple[Tensor, State]:
        """What to remove for frames (C, P, n, 512), overlap-added to (C or C + 1, P, samples); and the next state."""
        X = torch.fft.rfft(frames * self._window)
        magnitude = _magnitude(X)  # (P, n, F)
        mask, state = self._model.separate(magnitude, state)
        remove = self._strength * (1 - mask)
        removed = torch.fft.irfft(remove * X, n=WINDOW) * self._window
        if self._top is not None:
            weight = magnitude[..., self._top]
            share = (remove[..., self._top] * weight).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True).clamp_min(
                _SILENCE
            )
            removed = torch.cat([removed, (share * self._window.square())[None]])  # the window twice, as for sound
        return overlap_add(removed), state


def _magnitude(X: Tensor) -> Tensor:
    """One magnitude for all channels (C, ...): their root mean square."""
    return X[0].abs() if len(X) == 1 else X.abs().square().mean(0).sqrt()


def _agree(ends: State, starts: State) -> bool:
    """Whether every piece ends in the state from which the next one started."""
    pairs = [(end[:-1].flatten(1), start[1:].flatten(1)) for end, start in zip(ends, starts, strict=True)]
    return all(bool(((e - s).norm(dim=1) <= AGREEMENT * e.norm(dim=1)).all()) for e, s in pairs)


def frozen(model: Separator | str | Path) -> Separator:
    """A copy of a model for use: DR-NMF's weights are computed once, half precision becomes single."""
    model = copy.deepcopy(model) if isinstance(model, Separator) else load_model(model)
    if model.n_features != BINS:
        raise InputError(f"the model takes frames of {model.n_features} bins, sound at 16 kHz has {BINS}")
    model.eval().requires_grad_(False)
    if any(t.dtype in (torch.float16, torch.bfloat16) for t in model.state_dict().values()):
        model.float()
    if isinstance(model, DRNMF):
        with torch.inference_mode():
            W = model.dictionaries()
            weights = {"dictionaries": W, "alpha": model.alpha(W), "sparsity": model.sparsity(), "h0": model.h0()}
        for name, value in weights.items():
            setattr(model, name, functools.partial(_constant, value))
    return model


def _constant(value: Tensor, *_: Tensor) -> Tensor:
    return value


class _Queue:
    """Samples (rows, n) that wait for others."""

    def __init__(self, rows: int) -> None:
        self._samples = torch.empty(rows, 0)

    def __len__(self) -> int:
        return self._samples.shape[1]

    def put(self, x: Tensor) -> None:
        self._samples = torch.cat([self._samples.to(x.dtype), x], 1) if len(self) else x

    def peek(self, n: int) -> Tensor:
        return self._samples[:, :n]

    def take(self, n: int) -> Tensor:
        taken, self._samples = self._samples[:, :n], self._samples[:, n:]
        return taken


@functools.cache
def _delay(source: int, target: int) -> float:
    """Most seconds by which a resampler's output lies behind its input, found by trying."""
    resampler, step = Resampler(source, target, 1), max(1, source // 1000)
    fed = given = worst = 0.0
    silence = torch.zeros(1, step)
    for _ in range(500):
        fed += step / source
        worst = max(worst, fed - given)
        given += resampler.feed(silence).shape[1] / target
    return worst


def _samples(x: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """A tensor of float32 or float64 samples on the CPU that does not share memory with the caller's."""
    if not isinstance(x, Tensor | np.ndarray):
        raise InputError(f"samples must be a numpy array or a torch tensor, got {type(x).__name__}")
    samples = x.detach().cpu().clone() if isinstance(x, Tensor) else torch.from_numpy(np.array(x, order="C"))
    if samples.dtype not in (torch.float32, torch.float64):
        remedy = "divide integers by their full scale" if not samples.is_floating_point() else "convert them"
        raise InputError(f"samples must be float32 or float64 with full scale 1, got {samples.dtype}; {remedy}")
    return samples
