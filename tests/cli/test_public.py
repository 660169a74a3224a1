"""`drnmf evaluate` on public test sets, with the measures of their tables."""

import json

import numpy as np
import pytest

import public
from command import drnmf
from drnmf.signal.composite import composite
from drnmf.signal.dnsmos import POLYNOMIALS
from drnmf.signal.metrics import si_sdr
from drnmf.use import evaluation


def scores(*arguments):
    """The last line of the table that a command ends in, and what is said beside it."""
    done = drnmf(*arguments, "--json", "--jobs", 1)
    document = json.loads(done.stdout)
    return document["summary"][-1], document


def test_voicebank_has_the_columns_of_its_tables(tmp_path):
    for package in ("pesq", "pystoi"):
        pytest.importorskip(package)
    overall, document = scores("evaluate", "default", "--voicebank", public.voicebank(tmp_path))
    assert [row["id"] for row in document["rows"]] == ["p232_001", "p257_434"]
    assert [name for name in overall if name + "_noisy" in overall] == [
        *("pesq", "csig", "cbak", "covl", "stoi", "si_sdr", "sdr")
    ]
    clean, noisy = public.sound("austen_0880", 4.0)
    before = document["rows"][0]["noisy"]
    assert before["si_sdr"] == pytest.approx(si_sdr(noisy, clean).item(), abs=0.05)  # 48 kHz and back
    for name, rating in composite(noisy, clean).items():
        assert before[name] == pytest.approx(rating, abs=0.1)
    assert overall["si_sdr_improvement"] > 0.5


def test_dns_by_snr_and_with_dnsmos(tmp_path):
    listener = tmp_path / "networks"
    listener.mkdir()
    options = ["--metric", "si_sdr", "--metric", "dnsmos", "--dnsmos", public.dnsmos(listener)]
    overall, document = scores("evaluate", "default", "--dns", public.dns(tmp_path), *options)
    assert [line["snr_db"] for line in document["summary"]] == [-5, 15, "all"]
    assert overall["count"] == 4
    assert overall["ovrl"] == pytest.approx(2.006, abs=0.001)  # what the stand-in always says
    _, noisy = public.sound("austen_0880", 7 / 99)
    peak = np.polyval(POLYNOMIALS["sig"], noisy.max().item())
    assert document["rows"][0]["noisy"]["sig"] == pytest.approx(peak, abs=1e-3)
    assert document["rows"][0]["scores"]["sig"] != document["rows"][0]["noisy"]["sig"]
    assert set(document["rows"][0]["scores"]) == {"si_sdr", "sig", "bak", "ovrl", "p808"}
    _, two = scores("evaluate", "default", "--dns", tmp_path, "--metric", "si_sdr", "--every", 2)
    assert [row["id"] for row in two["rows"]] == ["no_reverb/fileid_7", "with_reverb/fileid_7"]


def test_files_are_scored_by_dnsmos_that_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.setenv("DRNMF_DNSMOS", str(public.dnsmos(tmp_path)))
    public.voicebank(tmp_path)
    folders = [tmp_path / f"{part}_testset_wav" for part in ("noisy", "clean")]
    overall, _ = scores("score", *folders, "--metric", "dnsmos")
    assert list(overall) == ["snr_db", "count", "sig", "bak", "ovrl", "p808"]
    overall, _ = scores("score", *folders)
    assert list(overall)[2:4] == ["sdr", "si_sdr"]
    assert list(overall)[-4:] == ["sig", "bak", "ovrl", "p808"]
    overall, _ = scores("score", *folders, "--metric", "sdr")
    assert list(overall) == ["snr_db", "count", "sdr"]


def test_without_the_extra_packages_the_table_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "find_spec", lambda name: None)
    overall, document = scores("evaluate", "default", "--voicebank", public.voicebank(tmp_path))
    assert [name for name in overall if name + "_noisy" in overall] == ["si_sdr", "sdr"]
    assert document["notes"] == [
        *(
            "pesq left out: pip install pesq",
            "composite left out: pip install pesq",
            "stoi left out: pip install pystoi",
        )
    ]
    for metric, package in (("composite", "pesq"), ("dnsmos", "onnxruntime")):
        given = ["--metric", metric, *(["--dnsmos", tmp_path] if metric == "dnsmos" else [])]
        error = drnmf("evaluate", "default", "--voicebank", tmp_path, *given, status=2).stderr
        assert error == f"drnmf: {metric} needs a package that is not installed: pip install {package}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of these: a manifest, --voicebank, --dns"),
        (["list.csv", "--dns", "folder"], "give one of these: a manifest, --voicebank, --dns"),
        (["--dns", "nowhere"], "nowhere: is not DNS's synthetic test set, it has no folders 'clean' and 'noisy'"),
        (["--voicebank", "nowhere"], "nowhere: is not VoiceBank+DEMAND, it has no folder clean_testset_wav"),
    ],
)
def test_a_mistake_is_one_line(arguments, message):
    assert drnmf("evaluate", "default", *arguments, status=2).stderr == f"drnmf: {message}\n"


def test_dnsmos_without_its_networks_is_one_line(tmp_path):
    folder = public.voicebank(tmp_path)
    wanted = ["evaluate", "default", "--voicebank", folder, "--metric", "dnsmos"]
    message = "dnsmos needs its networks: give --dnsmos, the folder of sig_bak_ovr.onnx"
    assert drnmf(*wanted, status=2).stderr.splitlines()[-1] == f"drnmf: {message}"
    pytest.importorskip("onnxruntime")
    assert "has no sig_bak_ovr.onnx" in drnmf(*wanted, "--dnsmos", folder, status=2).stderr
