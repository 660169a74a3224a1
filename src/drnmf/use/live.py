"""Live: blocks of sound from any source through a Streamer into any sink; a microphone and speakers by PortAudio.

`pump` is the loop; it knows nothing of devices. `run` gives it a pair of them through the package sounddevice, which is
imported only then.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from drnmf.errors import InputError
from drnmf.parallel import use_one_thread
from drnmf.signal.audio import Samples
from drnmf.use.learning import SHORTEST
from drnmf.use.streaming import Streamer

if TYPE_CHECKING:
    from drnmf.models.base import Separator
    from drnmf.models.packed import PackedModel

_FLOOR_DB = -60  # the left end of the meters
_WIDTH = 40
_LONGEST = 60  # seconds of noise to learn from: more takes long, and says no more
_LEARNING = "learning the noise"


class Meter:
    """What the loop reports: levels, the share of real time that it needs, and gaps; drawn as two bars."""

    def __init__(self) -> None:
        self.heard_db = self.given_db = -math.inf
        self.load = 0.0
        self.gaps = 0
        self.remark = ""

    def report(self, heard: Samples, given: Samples, load: float) -> None:
        """Take the block that came in, the one that goes out, and the share of real time that it took."""
        self.heard_db = max(self.heard_db, peak_db(heard))
        self.given_db = max(self.given_db, peak_db(given))
        self.load += 0.05 * (load - self.load)

    def __rich__(self) -> Text:
        lines = [_bar("in ", self.heard_db), _bar("out", self.given_db)]
        self.heard_db = self.given_db = -math.inf  # the highest since the last drawing
        status = Text(f"load {self.load:4.0%}   gaps {self.gaps}   Ctrl-C ends", style="dim")
        return Text("\n").join([*lines, status, *([Text(self.remark)] if self.remark else [])])


def pump(
    source: Iterable[Samples],
    sink: Callable[[Samples], None],
    streamer: Streamer,
    meter: Meter,
    *,
    learn_noise: float = 0.0,
) -> None:
    """Blocks of `source` through `streamer` into `sink`; when the source ends, also what the streamer still holds.

    From the first `learn_noise` seconds the streamer learns the noise.
    """
    source = listened(source, learn_noise, streamer, meter) if learn_noise else source
    for block in source:
        start = perf_counter()
        done = streamer.feed(block)
        seconds = block.shape[1] / streamer.sample_rate
        meter.report(block, done, (perf_counter() - start) / seconds)
        if done.shape[1]:
            sink(done)
    sink(streamer.flush())


def listened(source: Iterable[Samples], seconds: float, streamer: Streamer, meter: Meter) -> Iterator[Samples]:
    """Blocks as they come; once they have lasted so long, `streamer` learns the noise from them."""
    rate = streamer.sample_rate
    blocks: list[Samples] = []
    missing = round(seconds * rate)
    for block in source:
        if missing > 0:
            blocks.append(block.copy())
            missing -= block.shape[1]
            meter.remark = f"listening to the noise, {math.ceil(missing / rate)} s more: please do not speak"
            if missing <= 0:
                meter.remark = _learn(streamer, np.concatenate(blocks, 1))
                blocks.clear()
        elif meter.remark == _LEARNING and not streamer.learning:
            known = f"knows the noise of the first {seconds:g} s"
            meter.remark = f"nothing learned: {streamer.refusal}" if streamer.refusal else known
        yield block


def _learn(streamer: Streamer, noise: Samples) -> str:
    """What to remark. A microphone that is switched off must not end the sound."""
    try:
        streamer.learn_noise(noise)
    except InputError as error:
        return f"nothing learned: {error}"
    return _LEARNING


def run(
    model: "Separator | PackedModel | str | Path",
    input_device: str | None = None,
    output_device: str | None = None,
    sample_rate: int | None = None,
    *,
    channels: int = 1,
    block_ms: float = 8.0,
    learn_noise: float = 0.0,
    console: Console,
    **settings: Any,
) -> Meter:
    """Enhance what a device hears, until Ctrl-C, and draw meters on the console; `drnmf live --help` has the options.

    A device is a number or part of a name in `devices`. Where it is None the system chooses, and so for the rate.
    `settings` are those of `Streamer`. What it learns it learns in a thread, so that the sound goes on.
    """
    if learn_noise and not SHORTEST <= learn_noise <= _LONGEST:
        raise InputError(f"a noise is learned from {SHORTEST} to {_LONGEST} s of sound, got {learn_noise:g}")
    if not 1 <= block_ms <= 1000:
        raise InputError(f"a block must last 1 to 1000 ms, got {block_ms:g}")
    use_one_thread()
    sounddevice = _sounddevice()
    source, target = (_choose(sounddevice, *which) for which in ((input_device, "input"), (output_device, "output")))
    rate = sample_rate or round(source["default_samplerate"])
    settings |= {"learn_aside": bool(learn_noise or settings.get("keep_learning"))}
    streamer, block = Streamer(model, rate, channels=channels, **settings), round(rate * block_ms / 1000)
    meter, pair = Meter(), (source["index"], target["index"])
    with _as_input_error(sounddevice, f"{source['name']} and {target['name']} cannot be opened at {rate} Hz"):
        stream = sounddevice.Stream(rate, block, pair, channels, dtype="float32", latency="low")
    delay = streamer.latency / rate + sum(stream.latency) + 2 * block / rate
    summary = f"{source['name']} -> {target['name']}, {rate} Hz, delay about {1000 * delay:.0f} ms"
    console.print(summary, highlight=False, markup=False)
    ends = _Ends(stream, block, meter)
    drawing = Live(meter, console=console, refresh_per_second=10, transient=True)
    with _as_input_error(sounddevice, "the sound device stopped"), stream, drawing, suppress(KeyboardInterrupt):
        pump(ends.heard(), ends.play, streamer, meter, learn_noise=learn_noise)
    return meter


def devices() -> str:
    """The sound devices of this machine, a line each with its number; * marks the default (> input, < output)."""
    found = str(_sounddevice().query_devices())
    if not found.strip():
        raise InputError("this machine has no sound device")
    return found


def peak_db(block: Samples) -> float:
    """The largest sample in dB below full scale."""
    peak = float(np.abs(block).max(initial=0.0))
    return 20 * math.log10(peak) if peak > 0 else -math.inf


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ModuleNotFoundError:
        raise InputError("live sound needs the package sounddevice: pip install 'drnmf[live]'") from None
    except OSError:
        raise InputError("live sound needs the PortAudio library: install libportaudio2 or portaudio") from None
    return sounddevice


def _choose(sounddevice: Any, device: str | None, kind: str) -> dict[str, Any]:
    """What is known about a device that was chosen by its number, a part of its name, or not at all."""
    number = int(device) if device is not None and device.isdigit() else device
    try:
        found: dict[str, Any] = sounddevice.query_devices(number, kind)
    except (sounddevice.PortAudioError, ValueError) as error:
        if device is None:
            raise InputError(f"this machine has no sound {kind} device, or no default one") from None
        raise InputError(f"no sound {kind} device {device!r} ({_line(error)}); see drnmf live --devices") from None
    return found


@contextmanager
def _as_input_error(sounddevice: Any, what: str) -> Iterator[None]:
    try:
        yield
    except sounddevice.PortAudioError as error:
        raise InputError(f"{what}: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


class _Ends:
    """Both ends of an open stream of sounddevice: as many samples are played as were heard."""

    def __init__(self, stream: Any, block: int, meter: Meter) -> None:
        self._stream, self._block, self._meter = stream, block, meter
        self._due = block  # one block is kept in store, against a late one
        self._started = False

    def heard(self) -> Iterator[Samples]:
        while True:
            samples, overflowed = self._stream.read(self._block)
            self._meter.gaps += overflowed
            self._due += self._block
            yield samples.T
            if self._due > 0:  # at first the streamer holds back one window: silence, or the speakers would run dry
                self.play(np.zeros((samples.shape[1], self._due), np.float32))

    def play(self, block: Samples) -> None:
        self._due -= block.shape[1]
        underflowed = self._stream.write(np.ascontiguousarray(block.T))
        self._meter.gaps += underflowed and self._started  # before the first block there was nothing to play
        self._started = True


def _bar(name: str, level_db: float) -> Text:
    filled = round(_WIDTH * min(1.0, max(0.0, 1 - level_db / _FLOOR_DB)))
    colour = "red" if level_db >= -1 else "yellow" if level_db >= -12 else "green"
    level = f"{level_db:4.0f} dB" if level_db > -100 else "silence"
    return Text.assemble(f"{name} ", ("█" * filled, colour), ("░" * (_WIDTH - filled), "dim"), f" {level}")
