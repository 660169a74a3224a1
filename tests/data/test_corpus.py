"""A corpus of one's own, from small folders in the layouts of its sources."""

import csv
import json
import os
from itertools import pairwise

import numpy as np
import pytest

import public
from drnmf.data import corpus
from drnmf.data.corpus import SETS, Plan, build
from drnmf.data.manifests import read_manifest
from drnmf.data.sources import Source, read_esc50, read_folder, read_librispeech, without_copies
from drnmf.errors import InputError
from drnmf.signal import audio

SMALL = Plan(rooms=4, track_seconds=4.0, seed=7)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    speech = read_librispeech(public.librispeech(root))
    noise, copies = without_copies([*read_esc50(public.esc50(root)), *read_folder(public.games(root))])
    assert [source.path.name for source in copies] == ["slam_again.flac"]
    return speech, noise


@pytest.fixture(scope="module")
def made(sources, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    assert build(folder, *sources, SMALL) == {"train": 4, "dev": 2, "test": 2}
    return folder


def listed(folder) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "sources.csv").read_text().splitlines()))


def contents(folder) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_sources_say_what_belongs_together_and_where_it_comes_from(sources):
    speech, noise = sources
    assert len(speech) == 8
    assert {source.group for source in speech} == set(public.SPEAKERS)
    assert speech[0].origin == "LibriSpeech train-clean-100, speaker 103, chapter 1240"
    takes = [source for source in noise if source.group == "freesound 100038"]
    assert [source.path.name for source in takes] == ["1-100038-A-14.wav", "1-100038-B-14.wav"]
    assert takes[0].origin == "ESC-50 1-100038-A-14.wav: chirping_birds, freesound.org sound 100038"
    assert {source.origin for source in noise[4:]} == {"games/wind.flac", "games/doors/slam.flac", "games/silence.wav"}


def test_manifests_have_every_utterance_in_a_room_over_a_track(made):
    for name in SETS:
        mixtures = read_manifest(made / f"{name}.csv")
        assert [m.id for m in mixtures] == [f"{name}-{i:05d}" for i in range(len(mixtures))]
        assert {m.speech for m in mixtures} == set((made / "speech" / name).rglob("*.flac"))
        for m in mixtures:
            assert m.rir.parent == made / "rirs" / name
            assert m.background.parent == made / "background" / name
            assert audio.info(m.background).seconds == 4.0


def test_nothing_is_in_two_sets(made):
    rows = listed(made)
    sets = {}
    for row in rows:
        kind, name, *_ = row["file"].split("/")
        what = {"speech": row["origin"].split(",")[1:2], "background": row["origin"].split("sound ")[-1:]}
        key = (kind, *what.get(kind, [row["origin"]]))
        sets.setdefault(key, set()).add(name)
    assert {kind for kind, *_ in sets} == {"speech", "background", "rirs"}
    assert all(len(names) == 1 for names in sets.values()), sets
    assert {path.split("/")[1] for path in (row["file"] for row in rows)} == set(SETS)


def test_every_recording_is_in_a_track_where_the_list_says(made, sources):
    rows = [row for row in listed(made) if row["file"].startswith("background/")]
    used = {row["source"] for row in rows}
    assert used == {str(source.path) for source in sources[1] if source.path.name != "silence.wav"}
    for row in rows:
        track = audio.read(made / row["file"])[0][0].numpy()
        start, length = (round(float(row[key]) * 16000) for key in ("second", "seconds"))
        here = track[start + 2000 : start + length - 2000]
        x = audio.read(row["source"], sample_rate=16000)[0][0].numpy()
        heard = np.flatnonzero(np.abs(x) > 1e-4)[0]  # silence before it is left out
        there = x[heard + 2000 : heard + 2000 + len(here)]
        if len(here) > 1000:
            assert np.corrcoef(here, there)[0, 1] > 0.98, row


