import logging
import tracemalloc

import numpy as np
import pytest
import soundfile
import torch

from drnmf.data.batches import Batches, Dataset
from drnmf.data.folders import Pool, read_pairs
from drnmf.data.mixing import Mixture, Pair
from drnmf.data.recordings import free_memory
from drnmf.errors import InputError
from drnmf.signal.spectra import n_frames, stft


@pytest.fixture(scope="module")
def pool(speech_dir, noise_dir):
    return Pool.from_folders(speech_dir, noise_dir)


@pytest.fixture(scope="module")
def dataset(pool):
    return Dataset(pool, seed=7)


def test_sequences_are_the_frames_of_the_whole_spectrogram(dataset):
    """Cut into sequences of 100 frames and put together again, the spectra are those of the whole signals."""
    frames = []
    for batch in Batches(dataset, batch_size=3, max_frames=100, shuffle=False):
        X, Y = batch.spectra()
        mask = batch.mask()
        assert X.shape == Y.shape == (*mask.shape, 257)
        assert mask.shape[1] <= 100
        assert (mask.sum(1) == batch.frames).all()
        frames += [(X[i][m], Y[i][m]) for i, m in enumerate(mask)]
    X, Y = (torch.cat(part) for part in zip(*frames, strict=True))
    whole = [[stft(x) for x in dataset.waveforms(item)] for item in dataset.items()]
    torch.testing.assert_close(X, torch.cat([w[0] for w in whole]), rtol=0, atol=1e-5)
    torch.testing.assert_close(Y, torch.cat([w[1] for w in whole]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("max_frames", [7, 100, 500, None])
def test_every_frame_comes_once_in_batches_of_the_right_size(dataset, max_frames):
    batches = Batches(dataset, batch_size=4, max_frames=max_frames)
    sizes = []
    frames = 0
    for batch in batches:
        sizes.append(len(batch.frames))
        frames += int(batch.frames.sum())
        assert batch.frames.max() <= (max_frames or 10**9)
    assert len(batches) == len(sizes)
    assert set(sizes[:-1]) <= {4}
    assert 1 <= sizes[-1] <= 4
    assert frames == sum(n_frames(dataset.length(item)) for item in dataset.items())


def test_the_order_depends_on_the_epoch_alone(dataset):
    def read(epoch):
        return [batch.noisy for batch in Batches(dataset, epoch, batch_size=4, max_frames=50)]

    first, again, other = read(0), read(0), read(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_sequences_of_one_utterance_part(dataset, monkeypatch):
    """With a window of any size, the shuffled batches hold the same sequences as the unshuffled ones, elsewhere."""
    plain = [x for batch in Batches(dataset, batch_size=8, max_frames=50, shuffle=False) for x in batch.noisy]
    for window in (100, 10**6):
        monkeypatch.setattr("drnmf.data.batches._WINDOW", window)
        monkeypatch.setattr("drnmf.data.batches._CHUNK", 1)  # one utterance at a time
        mixed = [x for batch in Batches(dataset, batch_size=8, max_frames=50) for x in batch.noisy]
        assert sorted(float(x.abs().sum()) for x in mixed) == pytest.approx(
            sorted(float(x.abs().sum()) for x in plain), rel=1e-5
        )
        assert [float(x.abs().sum()) for x in mixed] != pytest.approx([float(x.abs().sum()) for x in plain])


def test_workers_and_memory_change_nothing(pool):
    """From memory, from disk and through worker processes: the same batches, fresh ones every epoch."""

    def read(epoch=2, **options):
        workers = options.pop("workers", None)
        dataset = Dataset(pool, fresh=True, seed=7, **options)
        return [b for b in Batches(dataset, epoch, batch_size=3, max_frames=200, workers=workers)]

    memory = read(in_memory=True)
    others = [read(in_memory=False, workers=0), read(in_memory=False, workers=2), read(in_memory=True, workers=2)]
    for other in others:
        for a, b in zip(memory, other, strict=True):
            for x, y in zip(a, b, strict=True):
                torch.testing.assert_close(x, y, rtol=0, atol=1e-6)
    assert not torch.equal(read(epoch=3, in_memory=True)[0].noisy[0, :1000], memory[0].noisy[0, :1000])


def test_the_global_random_state_is_left_alone(dataset):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    list(Batches(dataset))
    assert torch.rand(1) == expected


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_every_batch(dataset, world):
    whole = list(Batches(dataset, batch_size=4, max_frames=150))
    parts = [list(Batches(dataset, batch_size=4, max_frames=150, rank=r, world=world)) for r in range(world)]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert sum(int(s.frames.sum()) for s in shares) == int(batch.frames.sum())
        for rank, share in enumerate(shares):
            expected = batch.frames[rank::world]
            torch.testing.assert_close(share.frames[: len(expected)], expected)
            if len(expected) == 0:
                assert share.frames.tolist() == [0]


def test_fixed_mixtures_stay_and_fresh_ones_change(pool):
    fixed, fresh = Dataset(pool), Dataset(pool, fresh=True)
    assert fixed.items(0) == fixed.items(5) == fresh.items(0)
    assert fresh.items(0) != fresh.items(5)
    anew = Dataset(fixed.items(), fresh=True)
    assert len(anew) == len(anew.items(3)) == 5
    assert anew.items(3) != fixed.items()
    with pytest.raises(InputError, match="cannot be mixed anew"):
        Dataset([Pair(id="a", noisy=pool.speech[0], clean=pool.speech[0])], fresh=True)


def test_any_rate_and_channel_count_and_it_is_said(tmp_path, speech_dir, noise_dir, caplog):
    x = soundfile.read(speech_dir / "austen_0880.flac")[0]
    soundfile.write(tmp_path / "s.wav", np.stack([x, 0 * x], 1), 16000)
    y = soundfile.read(next(noise_dir.glob("*.flac")))[0]
    soundfile.write(tmp_path / "b.ogg", y, 44100)  # plays too fast, no matter
    mixture = Mixture("a", tmp_path / "s.wav", None, tmp_path / "b.ogg", 1000, 0.0, -25.0)
    with caplog.at_level(logging.INFO, "drnmf"):
        memory = Dataset([mixture], in_memory=True)
    assert "1 of 2 files are resampled to 16000 Hz" in caplog.text
    assert "1 of 2 files are used by their first channel alone" in caplog.text
    disk = Dataset([mixture], in_memory=False)
    for a, b in zip(memory.waveforms(mixture), disk.waveforms(mixture), strict=True):
        assert len(a) == len(x)
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.fixture
def bad(tmp_path):
    """A folder with every kind of bad file, and a good one."""
    rng = np.random.default_rng(0)
    good = 0.1 * rng.standard_normal(16000)
    broken = good.copy()
    broken[9000] = np.nan
    (tmp_path / "text.wav").write_text("this is not sound")
    for name, x in [
        ("good", good),
        ("nan", broken),
        ("silent", 0 * good),
        ("empty", good[:0]),
        ("short", good[:15999]),
    ]:
        soundfile.write(tmp_path / f"{name}.wav", x, 16000, subtype="FLOAT")
    return tmp_path


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize(
    ("speech", "background", "reason"),
    [
        ("good", "text", r"text\.wav: cannot be read"),
        ("empty", "good", r"empty\.wav: is empty"),
        ("nan", "good", r"nan\.wav: contains NaN"),
        ("silent", "good", r"silent\.wav: is silent"),
        ("good", "silent", r"silent\.wav: is silent"),
        ("good", "short", r"short\.wav \(1\.0 s\) is shorter than the speech .*good\.wav"),
        ("missing", "good", r"missing\.wav: no such file"),
    ],
)
def test_bad_files_are_named_before_training(bad, in_memory, speech, background, reason):
    files = [bad / f"{name}.wav" for name in (speech, background)]
    mixture = Mixture("a", files[0], None, files[1], 0, 0.0, -25.0)
    for source in ([mixture], Pool(speech=(files[0],), background=(files[1],))):
        with pytest.raises(InputError, match=reason) as error:
            Dataset(source, in_memory=in_memory)
        assert "\n" not in str(error.value)


def test_all_bad_files_are_counted(bad):
    pool = Pool(speech=(bad / "good.wav",), background=tuple(bad / f"{n}.wav" for n in ("text", "empty", "good")))
    with pytest.raises(InputError, match=r"text\.wav: .*\(and 1 more like this\)"):
        Dataset(pool)


def test_rows_that_do_not_fit_are_named(bad):
    good = bad / "good.wav"
    with pytest.raises(InputError, match=r"mixture a: 16000 samples from offset 1 on are not all in .*good\.wav"):
        Dataset([Mixture("a", good, None, good, 1, 0.0, -25.0)])
    with pytest.raises(InputError, match="from offset -1 on"):
        Dataset([Mixture("a", good, None, good, -1, 0.0, -25.0)])
    with pytest.raises(InputError, match=r"short\.wav has 15999 samples but its clean partner .*good\.wav has 16000"):
        Dataset([Pair("a", bad / "short.wav", good)])
    x = np.concatenate([np.zeros(16000), np.ones(16000)])
    soundfile.write(bad / "late.wav", 0.1 * x, 16000)
    with pytest.raises(InputError, match=r"mixture a: .*late\.wav is silent from sample 0"):
        Dataset([Mixture("a", good, None, bad / "late.wav", 0, 0.0, -25.0)])


def test_what_fits_into_memory_is_decoded_and_the_rest_is_read(pool, monkeypatch):
    needed = 4 * sum(soundfile.info(path).frames for path in pool.files)
    for free, fits in [(2 * needed + 1, True), (2 * needed, False)]:
        monkeypatch.setattr("drnmf.data.recordings.free_memory", lambda free=free: free)
        assert Dataset(pool).recordings.in_memory is fits
        assert Dataset(pool, in_memory=not fits).recordings.in_memory is not fits
    monkeypatch.undo()
    assert free_memory() > 10**6


def test_a_long_background_is_read_only_where_it_is_heard(tmp_path, speech_dir):
    long = tmp_path / "long.wav"
    with soundfile.SoundFile(long, "w", 16000, 1) as file:
        for _ in range(20):
            file.write(0.1 * np.ones(16000 * 60, np.float32))  # twenty minutes, 77 MB when decoded
    mixture = Mixture("a", speech_dir / "austen_0880.flac", None, long, 16000 * 900, 0.0, -25.0)
    tracemalloc.start()
    dataset = Dataset([mixture], in_memory=False)  # decodes it all, a minute at a time, to check it
    checked = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    dataset.waveforms(mixture)
    heard = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert checked < 20e6
    assert heard < 2e6


def test_progress_is_told(pool):
    told = []
    Dataset(pool, in_memory=True, progress=lambda *step: told.append(step))
    assert told[:2] == [("looking at files", 1, 9), ("looking at files", 2, 9)]
    assert told[-1] == ("decoding", 9, 9)
    Dataset(pool, in_memory=False, progress=lambda *step: told.append(step))
    assert told[-1] == ("checking sound", 9, 9)


def test_pairs_come_as_they_are(tmp_path, dataset):
    for part in ("noisy", "clean"):
        (tmp_path / part).mkdir()
    for item in dataset.items():
        for part, x in zip(("noisy", "clean"), dataset.waveforms(item), strict=True):
            soundfile.write(tmp_path / part / f"{item.id}.wav", x.numpy(), 16000, subtype="FLOAT")
    pairs = Dataset(read_pairs(tmp_path / "noisy", tmp_path / "clean"))
    assert len(pairs) == 5
    for a, b in zip(Batches(dataset, shuffle=False), Batches(pairs, shuffle=False), strict=True):
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-6)


def test_long_items_do_not_share_a_chunk(dataset, monkeypatch):
    """Padding to the longest is bounded: only an item longer than the bound is made alone."""
    longest = max(dataset.length(item) for item in dataset.items())
    monkeypatch.setattr("drnmf.data.batches._CHUNK", 2 * longest)
    chunks = Batches(dataset)._chunks(dataset.items())
    assert [item for chunk in chunks for item in chunk] == dataset.items()
    assert all(len(c) * max(dataset.length(i) for i in c) <= 2 * longest for c in chunks)
    assert len(chunks) < len(dataset)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_makes_the_same_batches(pool, dataset):
    for a, b in zip(Batches(dataset), Batches(Dataset(pool, seed=7, device="cuda")), strict=True):
        assert b.noisy.is_cuda
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y.cpu(), rtol=0, atol=1e-6)
