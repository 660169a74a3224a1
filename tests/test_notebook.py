"""The notebook, run cell by cell with one epoch; what it shows comes from a full run."""

import contextlib
import io
import json
import re
import tempfile
from pathlib import Path

NOTEBOOK = Path(__file__).parents[1] / "examples" / "noise_to_model.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def gains(printed: str) -> list[float]:
    """In dB, of the trained model."""
    return [float(after) - float(before) for before, after in re.findall(r"([-\d.]+) dB  -> +([-\d.]+) dB", printed)]


def test_it_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("DRNMF_NOTEBOOK_EPOCHS", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(NOTEBOOK.parent)
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in CELLS:
            exec("".join(cell["source"]), names)
    assert len(gains(printed.getvalue())) == 4
    assert {path.suffix for path in names["workshop"].iterdir()} >= {".wav", ".png", ".toml"}
    assert names["trained"].config["n_layers"] == 5


def test_what_it_shows_is_a_model_that_learned():
    printed = "".join(text for cell in CELLS for output in cell["outputs"] for text in output.get("text", ()))
    assert len(gains(printed)) == 4
    assert min(gains(printed)) > 0.5
