"""A corpus of one's own, in the home corpus's layout, from public recordings and simulated rooms.

    speech/SET/SPEAKER/UTTERANCE.flac     as published: a link, or a copy where the disk is another
    background/SET/00.flac                tracks of noise: recordings one after the other, in random order
    rirs/SET/000.flac                     responses of simulated rooms (signal.rooms)
    SET.csv                               the manifest: every utterance once, in a room, over a place of a track
    sources.csv                           where everything comes from, with the place in its track
    corpus.json                           how it was made

SET is train, dev or test. No speaker, no recording of noise and no room is in two of them. Everything follows from the
sources and one seed, file by file: what exists already is left as it is, and a run that was stopped goes on.
"""

import csv
import io
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from drnmf.data.folders import LEVELS_DBFS, SNRS_DB, Pool
from drnmf.data.manifests import write_manifest
from drnmf.data.mixing import PEAK
from drnmf.data.recordings import SILENT, scan
from drnmf.data.sources import Source, listing
from drnmf.errors import InputError
from drnmf.files import make_folder, read_plain, staged, write_atomically
from drnmf.parallel import in_threads
from drnmf.progress import Progress, silent
from drnmf.signal import audio
from drnmf.signal.rooms import draw_room, room_response
from drnmf.signal.spectra import SAMPLE_RATE

log = logging.getLogger("drnmf")

SETS = ("train", "dev", "test")
COLUMNS = ("file", "second", "seconds", "source", "origin")
LONGEST = 60 * SAMPLE_RATE  # of one recording in a track: else a few long ones would fill it
FADE = SAMPLE_RATE // 20
LOUDNESS_DBFS = (-32.0, -20.0)  # of one recording in a track

_SPEECH, _NOISE, _ROOMS, _TRACKS, _MIXTURES = range(5)  # what a random choice is for: each has numbers of its own

