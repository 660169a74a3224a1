"""What a stream learns of its noise: from a sample, and from the pauses of speech if it keeps learning.

A frame belongs to a pause where the mask keeps little of what is heard around it, before and after:

    sum of (mask x)^2 <= KEPT sum of x^2        over all bins, from AROUND frames before to AROUND frames after

Frames that are much softer than what was heard of late do not count: they are the room after a word, not the noise in
it. Atoms always move from where they were at first (`maths.adaptation`), so that learning again and again leads no
further.
"""

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from drnmf.errors import InputError
from drnmf.signal import BINS, HOP, SAMPLE_RATE, WINDOW
from drnmf.signal.audio import Samples, resample
from drnmf.signal.level import SILENCE
from drnmf.signal.spectra import analyse

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from drnmf.models.base import Separator, SoundStream
    from drnmf.models.packed import PackedModel

SHORTEST = 0.3  # seconds of a sample
_SECOND = SAMPLE_RATE // HOP  # in frames
KEPT, AROUND = 0.05, round(0.25 * _SECOND)
SOFTEST, FORGOTTEN = 3e-3, 0.999  # of the largest power of late; and how much of that is left one frame later
LONGEST, EVERY = 10 * _SECOND, 3 * _SECOND  # frames that are remembered; new ones after which it is learned again


def check_sample(x: Samples, rate: int) -> None:
    """Refuse samples (channels, n) that hold no noise to learn."""
    seconds = x.shape[1] / rate
    if not seconds >= SHORTEST:
        raise InputError(f"a sample of noise must last at least {SHORTEST} s, this one has {seconds:.2f} s")
    if not np.isfinite(x).all():
        raise InputError("a sample of noise must hold no NaN or infinite values")
    if is_silent(x):
        raise InputError("this sample of noise is silent: there is nothing to learn from it")


def is_silent(x: Samples) -> bool:
    """Whether samples are softer than the rounding noise of 16 bits."""
    return bool(x.var(1, dtype=np.float64).mean() < SILENCE**2 / (WINDOW / 2))  # which a constant is, too


def magnitudes(x: Samples, rate: int) -> Samples:
    """Of channels (C, n) that share a mask: the root mean square (T, F) of theirs, at 16 kHz.

    No frame reaches beyond the ends: the step there would be heard as noise.
    """
    X = abs(analyse(resample(x.astype(np.float32, copy=False), rate, SAMPLE_RATE)))
    root: Samples = np.sqrt(np.square(X).mean(0))
    return root


class Learner:
    """What one stream knows of its noise.

    Args:
        model: ready for sound, as it was before it learned.
        stream: of that model.
        keeps: whether it learns in pauses.
        worker: a thread in which to learn; without one it is done at once, while the sound waits.
    """

    def __init__(
        self,
        model: "Separator | PackedModel",
        stream: "SoundStream",
        *,
        keeps: bool = False,
        worker: "Executor | None" = None,
    ) -> None:
        self._model, self._stream, self._worker = model, stream, worker
        self._sample: list[Samples] = []  # its magnitudes, if there is one
        self.refusal: str | None = None  # why the thread did not learn the last sample
        self._pauses = Pauses()
        self._following: Any = None  # the network to go on with
        self._work: Future[None] | None = None
        self._turn, self._lock = 0, threading.Lock()
        # a model that cannot learn says so before there is sound
        try_out = functools.partial(model.adapted, [np.ones((1, BINS))])
        if worker is not None:
            worker.submit(try_out).result()  # which also starts the thread: that takes long
        elif keeps:
            try_out()
        if keeps:
            stream.watch = self._hear

    @property
    def busy(self) -> bool:
        """Whether something is being learned that is not used yet."""
        return self._following is not None or self._works

    @property
    def _works(self) -> bool:
        return self._work is not None and not self._work.done()

    def check(self, x: Samples, rate: int) -> None:
        """Refuse a sample (channels, n) that is nothing but speech."""
        from drnmf.use.adaptation import Noise, check_for_speech  # only here: it makes a Streamer

        check_for_speech(Noise([x], rate, "this sample of noise"), self._model)

    def learn(self, x: Samples, rate: int) -> None:
        """Learn a sample, instead of all that was learned before. A thread also checks it."""
        self.refusal = None
        self._pauses.forget()

        def heard() -> list[Samples]:
            if self._worker is not None:
                self.check(x, rate)
            return [magnitudes(x, rate)]

        self._begin(heard)

    def forget(self) -> None:
        """Be as before all learning."""
        self.refusal = None
        self._pauses.forget()
        self._put(self._next_turn(), self._model, [])

    def go_on(self) -> None:
        """Between two blocks: what is learned is used from here on."""
        if self._work is not None and self._work.done():
            self._work.result()  # raises what went wrong there
            self._work = None
        following = self._take()
        if following is not None:
            self._stream.replace(following)

    def start(self) -> None:
        """Another sound begins; what is learned stays."""
        self._pauses.start()

    def _hear(self, magnitude_F: Samples, mask_F: Samples) -> Any:
        """A frame of the stream; the network to go on with, if there is another one."""
        self._pauses.hear(magnitude_F, mask_F)
        if self._pauses.new < EVERY or self._works:
            return None
        self._begin(lambda: self._sample)
        return self._take()

    def _begin(self, heard: Callable[[], list[Samples]]) -> None:
        """Learn from a sample and the pauses, always from the atoms that were there at first."""
        turn, pauses = self._next_turn(), self._pauses.take()

        def work() -> None:
            try:
                sample = heard()
                self._put(turn, self._model.adapted([*sample, *pauses]), sample)
            except InputError as error:
                if self._worker is None:
                    raise
                self.refusal = str(error)

        if self._worker is None:
            work()
        else:
            self._work = self._worker.submit(work)

    def _next_turn(self) -> int:
        with self._lock:
            self._turn += 1
            return self._turn

    def _put(self, turn: int, model: "Separator | PackedModel", sample: list[Samples]) -> None:
        with self._lock:
            if turn == self._turn:  # else it is out of date
                self._sample = sample
                compiled = getattr(model, "network", None)
                self._following = model if compiled is None else compiled

    def _take(self) -> Any:
        with self._lock:
            following, self._following = self._following, None
        return following


class Pauses:
    """The last frames without speech."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """All of them."""
        self._frames: deque[Samples] = deque(maxlen=LONGEST)
        self.new = 0  # since the last `take`
        self.start()

    def start(self) -> None:
        """Another sound begins."""
        self._near: deque[tuple[float, float, Samples]] = deque(maxlen=2 * AROUND + 1)
        self._loudest = 0.0

    def hear(self, magnitude_F: Samples, mask_F: Samples) -> None:
        """The next frame: now it is known whether the one AROUND frames ago belongs to a pause."""
        kept_F = mask_F * magnitude_F
        power, kept = float(magnitude_F @ magnitude_F), float(kept_F @ kept_F)
        self._near.append((power, kept, magnitude_F.copy()))
        self._loudest = max(power, FORGOTTEN * self._loudest)
        if len(self._near) <= 2 * AROUND:
            return
        powers, kepts, frames = zip(*self._near, strict=True)
        softest = max(SOFTEST * self._loudest, BINS * SILENCE**2)
        if powers[AROUND] >= softest and sum(kepts) <= KEPT * sum(powers):
            self._frames.append(frames[AROUND])
            self.new += 1

    def take(self) -> list[Samples]:
        """Those that are remembered, (T, F), if there are any."""
        self.new = 0
        return [np.stack(self._frames)] if self._frames else []
