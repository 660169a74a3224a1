"""Sound through the mask of a model that has no compiled form, by PyTorch: the same as `engines.streams.Stream`."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from drnmf.models.base import Separator
from drnmf.signal import BINS, HOP, WINDOW
from drnmf.signal.audio import Samples, as_array
from drnmf.signal.spectra import overlap_add, sqrt_hann

_ROWS = 1024  # frames computed at a time: bounds the memory, however much is fed


class ModelStream:
    """Sound (channels, samples) through a model: what its mask removes, as `stft` and `istft` of the whole have it."""

    watch: Callable[[Samples, Samples], Separator | None] | None = None

    def __init__(
        self, model: Separator, *, channels: int, strength: float, most: float, top: slice | None, silence: float
    ) -> None:
        self._model, self._channels = model, channels
        self.strength, self.most = strength, most
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

    def replace(self, model: Separator) -> None:
        """Go on with another model of the same sizes, from the next frame on; all sound on its way stays."""
        self._model = model

    @torch.inference_mode()
    def feed(self, x: Samples) -> Samples:
        """The next samples (channels, n); what they complete, (rows, hops of samples)."""
        x = np.require(x, requirements=("C", "W"))  # PyTorch has no negative strides, and warns if it must not write
        samples = torch.cat([self._waiting, torch.from_numpy(x).to(self._window)], 1)
        T = (samples.shape[1] - WINDOW + HOP) // HOP
        if T == 0:
            self._waiting = samples
            return self._tail[:, :0].cpu().numpy()
        frames = samples.unfold(1, WINDOW, HOP)
        out = torch.nn.functional.pad(self._tail, (0, T * HOP))  # to the last WINDOW - HOP later frames will add
        first = 0
        while first < T:
            # powers of two: PyTorch remembers a plan for each size that it meets, and blocks of any size would meet all
            n = min(_ROWS, 2 ** ((T - first).bit_length() - 1)) if self.watch is None else 1
            part = self._step(frames[:, first : first + n])
            out[:, first * HOP :][:, : part.shape[1]] += part
            first += n
        self._waiting, self._tail = samples[:, T * HOP :].clone(), out[:, T * HOP :].clone()
        return out[:, : T * HOP].cpu().numpy()

    def _step(self, frames: Tensor) -> Tensor:
        """What to remove for the next frames (C, n, 512), overlap-added to (C or C + 1, samples)."""
        X = torch.fft.rfft(frames * self._window)
        # one magnitude (n, F) for all channels: their root mean square
        magnitude = X[0].abs() if len(X) == 1 else X.abs().square().mean(0).sqrt()
        mask, self._state = self._model.separate(magnitude[None], self._state)
        if self.watch is not None:
            following = self.watch(as_array(magnitude[0]), as_array(mask[0, 0]))
            self._model = self._model if following is None else following
        remove = (self.strength * (1 - mask[0])).clamp_max(self.most)
        removed: Tensor = torch.fft.irfft(remove * X, n=WINDOW) * self._window
        if self._top is not None:
            weight = magnitude[..., self._top]
            share = (remove[..., self._top] * weight).sum(-1) / weight.sum(-1).clamp_min(self._silence)
            # both windows, as sound gets them: a share that does not change comes out as it is
            removed = torch.cat([removed, (share[..., None] * self._window.square())[None]])
        # a frame alone, as in a live stream, has nothing to overlap with: half of it is what `overlap_add` makes of it
        return removed[..., 0, :] / 2 if removed.shape[-2] == 1 else overlap_add(removed)
