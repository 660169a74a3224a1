import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile
import torch

from drnmf.data.batches import Dataset
from drnmf.data.folders import Pool, read_pairs
from drnmf.data.manifests import read_manifest, write_manifest, write_mixtures
from drnmf.data.mixing import Mixture
from drnmf.data.recordings import Recordings, scan
from drnmf.errors import InputError
from drnmf.signal import audio

HEADER = "id,speech,rir,background,offset,snr_db,level_dbfs\n"


@pytest.fixture
def pool(speech_dir, noise_dir):
    return Pool.from_folders(speech_dir, noise_dir)


def test_a_manifest_survives_writing_and_reading(tmp_path, pool):
    mixtures = pool.draw(scan(pool.files), seed=1, count=12)
    write_manifest(tmp_path / "a.csv", mixtures)
    text = (tmp_path / "a.csv").read_text()
    assert text.startswith(HEADER.strip())
    assert str(tmp_path) not in text  # relative paths
    again = read_manifest(tmp_path / "a.csv")
    for mine, theirs in zip(again, mixtures, strict=True):
        for name in ("id", "rir", "offset", "snr_db", "level_dbfs"):
            assert getattr(mine, name) == getattr(theirs, name)
        assert mine.speech.samefile(theirs.speech)
        assert mine.background.samefile(theirs.background)


def mix_row(folder, row):
    """One row of a manifest, read and mixed by other means, in double precision."""
    s, b = (soundfile.read(folder / row[name])[0] for name in ("speech", "background"))
    n, rms = len(s), lambda z: np.sqrt(np.mean(z**2))
    y = s
    if row["rir"]:
        y = scipy.signal.oaconvolve(s, soundfile.read(folder / row["rir"])[0])[:n]
    y = y / rms(y) * 10 ** (float(row["level_dbfs"]) / 20)
    v = b[int(row["offset"]) :][:n]
    v = v * rms(y) / rms(v) * 10 ** (-float(row["snr_db"]) / 20)
    x = y + v
    if abs(x).max() > 0.99:
        x, y = x * (0.99 / abs(x).max()), y * (0.99 / abs(x).max())
    return x, y


def check_against_rows(folder, path, count):
    rows = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")[:count]
    items = read_manifest(path)[:count]
    assert len(items) == count
    dataset = Dataset(items)
    for item, row in zip(items, rows, strict=True):
        for mine, theirs in zip(dataset.waveforms(item), mix_row(folder, row), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs, rtol=0, atol=2e-6)


def test_two_programs_make_the_same_samples(tmp_path, speech_dir, noise_dir):
    n = 3000
    room = 0.05 * np.random.default_rng(0).standard_normal(n) * np.exp(-np.arange(n) / 500)
    room[0] = 0.8
    soundfile.write(tmp_path / "room.wav", room, 16000, subtype="FLOAT")
    pool = Pool.from_folders(speech_dir, noise_dir, tmp_path / "room.wav")
    pool = replace(pool, levels_dbfs=(-33, -5))  # the loudest hit the peak
    write_manifest(tmp_path / "a.csv", pool.draw(scan(pool.files), seed=2))
    check_against_rows(tmp_path, tmp_path / "a.csv", 5)


@pytest.mark.parametrize("name", ["dev", "test"])
def test_the_home_corpus_is_mixed_as_its_readme_says(corpus, name):
    check_against_rows(corpus, corpus / f"{name}.csv", 2)


def test_the_ten_percent_set_is_every_tenth_row_from_the_first(corpus):
    items = read_manifest(corpus / "train.csv")[::10]
    assert len(items) == 109
    assert [m.id for m in items[:3]] == ["train-0000", "train-0010", "train-0020"]


