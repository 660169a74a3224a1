"""Every form of the enhancer hears the same recordings, in blocks as they come: any two of them give the same sound."""

import functools
import io
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import soundfile
import soxr
import torch

import native
from drnmf import Streamer, istft, load_model, stft
from drnmf.engines import streams
from drnmf.models.folders import load_ready
from drnmf.use.page import write_page
from examples import recording
from native import Enhancer, built, needs, run
from test_without_torch import COMMAND, REFUSING
from use import test_export
from use.test_javascript import in_node
from use.test_plugin import by_lv2apply, plugin

# speech, noise, seconds and rate
MIXTURES = {
    "long": ("austen_0870", "printer_sauna", 4, 16000),
    "loud": ("austen_0890", "guitar", 2, 16000),
    "48 kHz": ("austen_0880", "percussion", 1.5, 48000),
}
BLOCK = 777  # samples, where a form takes blocks
HERE = Path(__file__).parent


@functools.cache
def mixture(name: str) -> tuple[np.ndarray, int]:
    """Samples and rate."""
    speech, noise, seconds, rate = MIXTURES[name]
    n = round(seconds * 16000)
    x = recording(f"speech/{speech}", n) + recording(f"noise/{noise}", n)
    return soxr.resample(x.numpy(), 16000, rate).astype(np.float32), rate


def streamed(x: np.ndarray, rate: int, model: object = "default") -> np.ndarray:
    streamer = Streamer(model, rate)
    parts = [streamer.feed(x[i : i + BLOCK]) for i in range(0, len(x), BLOCK)]
    return np.concatenate([*parts, streamer.flush()])


def in_pytorch(x: np.ndarray, rate: int) -> np.ndarray:
    """The readable way: nothing compiled."""
    with mock.patch("drnmf.engines.compiled.library", return_value=None):
        return streamed(x, rate, load_model("default"))


def on_a_pipe(x: np.ndarray, rate: int) -> np.ndarray:
    """The command where there is no PyTorch."""
    if not streams.available():
        pytest.skip("steps.c is not compiled here: pip install -e . with a C compiler")
    sound = io.BytesIO()
    soundfile.write(sound, x, rate, format="WAV", subtype="FLOAT")
    y = run(sys.executable, "-c", REFUSING + COMMAND, "enhance", "-", "-o", "-", input=sound.getvalue()).stdout
    return soundfile.read(io.BytesIO(y), dtype="float32")[0]


def in_c(x: np.ndarray, rate: int) -> np.ndarray:
    return Enhancer(rate).enhance(x, [BLOCK])


def by_the_program_in_c(x: np.ndarray, rate: int) -> np.ndarray:
    return np.frombuffer(run(built() / "drnmf-example", "-", rate, input=x.tobytes()).stdout, np.float32)


def in_sox(x: np.ndarray, rate: int) -> np.ndarray:
    """The LADSPA plugin; sox takes the latency off by what the plugin reports, and loses it at the end."""
    needs("sox")
    floats = "-t", "f32", "-r", rate, "-c", 1
    late = np.zeros(Enhancer(rate).latency(), np.float32)
    effect = "ladspa", "-l", plugin(), "drnmf_mono", 1, 100
    y = run("sox", *floats, "-", *floats, "-", *effect, input=x.tobytes() + late.tobytes()).stdout
    return np.frombuffer(y, np.float32)[: len(x)]


def in_lv2apply(x: np.ndarray, rate: int) -> np.ndarray:
    late = np.zeros(Enhancer(rate).latency(), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        return by_lv2apply(np.concatenate([x, late])[None], rate, Path(folder))[0, len(late) :]


def in_javascript(x: np.ndarray, rate: int, **where: Path) -> np.ndarray:
    """The npm package in Node."""
    end = np.zeros(rate // 10, np.float32)
    y, said = in_node(np.concatenate([x, end])[None], rate=rate, block=BLOCK, **where)
    return y[json.loads(said)["latency"] :][: len(x)]


def of_the_page(x: np.ndarray, rate: int) -> np.ndarray:
    """The released page's own engine and model, in Node."""
    needs("node")
    with tempfile.TemporaryDirectory() as folder:
        write_page(load_ready("default"), Path(folder) / "site")
        (Path(folder) / "package.json").write_text('{"type": "module"}')
        return in_javascript(x, rate, folder=Path(folder) / "site" / "drnmf")


def in_onnx(x: np.ndarray, rate: int) -> np.ndarray:
    assert rate == 16000
    X = stft(torch.from_numpy(x))
    masks, _ = test_export.run(test_export.session(load_model("default")), X.abs())
    return istft(masks.float() * X, len(x)).numpy()


FORMS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "Streamer": streamed,
    "pipe": on_a_pipe,
    "PyTorch": in_pytorch,
    "C library": in_c,
    "C program": by_the_program_in_c,
    "LADSPA": in_sox,
    "LV2": in_lv2apply,
    "npm": in_javascript,
    "page": of_the_page,
    "ONNX": in_onnx,
}
SAME_BITS = [
    {"Streamer", "pipe"},
    {"C library", "C program"},
    {"C library", "LV2"},
]  # the same code by the same compiler
CASES = [
    pytest.param(name, *pair, id=f"{pair[0]} = {pair[1]}, {name}")
    for name, pair in itertools.product(MIXTURES, itertools.combinations(FORMS, 2))
    if "ONNX" not in pair or MIXTURES[name][-1] == 16000  # it has the network, and no resampling
]


@functools.cache
def heard(form: str, name: str) -> np.ndarray:
    """What a form makes of a recording: each is run once."""
    return FORMS[form](*mixture(name))


@pytest.mark.parametrize(("name", "first", "second"), CASES)
def test_any_two_forms_give_the_same_sound(name, first, second):
    x, rate = mixture(name)
    # at other rates forms that cannot know the end beforehand take what follows for silence
    end = len(x) if rate == 16000 else len(x) - rate // 20
    y, other = heard(first, name), heard(second, name)
    assert y.shape == other.shape == x.shape
    np.testing.assert_allclose(y[:end], other[:end], rtol=0, atol=0 if {first, second} in SAME_BITS else 1e-5)
    assert np.abs(y - x).max() > 0.05


def test_what_is_missing_is_named_with_the_line_that_installs_it(monkeypatch, capsys, tmp_path):
    missing = {"no-such-player": "sox", str(tmp_path / "libc.a"): "wasi-libc", "no-such-server": "pipewire dbus"}
    monkeypatch.setattr(native, "DEBIAN", {sys.executable: "python3", **missing})  # whatever is installed here
    monkeypatch.setattr("os.geteuid", lambda: 1000, raising=False)
    native.install(really=False)
    said = capsys.readouterr().out
    assert f"Not installed: {', '.join(missing)}. " in said
    assert "\n    sudo apt-get install dbus pipewire sox wasi-libc\n" in said


def test_every_tool_that_a_test_needs_has_a_package():
    calls = [call for path in HERE.glob("*.py") for call in re.findall(r"\bneeds\((.*?)\)", path.read_text())]
    tools = {tool for call in calls for tool in re.findall(r'"(.+?)"', call)}
    assert {"node", "sox", "tsc"} <= tools
    assert tools - set(native.DEBIAN) == set()
