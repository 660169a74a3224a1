import functools

import pytest
import torch

from drnmf.training.perceptual import pesq_disturbance, pesq_loss, pesq_score
from examples import DEVICES, recording, seeded

SPEECH = [f"speech/austen_{number}" for number in ("0870", "0880", "0890", "0920", "0930")]
NOISE = [f"noise/{name}" for name in ("guitar", "hum", "percussion", "printer_sauna")]


def mixture(speech, noise, snr):
    clean = recording(speech)
    disturbance = recording(noise, len(clean))
    return clean, clean + disturbance * (clean.norm() / disturbance.norm() * 10 ** (-snr / 20))


def low_passed(noisy):
    spectrum = torch.fft.rfft(noisy)
    spectrum[len(spectrum) * 3 // 8 :] = 0
    return torch.fft.irfft(spectrum, len(noisy))


def masked(noisy, clean):
    window = torch.hann_window(512, dtype=torch.float64)
    X, Y = (torch.stft(x, 512, 128, window=window, return_complex=True) for x in (noisy, clean))
    mask = (Y.abs() / X.abs().clamp_min(1e-9)).clamp(0.05, 1)
    return torch.istft(X * mask, 512, 128, window=window, length=len(noisy))


@functools.cache
def pairs():
    """Estimates and references: noisy from -5 to 25 dB, low-passed at 3 kHz, and masked by an ideal ratio."""
    found = []
    for i, speech in enumerate(SPEECH):
        for j, noise in enumerate(NOISE):
            for snr in range(-5 + 5 * ((i + j) % 3), 26, 15):
                clean, noisy = mixture(speech, noise, snr)
                found.append((noisy, clean))
            found.append((low_passed(noisy), clean))
            found.append((masked(mixture(speech, noise, 5 * i - 5)[1], clean), clean))
    return found


def second(dtype=torch.float32):
    """A second of speech after a pause, and the same in noise."""
    clean, noisy = mixture("speech/austen_0880", "noise/percussion", 5)
    return noisy[4000:20000].to(dtype)[None], clean[4000:20000].to(dtype)[None]


def test_agrees_with_the_reference_implementation():
    reference_pesq = pytest.importorskip("pesq").pesq
    ours = torch.cat([pesq_score(x[None].float(), y[None].float()) for x, y in pairs()]).double()
    theirs = torch.tensor([reference_pesq(16000, y.numpy(), x.numpy(), "wb") for x, y in pairs()])
    error = (ours - theirs).abs()
    assert len(error) > 70
    assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.99
    assert error.mean() < 0.02
    assert error.median() < 0.003


@pytest.mark.parametrize("noise", NOISE)
def test_grows_with_snr(noise):
    clean, _ = mixture(SPEECH[1], noise, 0)
    noisy = torch.stack([mixture(SPEECH[1], noise, snr)[1] for snr in range(-5, 41, 5)])
    assert (pesq_score(noisy, clean.expand_as(noisy)).diff() > 0).all()
    assert (pesq_loss(noisy, clean.expand_as(noisy)).diff() < 0).all()


def test_reference_itself_is_perfect():
    _, clean = second()
    torch.testing.assert_close(pesq_score(clean, clean), torch.tensor([4.6439]), atol=1e-3, rtol=0)
    torch.testing.assert_close(torch.stack(pesq_disturbance(clean, clean)), torch.zeros(2, 1), atol=1e-3, rtol=0)


def test_level_does_not_matter():
    noisy, clean = second()
    expected = pesq_loss(noisy, clean)
    for gain in (0.01, 0.5, 30):
        torch.testing.assert_close(pesq_loss(gain * noisy, clean), expected, rtol=1e-3, atol=0)
        torch.testing.assert_close(pesq_loss(noisy, gain * clean), expected, rtol=1e-3, atol=0)


def test_neighbours_do_not_matter():
    noisy, clean = second()
    others = torch.randn(3, noisy.shape[1], generator=seeded())
    batch = torch.cat([others[:1], noisy, others[1:] * 0]), torch.cat([others[1:2], clean, others[1:] * 0])
    torch.testing.assert_close(pesq_loss(*batch)[1:2], pesq_loss(noisy, clean), rtol=1e-4, atol=0)


@pytest.mark.parametrize("length", [16000, 16127, 16383, 16384, 30001])
def test_any_length(length):
    reference_pesq = pytest.importorskip("pesq").pesq
    clean, noisy = (x[4000 : 4000 + length] for x in mixture("speech/austen_0880", "noise/hum", 15))
    expected = reference_pesq(16000, clean.numpy(), noisy.numpy(), "wb")
    assert pesq_score(noisy[None], clean[None]).item() == pytest.approx(expected, abs=0.005)


def silent_at_first(x):
    return torch.cat([torch.zeros_like(x[:, :8000]), x[:, 8000:]], 1)


def silent_within(x):
    return torch.cat([x[:, :6000], torch.zeros_like(x[:, :4000]), x[:, 10000:]], 1)


CASES = {
    "estimate is reference": lambda x, y: (y, y),
    "estimate silent": lambda x, y: (0 * x, y),
    "estimate nearly silent": lambda x, y: (1e-9 * x, y),
    "estimate constant": lambda x, y: (0 * x + 0.1, y),
    "reference silent": lambda x, y: (x, 0 * y),
    "both silent": lambda x, y: (0 * x, 0 * y),
    "estimate silent at first": lambda x, y: (silent_at_first(x), y),
    "reference silent at first": lambda x, y: (x, silent_at_first(y)),
    "both silent at first": lambda x, y: (silent_at_first(x), silent_at_first(y)),
    "estimate silent within": lambda x, y: (silent_within(x), y),
    "reference silent within": lambda x, y: (x, silent_within(y)),
    "both silent within": lambda x, y: (silent_within(x), silent_within(y)),
    "one sample": lambda x, y: (0 * x + torch.eye(1, x.shape[1], device=x.device), y),
    "inverted": lambda x, y: (-y, y),
    "unrelated": lambda x, y: (x.flip(1), y),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_finite(case, device):
    estimate, reference = (x.to(device).contiguous() for x in CASES[case](*second()))
    estimate.requires_grad_()
    for function in (pesq_loss, pesq_score):
        value = function(estimate, reference)
        (gradient,) = torch.autograd.grad(value.sum(), estimate)
        assert value.isfinite().all()
        assert gradient.isfinite().all()


def test_gradient_is_that_of_finite_differences():
    noisy, clean = second(torch.float64)
    noisy.requires_grad_()
    (gradient,) = torch.autograd.grad(pesq_loss(noisy, clean).sum(), noisy)
    directions = torch.randn(8, noisy.shape[1], dtype=torch.float64, generator=seeded()) * clean.std()
    step = 1e-8
    with torch.no_grad():
        ahead, behind = (pesq_loss(noisy + sign * step * directions, clean.expand(8, -1)) for sign in (1, -1))
    torch.testing.assert_close((ahead - behind) / (2 * step), directions @ gradient[0], rtol=1e-4, atol=1e-5)


def test_descending_the_gradient_raises_the_score():
    estimate, reference = second()
    before = pesq_score(estimate, reference)
    for _ in range(20):
        estimate = estimate.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(pesq_loss(estimate, reference).sum(), estimate)
        estimate = estimate - 0.01 * estimate.norm() * gradient / gradient.norm()
    assert pesq_score(estimate, reference) > before + 0.1


def test_tables_made_in_inference_mode_can_be_trained_with():
    noisy, clean = second(torch.float64)
    with torch.inference_mode():
        pesq_loss(noisy, clean)
    noisy.requires_grad_()
    pesq_loss(noisy, clean).sum().backward()
    assert noisy.grad is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_can_be_captured_in_a_cuda_graph():
    noisy, clean = (x.cuda() for x in second())
    estimate = noisy.clone().requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(pesq_loss(estimate, clean).sum(), estimate)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = pesq_loss(estimate, clean)
        (gradient,) = torch.autograd.grad(loss.sum(), estimate)
    with torch.no_grad():
        estimate.copy_((noisy + clean) / 2)
    graph.replay()
    again = estimate.detach().clone().requires_grad_()
    expected = pesq_loss(again, clean)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=0)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), again)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-4)
