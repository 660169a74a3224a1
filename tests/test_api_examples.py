"""The example in the docstring of every public name, run as it stands."""

import doctest

import pytest
import torch

import drnmf
from drnmf.pictures import demo
from drnmf.signal import audio


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the examples find where they run: noisy.wav and clean.wav."""
    for name in ("noisy", "clean"):
        audio.write(tmp_path / f"{name}.wav", demo.recording(name), 16000)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)


@pytest.mark.parametrize("name", drnmf.__all__)
def test_example(name, folder):
    docstring = getattr(drnmf, name).__doc__
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    found = parser.get_doctest(docstring, {}, f"drnmf.{name}", None, None)
    assert any(f"{name}" in example.source for example in found.examples), "there is no example that uses it"
    said = []
    runner.run(found, out=said.append)
    assert runner.failures == 0, "".join(said)
