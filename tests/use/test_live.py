"""Live sound without a sound card: files in the place of microphones, lists in the place of speakers."""

import io
import subprocess
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from rich.console import Console

from drnmf import InputError
from drnmf.models.folders import load_ready
from drnmf.models.packed import PackedModel
from drnmf.use import live
from drnmf.use.streaming import Streamer
from small import recording, small_model


def sound() -> np.ndarray:
    """Three seconds of speech over noise, (1, samples)."""
    speech = recording("speech/austen_0880")
    return np.float32(speech + recording("noise/percussion", len(speech)))[None]


def cut(x: np.ndarray, *sizes: int) -> Iterator[np.ndarray]:
    """Blocks of these sizes, again and again, as long as there is sound."""
    start = i = 0
    while start < x.shape[1]:
        yield x[:, start : start + sizes[i % len(sizes)]]
        start, i = start + sizes[i % len(sizes)], i + 1


@pytest.fixture(scope="module")
def model() -> PackedModel:
    return small_model()


@pytest.mark.parametrize(("rate", "sizes"), [(16000, (128,)), (16000, (1, 1000, 37)), (44100, (353,))])
def test_the_loop_gives_what_the_streamer_gives(model: PackedModel, rate: int, sizes: tuple[int, ...]) -> None:
    x, given = np.concatenate([sound(), 0.5 * sound()]), []
    live.pump(cut(x, *sizes), given.append, Streamer(model, rate, channels=2), live.Meter())
    streamer = Streamer(model, rate, channels=2)
    expected = np.concatenate([streamer.feed(x), streamer.flush()], 1)
    played = np.concatenate(given, 1)
    assert played.shape == x.shape
    np.testing.assert_allclose(played, expected, atol=1e-5)
    assert np.abs(played - x).max() > 0.01  # something was removed
    assert all(block.shape[1] for block in given[:-1])


def test_it_keeps_up(model: PackedModel) -> None:
    meter, x = live.Meter(), sound()
    start = perf_counter()
    live.pump(cut(x, 128), lambda _: None, Streamer(model, 16000), meter)
    assert perf_counter() - start < x.shape[1] / 16000
    assert 0 < meter.load < 1


class Device(types.ModuleType):
    """Stands for the package sounddevice: hears a file, until Ctrl-C at its end, and keeps what is played."""

    PortAudioError = type("PortAudioError", (Exception,), {})

    def __init__(self, x: np.ndarray, *, known: tuple[str, ...] = ("Loopback",), ends_with: type = KeyboardInterrupt):
        super().__init__("sounddevice")
        self.x, self.known, self.ends_with = x, known, ends_with
        self.played: list[np.ndarray] = []
        self.latency = (0.01, 0.02)

    def query_devices(self, device: int | str | None = None, kind: str | None = None) -> object:
        if kind is None:
            return "\n".join(self.known)
        if isinstance(device, str) and not any(device in name for name in self.known):
            raise ValueError(f"No {kind} device matching {device!r}")
        if not self.known or (isinstance(device, int) and device >= len(self.known)):
            raise self.PortAudioError(f"Error querying device {-1 if device is None else device}")
        return {"name": self.known[0], "index": 0, "default_samplerate": 16000.0}

    def Stream(self, rate: int, block: int, pair: tuple[int, int], channels: int, **_: object) -> "Device":
        if rate == 12345:
            raise self.PortAudioError("Error opening Stream: Invalid sample rate [PaErrorCode -9997]")
        self.blocks = cut(self.x, block)
        return self

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, frames: int) -> tuple[np.ndarray, bool]:
        block = next(self.blocks, None)
        if block is None or block.shape[1] < frames:
            raise self.ends_with("unplugged")
        return np.ascontiguousarray(block.T), len(self.played) == 100  # one overflow

    def write(self, samples: np.ndarray) -> bool:
        assert samples.flags.c_contiguous
        self.played.append(samples)
        return len(self.played) in (1, 50)  # one underflow at the start, which is natural, and one later


def run(monkeypatch: pytest.MonkeyPatch, device: types.ModuleType, model: PackedModel, **options: object) -> tuple:
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    text = io.StringIO()
    meter = live.run(model, console=Console(file=text, width=100), **options)
    return meter, text.getvalue()


