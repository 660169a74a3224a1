import sys
import warnings
from pathlib import Path

import mir_eval
import numpy as np
import pytest
import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.signal import audio, metrics
from drnmf.signal.metrics import ScoreWarning, decompose, pesq, ratio_db, sdr, si_sdr, snr, stoi

AUDIO = Path(__file__).parents[1] / "audio"
SPEECH = ["austen_0880", "austen_0930"]
NOISE = ["printer_sauna", "guitar", "percussion", "hum"]


def read(kind: str, name: str) -> Tensor:
    return audio.read(AUDIO / kind / f"{name}.flac")[0][0].double()


def mix(speech: Tensor, noise: Tensor, snr_db: float) -> Tensor:
    noise = noise[: len(speech)]
    return speech + noise * (speech.norm() / noise.norm()) * 10 ** (-snr_db / 20)


def mir_eval_sdr(estimate: Tensor, *references: Tensor) -> float:
    """SDR of the first source; the other references stand for their own estimates."""
    sources = torch.stack(references).numpy()
    estimates = torch.stack([estimate, *references[1:]]).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return mir_eval.separation.bss_eval_sources(sources, estimates, compute_permutation=False)[0][0]


def fast_bss_eval_sdr(estimate: Tensor, reference: Tensor) -> float:
    fast_bss_eval = pytest.importorskip("fast_bss_eval")
    return fast_bss_eval.sdr(reference[None], estimate[None]).item()


@pytest.mark.parametrize(
    ("name", "noise", "snr_db"),
    [(SPEECH[0], NOISE[0], -6), (SPEECH[1], NOISE[1], 3), (SPEECH[0], NOISE[3], 9), (SPEECH[1], NOISE[2], 30)],
)
def test_sdr_agrees_with_mir_eval_and_fast_bss_eval(name: str, noise: str, snr_db: float) -> None:
    clean = read("speech", name)
    estimate = mix(clean, read("noise", noise), snr_db)
    estimate = estimate.clamp(-0.2, 0.2).roll(3)  # a distortion and a delay: SDR is no longer the SNR
    value = sdr(estimate.float(), clean.float()).item()
    assert value == pytest.approx(mir_eval_sdr(estimate, clean), abs=0.01)
    assert value == pytest.approx(fast_bss_eval_sdr(estimate, clean), abs=0.01)


def test_sdr_does_not_depend_on_the_other_sources() -> None:
    clean, noise = read("speech", SPEECH[0]), read("noise", NOISE[2])
    estimate = mix(clean, noise, 2.0)
    assert sdr(estimate, clean).item() == pytest.approx(mir_eval_sdr(estimate, clean, noise[: len(clean)]), abs=0.01)


