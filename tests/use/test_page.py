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
from native import ROOT, Enhancer, needs, run
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


def test_in_chromium(tmp_path):
    if not os.environ.get("DRNMF_ANYWHERE"):
        pytest.skip("starts a browser for some seconds: make anywhere")
    modules = playwright()
    x = write(tmp_path / "noisy.wav", 16000, 1)
    three = np.stack([x[0], 0.1 * x[0], np.roll(x[0], 5)])[:, :16000]
    soundfile.write(tmp_path / "three.wav", three.T, 16000, subtype="FLOAT")
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
    ahead = x[0, :12000][::-1]  # as `enhance` listens
    expected = {
        "as-ever": enhance(x, 16000)[0],
        "changed": changed.enhance(np.concatenate([ahead, x[0]]), [512])[len(ahead) :],
        "half": enhance(x, 16000, strength=0.5)[0],
        "after-microphone": enhance(x, 16000)[0],
        "three": enhance(three, 16000),
    }
    for name, wanted in expected.items():
        y, rate = soundfile.read(tmp_path / f"{name}.wav", dtype="float32")
        assert rate == 16000
        np.testing.assert_allclose(y.T, wanted, rtol=0, atol=1e-4, err_msg=name)
    assert np.abs(expected["changed"] - expected["as-ever"]).max() > 1e-3
