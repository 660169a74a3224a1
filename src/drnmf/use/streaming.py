"""Sound in, enhanced sound out, block by block: `Streamer.feed` and `flush`. Whole files go the same way.

Of a file, the network hears the first half minute before it begins (`Streamer.listen_ahead`).

The part to remove is computed and subtracted from the input. So with strength 0 the input comes back bit for bit, and
the two parts always make up the input. All channels share one mask, made from the root mean square of their
magnitudes, so that voices stay where they are; or each has its own, as if it were alone. The network works at 16 kHz;
`use.removing` brings other rates there and back.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from drnmf.errors import InputError
from drnmf.models.folders import load_ready
from drnmf.parallel import Alone
from drnmf.signal import BINS, SAMPLE_RATE, WINDOW
from drnmf.signal.audio import Array, Samples, as_array, check_form, like
from drnmf.use.learning import Learner, check_sample, is_silent
from drnmf.use.removing import Queue, Remover, TwoBands, delay

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from torch import Tensor

    from drnmf.models.base import Separator, SoundStream
    from drnmf.models.packed import PackedModel

_FLOATS = ("torch.float32", "torch.float64")
_PEAK = 1000.0  # louder than any sound whose full scale is 1, softer than most whose full scale is 32768
_TOP = (0.75, 0.9375)  # near the top of the band, 6 to 7.5 kHz at 16 kHz: above it resampling filters set in
_BLOCK = 2**22  # samples of all channels at a time, at their own rate and at 16 kHz
_AHEAD, _BACK = 30.0, 0.75  # seconds that are heard before the sound begins, and how far back that goes without a step
_SILENCE = 1e-5  # sum of magnitudes near the top below which there is nothing to weigh the mask by


class Streamer:
    """Enhances one stream of sound: `feed` blocks of any size, then `flush`; as many samples come out as went in.

    Args:
        model: a model, its folder, or the name of one that comes with the package. The stream keeps a copy.
        sample_rate: of the sound, in Hz.
        channels: blocks are (channels, samples), or (samples,) for one channel.
        strength: how much of the noise to remove, from 0 (nothing) to 1 (all that the mask says).
        max_attenuation: by how many dB a part of the spectrum is lowered at most; None for no limit.
        separate_channels: a mask for each channel, for a microphone each; else one for all keeps voices in their place.
        keep_learning: adapt to the noise in the pauses of speech.
        learn_aside: learn in a thread, and go on with it when it is done, for sound that must not wait; else the sound
            does not depend on how fast the machine is.

    Examples:
        >>> import numpy as np
        >>> from drnmf import Streamer
        >>> stream = Streamer(sample_rate=48000)
        >>> blocks = [stream.feed(np.zeros(480, np.float32)) for _ in range(100)]  # 10 ms each
        >>> blocks.append(stream.flush())
        >>> sum(map(len, blocks)), round(stream.latency / 48)  # as many as went in; milliseconds
        (48000, 44)
    """

    def __init__(
        self,
        model: "Separator | PackedModel | str | Path" = "default",
        sample_rate: int = SAMPLE_RATE,
        *,
        channels: int = 1,
        strength: float = 1.0,
        max_attenuation: float | None = None,
        separate_channels: bool = False,
        keep_learning: bool = False,
        learn_aside: bool = False,
    ) -> None:
        check_form(sample_rate, channels)
        self._sample_rate, self._channels = int(sample_rate), channels
        self._max_attenuation = max_attenuation
        limits = {"strength": _checked_strength(strength), "most": _most(max_attenuation)}
        groups = [1] * channels if separate_channels else [channels]
        model = _ready(model)
        self._streams = _streams(model, self.sample_rate, groups, **limits)
        self._learn_aside = learn_aside
        worker = _worker() if learn_aside else None
        self._learners = [Learner(model, stream, keeps=keep_learning, worker=worker) for stream in self._streams]
        self._groups, ends = groups, np.cumsum(groups).tolist()
        self._rows = [slice(end - size, end) for size, end in zip(groups, ends, strict=True)]
        self._like: Any = np.empty((channels, 0), np.float32)
        self._alone = Alone("this Streamer")
        self._start()

    @property
    def sample_rate(self) -> int:
        """Of the sound, in Hz."""
        return self._sample_rate

    @property
    def channels(self) -> int:
        """How many go in and come out."""
        return self._channels

    @property
    def strength(self) -> float:
        """How much of the noise to remove; it may change between two blocks."""
        return self._streams[0].strength

    @strength.setter
    def strength(self, value: float) -> None:
        checked_value = _checked_strength(value)
        for stream in self._streams:
            stream.strength = checked_value

    @property
    def max_attenuation(self) -> float | None:
        """By how many dB a part of the spectrum is lowered at most; it may change between two blocks, too."""
        return self._max_attenuation

    @max_attenuation.setter
    def max_attenuation(self, value: float | None) -> None:
        most = _most(value)
        for stream in self._streams:
            stream.most = most
        self._max_attenuation = value

    def _start(self) -> None:
        """Forget all sound."""
        at_16_khz = self.sample_rate == SAMPLE_RATE
        removers = map(Remover, self._streams)
        self._removers = [
            remover if at_16_khz else TwoBands(remover, size, self.sample_rate)
            for remover, size in zip(removers, self._groups, strict=True)
        ]
        for learner in self._learners:
            learner.start()
        self._input = Queue(self.channels)
        self._unheard = 0  # samples of output that nobody waits for

    @property
    def latency(self) -> int:
        """How many samples the output lies behind the input at most: one window, and what resampling adds.

        Input sample n has come out when sample n + latency - 1 has gone in.
        """
        if self.sample_rate == SAMPLE_RATE:
            return WINDOW
        seconds = delay(self.sample_rate, SAMPLE_RATE) + delay(SAMPLE_RATE, self.sample_rate) + WINDOW / SAMPLE_RATE
        return int(np.ceil(seconds * self.sample_rate))

    def feed(self, x: Array) -> Array:
        """Take the next samples and return those that are done, in the kind and shape of the input."""
        kept, removed = self.advance(self._block(x))
        self._like = x[..., :0]
        enhanced: Array = self._as_given(kept - removed)
        return enhanced

    def _block(self, x: "Tensor | Samples") -> Samples:
        """Samples as (channels, n)."""
        samples = checked(x)
        if samples.ndim == 1 and self.channels == 1:
            samples = samples[None]
        if samples.ndim != 2 or len(samples) != self.channels:
            expected = f"({self.channels}, samples): transpose it, or make the Streamer with other channels="
            raise InputError(f"a block of shape {tuple(x.shape)}, but this stream takes blocks of {expected}")
        return samples

    def _parts(self, x: Samples) -> list[Samples]:
        """Channels that share a mask."""
        return [x[rows] for rows in self._rows]

    def learn_noise(self, samples: "Tensor | Samples") -> None:
        """Learn a noise from a sample of it: at least 0.3 s, better 3 s, shaped as blocks are, and without speech.

        It may come before the first block or between two. The network's noise atoms move towards the sample; the stream
        goes on as it was, with these atoms from the next frame on. They stay after `flush`, until `forget_noise` or
        another `learn_noise`, which starts from the first atoms again. A silent channel with a mask of its own learns
        nothing. With `learn_aside`, `learning` says when it is done, and `refusal` why it was not.
        """
        x = self._block(samples)
        check_sample(x, self.sample_rate)
        check_full_scale(x)
        pairs = list(zip(self._learners, self._parts(x), strict=True))
        for learner, part in pairs:
            if not (self._learn_aside or is_silent(part)):
                learner.check(part, self.sample_rate)
        for learner, part in pairs:
            if is_silent(part):
                learner.forget()
            else:
                learner.learn(part.copy(), self.sample_rate)

    def forget_noise(self) -> None:
        """Go on as if no noise had been learned."""
        for learner in self._learners:
            learner.forget()

    @property
    def refusal(self) -> str | None:
        """Why the last sample was not learned aside: it is nothing but speech. None if it was."""
        return next((learner.refusal for learner in self._learners if learner.refusal), None)

    @property
    def learning(self) -> bool:
        """Whether a noise is being learned that the next block will not profit from yet."""
        return any(learner.busy for learner in self._learners)

    def listen_ahead(self, x: "Tensor | Samples") -> None:
        """Hear how the sound begins, given as to `feed`, before its first sample is fed.

        What is heard is its first half minute, or as much as is given, and then its first 0.75 s backwards, which lead
        to the first sample without a step. Nothing comes out for them, but the network knows the voice, the room and
        the noise when the sound begins. Files are enhanced so.
        """
        ahead = heard_ahead(self._block(x), self.sample_rate)
        with self._alone:
            if len(self._input):
                raise InputError("the stream has begun; listen_ahead comes before the first feed")
            self._unheard = ahead.shape[1]
            try:
                self._advance(ahead)
            except InputError:
                self._start()
                raise

    def flush(self) -> Any:
        """The samples that still waited for later ones. The next `feed` starts a new stream."""
        kept, removed = self.advance(None)
        return self._as_given(kept - removed)

    def _as_given(self, y: Samples) -> Any:
        return like(self._like, y[0] if self._like.ndim == 1 else y)

    def advance(self, x: Samples | None) -> tuple[Samples, Samples]:
        """The next samples (channels, n), or None for the end; those that are done, and what to remove from them."""
        with self._alone:
            return self._advance(x)

    def _advance(self, x: Samples | None) -> tuple[Samples, Samples]:
        last = x is None
        x = self._input.take(0) if x is None else x
        check_full_scale(x)
        for learner in self._learners:
            learner.go_on()
        self._input.put(x)
        parts = [remover.feed(part, last=last) for remover, part in zip(self._removers, self._parts(x), strict=True)]
        removed = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if not np.isfinite(removed).all():
            raise InputError("the model's mask is not finite: its layers diverge, or its weights are damaged")
        kept = self._input.take(removed.shape[1])
        unheard = min(self._unheard, kept.shape[1])
        self._unheard -= unheard
        if last:
            self._start()
        return kept[:, unheard:], removed[:, unheard:].astype(kept.dtype, copy=False)


def heard_ahead(x: Samples, rate: int) -> Samples:
    """What is heard of sound (channels, n) before it begins."""
    beginning = x[:, : min(round(_AHEAD * rate), block_size(len(x), rate))]
    return np.concatenate([beginning, beginning[:, : round(_BACK * rate)][:, ::-1]], 1)


def block_size(channels: int, rate: int) -> int:
    """Of a sound that need not be in memory whole: how many samples of each channel are, at a time."""
    return max(1, int(_BLOCK / channels * min(1, rate / SAMPLE_RATE)))


def _worker() -> "Executor":
    from concurrent.futures import ThreadPoolExecutor  # only here: nobody else should wait for its import

    return ThreadPoolExecutor(1, "learns a noise")


def _checked_strength(strength: float) -> float:
    if not 0 <= strength <= 1:
        raise InputError(f"strength must lie between 0 and 1, got {strength}")
    return strength


def _most(max_attenuation: float | None) -> float:
    """The share of a bin that is removed where it is lowered by so many dB."""
    if max_attenuation is None:
        return 1.0
    if not max_attenuation >= 0:  # so that NaN is caught
        raise InputError(f"max_attenuation must be 0 dB or more, got {max_attenuation}")
    return float(1 - 10 ** (-max_attenuation / 20))


def _ready(model: "Separator | PackedModel | str | Path") -> "Separator | PackedModel":
    """A copy for sound at 16 kHz, its weights computed once."""
    model = load_ready(model) if isinstance(model, str | Path) else model
    if model.n_features != BINS:
        raise InputError(f"the model takes frames of {model.n_features} bins, sound at 16 kHz has {BINS}")
    return model.ready()


def _streams(
    model: "Separator | PackedModel", rate: int, groups: Sequence[int], **settings: Any
) -> "list[SoundStream]":
    """What makes a mask and applies it, for each group of so many channels.

    Compiled if the model has such a form, else PyTorch's.
    """
    highest = min(rate, SAMPLE_RATE) / 2
    top = slice(*(round(WINDOW * part * highest / SAMPLE_RATE) for part in _TOP))
    settings |= {"top": None if rate == SAMPLE_RATE else top, "silence": _SILENCE}
    return [_stream(model, channels=channels, **settings) for channels in groups]


def _stream(model: "Separator | PackedModel", **settings: Any) -> "SoundStream":
    stream = model.stream(**settings)
    if stream is not None:
        return stream
    from drnmf.use.streaming_torch import ModelStream

    return ModelStream(cast("Separator", model), **settings)  # the others have one in C


def check_full_scale(x: Samples) -> None:
    """Refuse samples far beyond 1, and NaN."""
    if x.size and not (peak := float(np.abs(x).max())) <= _PEAK:  # not <=: so that NaN is caught
        remedy = "divide by 32768" if np.isfinite(peak) else "there must be no NaN or infinite ones"
        raise InputError(f"samples reach {peak:g}, but full scale is 1; {remedy}")


def checked(x: "Tensor | Samples") -> Samples:
    """Float samples as an array; an array is returned as it is."""
    if not isinstance(x, np.ndarray) and not hasattr(x, "detach"):
        raise InputError(f"samples must be a numpy array or a torch tensor, got {type(x).__name__}")
    if (x.dtype.char not in "fd") if isinstance(x, np.ndarray) else str(x.dtype) not in _FLOATS:
        remedy = "convert them" if "float" in str(x.dtype) else "divide integers by their full scale"
        raise InputError(f"samples must be float32 or float64 with full scale 1, got {x.dtype}; {remedy}")
    return as_array(x)