def test_sdr_of_an_ill_conditioned_reference_agrees_with_mir_eval() -> None:
    tone = torch.sin(0.05 * torch.arange(8000, dtype=torch.float64))  # its 512 delayed copies span little more than 2
    estimate = tone + 0.1 * torch.randn(8000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert sdr(estimate, tone).item() == pytest.approx(mir_eval_sdr(estimate, tone), abs=0.01)


@pytest.fixture(scope="module")
def orthogonal_parts() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Speech, the same through 512 random taps, and noise made orthogonal, by QR, to its 512 delayed copies."""
    rng = np.random.default_rng(1)
    clean = read("speech", SPEECH[0])[8000:11000].numpy().copy()
    clean[-512:] = 0  # so that the filtered speech ends inside the signal
    copies = np.stack([np.concatenate([np.zeros(i), clean[: len(clean) - i]]) for i in range(512)], axis=1)
    basis, _ = np.linalg.qr(copies)
    noise = rng.standard_normal(len(clean))
    return clean, copies @ (rng.standard_normal(512) * np.exp(-np.arange(512) / 50)), noise - basis @ (basis.T @ noise)


@pytest.mark.parametrize("level", [-20.0, 0.0, 12.0, 60.0])
def test_sdr_known_by_construction(level: float, orthogonal_parts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    clean, target, noise = orthogonal_parts
    noise = noise * np.linalg.norm(target) / np.linalg.norm(noise) * 10 ** (-level / 20)
    estimate, reference = torch.from_numpy(target + noise), torch.from_numpy(clean)
    assert sdr(estimate, reference).item() == pytest.approx(level, abs=1e-4)
    assert si_sdr(estimate, reference).item() < level - 1  # a gain cannot undo the filter


@pytest.mark.parametrize("gain", [1e-4, 1.0, -30.0])
def test_si_sdr_and_snr_known_by_construction(gain: float) -> None:
    clean, noise = read("speech", SPEECH[0]), read("noise", NOISE[0])
    noise = noise[: len(clean)] - (noise[: len(clean)] @ clean) / (clean @ clean) * clean
    estimate = mix(clean, noise, 7.0)
    assert snr(estimate, clean).item() == pytest.approx(7.0, abs=1e-6)
    assert si_sdr(gain * estimate, clean).item() == pytest.approx(7.0, abs=1e-6)
    assert si_sdr(estimate, gain * clean).item() == pytest.approx(7.0, abs=1e-6)
    assert snr(2 * clean, clean).item() == pytest.approx(0.0, abs=1e-6)


def test_si_sdr_is_sdr_with_one_tap() -> None:
    clean = read("speech", SPEECH[1])
    estimate = mix(clean, read("noise", NOISE[1]), 1.0)
    torch.testing.assert_close(sdr(estimate, clean, filter_length=1), si_sdr(estimate, clean))


@pytest.mark.parametrize("metric", [sdr, si_sdr, snr])
def test_a_batch_is_scored_as_its_signals(metric) -> None:
    clean = torch.stack([read("speech", name)[:20000] for name in SPEECH])[:, None].expand(2, 2, -1)
    noise = torch.stack([read("noise", name)[:20000] for name in NOISE]).reshape(2, 2, -1)
    scores = metric(clean + noise, clean)
    assert scores.shape == (2, 2)
    for i in range(2):
        for j in range(2):
            torch.testing.assert_close(scores[i, j], metric(clean[i, j] + noise[i, j], clean[i, j]))


def test_gradients_are_those_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    clean, estimate = torch.randn(2, 16, dtype=torch.float64, generator=generator)
    estimate.requires_grad_()
    assert torch.autograd.gradcheck(lambda e: si_sdr(e, clean), estimate)
    assert torch.autograd.gradcheck(lambda e: sdr(e, clean, filter_length=4), estimate)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("e_gain", "r_gain", "expected"), [(0, 1, -120), (1, 0, -120), (0, 0, -120), (1, 1, 120), (1e-3, 1, 120)]
)
def test_loss_is_finite_at_silence_and_at_perfection(e_gain: float, r_gain: float, expected: float, dtype) -> None:
    clean = read("speech", SPEECH[0])[:8000].to(dtype)
    estimate = (e_gain * clean).requires_grad_()
    value = si_sdr(estimate, r_gain * clean)
    tolerance = 0.1 if dtype == torch.float64 else 5  # in float32 the product with 1e-3 is rounded: -144 dB
    assert value.item() == pytest.approx(expected, abs=tolerance)
    (value + ratio_db(*decompose(estimate, r_gain * clean, 32))).backward()
    assert estimate.grad.isfinite().all()


BAD = torch.tensor([0.1, float("nan"), 0.2])
GOOD = torch.tensor([0.1, 0.3, 0.2])


@pytest.mark.parametrize("metric", [sdr, snr, pesq, stoi])
@pytest.mark.parametrize(
    ("estimate", "reference", "message"),
    [
        (BAD, GOOD, "estimate contains NaN"),
        (GOOD, GOOD / 0, "reference contains NaN or inf"),
        (GOOD, GOOD * 0, "reference is silent"),
        (GOOD * 0, GOOD, "estimate is silent"),
        (GOOD, GOOD[:2], r"\(3,\), the reference \(2,\)"),
        (GOOD[:0], GOOD[:0], "nothing to score"),
        (GOOD.int() + 1, GOOD.int() + 1, "must be floats"),
    ],
)
def test_wrong_input_is_told(metric, estimate: Tensor, reference: Tensor, message: str) -> None:
    if metric in (pesq, stoi):
        pytest.importorskip({pesq: "pesq", stoi: "pystoi"}[metric])
    with pytest.raises(InputError, match=message):
        metric(estimate, reference)


def test_one_silent_reference_in_a_batch_is_told() -> None:
    with pytest.raises(InputError, match="reference is silent"):
        sdr(torch.stack([GOOD, GOOD]), torch.stack([GOOD, GOOD * 0]))
    with pytest.raises(InputError, match="filter_length"):
        sdr(GOOD, GOOD, filter_length=0)
    with pytest.raises(InputError, match="shape"):
        si_sdr(GOOD, GOOD[:2])
    assert si_sdr(BAD, GOOD).isnan()


def test_pesq_and_stoi_are_those_of_their_packages_and_grow_with_the_snr() -> None:
    pesq_package, stoi_package = pytest.importorskip("pesq"), pytest.importorskip("pystoi")
    clean, noise = read("speech", SPEECH[0]), read("noise", NOISE[0])
    scores = []
    for snr_db in (-5, 5, 25):
        noisy = mix(clean, noise, snr_db)
        scores.append((pesq(noisy.float(), clean.float()), stoi(noisy, clean)))
        assert scores[-1][0] == pytest.approx(pesq_package.pesq(16000, clean.numpy(), noisy.numpy(), "wb"), abs=1e-3)
        assert scores[-1][1] == pytest.approx(stoi_package.stoi(clean.numpy(), noisy.numpy(), 16000), abs=1e-6)
    assert scores == sorted(scores)
    assert stoi(clean, clean) == pytest.approx(1)


def test_what_cannot_be_scored_is_nan_with_the_reason() -> None:
    pytest.importorskip("pesq")
    pytest.importorskip("pystoi")
    clean = read("speech", SPEECH[0])[8000:]
    with pytest.warns(ScoreWarning, match="PESQ not scored: Buffer needs to be at least 1/4"):
        assert np.isnan(pesq(clean[:2000], clean[:2000]))
    for n in (10, 2000):
        with pytest.warns(ScoreWarning, match="STOI not scored: less than 0.4 s of speech"):
            assert np.isnan(stoi(clean[:n], clean[:n]))
    with pytest.raises(InputError, match="8000 Hz"):
        pesq(clean, clean, 8000)
    with pytest.raises(InputError, match="one signal"):
        pesq(clean[None], clean[None])


def test_a_long_recording_cannot_take_the_process_down(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("pesq")
    clean = torch.cat([read("speech", name) for name in SPEECH] * 4)[: 21 * 16000]
    noisy = clean + 0.01 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0), dtype=clean.dtype)
    assert pesq(noisy, clean) == pytest.approx(package.pesq(16000, clean.numpy(), noisy.numpy(), "wb"), abs=1e-4)
    for script, reason in [("import os; os.abort()", "crashed"), ("raise ValueError('no speech')", "no speech")]:
        monkeypatch.setattr(metrics, "_PESQ_IN_A_CHILD", script)
        with pytest.warns(ScoreWarning, match=reason):
            assert np.isnan(pesq(noisy, clean))


@pytest.mark.parametrize(("metric", "package"), [(pesq, "pesq"), (stoi, "pystoi")])
def test_a_missing_package_is_told_with_its_remedy(metric, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"pip install {package}"):
        metric(GOOD, GOOD)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_scores() -> None:
    clean = read("speech", SPEECH[0])
    noisy = mix(clean, read("noise", NOISE[0]), 0.0)
    for metric in (sdr, si_sdr, snr):
        torch.testing.assert_close(metric(noisy.cuda(), clean.cuda()).cpu(), metric(noisy, clean))


@pytest.mark.parametrize("metric", [sdr, si_sdr, snr])
@pytest.mark.parametrize("shape", [(8000,), (2, 8000)])
def test_arrays_are_scored_like_tensors(metric, shape):
    random = np.random.default_rng(0)
    reference = random.standard_normal(shape)
    estimate = reference + 0.1 * random.standard_normal(shape)
    score = metric(np.float32(estimate), reference)
    assert np.shape(score) == shape[:-1]
    expected = metric(torch.from_numpy(np.float32(estimate)), torch.from_numpy(reference))
    np.testing.assert_allclose(score, expected, rtol=0, atol=1e-9)
    with pytest.raises(InputError, match="both numpy arrays, or both torch tensors"):
        metric(estimate, torch.from_numpy(reference))
    with pytest.raises(InputError, match="nothing to score"):
        metric(estimate[..., :0], reference[..., :0])
