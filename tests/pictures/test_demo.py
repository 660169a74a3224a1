"""The demonstration really enhances, and says the truth about it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drnmf import InputError
from drnmf.pictures import demo
from drnmf.signal import audio
from drnmf.signal.metrics import sdr

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, demo.Result]:
    folder = tmp_path_factory.mktemp("demo") / "a" / "new one"
    return folder, demo.run(folder)


def test_the_sdr_rises_and_belongs_to_the_files(made: tuple[Path, demo.Result]) -> None:
    folder, result = made
    assert result.noisy_sdr == pytest.approx(0, abs=0.2)  # mixed at 0 dB
    assert result.enhanced_sdr - result.noisy_sdr > 6.6  # 6.9 dB were measured
    enhanced = audio.read_array(folder / "enhanced.wav")[0][0]
    assert float(sdr(enhanced, demo.recording("clean"))) == pytest.approx(result.enhanced_sdr, abs=0.01)


def test_files_have_the_recording_s_length_and_rate(made: tuple[Path, demo.Result]) -> None:
    folder, _ = made
    length = len(demo.recording("noisy"))
    for name in ("noisy", "enhanced", "removed"):
        found = audio.info(folder / f"{name}.wav")
        assert (found.rate, found.channels, found.samples) == (16000, 1, length), name
    noisy, enhanced, removed = (
        audio.read_array(folder / f"{name}.wav")[0] for name in ("noisy", "enhanced", "removed")
    )
    np.testing.assert_allclose(enhanced + removed, noisy, atol=1e-4, rtol=0)  # three roundings to 16 bits
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == ["demo.png", "enhanced.wav", "noisy.wav", "removed.wav"]


def test_the_bundled_recordings_are_what_their_attribution_says() -> None:
    clean = demo.recording("clean")
    noise = demo.recording("noisy") - clean
    assert 20 * np.log10(np.linalg.norm(clean) / np.linalg.norm(noise)) == pytest.approx(0, abs=0.01)


def test_a_file_in_the_way_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(InputError, match=r"demo: this folder cannot be made \(File exists\)"):
        demo.run(tmp_path / "demo")
    answer = subprocess.run(
        [sys.executable, "-m", "drnmf.pictures.demo", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("drnmf: ")
    assert len(answer.stderr.splitlines()) == 1


def python_of(page: str) -> str:
    """The one piece of Python on a page."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return code


def test_the_readme_s_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    audio.write("noisy.wav", demo.recording("noisy"), 16000)
    names: dict[str, object] = {}
    exec(python_of("README.md"), names)
    enhanced, clean = audio.read_array("enhanced.wav")[0][0], demo.recording("clean")
    assert sdr(enhanced, clean) > sdr(demo.recording("noisy"), clean) + 2


def test_the_page_of_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for name in ("clean", "noisy"):
        audio.write(f"{name}.wav", demo.recording(name), 16000)
    names: dict[str, Any] = {}
    exec(python_of("docs/python.md"), names)
    assert sdr(names["enhanced"], names["clean"]) > sdr(names["noisy"], names["clean"])
    assert audio.info("enhanced.wav").samples == len(names["noisy"])
