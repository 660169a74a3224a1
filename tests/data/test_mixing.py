import numpy as np
import pytest
import scipy.signal
import soundfile
import torch

from drnmf.data.mixing import convolve, fast_length, mix_batch


def mix(speech, background, *, rir=None, snr_db, level_dbfs):
    """A batch of one."""
    rooms = None if rir is None else rir[None]
    numbers = torch.tensor([[snr_db], [level_dbfs]], dtype=speech.dtype)
    noisy, clean = mix_batch(speech[None], torch.tensor([len(speech)]), rooms, background[None], *numbers)
    return noisy[0], clean[0]


def mix_by_the_book(s, h, b, snr_db, level_dbfs):
    """The formula of the module's docstring, line by line, by other means: numpy and scipy in double precision."""
    rms = lambda z: np.sqrt(np.mean(z**2))  # noqa: E731
    n = len(s)
    y = s if h is None else scipy.signal.convolve(s, h, method="direct")[:n]
    y = y / rms(y) * 10 ** (level_dbfs / 20)
    v = b[:n]
    v = v * rms(y) / rms(v) * 10 ** (-snr_db / 20)
    x = y + v
    if abs(x).max() > 0.99:
        x, y = x * 0.99 / abs(x).max(), y * 0.99 / abs(x).max()
    return x, y


def room(seconds: float = 0.1) -> np.ndarray:
    """A synthetic room: a direct path and decaying noise."""
    n = int(seconds * 16000)
    h = 0.1 * np.random.default_rng(3).standard_normal(n) * np.exp(-np.arange(n) / (n / 6))
    h[20] = 1
    return h


@pytest.fixture(scope="module")
def parts(speech_dir, noise_dir):
    speech = [soundfile.read(p)[0] for p in sorted(speech_dir.glob("*.flac"))[1:4]]
    noise = [soundfile.read(p)[0] for p in sorted(noise_dir.glob("*.flac"))[:3]]
    return speech, noise


@pytest.mark.parametrize("h", [None, room()], ids=["dry", "room"])
@pytest.mark.parametrize(("snr_db", "level_dbfs"), [(-6, -28.25), (9, -25), (0, -3), (-20, -10)])
def test_mix_is_the_formula(parts, h, snr_db, level_dbfs):
    s, b = parts[0][0], parts[1][0][1234:]
    expected = mix_by_the_book(s, h, b, snr_db, level_dbfs)
    for dtype, tolerance in [(torch.float64, 1e-12), (torch.float32, 1e-6)]:
        got = mix(
            torch.from_numpy(s).to(dtype),
            torch.from_numpy(b[: len(s)]).to(dtype),
            rir=None if h is None else torch.from_numpy(h).to(dtype),
            snr_db=snr_db,
            level_dbfs=level_dbfs,
        )
        for mine, theirs in zip(got, expected, strict=True):
            assert mine.dtype == dtype
            np.testing.assert_allclose(mine.numpy(), theirs, rtol=0, atol=tolerance)


def test_loud_mixtures_are_scaled_to_the_peak_and_keep_their_snr(parts):
    s, b = (torch.from_numpy(p) for p in (parts[0][0], parts[1][0][: len(parts[0][0])]))
    noisy, clean = mix(s, b, snr_db=-20, level_dbfs=-10)
    assert noisy.abs().max() == pytest.approx(0.99)
    snr = 10 * torch.log10(clean.square().sum() / (noisy - clean).square().sum())
    assert snr == pytest.approx(-20, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_its_mixtures_one_by_one(parts, dtype):
    speech, noise = parts
    rooms = [room(0.1), room(0.3), np.array([1.0])]
    snrs, levels = [-6.0, 3.0, -15.0], [-30.0, -25.0, -8.0]
    lengths = [len(s) for s in speech]
    pad = lambda xs: torch.nn.utils.rnn.pad_sequence([torch.from_numpy(x).to(dtype) for x in xs], batch_first=True)  # noqa: E731
    noisy, clean = mix_batch(
        pad(speech),
        torch.tensor(lengths),
        pad(rooms),
        pad([b[: max(lengths)] for b in noise]),  # longer than two of the utterances: what lies beyond is not heard
        torch.tensor(snrs),
        torch.tensor(levels),
    )
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    for i, n in enumerate(lengths):
        x, y = mix(
            torch.from_numpy(speech[i]).to(dtype),
            torch.from_numpy(noise[i][:n]).to(dtype),
            rir=torch.from_numpy(rooms[i]).to(dtype),
            snr_db=snrs[i],
            level_dbfs=levels[i],
        )
        torch.testing.assert_close(noisy[i, :n], x, rtol=0, atol=tolerance)
        torch.testing.assert_close(clean[i, :n], y, rtol=0, atol=tolerance)
        assert not noisy[i, n:].any()
        assert not clean[i, n:].any()


def test_silence_in_a_batch_stays_silence(parts):
    s = torch.from_numpy(parts[0][0])[None].repeat(2, 1)
    s[1] = 0
    lengths = torch.full((2,), s.shape[1])
    noisy, clean = mix_batch(s, lengths, None, torch.zeros_like(s), torch.zeros(2), torch.full((2,), -25.0))
    torch.testing.assert_close(noisy, clean)
    assert clean[0].square().mean().sqrt() == pytest.approx(10 ** (-25 / 20))
    assert not clean[1].any()


def test_fast_lengths_are_long_enough_and_close():
    for n in [*range(1, 300), 211_680, 480_001]:
        size = fast_length(n)
        assert n <= size < 1.2 * n + 1
        for p in (2, 3, 5):
            while size % p == 0:
                size //= p
        assert size == 1


def test_convolution_is_the_direct_sum():
    x, h = np.random.default_rng(0).standard_normal((2, 50)), np.random.default_rng(1).standard_normal((2, 9))
    expected = np.stack([np.convolve(a, b)[:50] for a, b in zip(x, h, strict=True)])
    np.testing.assert_allclose(convolve(torch.from_numpy(x), torch.from_numpy(h)).numpy(), expected, atol=1e-13)