def test_written_mixtures_are_the_datasets_mixtures(tmp_path, pool):
    sizes = scan(pool.files)
    mixtures = pool.draw(sizes, seed=3, count=3)
    recordings = Recordings(sizes)
    told = []
    write_mixtures(tmp_path, mixtures, recordings, suffix=".wav", subtype="FLOAT", progress=lambda *t: told.append(t))
    assert told == [("writing mixtures", i, 3) for i in (1, 2, 3)]
    pairs = read_pairs(tmp_path / "noisy", tmp_path / "clean")
    assert [p.id for p in pairs] == [m.id for m in mixtures]
    for pair, mixture in zip(pairs, mixtures, strict=True):
        noisy, clean, _ = recordings.waveforms([mixture])
        torch.testing.assert_close(audio.read(pair.noisy)[0], noisy, rtol=0, atol=0)
        torch.testing.assert_close(audio.read(pair.clean)[0], clean, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no column id"),
        ("id,speech,background\n", "no column rir"),
        (HEADER, "no rows"),
        (
            HEADER + "a,s.flac,,b.flac,zero,0,-25\n",
            r"a\.csv, line 2: offset, .* must be numbers, .* got 'zero', '0', '-25'",
        ),
        (HEADER + "a,s.flac,,b.flac,0,nan,-25\n", "line 2: snr_db and level_dbfs must lie between -200 and 200 dB"),
        (HEADER + "a,s.flac,,b.flac,0,0,inf\n", "line 2: snr_db and level_dbfs must lie between -200 and 200 dB"),
        (HEADER + "a,s.flac,,b.flac,0,-4000,-25\n", "line 2: snr_db and level_dbfs must lie between"),
        (HEADER + "a,s.flac,,b.flac,0.5,0,-25\n", "line 2: offset, .* the first a whole one"),
        (HEADER + "a,s.flac,,b.flac,-1,0,-25\n", "line 2: offset must be the number of a sample, got '-1'"),
        (HEADER + f"a,s.flac,,b.flac,{'9' * 400},0,-25\n", "line 2: offset must be the number of a sample, got '9+"),
        (HEADER + f"a,s.flac,,b.flac,{'9' * 5000},0,-25\n", "line 2: offset, .* must be numbers"),
        (HEADER + f"a,{'s' * 5000},,b.flac,0,0,-25\n", "names .*ss, which does not exist"),
        (HEADER + "a,s\0.flac,,b.flac,0,0,-25\n", r"names .*s\\x00\.flac, which does not exist"),
        (HEADER + f"a,s.flac,,b.flac,0,0,{'-' * 200000}\n", "is not a CSV file: field larger"),
        (HEADER + 'a,"s.flac,,b.flac,0,0,-25\n' + "\n" * 9, "is incomplete: it has 2 of 7 columns"),
        (HEADER + "a,,,b.flac,0,0,-25\n", "line 2: is incomplete"),
        (HEADER + "a,s.flac,,b.flac,0\n", "line 2"),
        (HEADER + "a,gone.flac,,gone2.flac,0,0,-25\n", r"names .*gone\.flac, which does not exist \(and 1 more"),
    ],
)
def test_a_bad_manifest_is_told_in_one_line(tmp_path, text, reason):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=reason) as error:
        read_manifest(tmp_path / "a.csv")
    assert "a.csv" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500 + 2 * len(str(tmp_path))


def test_a_file_is_looked_at_once_however_many_rows_name_it(tmp_path, pool, monkeypatch):
    mixtures = pool.draw(scan(pool.files), seed=1, count=1000)
    write_manifest(tmp_path / "a.csv", mixtures)
    looked, look = [], os.path.isfile
    monkeypatch.setattr(os.path, "isfile", lambda path: looked.append(path) or look(path))
    assert len(read_manifest(tmp_path / "a.csv")) == 1000
    assert len(looked) == len(pool.files) == 9


def test_columns_come_in_any_order_and_others_are_ignored(tmp_path, speech_dir, noise_dir):
    speech, noise = speech_dir / "austen_0880.flac", noise_dir / "hum.flac"
    text = f"note,snr_db,level_dbfs,offset,background,rir,speech,id\nx,3,-25,7,{noise},,{speech},a\n\n"
    (tmp_path / "a.csv").write_text(text)
    assert read_manifest(tmp_path / "a.csv") == [Mixture("a", speech, None, noise, 7, 3.0, -25.0)]


@pytest.mark.skipif(os.name != "posix", reason="has no such files")
@pytest.mark.parametrize("what", ["pipe", "device", "a terabyte of nothing"])
def test_a_manifest_that_never_ends_is_not_read(what, tmp_path):
    path = tmp_path / "a.csv"
    make = {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero")}
    make.get(what, Path.touch)(path)
    if what not in make:
        os.truncate(path, 2**40)
    with pytest.raises(InputError, match=r"a\.csv: cannot be read \((not a plain file|\d+ bytes, \d+ are the most)\)"):
        read_manifest(path)


@pytest.mark.parametrize("option", [{"snrs_db": (1e300,)}, {"levels_dbfs": (float("nan"), 0.0)}, {"snrs_db": (-201,)}])
def test_mixtures_beyond_all_sound_are_not_drawn(option, pool):
    with pytest.raises(InputError, match=r"must lie between -200 and 200 dB"):
        replace(pool, **option)


def test_what_is_not_a_manifest_is_refused(tmp_path, speech_dir):
    with pytest.raises(InputError, match="cannot be read"):
        read_manifest(tmp_path / "missing.csv")
    with pytest.raises(InputError, match=r"austen_0880\.flac"):
        read_manifest(speech_dir / "austen_0880.flac")


def test_a_manifest_needs_a_folder(tmp_path):
    with pytest.raises(InputError, match="folder does not exist"):
        write_manifest(tmp_path / "no" / "a.csv", [])


def test_ids_that_cannot_be_file_names_are_refused(tmp_path, pool):
    sizes = scan(pool.files)
    mixtures = pool.draw(sizes, seed=0, count=1) * 2
    with pytest.raises(InputError, match="'00000' cannot name a file"):
        write_mixtures(tmp_path, mixtures, Recordings(sizes, in_memory=False))
