"""Streaming is the same function as offline, at any block size, rate and number of channels."""

import functools
import threading

import numpy as np
import pytest
import torch
from torch import Tensor

import drnmf
from drnmf import InputError, Separator, Streamer, load_model
from drnmf.signal import audio
from drnmf.use.removing import delay
from examples import MODELS, build, recording, seeded


class Mask(Separator):
    """A mask that is known beforehand: one value below 4 kHz, another one above."""

    def __init__(self, below: float, above: float | None = None) -> None:
        super().__init__(257)
        values = torch.full((257,), below)
        values[128:] = below if above is None else above
        self.register_buffer("values", values)

    def separate(self, magnitude, state=None):
        return self.values.expand_as(magnitude), ()


class Average(Separator):
    """Remembers for ever: the mask depends on the mean of all that was heard."""

    state_shapes = ((1,), (1,))

    def separate(self, magnitude, state=None):
        total, count = (magnitude.new_zeros(len(magnitude), 1) for _ in range(2)) if state is None else state
        totals = total + magnitude.mean(2).cumsum(1)
        counts = count + torch.arange(1, magnitude.shape[1] + 1)
        mask = (totals / counts / 10).clamp(0, 1)[..., None].expand_as(magnitude)
        return mask, (totals[:, -1:], counts[:, -1:])


