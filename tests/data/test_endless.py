"""Endless mixtures: walks through the recordings, chunk by chunk."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch

from drnmf.data.endless import WAITING_S, Conditions, Endless
from drnmf.data.folders import Pool
from drnmf.data.mixing import Mixture, convolve
from drnmf.data.variation import at, filtered
from drnmf.errors import InputError
from drnmf.signal import audio
from drnmf.signal.spectra import HOP, WINDOW

USUAL = Conditions(
    snrs_db=(5.0, 5.0),
    good_snrs_db=(20.0, 20.0),
    good_share=0.0,
    clean_share=0.0,
    levels_dbfs=(-30.0, -20.0),
    narrow_share=0.0,
)
OVERLAP = WINDOW - HOP


@pytest.fixture
def pool(speech_dir, noise_dir):
    return Pool.from_folders(speech_dir, noise_dir)


def endless(pool, batch_size=4, max_frames=100, seed=1, **conditions):
    return Endless(pool, replace(USUAL, **conditions), batch_size=batch_size, max_frames=max_frames, seed=seed)


def walks(mixtures, epoch=0):
    """Noisy and clean sound of whole walks, their chunks joined."""
    open_walks, done = {}, []
    for chunk in mixtures.epoch(epoch):
        for b in range(mixtures.batch_size):
            if chunk.reset[b]:
                done.append(([], []))
                open_walks[b] = done[-1]
            for parts, x in zip(open_walks[b], (chunk.noisy[b], chunk.clean[b]), strict=True):
                parts.append(x[OVERLAP:])
    return [(torch.cat(noisy), torch.cat(clean)) for noisy, clean in done]


def db(x):
    return 10 * float(torch.log10(x.double().square().mean()))


def test_an_epoch_is_drawn_from_seed_and_epoch(pool):
    first, again, other, later = (
        list(endless(pool, seed=seed).epoch(epoch)) for seed, epoch in [(1, 0), (1, 0), (2, 0), (1, 1)]
    )
    for a, b in zip(first, again, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(first[0].noisy, other[0].noisy)
    assert not torch.equal(first[0].noisy, later[0].noisy)
    assert first[0].reset.all()
    assert later[0].reset.all()
    assert not torch.stack([chunk.reset for chunk in first[1:]]).all()


def test_an_epoch_lasts_as_long_as_the_speech(pool):
    mixtures = endless(pool)
    seconds = len(mixtures) * 4 * 100 * HOP / 16000
    speech = sum(audio.info(path).samples_at(16000) for path in pool.speech) / 16000
    assert 0 <= seconds - speech < 4 * 100 * HOP / 16000
    chunk = next(iter(mixtures.epoch(0)))
    assert chunk.spectra()[0].shape == (4, 100, 257)
    assert chunk.mask().all()
    assert chunk.mask().shape == (4, 100)


@pytest.mark.parametrize("narrow_share", [0.0, 1.0])
def test_chunks_join_without_a_seam(pool, narrow_share):
    before = None
    joined = 0
    for chunk in endless(pool, narrow_share=narrow_share).epoch(0):
        for b in range(4):
            if not chunk.reset[b]:
                for x, y in zip(before[:2], chunk[:2], strict=True):
                    scale = x[b].abs().max()
                    torch.testing.assert_close(y[b, :OVERLAP], x[b, -OVERLAP:], rtol=0, atol=3e-3 * float(scale))
                joined += 1
        before = chunk
    assert joined > 3


def test_what_lies_before_a_walk_is_silence(pool):
    chunk = next(iter(endless(pool).epoch(0)))
    assert not chunk.noisy[:, :OVERLAP].any()
    assert not chunk.clean[:, :OVERLAP].any()
    assert chunk.noisy[:, OVERLAP : OVERLAP + 10].abs().amax(1).min() > 0


def test_speech_can_keep_one_waiting(pool):
    """Noise alone for half a second to five, then the utterance from its beginning."""
    found = walks(endless(pool, waiting_share=1.0))
    waits = []
    for noisy, clean in found:
        if len(clean) >= 5.2 * 16000:
            waits.append(int(clean.abs().gt(0).int().argmax()) / 16000)
            alone = slice(OVERLAP, int(16000 * min(WAITING_S)))
            assert not clean[alone].any()
            assert noisy[alone].abs().max() > 0
    assert len(waits) > 3
    assert WAITING_S[0] <= min(waits) < max(waits) <= WAITING_S[1] + 0.1  # recordings may begin with zeros


def test_samples_of_the_noise_come_with_walks_that_begin(pool):
    mixtures = endless(pool, batch_size=8, sample_share=0.6)
    found = []
    for chunk in chain(*(mixtures.epoch(epoch) for epoch in range(4))):
        there = chunk.sample.abs().amax(1) > 0
        assert not there[~chunk.reset].any()
        found += there[chunk.reset].tolist()
        for sample in chunk.sample[there]:
            heard = sample != 0
            first = int(heard.int().argmax())
            assert mixtures.samples - first >= 0.79 * 16000  # a chunk is shorter than a second
            assert heard[first:].float().mean() > 0.9
    assert 0.3 < sum(found) / len(found) < 0.9
    again = next(iter(endless(pool, batch_size=8, sample_share=0.6).epoch(0)))
    assert torch.equal(again.sample, next(iter(mixtures.epoch(0))).sample)
    assert next(iter(endless(pool).epoch(0))).sample.shape == (4, 0)


def test_speech_is_that_of_the_usual_path(pool, tmp_path):
    """Speed, response and room of a walk, done by `data.variation` and `data.mixing` to the whole utterance."""
    response = torch.randn(3000, generator=torch.Generator().manual_seed(0)) * torch.linspace(1, 0, 3000) ** 4
    audio.write(tmp_path / "room.wav", response[None] / response.abs().max(), 16000, subtype="FLOAT")
    mixtures = endless(replace(pool, rirs=(tmp_path / "room.wav",)), batch_size=1, clean_share=1.0)
    way = mixtures.draw(np.random.default_rng((1, 0, 2)))
    w = way.walk
    whole = mixtures.speech.samples[int(w.utterance) : int(w.utterance + w.utterance_length)][None]
    place = torch.arange(int(w.utterance_length / w.speed))[None] * w.speed
    played = filtered(at(whole, place), [way.tones_db[:5]])
    expected = w.speech_gain * convolve(played, mixtures.rooms_NR)[0, int(w.utterance_start) :]
    _, found = walks(mixtures)[0]
    assert len(found) == way.n_chunks * mixtures.step or way.n_chunks > len(mixtures)
    assert db(found) == pytest.approx(-25, abs=9)  # the level, less or more by the response and by what was cut off
    error = found - expected[: len(found)]
    assert db(error) < db(found) - 45


def test_speech_and_noise_have_the_drawn_levels(pool):
    mixtures = endless(pool)
    ways = [mixtures.draw(np.random.default_rng(i)) for i in range(20)]
    assert {way.walk.velocity > 0 for way in ways} == {True, False}
    found = [walk for epoch in range(8) for walk in walks(mixtures, epoch) if len(walk[0]) > 2 * mixtures.step]
    assert len(found) > 20
    snrs = [db(clean) - db(noisy - clean) for noisy, clean in found]
    assert np.median(snrs) == pytest.approx(5, abs=1.0)
    levels = [db(clean) for _, clean in found]
    assert np.median(levels) == pytest.approx(-25, abs=3)
    assert min(levels) > -36
    assert max(levels) < -14


def test_two_noises_are_together_as_loud_as_one(pool, tmp_path):
    white = 0.1 * torch.randn(1, 160000, generator=torch.Generator().manual_seed(0))
    audio.write(tmp_path / "white.wav", white, 16000, subtype="FLOAT")
    mixtures = endless(replace(pool, background=(tmp_path / "white.wav",)))
    rng = np.random.default_rng(0)
    drawn = [mixtures.draw(rng).walk for _ in range(20)]
    assert {walk.other_gain > 0 for walk in drawn} == {True, False}
    for walk in drawn:
        noise = 0.1 * np.hypot(walk.noise_gain, walk.other_gain)
        utterance = list(mixtures.speech.starts).index(walk.utterance)
        speech = walk.speech_gain * mixtures.speech.rms(utterance)
        assert 20 * np.log10(speech / noise) == pytest.approx(5, abs=0.2)


def test_shares_of_good_and_of_clean_speech(pool):
    mixtures = endless(pool, batch_size=64, good_share=0.3, clean_share=0.2)
    first = next(iter(mixtures.epoch(0)))
    clean = (first.noisy == first.clean).all(1)
    assert 4 <= int(clean.sum()) <= 24  # of 64; 13 are expected
    snrs = [mixtures._condition(np.random.default_rng(i))[0] for i in range(200)]
    assert snrs.count(None) == pytest.approx(40, abs=15)
    assert snrs.count(20.0) == pytest.approx(60, abs=18)
    assert snrs.count(5.0) == pytest.approx(100, abs=20)


def test_narrow_bands_end_below_eight_kilohertz(pool):
    def above(share):
        """Share of the power from 7.3 kHz on, of mixtures and of speech, in chunks inside of walks."""
        mixtures = endless(pool, batch_size=16, narrow_share=share)
        inside = [(chunk, ~chunk.reset) for chunk in mixtures.epoch(0)]
        powers = [spectrum[keep].abs().square().sum((0, 1)) for chunk, keep in inside for spectrum in chunk.spectra()]
        return [float(power[235:].sum() / power.sum()) for power in powers if power.any()]

    assert max(above(1.0)) < 1e-7
    assert min(above(0.0)) > 1e-7


def test_short_noises_start_again(pool, tmp_path):
    for path in pool.background:
        audio.write(tmp_path / f"{path.stem}.wav", audio.read(path, count=12000)[0], 16000)
    mixtures = endless(replace(pool, background=tuple(sorted(tmp_path.iterdir()))))
    found = [walk for epoch in range(4) for walk in walks(mixtures, epoch) if len(walk[0]) > 2 * mixtures.step]
    assert len(found) > 10
    for noisy, clean in found:
        noise = (noisy - clean).diff()  # a sound that stopped at one value would leave nothing
        assert db(noise[-8000:]) > db(noise) - 15


def test_snippets_are_refused(pool, tmp_path):
    audio.write(tmp_path / "click.wav", audio.read(pool.background[0], count=1000)[0], 16000)
    with pytest.raises(InputError, match=r"click.wav: is shorter than a quarter of a second"):
        endless(replace(pool, background=(tmp_path / "click.wav",)))


def test_a_list_says_how_often_a_noise_is_drawn(pool):
    rare, often = pool.background[:2]
    rows = [Mixture(str(i), pool.speech[0], None, noise, 0, 0.0, -26.0) for i, noise in enumerate([rare, *[often] * 9])]
    mixtures = endless(Pool.from_items(rows))
    rng = np.random.default_rng(0)
    drawn = [mixtures.draw(rng).walk.noise for _ in range(400)]
    assert drawn.count(mixtures.noise.starts[1]) == pytest.approx(360, abs=30)