Row = tuple[str, float, float, str, str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a corpus is made."""

    rooms: int = 240
    track_seconds: float = 300.0
    snrs_db: tuple[float, ...] = SNRS_DB
    levels_dbfs: tuple[float, float] = LEVELS_DBFS
    seed: int = 2016

    def __post_init__(self) -> None:
        if self.rooms and self.rooms < len(SETS):
            raise InputError(f"{self.rooms} rooms are too few for {', '.join(SETS)}: at least {len(SETS)}, or none")


def build(
    folder: Path | str, speech: Sequence[Source], noise: Sequence[Source], plan: Plan, *, progress: Progress = silent
) -> dict[str, int]:
    """Write the corpus, or what is missing of it; returns the number of mixtures of each set."""
    folder = Path(folder)
    voices = split(speech, plan.seed, _SPEECH, "speakers")
    noises = split(noise, plan.seed, _NOISE, "recordings of noise")
    _check_speech(speech, plan, progress)
    make_folder(folder)
    _agree(folder / "corpus.json", {**asdict(plan), "speech": listing(speech), "noise": listing(noise)})
    rows = _write_speech(folder, voices, progress)
    tracks = _write_tracks(folder, noises, plan, progress)
    _tell_unheard(noise, tracks)
    rows += tracks
    rows += _write_rooms(folder, plan, progress)
    _write_sources(folder / "sources.csv", rows)
    return {name: _write_manifest(folder, name, plan, progress) for name in SETS}


def split(sources: Sequence[Source], seed: int, kind: int, what: str) -> dict[str, list[Source]]:
    """The recordings of each set: a tenth of the groups for dev and for test, at least one."""
    groups = sorted({source.group for source in sources})
    if len(groups) < len(SETS):
        raise InputError(f"{len(groups)} {what} are too few for {', '.join(SETS)}: give at least {len(SETS)}")
    order = np.random.default_rng((seed, kind)).permutation(len(groups))
    tenth = max(1, round(len(groups) / 10))
    numbers = {"dev": order[:tenth], "test": order[tenth : 2 * tenth], "train": order[2 * tenth :]}
    members = {name: {groups[i] for i in numbers[name]} for name in SETS}
    return {name: [source for source in sources if source.group in members[name]] for name in SETS}


def _check_speech(speech: Sequence[Source], plan: Plan, progress: Progress) -> None:
    if len({(source.group, source.path.name) for source in speech}) < len(speech):
        raise InputError("two utterances have the same name: give each folder of LibriSpeech once")
    longest = max(scan([source.path for source in speech], progress=progress).values()) / SAMPLE_RATE
    if longest > plan.track_seconds:
        raise InputError(f"tracks of {plan.track_seconds:g} s are shorter than the longest utterance, {longest:.1f} s")


def _tell_unheard(noise: Sequence[Source], rows: Sequence[Row]) -> None:
    used = {row[3] for row in rows}
    unheard = [source.path for source in noise if str(source.path) not in used]
    if unheard:
        text = "%d of %d recordings of noise are in no track, being silent or too short, for example %s"
        log.info(text, len(unheard), len(noise), unheard[0])


def _agree(path: Path, settings: dict[str, Any]) -> None:
    """Begin a corpus, or find that the one which was begun is this one."""
    settings = json.loads(json.dumps(settings))
    if not path.exists():
        write_atomically(path, json.dumps(settings, indent=1) + "\n")
        return
    try:
        before = json.loads(read_plain(path, 2**20))
        other = [f"{key} was {before.get(key)}, now {value}" for key, value in settings.items() if before[key] != value]
    except (ValueError, KeyError, AttributeError, TypeError):
        raise InputError(f"{path}: is damaged; remove the folder, or choose another") from None
    if other:
        raise InputError(f"{path.parent}: holds another corpus ({'; '.join(other)}); choose another folder")


def _write_speech(folder: Path, voices: Mapping[str, Sequence[Source]], progress: Progress) -> list[Row]:
    places = {}
    for name, sources in voices.items():
        for source in sources:
            places[folder / "speech" / name / source.group / source.path.name] = source

    def write(place: Path) -> None:
        if not place.exists():
            make_folder(place.parent)
            _link(places[place].path, place)

    in_threads(write, list(places), "speech", progress)
    return [(_below(folder, place), 0.0, 0.0, str(s.path), s.origin) for place, s in places.items()]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another disk, or one without links
        with staged(target) as (temporary,):
            shutil.copyfile(source, temporary)


def _write_tracks(folder: Path, noises: Mapping[str, Sequence[Source]], plan: Plan, progress: Progress) -> list[Row]:
    """Every recording is in a track; a track that is not full repeats its own."""
    sizes = scan([source.path for sources in noises.values() for source in sources], progress=progress)
    tracks: list[tuple[Path, list[Source], tuple[int, ...]]] = []
    for number, (name, sources) in enumerate(noises.items()):
        order = np.random.default_rng((plan.seed, _TRACKS, number)).permutation(len(sources))
        samples = sum(min(sizes[source.path], LONGEST) for source in sources)
        count = max(1, min(len(sources), round(samples / SAMPLE_RATE / plan.track_seconds)))
        make_folder(folder / "background" / name)
        for i in range(count):
            members = [sources[j] for j in order[i::count]]
            place = folder / "background" / name / f"{i:02d}.flac"
            tracks.append((place, members, (plan.seed, _TRACKS, number, i)))

    def write(track: tuple[Path, list[Source], tuple[int, ...]]) -> list[Row]:
        place, members, seed = track
        listed = place.with_suffix(".json")
        if not (place.exists() and listed.exists()):
            samples, used = make_track(members, round(plan.track_seconds * SAMPLE_RATE), np.random.default_rng(seed))
            audio.write(place, samples[None], SAMPLE_RATE, subtype="PCM_16")
            write_atomically(listed, json.dumps(used))
        at = [(start, length, members[k]) for start, length, k in json.loads(listed.read_text())]
        return [
            (_below(folder, place), start / SAMPLE_RATE, length / SAMPLE_RATE, str(source.path), source.origin)
            for start, length, source in at
        ]

    return [row for rows in in_threads(write, tracks, "background", progress) for row in rows]


def make_track(
    members: Sequence[Source], samples: int, rng: np.random.Generator
) -> tuple[audio.Samples, list[tuple[int, int, int]]]:
    """Recordings one after the other until the track is full; and for each its start, its length and its number."""
    track = np.zeros(samples + FADE, np.float32)
    used: list[tuple[int, int, int]] = []
    end = 0
    mute = 0  # recordings in a row in which nothing can be heard
    for turn in range(10**6):
        if end >= samples or mute == len(members):
            break
        number = turn % len(members)
        x = _excerpt(members[number].path, rng)
        mute = 0 if x.size else mute + 1
        if not x.size:
            continue
        start = max(0, end - FADE)
        x = x[: len(track) - start]
        track[start : start + len(x)] += x
        used.append((start, min(len(x), samples - start), number))
        end = start + len(x)
    if not used:
        raise InputError(f"{members[0].path}: is silent, as all recordings of its track are: move them away")
    whole: audio.Samples = track[:samples] / max(1.0, float(np.abs(track).max()) / PEAK)
    return whole, used


def _excerpt(path: Path, rng: np.random.Generator) -> audio.Samples:
    """A part of a recording, at a random loudness, faded in and out; empty where nothing can be heard."""
    total = audio.info(path).samples_at(SAMPLE_RATE)
    count = min(total, LONGEST)
    start = int(rng.integers(total - count + 1))
    level = rng.uniform(*LOUDNESS_DBFS)
    x = audio.read_array(path, sample_rate=SAMPLE_RATE, channel=0, start=start, count=count, announce=False)[0][0]
    heard = np.flatnonzero(np.abs(x) > SILENT)
    if len(heard) < 4 * FADE:
        return np.zeros(0, np.float32)
    x = x[heard[0] : heard[-1] + 1]  # clips are often filled up with silence
    loudness = np.sqrt(np.mean(np.square(x, dtype=np.float64)))
    gain = np.full(len(x), 10 ** (level / 20) / loudness)
    ramp = np.linspace(0, 1, FADE)
    gain[:FADE] *= ramp
    gain[-FADE:] *= ramp[::-1]
    faded: audio.Samples = (gain * x).astype(np.float32)
    return faded


def _write_rooms(folder: Path, plan: Plan, progress: Progress) -> list[Row]:
    tenth = max(1, round(plan.rooms / 10))
    sets = {"train": plan.rooms - 2 * tenth, "dev": tenth, "test": tenth} if plan.rooms else {}
    places = []
    for number, (name, count) in enumerate(sets.items()):
        make_folder(folder / "rirs" / name)
        places += [(folder / "rirs" / name / f"{i:03d}.flac", (plan.seed, _ROOMS, number, i)) for i in range(count)]

    def write(task: tuple[Path, tuple[int, ...]]) -> Row:
        place, seed = task
        room = draw_room(np.random.default_rng(seed))
        if not place.exists():
            audio.write(place, room_response(room)[None].astype(np.float32), SAMPLE_RATE, subtype="PCM_24")
        size = " x ".join(f"{x:g}" for x in room.size)
        origin = f"simulated: {size} m, T60 {room.t60:g} s, source {room.source}, microphone {room.microphone}"
        return _below(folder, place), 0.0, 0.0, "", origin

    return in_threads(write, places, "rooms", progress)


def _write_sources(path: Path, rows: Sequence[Row]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for file, second, seconds, source, origin in rows:
        place = [f"{second:.5f}", f"{seconds:.5f}"] if seconds else ["", ""]
        writer.writerow([file, *place, source, origin])
    write_atomically(path, text.getvalue())


def _write_manifest(folder: Path, name: str, plan: Plan, progress: Progress) -> int:
    def files(kind: str) -> tuple[Path, ...]:
        return tuple(sorted((folder / kind / name).rglob("*.flac")))

    pool = Pool(
        speech=files("speech"),
        background=files("background"),
        rirs=files("rirs"),
        snrs_db=plan.snrs_db,
        levels_dbfs=plan.levels_dbfs,
    )
    sizes = scan(pool.files, progress=progress)
    pool.check_fit(sizes)
    mixtures = pool.draw(sizes, seed=plan.seed, epoch=_MIXTURES + SETS.index(name))
    write_manifest(folder / f"{name}.csv", [replace(m, id=f"{name}-{m.id}") for m in mixtures])
    return len(mixtures)


def _below(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()
