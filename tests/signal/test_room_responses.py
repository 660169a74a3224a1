"""Simulated rooms against the arithmetic of single reflections, and against pyroomacoustics."""

import json
from pathlib import Path

import numpy as np
import pytest

from drnmf.errors import InputError
from drnmf.signal import rooms
from drnmf.signal.rooms import LEAD, PEAK, Room, draw_room, room_response

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "rooms.json").read_text())["rows"]
SOUND = 343.0


def test_the_first_reflections_are_where_mirrors_put_them():
    """A hall so large that each comes alone; their distances by Pythagoras."""
    room = Room((40.0, 50.0, 30.0), (20.0, 25.0, 2.0), (20.0, 22.0, 2.0), 1.5)
    response = room_response(room)
    floor = np.hypot(3.0, 4.0)
    assert int(np.argmax(response)) == LEAD
    assert response[LEAD] == pytest.approx(PEAK)
    at = LEAD + (floor - 3.0) / SOUND * 16000
    near = response[round(at) - 3 : round(at) + 4]
    assert round(at) - 3 + int(np.argmax(near)) == round(at)
    volume, surface = 40 * 50 * 30, 2 * (40 * 50 + 50 * 30 + 30 * 40)
    wall = np.exp(-0.161 * volume / (surface * 1.5) / 2)
    assert near.sum() / response[LEAD - 3 : LEAD + 4].sum() == pytest.approx(wall * 3.0 / floor, rel=0.05)
    quiet = response[LEAD + 20 : round(at) - 20]
    assert np.abs(quiet).max() < 0.05 * PEAK  # nothing between them but the high-pass


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['size'][0]} m, {row['t60']} s")
def test_energy_decays_as_in_pyroomacoustics(row):
    response = room_response(Room(tuple(row["size"]), tuple(row["source"]), tuple(row["microphone"]), row["t60"]))
    energy = np.cumsum(np.square(response)[::-1])[::-1]
    decay_db = [10 * np.log10(energy[int(second * 16000)] / energy[0]) for second in row["seconds"]]
    assert decay_db == pytest.approx(row["decay_db"], abs=0.3)


def test_the_reverberation_time_is_the_one_wanted():
    for t60 in (0.2, 0.5):
        energy = np.cumsum(np.square(room_response(Room((5.0, 4.0, 2.7), (1, 1, 1.2), (3.5, 2.5, 1.6), t60)))[::-1])[
            ::-1
        ]
        level = 10 * np.log10(energy / energy[0])
        measured = 3 * (np.argmax(level < -25) - np.argmax(level < -5)) / 16000
        assert measured == pytest.approx(t60, rel=0.25)  # a box is not as diffuse as Eyring's formula has it


def test_there_is_no_rumble():
    spectrum = np.abs(np.fft.rfft(room_response(draw_room(np.random.default_rng(3))), 1 << 15))
    hertz = np.fft.rfftfreq(1 << 15, 1 / 16000)
    assert spectrum[hertz < 4].max() < spectrum[(hertz > 200) & (hertz < 4000)].mean() / 10


def test_rooms_are_drawn_as_homes_have_them():
    drawn = [draw_room(np.random.default_rng(i)) for i in range(200)]
    assert drawn[7] == draw_room(np.random.default_rng(7))
    assert len({room.size for room in drawn}) == 200
    distances = [room.distance for room in drawn]
    assert 0.3 <= min(distances) < 0.8
    assert 3.5 < max(distances) <= 4
    assert {0.1, 0.7} >= {min(max(room.t60, 0.7), 0.7) for room in drawn}
    assert all(np.isfinite(room_response(room)).all() for room in drawn[:5])


def test_a_place_outside_the_room_is_told():
    with pytest.raises(InputError, match="is not inside a room"):
        Room((3.0, 3.0, 2.5), (1.0, 1.0, 2.6), (2.0, 2.0, 1.0), 0.3)
    with pytest.raises(InputError, match="t60"):
        Room((3.0, 3.0, 2.5), (1.0, 1.0, 1.6), (2.0, 2.0, 1.0), 0.0)
    assert rooms.LEAD == 40
