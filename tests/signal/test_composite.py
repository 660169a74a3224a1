"""CSIG, CBAK and COVL against another package's values, and where they can be known without one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from drnmf.signal import audio, composite
from drnmf.signal.metrics import ScoreWarning

TESTS = Path(__file__).parents[1]
GOLDEN = json.loads((TESTS / "golden" / "scores.json").read_text())["composite"]["rows"]


def read(kind: str, name: str) -> torch.Tensor:
    return audio.read(TESTS / "audio" / kind / f"{name}.flac")[0][0].double()


def mixture(row: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """As the values were computed: by the norms of the whole signals, in double precision."""
    clean = read("speech", row["speech"])
    noise = read("noise", row["noise"])[: len(clean)]
    return clean + noise * (clean.norm() / noise.norm()) * 10 ** (-row["snr_db"] / 20), clean


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["noise"])
def test_parts_are_those_of_another_package(row):
    e_TS, r_TS = (composite._frames(x.numpy()) for x in mixture(row))
    assert composite.segmental_snr(e_TS, r_TS).mean() == pytest.approx(row["ssnr"], abs=1e-6)
    assert composite._mean_of_best(composite.weighted_spectral_slope(e_TS, r_TS)) == pytest.approx(row["wss"], abs=1e-6)
    assert composite._mean_of_best(composite.log_likelihood_ratio(e_TS, r_TS)) == pytest.approx(row["llr"], abs=1e-6)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["noise"])
def test_ratings_are_those_of_another_package(row):
    pytest.importorskip("pesq")
    ratings = composite.composite(*(x.numpy() for x in mixture(row)))
    assert ratings["cbak"] == pytest.approx(row["cbak"], abs=1e-5)
    for name in ("csig", "covl"):  # the package rounds the prediction to single precision
        assert ratings[name] == pytest.approx(row[name], abs=0.005)


def test_a_known_pesq_is_taken_and_ratings_stay_within_1_and_5():
    noisy, clean = mixture(GOLDEN[0])
    same = composite.composite(clean, clean, wide_pesq=4.644)
    assert same == {"csig": 5.0, "cbak": 5.0, "covl": 5.0}
    low, high = (composite.composite(noisy, clean, wide_pesq=pesq) for pesq in (2.0, 3.0))
    assert high["cbak"] - low["cbak"] == pytest.approx(0.478)


def test_silence_inside_a_recording_has_a_rating():
    noisy, clean = mixture(GOLDEN[2])
    noisy, clean = noisy.clone(), clean.clone()
    clean[8000:16000] = 0
    noisy[12000:20000] = 0
    assert all(1 <= rating <= 5 for rating in composite.composite(noisy, clean, wide_pesq=2.0).values())


def test_silence_predicts_silence():
    silence_TS = composite._frames(np.zeros(4800))
    assert composite.log_likelihood_ratio(silence_TS, silence_TS) == pytest.approx(np.zeros(36))


def test_too_short_a_sound_is_told():
    x = read("speech", "austen_0880")[:599]
    with pytest.warns(ScoreWarning, match="less than 38 ms"):
        assert all(np.isnan(list(composite.composite(x, x, wide_pesq=2.0).values())))
