"""The programs in examples/, run as their users run them, with real recordings."""

import asyncio
import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import soundfile

import drnmf
from drnmf import audio
from drnmf.pictures import demo
from drnmf.use import export
from small import streamed

EXAMPLES = Path(__file__).parents[2] / "examples"
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def model():
    return drnmf.load_model("default")


def noisy(rate: int = 16000) -> np.ndarray:
    """A second of a noisy sentence."""
    return audio.resample(np.asarray(demo.recording("noisy"))[None, 16000:32000], 16000, rate)[0]


def imported(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("websockets", reason="pip install websockets")
    return imported("websocket_server")


async def served(server, use):
    """What `use` returns, given the address of a server that runs meanwhile."""
    async with asyncio.timeout(60):
        async with server.serve(server.enhance, "127.0.0.1", 0, process_request=server.health) as running:
            return await use(f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}")


@pytest.mark.parametrize("rate", [16000, 48000])
def test_two_clients_of_the_server_get_what_a_streamer_gives(rate, server, model, tmp_path):
    speak = imported("websocket_client").main
    names = ["a", "b"]
    for scale, name in enumerate(names, 1):
        soundfile.write(tmp_path / f"{name}.wav", noisy(rate) / scale, rate, "FLOAT")

    async def both(url):
        pairs = ((str(tmp_path / f"{name}.wav"), str(tmp_path / f"{name}.out.wav")) for name in names)
        await asyncio.gather(*(speak(url, *pair, 1000.0) for pair in pairs))

    asyncio.run(served(server, both))
    for name in names:
        sent, _ = soundfile.read(tmp_path / f"{name}.wav", dtype="float32")
        got, _ = soundfile.read(tmp_path / f"{name}.out.wav", dtype="float32")
        assert got.shape == sent.shape
        np.testing.assert_allclose(got, streamed(sent, rate, model), atol=2e-4)  # 16 bits
        assert np.abs(got - sent).max() > 0.01


def test_the_server_answers_block_by_block_and_starts_anew_after_an_end(server, model):
    from websockets.asyncio.client import connect

    blocks = np.split(noisy().astype("<f4"), 100)

    async def talk(url):
        async with connect(url) as client:
            await client.recv()
            rounds = []
            for _ in range(2):
                answers = []
                for block in blocks:
                    await client.send(block.tobytes())
                    answers.append(await client.recv())  # it does not wait for more
                await client.send("end")
                answers.append(await client.recv())
                assert await client.recv() == "end"
                rounds.append(b"".join(answers))
            return rounds

    first, second = asyncio.run(served(server, talk))
    assert first == second
    np.testing.assert_allclose(np.frombuffer(first, "<f4"), streamed(noisy(), 16000, model), atol=1e-6)


@pytest.mark.parametrize(
    ("query", "message", "reason"),
    [
        ("", b"123", "send float32 samples"),
        ("", "hello", "send float32 samples"),
        ("", np.full(10, np.nan, "<f4").tobytes(), "samples reach nan"),
        ("?rate=7", None, "from 1000 to 768000 Hz, got 7"),
        ("?rate=fast", None, "rate must be a number of Hz, got 'fast'"),
    ],
)
def test_what_a_client_does_wrong_is_the_reason_it_is_given(query, message, reason, server):
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosedError

    async def talk(url):
        async with connect(f"{url}/{query}") as client:
            if message is not None:
                await client.recv()
                await client.send(message)
            with pytest.raises(ConnectionClosedError) as closed:
                await client.recv()
            return closed.value.rcvd

    closed = asyncio.run(served(server, talk))
    assert closed.code == 1007
    assert reason in closed.reason


def test_a_folder(tmp_path, monkeypatch, capsys, model):
    (tmp_path / "in/deep").mkdir(parents=True)
    for name in ("a.wav", "deep/b.flac"):
        audio.write(tmp_path / "in" / name, noisy(), 16000)
    monkeypatch.setattr(sys, "argv", ["batch.py", str(tmp_path / "in"), str(tmp_path / "out")])
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # starting processes takes longer than all else here
    for said in ("2 enhanced\n", "0 enhanced, 2 skipped because they exist (--overwrite does them again)\n"):
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(EXAMPLES / "batch.py"), run_name="__main__")
        assert (end.value.code, capsys.readouterr().out) == (0, said)
    expected = drnmf.enhance(noisy(), 16000, model, max_attenuation=18)
    for name in ("a.wav", "deep/b.flac"):
        np.testing.assert_allclose(soundfile.read(tmp_path / "out" / name)[0], expected, atol=2e-4)


class Card:
    """A sound card that hears a recording until Ctrl-C."""

    def __init__(self, rate: int, block: int, **_: object) -> None:
        heard = noisy(rate).astype(np.float32)
        self.heard = heard[: len(heard) // block * block]
        self.blocks = iter(self.heard.reshape(-1, block, 1))
        self.played: list[np.ndarray] = []
        Card.last = self

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int):
        try:
            block = next(self.blocks)
        except StopIteration:
            raise KeyboardInterrupt from None
        assert len(block) == size
        return block, False

    def write(self, block: np.ndarray) -> None:
        self.played.append(block)


def test_a_microphone(monkeypatch, model):
    monkeypatch.setitem(sys.modules, "sounddevice", types.SimpleNamespace(Stream=Card))
    runpy.run_path(str(EXAMPLES / "microphone.py"), run_name="__main__")
    played = np.concatenate(Card.last.played)[:, 0]
    late = drnmf.Streamer(model, 48000).latency
    assert len(played) == len(Card.last.heard)
    assert not played[:late].any()
    np.testing.assert_allclose(played[late:], streamed(Card.last.heard, 48000, model)[:-late], atol=1e-6)


def test_onnx_in_node(tmp_path, model):
    """As onnxruntime in Python, where it is tested against PyTorch."""
    command = [NODE or "node", "-e", "require('onnxruntime-node')"]
    found = NODE and subprocess.run(command, cwd=EXAMPLES, capture_output=True, timeout=60, check=False).returncode == 0
    if not found:
        pytest.skip("no Node with onnxruntime-node: npm install --prefix examples onnxruntime-node")
    export.export(model, tmp_path / "model.onnx")
    soundfile.write(tmp_path / "noisy.wav", noisy(), 16000, "PCM_16")
    for program, name in ((sys.executable, "py"), (NODE, "js")):
        arguments = [tmp_path / "model.onnx", tmp_path / "noisy.wav", tmp_path / f"{name}.wav"]
        subprocess.run([program, EXAMPLES / f"stream_onnx.{name}", *arguments], timeout=120, check=True)
    in_python, in_node = (soundfile.read(tmp_path / f"{name}.wav", dtype="int16")[0] for name in ("py", "js"))
    assert in_node.shape == in_python.shape
    assert np.abs(in_node.astype(int) - in_python).max() <= 1
    assert np.abs(in_node).max() > 1000