def test_tracks_have_no_holes_but_those_of_their_recordings(made):
    for path in (made / "background").rglob("*.flac"):
        track = audio.read(path)[0][0].numpy()
        pieces = np.abs(track[: len(track) // 3200 * 3200]).reshape(-1, 3200).max(1)
        assert pieces.min() > 1e-4


def test_the_same_seed_makes_the_same_bytes_and_another_does_not(made, sources, tmp_path):
    build(tmp_path / "again", *sources, SMALL)
    assert contents(tmp_path / "again") == contents(made)
    build(tmp_path / "other", *sources, Plan(rooms=4, track_seconds=4.0, seed=9))
    assert contents(tmp_path / "other")["train.csv"] != contents(made)["train.csv"]


@pytest.mark.parametrize("stopped_at", ["rooms", "background"])
def test_a_run_that_was_stopped_goes_on(made, sources, tmp_path, monkeypatch, stopped_at):
    class Stopped(BaseException):
        pass

    def stop(what, done, total):
        if what == stopped_at:
            raise Stopped

    with pytest.raises(Stopped):
        build(tmp_path, *sources, SMALL, progress=stop)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.flac")}
    assert before
    assert not (tmp_path / "train.csv").exists()
    build(tmp_path, *sources, SMALL)
    assert contents(tmp_path) == contents(made)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_another_corpus_is_not_mixed_into_this_one(made, sources, tmp_path):
    speech, noise = sources
    with pytest.raises(InputError, match=r"holds another corpus \(rooms was 4, now 5; seed was 7, now 1\)"):
        build(made, *sources, Plan(rooms=5, track_seconds=4.0, seed=1))
    with pytest.raises(InputError, match=r"holds another corpus \(noise was \w+, now \w+\); choose another folder"):
        build(made, speech, noise[:-1], SMALL)
    (tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(InputError, match=r"corpus.json: is damaged"):
        build(tmp_path, *sources, SMALL)
    assert json.loads((made / "corpus.json").read_text())["seed"] == 7


def test_speech_is_linked_and_else_copied(made, sources, tmp_path, monkeypatch):
    original = sources[0][0].path
    twin = next((made / "speech").rglob(original.name))
    assert os.path.samefile(original, twin)

    def refuse(*_):
        raise OSError

    monkeypatch.setattr(corpus.os, "link", refuse)
    build(tmp_path, *sources, SMALL)
    copy = next((tmp_path / "speech").rglob(original.name))
    assert not os.path.samefile(original, copy)
    assert copy.read_bytes() == original.read_bytes()


def test_what_cannot_be_built_is_told(sources, tmp_path):
    speech, noise = sources
    few = [source for source in speech if source.group in ("103", "1034")]
    for arguments, message in [
        ((few, noise, SMALL), "2 speakers are too few for train, dev, test: give at least 3"),
        ((speech, noise[:2], SMALL), "2 recordings of noise are too few"),
        (
            (speech, noise, Plan(rooms=4, track_seconds=1.0)),
            r"tracks of 1 s are shorter than the longest utterance, 1.5",
        ),
        (([*speech, speech[0]], noise, SMALL), "two utterances have the same name"),
    ]:
        with pytest.raises(InputError, match=message):
            build(tmp_path / "folder", *arguments)
    with pytest.raises(InputError, match="2 rooms are too few"):
        Plan(rooms=2)
    with pytest.raises(InputError, match=r"silence.wav: is silent, as all recordings of its track are"):
        corpus.make_track([s for s in noise if s.path.name == "silence.wav"], 16000, np.random.default_rng(0))


def test_what_is_no_source_is_told(tmp_path, noise_dir):
    with pytest.raises(InputError, match="is not LibriSpeech, it has no file like"):
        read_librispeech(noise_dir)
    with pytest.raises(InputError, match=r"is not ESC-50, it has no meta/esc50.csv"):
        read_esc50(tmp_path)
    folder = public.esc50(tmp_path)
    table = (folder / "meta" / "esc50.csv").read_text()
    for wrong, message in [
        (table.replace("1-100032-A-0.wav", "../meta/esc50.csv"), "which does not exist"),
        (table.replace("1-100032", "1-100033"), r"1-100033-A-0.wav, which does not exist"),
        (table.replace("src_file", "source"), "is not the table of ESC-50"),
        ("", "is not the table of ESC-50"),
    ]:
        (folder / "meta" / "esc50.csv").write_text(wrong)
        with pytest.raises(InputError, match=message):
            read_esc50(folder)


def test_a_tenth_of_the_groups_is_held_out_twice():
    sources = [Source(public.AUDIO / str(i), str(i // 2), "") for i in range(80)]
    parts = corpus.split(sources, 1, 0, "speakers")
    groups = {name: {source.group for source in part} for name, part in parts.items()}
    assert {name: len(part) for name, part in groups.items()} == {"train": 32, "dev": 4, "test": 4}
    assert {name: len(part) for name, part in parts.items()} == {"train": 64, "dev": 8, "test": 8}
    assert groups["dev"] != {source.group for source in corpus.split(sources, 2, 0, "speakers")["dev"]}


def test_recordings_fade_into_each_other_until_the_track_is_full(sources):
    members = [source for source in sources[1] if source.path.parent.name == "audio"]
    track, used = corpus.make_track(members, 150_000, np.random.default_rng(0))
    assert track.shape == (150_000,)
    assert [number for _, _, number in used[:5]] == [0, 1, 2, 3, 0]
    for (start, length, _), (following, _, _) in pairwise(used):
        assert following == start + length - corpus.FADE
    assert used[-1][0] + used[-1][1] == 150_000
    assert np.abs(track).max() <= 0.99