@functools.cache
def noisy(seconds: float = 2.0) -> Tensor:
    """Real speech in real noise, float32."""
    speech, noise = recording("speech/austen_0870").float(), recording("noise/percussion").float()
    n = round(16000 * seconds)
    speech, noise = (x.repeat(n // len(x) + 1)[:n] for x in (speech, noise))
    return speech + noise


def offline(model: Separator, x: Tensor) -> Tensor:
    """The whole signal at once, by the definition."""
    weight = next((t for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()), x)
    X = drnmf.stft(x.to(weight.dtype))
    with torch.no_grad():
        return drnmf.istft(model(X.abs()[None])[0][0] * X, len(x)).to(x.dtype)


def streamed(streamer: Streamer, x: Tensor, block: int) -> Tensor:
    parts = [streamer.feed(x[..., i : i + block]) for i in range(0, x.shape[-1], block)]
    return torch.cat([*parts, streamer.flush()], -1)


@pytest.mark.parametrize("block", [1, 127, 128, 129, 4096])
@pytest.mark.parametrize("name", ["drnmf", "lstm", "prior_drnmf"])
def test_streaming_equals_offline(name, block):
    model, x = build(name).float(), noisy(1.0)
    torch.testing.assert_close(streamed(Streamer(model), x, block), offline(model, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_streams_of_pytorch_learn_as_compiled_ones_do(keep, monkeypatch):
    for name, value in (("KEPT", 10), ("AROUND", 4), ("EVERY", 20)):  # all is a pause, and learned often
        monkeypatch.setattr(f"drnmf.use.learning.{name}", value)
    model, x, hum = load_model("default"), noisy(0.5), recording("noise/hum").float()[:12000]

    def learning(model: Separator, block: int) -> Tensor:
        streamer = Streamer(model, keep_learning=keep)
        first = streamer.feed(hum[:7000])
        streamer.learn_noise(hum)
        return torch.cat([first, streamed(streamer, torch.cat([hum[7000:], x]), block)])

    compiled = learning(model, 700)
    monkeypatch.setattr("drnmf.engines.streams.usable", lambda x: False)
    plain = streamed(Streamer(model), torch.cat([hum, x]), 700)
    torch.testing.assert_close(learning(model, 5000), compiled, rtol=0, atol=1e-4)
    assert (plain - compiled).abs().max() > 1e-2


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_streams(name, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr("drnmf.engines.compiled.library", lambda: None)
    model, x = build(name), noisy(1.0)
    torch.testing.assert_close(streamed(Streamer(model), x, 1000), offline(model, x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("length", [1, 5, 127, 128, 129, 511, 512, 513, 5000])
@pytest.mark.parametrize("rate", [16000, 44100])
def test_as_many_samples_come_out_as_went_in(length, rate):
    x = noisy()[8000 : 8000 + length]
    y = streamed(Streamer(build("drnmf"), rate), x, 100)
    assert y.shape == x.shape
    assert torch.isfinite(y).all()
    if rate == 16000:
        torch.testing.assert_close(y, offline(build("drnmf"), x), rtol=0, atol=1e-6)


def worst_lag(streamer: Streamer, block: int, seconds: float) -> int:
    """Most samples that have gone in and not come out after a block."""
    fed = given = worst = 0
    for _ in range(round(seconds * streamer.sample_rate / block)):
        fed += block
        given += streamer.feed(np.zeros(block, np.float32)).shape[0]
        worst = max(worst, fed - given)
    return worst


def test_latency_is_one_window():
    streamer = Streamer(build("drnmf"))
    assert streamer.latency == 512  # 32 ms
    assert worst_lag(streamer, 1, 0.2) == 511  # sample n comes out when sample n + 511 goes in


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 47999, 48000, 96000])
def test_latency_at_other_rates_is_as_stated(rate):
    streamer = Streamer(Mask(0.5), rate)
    worst = worst_lag(streamer, max(1, rate // 4000), 1.0)
    assert 0.7 * streamer.latency < worst < streamer.latency
    assert streamer.latency < (0.3 if rate < 16000 else 0.21) * rate


def test_resampling_delays_are_measured_at_the_worst_moment():
    assert delay(47999, 16000) > 0.03  # soxr gives its output in blocks


@pytest.mark.parametrize(("rate", "most"), [(48000, 45), (44100, 45), (22050, 45), (96000, 45), (8000, 55)])
def test_latency_in_milliseconds_at_common_rates(rate, most):
    assert 1000 * Streamer(build("drnmf"), rate).latency / rate <= most


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [1000, 8000, 11025, 16000, 22050, 44100, 48000, 47999, 192000])
def test_a_mask_of_one_value_is_a_gain_at_every_rate(rate, channels):
    x = 0.3 * torch.randn(channels, max(rate // 2, 5000), generator=seeded())  # white: up to the highest frequency
    y = streamed(Streamer(Mask(0.25), rate, channels=channels), x, 3001)
    torch.testing.assert_close(y, 0.25 * x, rtol=0, atol=1e-4)  # the last hop leads to the silence after the end


class Syllables(Separator):
    """Opens for 20 frames, closes for 20, and so on: 6 times in two seconds."""

    state_shapes = ((1,),)

    def __init__(self) -> None:
        super().__init__(257)

    def separate(self, magnitude, state=None):
        (count,) = (magnitude.new_zeros(len(magnitude), 1),) if state is None else state
        counts = count + torch.arange(1, magnitude.shape[1] + 1)
        mask = torch.where(counts // 20 % 2 == 0, 0.5, 0.05).to(magnitude)
        return mask[..., None].expand_as(magnitude), (counts[:, -1:].to(magnitude),)


@pytest.mark.parametrize("rate", [44100, 48000])
def test_noise_above_8_khz_does_not_pump_with_the_syllables(rate):
    x = 0.1 * torch.randn(2 * rate, generator=seeded())
    y = streamed(Streamer(Syllables(), rate), x, 777)

    def swing(low: float, high: float) -> float:
        """By how many dB the gain of a band goes up and down."""
        bands = []
        for sound in (x, y):
            X = torch.fft.rfft(sound)
            frequency = torch.linspace(0, rate / 2, len(X))
            X[(frequency < low) | (frequency > high)] = 0
            bands.append(torch.fft.irfft(X, n=len(sound)).unfold(0, rate // 50, rate // 50).norm(dim=1))
        gains = 20 * torch.log10(bands[1] / bands[0])[20:-20]
        return float(gains.max() - gains.min())

    assert swing(2000, 6000) > 18  # the mask: 0.5 to 0.05
    assert swing(9000, 20000) < 8
    for block in (1000, 2 * rate):
        torch.testing.assert_close(streamed(Streamer(Syllables(), rate), x, block), y, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("rate", "frequency", "gain"), [(48000, 1000, 0.9), (48000, 7900, 0.2), (48000, 12000, 0.2), (48000, 20000, 0.2)]
)
def test_above_8_khz_sound_is_kept_with_the_gain_near_the_top(rate, frequency, gain):
    t = torch.arange(rate, dtype=torch.float64) / rate
    x = 0.1 * torch.sin(2 * torch.pi * frequency * t) + 0.01 * torch.randn(
        rate, generator=seeded(), dtype=torch.float64
    )
    y = streamed(Streamer(Mask(0.9, 0.2), rate), x, 4096)
    wave = torch.exp(2j * torch.pi * frequency * t)
    assert abs((y * wave).sum() / (x * wave).sum() - gain) < 0.01


@pytest.mark.parametrize("rate", [32000, 44100, 48000])
def test_other_rates_sound_as_16_khz_does(rate):
    model, x = build("drnmf"), noisy()
    there = audio.resample(x[None], 16000, rate)
    back = audio.resample(streamed(Streamer(model, rate, channels=1), there, 4096), rate, 16000)[0]
    n = min(len(back), len(x))
    error = (back[:n] - offline(model, x)[:n]).norm() / x.norm()
    assert error < 0.03  # only next to 8 kHz, where resampling filters lie, is it not the same


def test_all_channels_share_one_mask():
    model, x = build("drnmf"), noisy()
    mono = offline(model, x)
    same = streamed(Streamer(model, channels=2), torch.stack([x, x]), 777)
    torch.testing.assert_close(same, torch.stack([mono, mono]), rtol=0, atol=1e-6)
    voice = torch.tensor([[1.0], [0.3], [0.0]]) * x  # right of the middle, and silent in the third channel
    y = streamed(Streamer(model, channels=3), voice, 777)
    torch.testing.assert_close(y[1], 0.3 * y[0], rtol=0, atol=1e-6)
    assert not y[2].any()
    swapped = streamed(Streamer(model, channels=3), voice.flip(0), 777)
    torch.testing.assert_close(swapped, y.flip(0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rate", [16000, 44100])
@pytest.mark.parametrize("name", ["drnmf", "lstm"])
def test_separate_channels_are_as_each_alone(name, rate):
    model, x = build(name), torch.stack([noisy(), 0.1 * noisy().flip(0)])
    settings = {"strength": 0.9, "max_attenuation": 20}
    streamer = Streamer(model, rate, channels=2, separate_channels=True, **settings)
    alone = torch.stack([streamed(Streamer(model, rate, **settings), channel, 777) for channel in x])
    assert torch.equal(streamed(streamer, x, 777), alone)
    together = streamed(Streamer(model, rate, channels=2, **settings), x, 777)
    assert (together - alone).abs().max() > 1e-4
    streamer.strength = 0  # of both
    assert torch.equal(streamed(streamer, x, 777), x)


@pytest.mark.parametrize("rate", [16000, 48000])
def test_strength(rate):
    model, x = build("drnmf"), noisy()
    none, half, full = (streamed(Streamer(model, rate, strength=s), x, 5000) for s in (0, 0.5, 1))
    assert torch.equal(none, x)
    assert (full - x).abs().max() > 0.01
    torch.testing.assert_close(half, (x + full) / 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["drnmf", "lstm"])
def test_no_bin_is_lowered_by_more_than_the_limit(name):
    model, x = build(name), noisy()
    X = drnmf.stft(x.to(model.like.dtype))
    mask, _ = model.separate(X.abs()[None])
    floor = 10 ** (-3 / 20)
    assert mask.min() < 0.7 * floor  # else there is nothing to limit
    expected = drnmf.istft(X * mask[0].clamp_min(floor), len(x)).to(x.dtype)
    y = streamed(Streamer(model, max_attenuation=3), x, 777)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-5)
    assert torch.equal(streamed(Streamer(model, max_attenuation=0), x, 777), x)  # no mask of these exceeds 1


@pytest.mark.parametrize("name", ["drnmf", "lstm"])
def test_the_limit_may_change_between_two_blocks(name):
    streamer, x = Streamer(build(name)), noisy()
    without = streamed(streamer, x, 5000)
    streamer.max_attenuation = 6
    assert streamer.max_attenuation == 6
    limited = streamed(streamer, x, 5000)
    assert not torch.equal(limited, without)
    assert torch.equal(limited, streamed(Streamer(build(name), max_attenuation=6), x, 5000))
    for value in (-1, float("nan")):
        with pytest.raises(InputError, match="max_attenuation"):
            streamer.max_attenuation = value
    streamer.max_attenuation = None
    assert torch.equal(streamed(streamer, x, 5000), without)


def test_input_and_removed_part_are_aligned():
    model, x = build("drnmf"), noisy()[None]
    streamer = Streamer(model, 44100)
    pairs = [streamer.advance(block) for block in (x[:, :9999].numpy(), x[:, 9999:].numpy(), None)]
    kept, removed = (torch.from_numpy(np.concatenate(part, 1)) for part in zip(*pairs, strict=True))
    assert torch.equal(kept, x)
    torch.testing.assert_close(kept - removed, streamed(Streamer(model, 44100), x, 5000), rtol=0, atol=1e-6)


def test_what_comes_out_is_of_the_kind_that_went_in():
    model, x = build("drnmf"), noisy()
    expected = offline(model, x)
    for kind in (torch.float32, torch.float64):
        y = streamed(Streamer(model), x.clone().to(kind).requires_grad_(), 4096)
        assert (y.dtype, y.requires_grad) == (kind, False)
        torch.testing.assert_close(y, expected.to(kind), rtol=0, atol=1e-6)
    array = x.double().numpy()[::-1][::-1]  # neither contiguous nor writable
    array.flags.writeable = False
    streamer = Streamer(model)
    parts = [streamer.feed(array[None]), streamer.flush()]
    assert all(isinstance(part, np.ndarray) and part.dtype == np.float64 and part.ndim == 2 for part in parts)
    np.testing.assert_allclose(np.concatenate(parts, 1)[0], expected, atol=1e-6)


@pytest.mark.parametrize("rate", [16000, 48000])
def test_after_flush_a_new_stream_starts(rate):
    streamer, x = Streamer(build("drnmf"), rate), noisy()
    first, second = (streamed(streamer, x, 3000) for _ in range(2))
    assert torch.equal(first, second)
    assert streamer.flush().shape == (0,)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("rate", [16000, 48000])
@pytest.mark.parametrize("name", ["drnmf", "drnmf_level", "prior_drnmf"])
def test_after_flush_nothing_is_left_of_what_was_heard(name, rate, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr("drnmf.engines.compiled.library", lambda: None)
    streamer, x = Streamer(build(name), rate), noisy()
    streamed(streamer, 30 * x[5000:], 3000)  # louder: a level that is remembered would show
    fresh = Streamer(build(name), rate)
    assert torch.equal(streamed(streamer, x, 3000), streamed(fresh, x, 3000))


def test_the_callers_block_is_neither_kept_nor_changed():
    streamer, x = Streamer(build("drnmf")), noisy().clone()
    block = x[:4096].clone()
    first = streamer.feed(block)
    assert torch.equal(block, x[:4096])
    block.zero_()  # a sound card's buffer is used again
    y = torch.cat([first, streamer.feed(x[4096:]), streamer.flush()])
    torch.testing.assert_close(y, offline(build("drnmf"), x), rtol=0, atol=1e-6)


def test_half_precision_weights_are_for_storage_only():
    model, x = build("drnmf").float(), noisy()
    y = streamed(Streamer(build("drnmf").half()), x, 4096)
    assert (y - offline(model, x)).norm() / y.norm() < 0.01


def test_a_long_block_is_as_good_as_short_ones(monkeypatch):
    monkeypatch.setattr("drnmf.engines.compiled.library", lambda: None)  # PyTorch's stream
    x = noisy(20.0)  # more frames than are computed at a time
    for model in (build("drnmf"), Average(257)):
        torch.testing.assert_close(streamed(Streamer(model), x, len(x)), offline(model, x), rtol=0, atol=1e-6)


def test_pytorch_meets_few_sizes_whatever_the_blocks(monkeypatch):
    """It keeps a plan for each size that it has met: blocks of many sizes took ever more memory."""
    model, met = build("lstm"), set()
    separate = type(model).separate

    def watched(self, magnitude, state=None):
        met.add(magnitude.shape[1])
        return separate(self, magnitude, state)

    monkeypatch.setattr(type(model), "separate", watched)
    streamer, x = Streamer(model), noisy(20.0)
    for frames in range(1, 60):
        streamer.feed(x[: 128 * frames])
    streamer.feed(x)
    assert len(met) <= 11
    assert max(met) == 1024


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (torch.tensor([0.0, torch.nan]), "NaN"),
        (torch.tensor([0.0, -torch.inf]), "infinite"),
        (torch.tensor([0.0, 30000.0]), "divide by 32768"),
        (torch.zeros(5, dtype=torch.int16), "divide integers"),
        (torch.zeros(5, dtype=torch.float16), "convert"),
        (torch.zeros(2, 5), "transpose"),
        (torch.zeros(5, 1), "transpose"),
        (torch.tensor(0.0), "blocks of"),
        ([0.0, 0.0], "numpy array"),
        (np.ma.masked_invalid([0.0, np.nan]), "masked"),
        (np.ma.masked_equal([0.0, 0.5], 0.5), "masked"),
    ],
)
def test_bad_blocks_are_refused_and_do_no_harm(block, reason):
    streamer, x = Streamer(build("drnmf")), noisy()
    first = streamer.feed(x[:5000])
    with pytest.raises(InputError, match=reason) as error:
        streamer.feed(block)
    assert "\n" not in str(error.value)
    y = torch.cat([first, streamer.feed(x[5000:]), streamer.flush()])
    torch.testing.assert_close(y, offline(build("drnmf"), x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rate", [16000, 48000])
@pytest.mark.parametrize("name", ["drnmf", "lstm"])
def test_the_layout_of_a_block_in_memory_does_not_matter(name, rate):
    x = np.stack([noisy(0.5).numpy(), 0.5 * noisy(0.5).numpy()])
    streamer = Streamer(build(name), rate, channels=2)
    expected = np.concatenate([streamer.feed(x), streamer.flush()], 1)
    read_only = x.copy()
    read_only.flags.writeable = False
    layouts = [x[:, ::-1].copy()[:, ::-1], x[::-1].copy()[::-1], x.T.copy().T, np.repeat(x, 2, 1)[:, ::2], read_only]
    layouts += [np.ma.masked_array(x)]  # with nothing under its mask
    for block in layouts:
        result = np.concatenate([streamer.feed(block), streamer.flush()], 1)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("rate", [16000, 48000])
@pytest.mark.parametrize("name", ["drnmf", "lstm"])
def test_strength_may_change_between_two_blocks(name, rate):
    streamer, x = Streamer(build(name), rate), noisy()
    streamer.strength = 0
    assert streamer.strength == 0
    assert torch.equal(streamed(streamer, x, 5000), x)
    streamer.strength = 0.5
    assert torch.equal(streamed(streamer, x, 5000), streamed(Streamer(build(name), rate, strength=0.5), x, 5000))
    for value in (1.1, -1, float("nan")):
        with pytest.raises(InputError, match="strength"):
            streamer.strength = value
    assert streamer.strength == 0.5


@pytest.mark.parametrize("name", ["sample_rate", "channels"])
def test_what_a_stream_cannot_change_is_read_only(name):
    with pytest.raises(AttributeError):
        setattr(Streamer(build("drnmf")), name, 2)


@pytest.mark.parametrize("rate", [16000, 44100])
def test_one_streamer_in_several_threads_is_refused(rate):
    """The first one ends as if it were alone; nobody waits for ever."""
    x = noisy()
    expected = Streamer(build("drnmf"), rate).feed(x)
    streamer, begun, refused, results = Streamer(build("drnmf"), rate), threading.Event(), threading.Event(), []
    advance = streamer._advance

    def slow(block):
        begun.set()
        assert refused.wait(10)
        return advance(block)

    streamer._advance = slow
    thread = threading.Thread(target=lambda: results.append(streamer.feed(x)), daemon=True)
    thread.start()
    assert begun.wait(10)
    for call in (lambda: streamer.feed(x.double()), streamer.flush):
        with pytest.raises(InputError, match="another thread"):
            call()
    refused.set()
    thread.join(timeout=10)
    assert torch.equal(results[0], expected)


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        ((0,), {}, "sample rate"),
        ((44100.5,), {}, "whole number"),
        ((10**9,), {}, "sample rate"),
        ((16000,), {"channels": 0}, "channel"),
        ((16000,), {"strength": 1.1}, "strength"),
        ((16000,), {"strength": float("nan")}, "strength"),
    ],
)
def test_bad_settings_are_refused(arguments, options, reason):
    with pytest.raises(InputError, match=reason):
        Streamer(build("drnmf"), *arguments, **options)


def test_a_model_for_other_frames_is_refused():
    with pytest.raises(InputError, match="129 bins"):
        Streamer(drnmf.LSTMMask(1, 2, n_features=129, generator=seeded()))
    with pytest.raises(InputError, match="no such model"):
        Streamer("no such model")


@pytest.mark.parametrize("rate", [16000, 44100])
@pytest.mark.parametrize("name", ["drnmf", "lstm"])
def test_a_model_that_makes_nan_is_an_error_and_no_silence(name, rate):
    model = build(name)
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    streamer = Streamer(model, rate)
    with pytest.raises(InputError, match=r"^the model's mask is not finite"):
        streamer.feed(noisy())
