from collections import Counter
from dataclasses import replace

import pytest

from drnmf.data.batches import Dataset
from drnmf.data.folders import Pool, hold_out, read_pairs
from drnmf.data.recordings import scan
from drnmf.errors import InputError


def test_pairs_are_matched_by_name_whatever_the_format(tmp_path, speech_dir):
    for name in ["noisy/1/a.flac", "noisy/b.flac", "clean/1/a.wav", "clean/b.flac"]:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    pairs = read_pairs(tmp_path / "noisy", tmp_path / "clean")
    assert [(p.id, p.noisy.name, p.clean.name) for p in pairs] == [
        ("1/a", "a.flac", "a.wav"),
        ("b", "b.flac", "b.flac"),
    ]
    (tmp_path / "clean/b.flac").unlink()
    with pytest.raises(InputError, match=r"noisy/b\.flac: has no partner"):
        read_pairs(tmp_path / "noisy", tmp_path / "clean")
    (tmp_path / "clean/c.flac").touch()
    (tmp_path / "noisy/b.flac").unlink()
    with pytest.raises(InputError, match=r"clean/c\.flac: has no partner"):
        read_pairs(tmp_path / "noisy", tmp_path / "clean")


@pytest.fixture(scope="module")
def pool(speech_dir, noise_dir):
    return replace(
        Pool.from_folders(speech_dir, noise_dir, noise_dir), snrs_db=(-3, 6)
    )  # any files will do as rooms here


def test_an_epoch_uses_every_utterance_once_and_draws_the_rest(pool):
    sizes = scan(pool.files)
    drawn = [m for epoch in range(40) for m in pool.draw(sizes, seed=5, epoch=epoch)]
    assert set(Counter(m.speech for m in drawn).values()) == {40}
    assert {m.background for m in drawn} == set(pool.background)
    assert {m.rir for m in drawn} == set(pool.rirs)
    assert {m.snr_db for m in drawn} == {-3, 6}
    levels = [m.level_dbfs for m in drawn]
    assert -33 <= min(levels) < -32
    assert -26 < max(levels) <= -25
    places = [m.offset / (sizes[m.background] - sizes[m.speech]) for m in drawn]
    assert 0 <= min(places) < 0.1
    assert 0.9 < max(places) <= 1


@pytest.mark.parametrize("levels", [(-46.0, -40.0), (-50.0, -50.0)])
def test_levels_are_drawn_from_the_range_that_is_given(speech_dir, noise_dir, levels):
    pool = replace(Pool.from_folders(speech_dir, noise_dir), levels_dbfs=levels)
    mixtures = pool.draw(scan(pool.files), seed=5, count=200)
    low, high = levels
    found = [m.level_dbfs for m in mixtures]
    assert low <= min(found) <= low + 0.1 * (high - low)
    assert high - 0.1 * (high - low) <= max(found) <= high
    assert Pool.from_items(mixtures).levels_dbfs == (min(found), max(found))
    _, clean = Dataset(mixtures[:1]).waveforms(mixtures[0])
    assert 20 * clean.square().mean().sqrt().log10().item() == pytest.approx(found[0], abs=0.01)


def test_the_same_seed_draws_the_same_and_another_does_not(pool):
    sizes = scan(pool.files)
    first = pool.draw(sizes, seed=5, epoch=3)
    assert first == pool.draw(sizes, seed=5, epoch=3)
    assert first != pool.draw(sizes, seed=5, epoch=4)
    assert first != pool.draw(sizes, seed=6, epoch=3)
    assert len(pool.draw(sizes, seed=5, count=13)) == 13


def test_a_manifest_can_be_drawn_anew(pool):
    sizes = scan(pool.files)
    mixtures = pool.draw(sizes, seed=0, count=60)
    again = Pool.from_items(mixtures)
    assert set(again.speech) == set(pool.speech)
    assert set(again.background) == set(pool.background)
    assert set(again.rirs) == set(pool.rirs)
    assert again.snrs_db == (-3, 6)
    assert again.levels_dbfs == (min(m.level_dbfs for m in mixtures), max(m.level_dbfs for m in mixtures))


def test_what_is_held_out_shares_no_file_with_the_rest(pool):
    rest, held = pool.hold_out()
    for name in ("speech", "background", "rirs"):
        assert not set(getattr(rest, name)) & set(getattr(held, name))
        assert set(getattr(rest, name)) | set(getattr(held, name)) == set(getattr(pool, name))
    assert len(held.speech) == 1
    one = Pool(speech=pool.speech, background=pool.background[:1])
    rest, held = one.hold_out()
    assert rest.background == held.background == one.background  # one background has to serve both
    with pytest.raises(InputError, match="only utterance"):
        Pool(speech=pool.speech[:1], background=pool.background).hold_out()


def test_items_are_held_out_by_file(pool):
    items = pool.draw(scan(pool.files), seed=0, count=40)  # every utterance eight times
    rest, held = hold_out(items, every=3)
    assert len(rest) + len(held) == 40
    assert not {m.speech for m in rest} & {m.speech for m in held}
    assert len({m.speech for m in held}) == 2


def test_settings_that_make_no_sense_are_refused(pool):
    with pytest.raises(InputError, match="lowest, highest"):
        Pool(speech=pool.speech, background=pool.background, levels_dbfs=(-20, -30))
