import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drnmf import InputError, istft, stft
from drnmf.signal.spectra import _windows, n_frames
from examples import DEVICES, recording, seeded

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def test_frames_are_spectra_of_windowed_pieces():
    x = recording("speech/austen_0880", 2000)
    padded = np.concatenate([np.zeros(512), x.numpy(), np.zeros(512)])
    window = np.sin(np.pi * np.arange(512) / 512)  # the square root of a periodic Hann window
    expected = [np.fft.rfft(window * padded[s : s + 512]) for s in range(0, len(padded) - 511, 128)]
    X = stft(x)
    assert X.shape == (n_frames(2000), 257)
    np.testing.assert_allclose(X.numpy(), np.stack(expected), atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 383, 384, 511, 512, 513, 47000])
def test_real_speech_is_reconstructed(length, dtype, device):
    x = recording("speech/austen_0880", length).to(device, dtype)
    x = x / x.abs().max().clamp_min(0.01)  # up to full scale
    X = stft(x)
    assert X.shape == (n_frames(length), 257)
    assert X.device == x.device
    torch.testing.assert_close(istft(X, length), x, rtol=0, atol=TOLERANCE[dtype])


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 3000), batch=st.lists(st.integers(1, 3), max_size=2), seed=st.integers(0, 99))
def test_every_length_and_batch_is_reconstructed(length, batch, seed):
    x = 2 * torch.rand(*batch, length, generator=seeded(seed)) - 1
    X = stft(x)
    torch.testing.assert_close(istft(X, length), x, rtol=0, atol=1e-6)
    first = (0,) * len(batch)
    torch.testing.assert_close(X[first], stft(x[first]), rtol=0, atol=1e-5)


def test_spectra_need_not_be_contiguous():
    x = torch.rand(3, 1000, dtype=torch.float64)
    X = stft(x).permute(1, 2, 0).contiguous().permute(2, 0, 1)
    torch.testing.assert_close(istft(X, 1000), x)


def test_gradients():
    x = torch.rand(2, 130, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(stft, x, fast_mode=True)
    X = stft(x).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda X: istft(X, 130), X, fast_mode=True)


class Magnitude(torch.nn.Module):
    def forward(self, x):
        return stft(x).abs()


def test_tracing_and_eager_use_do_not_disturb_each_other():
    _windows.clear()
    x = torch.rand(500)
    before = torch.export.export(Magnitude(), (x,))
    eager = stft(x).abs()
    after = torch.export.export(Magnitude(), (x,))
    assert type(eager) is torch.Tensor
    for program in (before, after):
        torch.testing.assert_close(program.module()(x), eager)


def test_a_window_made_in_inference_mode_can_be_trained_with():
    _windows.clear()
    with torch.inference_mode():
        stft(torch.rand(500))
    x = torch.rand(500, requires_grad=True)
    stft(x).abs().sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(0), r"at least one sample.*\(0,\)"),
        (torch.zeros(2, 0), "at least one sample"),
        (torch.zeros(0, 100), "at least one sample"),
        (torch.tensor(1.0), "at least one sample"),
        (torch.zeros(100, dtype=torch.int16), "int16; divide integers"),
        (torch.zeros(100, dtype=torch.float16), "float32 or float64.*float16"),
        (torch.zeros(100, dtype=torch.complex64), "complex64"),
    ],
)
def test_signals_that_cannot_be_analysed(x, message):
    with pytest.raises(InputError, match=message):
        stft(x)


@pytest.mark.parametrize(
    ("X", "length", "message"),
    [
        (stft(torch.zeros(100)), 0, "at least one sample, got 0"),
        (stft(torch.zeros(100)), 900, "5 frames do not belong to 900 samples, which have 12"),
        (stft(torch.zeros(100)).abs(), 100, "complex spectra.*float32"),
        (stft(torch.zeros(100))[:, :-1], 100, r"\(5, 256\)"),
        (stft(torch.zeros(100))[0], 100, r"\(257,\)"),
    ],
)
def test_spectra_that_cannot_be_synthesised(X, length, message):
    with pytest.raises(InputError, match=message):
        istft(X, length)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1,), (2000,), (2, 3, 513)])
def test_arrays_are_transformed_like_tensors(shape, dtype):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    X, expected = stft(x), stft(torch.from_numpy(x))
    assert type(X) is np.ndarray
    assert X.dtype == expected.numpy().dtype
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(X, expected.numpy(), rtol=0, atol=tolerance)
    back = istft(X, shape[-1])
    assert back.dtype == dtype
    np.testing.assert_allclose(back, x, rtol=0, atol=tolerance)


@pytest.mark.parametrize("x", [np.zeros(0), np.zeros(4, np.int16), np.float32(1)])
def test_arrays_that_are_no_sound_are_refused(x):
    with pytest.raises(InputError, match="stft needs"):
        stft(np.asarray(x))