def test_a_device_plays_what_it_heard_less_the_noise(model: PackedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(sound())
    meter, text = run(monkeypatch, device, model, block_ms=10)
    assert text.startswith("Loopback -> Loopback, 16000 Hz, delay about 82 ms")  # 32 + 30 of the device + 2 blocks
    played, x = np.concatenate(device.played).T, sound()
    heard = x[:, : x.shape[1] // 160 * 160]
    assert 0 <= played.shape[1] - heard.shape[1] <= 160 + 128  # all along as much as was heard, and the store
    streamer = Streamer(model, 16000)
    expected = streamer.feed(heard)
    silent = played.shape[1] - expected.shape[1]
    assert np.all(played[:, :silent] == 0)
    np.testing.assert_allclose(played[:, silent:], expected, atol=1e-5)
    assert meter.gaps == 2


class Waiting(ThreadPoolExecutor):
    """A thread for which everybody waits."""

    def submit(self, work):
        future = super().submit(work)
        future.result(timeout=60)
        return future


@pytest.mark.parametrize("keep", [False, True])
def test_live_sound_learns_the_noise_without_a_gap(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drnmf.use.streaming._worker", lambda: Waiting(1))
    monkeypatch.setattr("drnmf.use.learning.EVERY", 20)
    x = np.float32(np.append(recording("noise/hum", 48000), sound()[0] + recording("noise/hum", sound().shape[1])))[
        None
    ]
    device = Device(x)
    meter, _ = run(monkeypatch, device, load_ready("default"), block_ms=10, learn_noise=0.5, keep_learning=keep)
    assert meter.remark == "knows the noise of the first 0.5 s"
    assert meter.gaps == 2  # the device's own
    heard = x[:, : x.shape[1] // 160 * 160]
    streamer = Streamer(keep_learning=keep)
    first = streamer.feed(heard[:, :7840])  # the block that completes the sample is the first to profit
    streamer.learn_noise(heard[:, :8000])
    expected = np.concatenate([first, streamer.feed(heard[:, 7840:])], 1)
    played = np.concatenate(device.played).T
    assert 0 <= played.shape[1] - heard.shape[1] <= 160 + 128
    silent = played.shape[1] - expected.shape[1]
    if keep:  # when a thread is done, the sound goes on with the next block, not with the next frame
        np.testing.assert_array_equal(played[:, silent:][:, :8000], expected[:, :8000])
    else:
        np.testing.assert_array_equal(played[:, silent:], expected)


def test_what_is_heard_while_it_listens_and_when_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, streamer = live.Meter(), Streamer()
    blocks = live.listened(cut(np.zeros((1, 32000), np.float32), 8000), 1.5, streamer, meter)
    remarks = [(next(blocks), meter.remark)[1] for _ in range(4)]
    assert remarks[:2] == ["listening to the noise, 1 s more: please do not speak"] * 2
    assert remarks[2:] == ["nothing learned: this sample of noise is silent: there is nothing to learn from it"] * 2
    assert remarks[-1] in meter.__rich__().plain


def test_speech_while_it_listens_is_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drnmf.use.streaming._worker", lambda: Waiting(1))
    device = Device(np.float32(recording("speech/austen_0880"))[None])
    meter, _ = run(monkeypatch, device, load_ready("default"), learn_noise=2.5)
    assert meter.remark.startswith("nothing learned: this sample of noise: is nothing but speech")


def test_wrong_devices_and_rates_are_one_line(model: PackedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(device: Device, **options: object) -> str:
        with pytest.raises(InputError) as error:
            run(monkeypatch, device, model, **options)
        return str(error.value)

    x = sound()
    assert refusal(Device(x, known=())) == "this machine has no sound input device, or no default one"
    unknown = refusal(Device(x), input_device="radio")
    assert unknown == "no sound input device 'radio' (No input device matching 'radio'); see drnmf live --devices"
    assert refusal(Device(x), output_device="7").startswith("no sound output device '7'")
    assert "cannot be opened at 12345 Hz: Error opening Stream" in refusal(Device(x), sample_rate=12345)
    assert refusal(Device(x, ends_with=Device.PortAudioError)) == "the sound device stopped: unplugged"
    assert "1 to 1000 ms" in refusal(Device(x), block_ms=0)
    assert "from 0.3 to 60 s" in refusal(Device(x), learn_noise=0.1)
    assert "cannot learn a noise" in refusal(Device(x), keep_learning=True)
    assert "cannot learn a noise" in refusal(Device(x), learn_noise=3)


def test_the_list_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", Device(sound(), known=("Microphone", "Speakers")))
    assert live.devices() == "Microphone\nSpeakers"
    monkeypatch.setitem(sys.modules, "sounddevice", Device(sound(), known=()))
    with pytest.raises(InputError, match="no sound device"):
        live.devices()


def test_missing_packages_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(InputError, match=r"pip install 'drnmf\[live\]'"):
        live.devices()
    monkeypatch.delitem(sys.modules, "sounddevice")
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="needs the PortAudio library"):
        live.devices()


def test_meters() -> None:
    meter = live.Meter()
    loud, soft = np.full((1, 8), 0.9, np.float32), np.full((1, 8), 0.001, np.float32)
    for heard, given in ((soft, soft), (loud, soft), (soft, np.zeros((1, 0), np.float32))):
        meter.report(heard, given, 0.5)
    heard, given, status = meter.__rich__().plain.splitlines()
    assert heard.count("█") == 39  # the loudest block
    assert heard.endswith("-1 dB")
    assert given.count("█") == 0
    assert given.endswith("-60 dB")
    assert "gaps 0" in status
    assert "silence" in meter.__rich__().plain  # nothing since


def test_only_live_sound_imports_sounddevice() -> None:
    code = "import sys, drnmf.use.live; assert 'sounddevice' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
