"""Sound through the mask of a model that has no compiled form, by PyTorch: the same as `engines.streams.Stream`.

A long block can be cut into pieces, which overlap and run as one batch. Where two meet they must agree to -60 dB; if
they do not, the later one runs again.
"""

import torch
from torch import Tensor

from drnmf.models.base import Separator, State
from drnmf.signal import BINS, HOP, WINDOW
from drnmf.signal.audio import Samples
from drnmf.signal.spectra import overlap_add, sqrt_hann

OVERLAP = 1536  # frames (12 s) that a piece hears before it counts: some models take as long to forget their start
AGREEMENT = 1e-3  # largest relative difference of two pieces' states where they meet
_ROWS = 1024  # frames x pieces computed at a time: bounds the memory, however much is fed


class ModelStream:
    """Sound (channels, samples) through a model: what its mask removes, as `stft` and `istft` of the whole have it.

    Args:
        model: what makes the mask.
        channels: that share one mask.
        strength: how much of what the mask removes is removed.
        top: bins; if given, a further row of the output is the share that is removed there.
        silence: sum of magnitudes there below which there is nothing to weigh the mask by.
        pieces: the most that a block is cut into.
    """

    def __init__(
        self, model: Separator, *, channels: int, strength: float, top: slice | None, silence: float, pieces: int
    ) -> None:
        self._model, self._channels, self._strength, self._most_pieces = model, channels, strength, pieces
        self._window = sqrt_hann(model.like.dtype, model.like.device)
        self._top, self._silence = top, silence
        self.start()

    @torch.inference_mode()
    def start(self) -> None:
        """Start anew, after a window of zeros whose frame is done."""
        zeros = self._window.new_zeros
        self._state = self._model.separate(zeros(1, 1, BINS))[1]
        self._waiting = zeros(self._channels, WINDOW - HOP)  # samples of which later frames will be made
        self._tail = zeros(self._channels + (self._top is not None), WINDOW - HOP)  # output that they will add to
        self._pieces = self._most_pieces

    @torch.inference_mode()
    def feed(self, x: Samples) -> Samples:
        """The next samples (channels, n); what they complete, (rows, hops of samples)."""
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
        """States (P, ...) to start pieces (C, P, L, 512) from: the first continues, the others hear the past."""
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
            share = (remove[..., self._top] * weight).sum(-1) / weight.sum(-1).clamp_min(self._silence)
            # both windows, as sound gets them: a share that does not change comes out as it is
            removed = torch.cat([removed, (share[..., None] * self._window.square())[None]])
        # a frame alone, as in a live stream, has nothing to overlap with: half of it is what `overlap_add` makes of it
        return removed[..., 0, :] / 2 if removed.shape[-2] == 1 else overlap_add(removed), state


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
