"""Simulated rooms: the image-source method (Allen and Berkley, 1979) for a box whose walls all reflect alike.

A wall is a mirror. An image of the source that is seen through r walls, at the distance d, is heard after d / c, by

    beta^r d_0 / d          beta^2 = exp(-0.161 V / (S T60))

of the direct sound, which came d_0 far. V and S are the room's volume and surface, and T60 is the time in which its
sound falls by 60 dB (Eyring's formula). Along each axis, of length L with the source at s, the images are at kL + s for
even k and at (k + 1) L - s for odd k, seen through |k| walls.

Images are put on a grid eight times as fine as the samples, whose sum is then resampled: that costs the same for a
million of them as for a thousand.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr

from drnmf.errors import InputError

SOUND = 343.0  # metres a second
LEAD = 40  # samples before the direct sound: the filter of the resampling begins there
PEAK = 0.9

_FINER = 8
_HIGH_PASS_HZ = 50.0  # as all images are positive, they add up to a rumble that no room has

Metres = tuple[float, float, float]
Response = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Room:
    """A box with one corner at the origin, a source and a microphone in it, and the time of its reverberation."""

    size: Metres
    source: Metres
    microphone: Metres
    t60: float

    def __post_init__(self) -> None:
        for place in (self.source, self.microphone):
            if not all(0 < x < length for x, length in zip(place, self.size, strict=True)):
                raise InputError(f"{place} is not inside a room of {self.size} m")
        if not 0 < self.t60 <= 2:
            raise InputError(f"t60 must be above 0 and at most 2 s, got {self.t60:g}")

    @property
    def distance(self) -> float:
        """From the source to the microphone, in metres."""
        return float(np.linalg.norm(np.subtract(self.source, self.microphone)))

    @property
    def reflection(self) -> float:
        """beta: what a wall leaves of the pressure."""
        a, b, c = self.size
        volume, surface = a * b * c, 2 * (a * b + b * c + c * a)
        return float(np.exp(-0.161 * volume / (surface * self.t60) / 2))


def draw_room(rng: np.random.Generator) -> Room:
    """A room of a home, with somebody who speaks 0.3 to 4 m from a microphone."""
    while True:
        size = tuple(round(float(x), 2) for x in rng.uniform((2.5, 2.5, 2.3), (8.0, 6.0, 3.5)))
        walls = np.array((0.3, 0.3, 0.7))  # nearer than that stands nobody; the floor is farther
        ends = np.stack([walls, np.array(size) - 0.3])
        source, microphone = (tuple(round(float(x), 2) for x in rng.uniform(*ends)) for _ in range(2))
        t60 = round(float(rng.uniform(0.1, 0.7)), 2)
        room = Room(size, source, microphone, t60)  # type: ignore[arg-type]
        if 0.3 <= room.distance <= 4:
            return room


def room_response(room: Room, rate: int = 16000) -> Response:
    """What the microphone hears of a click: the direct sound at sample LEAD, and `t60` after it; its peak is PEAK."""
    fine = np.zeros(int((LEAD + room.t60 * rate) * _FINER))
    farthest = room.distance + room.t60 * SOUND
    (x, x_walls), (y, y_walls), (z, z_walls) = (
        _images(*axis, farthest) for axis in zip(room.size, room.source, room.microphone, strict=True)
    )
    across = np.square(y)[:, None] + np.square(z)
    walls = y_walls[:, None] + z_walls
    for offset, count in zip(x, x_walls, strict=True):
        distance = np.sqrt(offset**2 + across)
        near = distance < farthest
        late = (distance[near] - room.distance) / SOUND * rate
        cell = np.rint((LEAD + late) * _FINER).astype(np.int64)
        strength = room.reflection ** (count + walls[near]) * room.distance / distance[near]
        inside = cell < len(fine)
        fine += np.bincount(cell[inside], strength[inside], minlength=len(fine))
    response = _without_rumble(soxr.resample(fine, rate * _FINER, rate, "HQ"), rate)
    scaled: Response = PEAK / np.abs(response).max() * response
    return scaled


def _images(length: float, source: float, microphone: float, farthest: float) -> tuple[Response, Response]:
    """Along one axis: how far each image is from the microphone, and through how many walls it is seen."""
    most = int(farthest / length) + 2
    k = np.arange(-most, most + 1)
    place = np.where(k % 2 == 0, k * length + source, (k + 1) * length - source)
    return place - microphone, np.abs(k).astype(float)


def _without_rumble(x: Response, rate: int) -> Response:
    """Through y_n = x_n - x_(n-1) + r y_(n-1), twice, in the spectrum."""
    size = 2 * len(x) + rate // 4  # behind the end, what is left of it has died away
    z = np.exp(-2j * np.pi * np.fft.rfftfreq(size))
    pole = np.exp(-2 * np.pi * _HIGH_PASS_HZ / rate)
    response = np.square((1 - z) / (1 - pole * z))
    filtered: Response = np.fft.irfft(np.fft.rfft(x, size) * response, size)[: len(x)]
    return filtered
