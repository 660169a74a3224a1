"""DNSMOS against Microsoft's package; the networks are stood in for where they are not here."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.polynomial import polynomial

import public
from drnmf.errors import InputError
from drnmf.signal import audio, dnsmos

TESTS = Path(__file__).parents[1]
GOLDEN = json.loads((TESTS / "golden" / "scores.json").read_text())


def read(name: str) -> np.ndarray:
    return audio.read(TESTS / "audio" / f"{name}.flac")[0][0].numpy()


@pytest.fixture
def networks(tmp_path):
    return public.dnsmos(tmp_path)


def test_the_mel_spectrum_is_that_of_librosa():
    spectrum = dnsmos.mel_spectrum(read("speech/austen_0880"))[::40, ::17]
    np.testing.assert_allclose(spectrum, GOLDEN["mel"]["values"], atol=1e-5)


@pytest.mark.parametrize(
    ("seconds", "starts"), [(3, [0, 1, 2]), (9, [0, 1, 2, 3, 4, 5, 6, 7, 8]), (9.01, [0]), (10.5, [0]), (12, [0, 1, 2])]
)
def test_pieces_begin_a_second_apart_and_short_sound_is_doubled(seconds, starts):
    """Worked out by hand from Microsoft's script: 3 s become 12, 9 s become 18."""
    x = np.arange(round(seconds * 16000), dtype=np.float32)
    found = dnsmos.pieces(x)
    assert {len(piece) for piece in found} == {144160}
    assert [int(piece[0]) for piece in found] == [16000 * start % len(x) for start in starts]
    assert int(found[0][-1]) == 144159 % len(x)


def test_networks_are_heard_through_the_published_polynomials(networks):
    x = read("speech/austen_0870")
    scores = dnsmos.Listener(networks).score(x)
    heard = dnsmos.pieces(x)
    peaks, means = [float(p.max()) for p in heard], [float(p.mean()) for p in heard]
    expected = {
        "sig": np.mean(polynomial.polyval(peaks, [0.0052439, 1.22083953, -0.08397278])),
        "bak": np.mean(polynomial.polyval(means, [-0.39604546, 1.60915514, -0.13166888])),
        "ovrl": 0.04602535 + 1.11546468 * 2 - 0.06766283 * 4,
        "p808": np.mean([dnsmos.mel_spectrum(p[:-160]).mean() for p in heard]),
    }
    assert scores == pytest.approx(expected, abs=1e-5)


def test_without_its_second_network_there_is_no_p808(networks):
    (networks / dnsmos.P808).unlink()
    assert set(dnsmos.Listener(networks).score(read("speech/austen_0880"))) == {"sig", "bak", "ovrl"}


def test_what_is_missing_is_told(tmp_path, networks, monkeypatch):
    with pytest.raises(InputError, match=r"nowhere: has no sig_bak_ovr.onnx; DNSMOS's files are in"):
        dnsmos.Listener(tmp_path / "nowhere")
    with pytest.raises(InputError, match="one signal"):
        dnsmos.Listener(networks).score(np.zeros((2, 16000)))
    (networks / dnsmos.P808).write_bytes(b"no network")
    with pytest.raises(InputError, match=r"model_v8.onnx: is no network that onnxruntime can run"):
        dnsmos.Listener(networks)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"DNSMOS needs the package onnxruntime.*pip install onnxruntime"):
        dnsmos.Listener(networks)


@pytest.mark.parametrize("row", GOLDEN["dnsmos"]["rows"][:1], ids=lambda row: row["file"])
def test_scores_are_those_of_microsoft_s_package(row):
    folder = os.environ.get("DRNMF_DNSMOS")
    if not folder:
        pytest.skip("DNSMOS's networks are not here: set DRNMF_DNSMOS to their folder")
    scores = dnsmos.Listener(folder).score(read(row["file"]))
    assert scores == pytest.approx({name: row[name] for name in ("sig", "bak", "ovrl", "p808")}, abs=1e-4)
