"""The page in a real Chromium: drop, play, switch, silence an atom, download; and that it is built from its sources."""

import hashlib
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile

from command import drnmf
from drnmf import enhance
from drnmf.models.folders import load_ready
from drnmf.use.page import page, server
from examples import recording
from native import ROOT, Enhancer, needs, run
from use.test_c_library import mixture, noise
from use.test_plugin import write

RELEASED = ROOT / "src" / "drnmf" / "bundled" / "page" / "drnmf"
MODULES = ROOT / "build" / "page"


def test_the_released_engine_is_that_of_its_sources():
    csrc, lib = ROOT / "src" / "drnmf" / "engines" / "csrc", ROOT / "libdrnmf"
    sources = [lib / name for name in ("drnmf.c", "drnmf.h", "learn.h", "model.h", "rates.h")]
    sources += [csrc / f"{name}.h" for name in ("engine", "arithmetic", "sound", "prior")]
    sources.append(ROOT / "js" / "build.sh")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    remedy = "the page is older than its sources: sh js/build.sh, and commit src/drnmf/bundled/page"
    assert (RELEASED / "sources.sha256").read_text().strip() == digest, remedy
    for name in ("drnmf.js", "engine.js", "worklet.js"):
        assert (RELEASED / name).read_bytes() == (ROOT / "js" / name).read_bytes(), remedy


def test_the_folder_has_all_that_a_server_needs(tmp_path):
    drnmf("app", "--save", tmp_path / "site")
    files = page(load_ready("default"))
    assert {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.*")} == set(files)
    assert "not empty" in drnmf("app", "--save", tmp_path / "site", status=2).stderr
    assert len(files["drnmf/drnmf.wasm"]) < 200e3
    assert len(files["drnmf/default.drnmf"]) < 4e6


def playwright() -> Path:
    """The folder with playwright-core, which `make anywhere` gets by npm."""
    needs("node", "chromium")
    if not (MODULES / "node_modules" / "playwright-core").is_dir():
        needs("npm")
        MODULES.mkdir(parents=True, exist_ok=True)
        run("npm", "install", "--silent", "--no-audit", "--no-fund", "playwright-core@1", cwd=MODULES)
    return MODULES


STRETCHES = {  # of `write_talk`, in seconds; the last is what is learned in the end, from the first atoms again
    "short": (0.2, 0.4),
    "silence": (1.1, 1.9),
    "speech": (2.0, 5.0),
    "first": (0.3, 0.7),
    "noise": (0.1, 0.9),
}


def write_talk(folder: Path) -> np.ndarray:
    """A second of noise, a second of silence, and a voice without noise."""
    voice = recording("speech/austen_0920").numpy()[:48000]
    talk = np.concatenate([noise("percussion", 3, 4)[0], np.zeros(16000), voice]).astype(np.float32)
    soundfile.write(folder / "talk.wav", talk, 16000, subtype="FLOAT")
    seconds = len(talk) / 16000
    stretches = [(name, first / seconds, last / seconds) for name, (first, last) in STRETCHES.items()]
    (folder / "stretches.json").write_text(json.dumps(stretches))
    return talk


def fast_expected(x: np.ndarray) -> np.ndarray:
    """By the C library: seven steps of a tenth of a second are learned."""
    ahead = np.concatenate([x, x[:, :36000][:, ::-1]], 1)
    enhancer = Enhancer(48000, 2, Enhancer(48000, 2).learn(x[:, :33600]))
    return enhancer.enhance(np.concatenate([ahead, x], 1), [512])[:, ahead.shape[1] :]


def check_learning(seen: dict) -> None:
    """What the page says of each stretch."""
    learning = seen["learning"]
    assert (seen["unmarked"], seen["unmarkedAgain"]) == (False, False)
    refusals = {
        "short": "Not learned: a sample of noise must last at least 0.3 s.",
        "silence": "Not learned: this sample of noise is silent: ",
        "speech": "Not learned: this is nothing but speech to the model: ",
    }
    for name, text in refusals.items():
        assert text in learning[name]["status"]
        assert (learning[name]["moved"], learning[name]["enabled"]) == (0, False)
    assert learning["noise"]["label"] == "Learn the noise from 0.10 to 0.90 s"
    assert "It knows the noise from 0.10 to 0.90 s." in learning["noise"]["status"]
    assert "It knows the noise from 0.00 to 0.70 s." in learning["keyboard"]["status"]
    for name in ("noise", "keyboard"):
        assert learning[name]["busy"] == "busy"
        assert learning[name]["moved"] > 3
        assert learning[name]["enabled"]
    assert "It knows" not in learning["forgotten"]["status"]
    for name in ("forgotten", "opened"):
        assert (learning[name]["moved"], learning[name]["enabled"]) == (0, False)


def test_in_chromium(tmp_path):
    if not os.environ.get("DRNMF_ANYWHERE"):
        pytest.skip("starts a browser for some seconds: make anywhere")
    modules = playwright()
    x = write(tmp_path / "noisy.wav", 16000, 1)
    three = np.stack([x[0], 0.1 * x[0], np.roll(x[0], 5)])[:, :16000]
    soundfile.write(tmp_path / "three.wav", three.T, 16000, subtype="FLOAT")
    talk = write_talk(tmp_path)
    fast = np.concatenate([noise("percussion", 3, 4, 48000, 2), mixture(48000, 2)], 1)
    soundfile.write(tmp_path / "fast.wav", fast.T, 48000, subtype="FLOAT")
    with server(page(load_ready("default")), 0) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        address = f"http://localhost:{served.server_port}"
        run("node", ROOT / "tests/use/browse.mjs", address, tmp_path / "noisy.wav", tmp_path, modules)
        served.shutdown()
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["errors"] == []
    assert seen["active"] > 5
    assert seen["explained"].startswith("At 0.80 s: mostly ")
    assert seen["stepped"].startswith("At 0.04 s: ")
    assert seen["tapped"].startswith("At 0.50 s: mostly ")
    assert not seen["saved"]
    assert (seen["playing"], seen["toggled"], seen["stopped"]) == ("Stop", "Before", "Play")
    assert (seen["pressed"], seen["microphone"], seen["overflow"]) == ("false", "true", False)
    assert "faster than real time" in seen["status"]
    changed = Enhancer()
    changed.keep_atom(10, 0)
    changed.keep_atom(150, 1)
    ahead = np.concatenate([x[0], x[0, :12000][::-1]])  # as `enhance` listens
    expected = {
        "as-ever": enhance(x, 16000)[0],
        "changed": changed.enhance(np.concatenate([ahead, x[0]]), [512])[len(ahead) :],
        "half": enhance(x, 16000, strength=0.5)[0],
        "after-microphone": enhance(x, 16000)[0],
        "three": enhance(three, 16000),
    }
    first, last = (round(part * len(talk)) for part in seen["learning"]["noise"]["stretch"])
    expected |= {
        "learned": enhance(talk, 16000, noise=talk[first:last]),
        "forgotten": enhance(talk, 16000),
        "fast-learned": fast_expected(fast),
    }
    check_learning(seen)
    for name, wanted in expected.items():
        y, rate = soundfile.read(tmp_path / f"{name}.wav", dtype="float32")
        assert rate == (48000 if name == "fast-learned" else 16000)
        np.testing.assert_allclose(y.T, wanted, rtol=0, atol=1e-4, err_msg=name)
    assert np.abs(expected["changed"] - expected["as-ever"]).max() > 1e-3
    assert np.abs(expected["learned"] - expected["forgotten"]).max() > 5e-3
