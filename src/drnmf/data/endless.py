"""Endless mixtures for a network with a memory: B walks through the recordings, in chunks of equal length.

A walk draws an utterance, a room, a noise (as often as a list has it), their changes (`data.variation`), an SNR and a
level. It starts anywhere in the utterance, or some seconds before it, and goes on chunk by chunk, each where the last
one ended, so that the network's state can be carried on. Then another walk begins: the state is reset, and what lies
before its first frame is silence.

    y = gain (s played at its speed) * room * response          the target: reverberant speech
    v = gain (b + other b' played at their speed) * response    * is a convolution
    x = y + v                                                   the mixture

Gains come from the levels of whole recordings, so that they are the same in all chunks of a walk: `data.mixing` can
measure an utterance, here its end is not yet known. Nothing is scaled to stay below 1.

Recordings lie end to end on the training device, which mixes too. What is drawn depends on (seed, epoch) alone. Names
of tensors end in their shape: B walks, S samples of a chunk, L those and what is around them, F bins, P points of a
response.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from drnmf.data.folders import Pool
from drnmf.data.mixing import fast_length
from drnmf.data.recordings import Recordings, scan
from drnmf.data.tape import Tape
from drnmf.data.variation import TONE_HZ, draw_variation, response
from drnmf.errors import InputError, raise_first
from drnmf.progress import Progress, silent
from drnmf.signal.spectra import HOP, SAMPLE_RATE, WINDOW, analyse

SAMPLE_S, BEFORE_S = 1.0, 2.0  # the shortest sample of a noise, and how long before the walk it ends at most
OTHER_SHARE = 0.12  # of samples that are of another noise, and of those with speech in them
WAITING_S = (0.5, 5.0)  # seconds of noise before a speaker that keeps one waiting
HIGHEST_HZ, LOWEST_HZ = (3200.0, 7000.0), (50.0, 300.0)  # ends of narrow bands; every second one has a lower end
OPEN = (-1000.0, 9000.0)  # Hz: ends of a band that lets everything pass
SLOPES_HZ = (15.0, 60.0)  # widths of the lower and of the upper end
LOUDEST = 64.0  # most that a noise's power is raised by after its response has taken power away
_AFTER = 1024  # samples heard ahead: responses have no delay
_QUIET = 1e-6  # RMS of what cannot be brought to a level
_EPSILON = 1e-12


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What mixtures are like: shares are of all walks, ranges are (lowest, highest)."""

    snrs_db: tuple[float, float]
    good_snrs_db: tuple[float, float]
    good_share: float
    clean_share: float
    levels_dbfs: tuple[float, float]
    narrow_share: float
    waiting_share: float = 0.0
    sample_share: float = 0.0


class Chunk(NamedTuple):
    """The next T frames of each walk as waveforms (B, S), and which walks begin here (B,)."""

    noisy: Tensor
    clean: Tensor
    reset: Tensor
    sample: Tensor  # of the noise of walks that begin here; (B, 0) where no samples are drawn

    def spectra(self) -> tuple[Tensor, Tensor]:
        """Complex spectra of mixtures and targets, both (B, T, 257)."""
        return analyse(self.noisy), analyse(self.clean)

    def mask(self) -> Tensor:
        """Which frames count, boolean (B, T): all."""
        frames = (self.noisy.shape[1] - WINDOW) // HOP + 1
        return torch.ones(len(self.noisy), frames, dtype=torch.bool, device=self.noisy.device)


class Walk(NamedTuple):
    """What was drawn, as numbers: those of one walk, or tensors (B, 1) of all walks."""

    utterance: Any  # where it begins among all speech
    utterance_length: Any
    utterance_start: Any  # samples, as they are played, that the walk leaves out
    speech_gain: Any
    noise: Any  # where it begins among all noise
    noise_length: Any
    noise_start: Any
    noise_gain: Any
    other: Any
    other_length: Any
    other_start: Any
    other_gain: Any
    speed: Any  # of the speech
    velocity: Any  # of both noises; below 0 they are played backwards
    room: Any
    lowest_hz: Any
    highest_hz: Any


class Sample(NamedTuple):
    """What a walk lets the network hear of its noise before it begins."""

    seconds: float = 0.0  # 0: nothing
    before: float = 0.0  # seconds between the sample and the walk
    other: bool = False  # it is of another noise
    spoken: bool = False  # somebody speaks in a third of it


@dataclass
class Way:
    """A walk, the responses of speech and noise in dB, its sample, and how many of its chunks are done."""

    walk: Walk
    tones_db: tuple[float, ...]
    n_chunks: int
    sample: Sample
    done: int = 0


class Endless:
    """Recordings from which walks are drawn, checked and decoded when made.

    Args:
        pool: the recordings; what it says of SNRs and levels is not used.
        conditions: what mixtures are like.
        batch_size: B, the number of walks side by side.
        max_frames: T, the frames of a chunk.
        seed: of what is drawn.
        device: where chunks are delivered and, if it has room for the recordings, mixed.
        progress: told while recordings are looked at and decoded.
    """

    def __init__(
        self,
        pool: Pool,
        conditions: Conditions,
        *,
        batch_size: int,
        max_frames: int,
        seed: int = 0,
        device: torch.device | str = "cpu",
        progress: Progress = silent,
    ) -> None:
        sizes = scan(pool.files, progress=progress)
        short = [path for path in (*pool.speech, *pool.background) if sizes[path] < SAMPLE_RATE // 4]
        raise_first([f"{path}: is shorter than a quarter of a second" for path in short])
        recordings = Recordings(sizes, in_memory=True, device=device, progress=progress)
        self.conditions, self.batch_size, self.seed = conditions, batch_size, seed
        self.device, self.home = torch.device(device), recordings.device
        self.speech, self.noise = Tape(recordings, pool.speech), Tape(recordings, pool.background)
        no_room = torch.ones(1, device=self.home)
        self.rooms_NR = pad_sequence([recordings.load(path) for path in pool.rirs] or [no_room], batch_first=True)
        self._noise_paths = pool.background
        rows = np.array(pool.background_rows or [1] * len(pool.background))
        self._noise_shares = rows / rows.sum()
        self._room_gain = self.rooms_NR.double().norm(dim=1).tolist()
        if min(self._room_gain) == 0:
            raise InputError(f"{pool.rirs[self._room_gain.index(0)]}: is silent")
        self.step = HOP * max_frames
        self.samples = self.step + WINDOW - HOP
        self._before = max(self.rooms_NR.shape[1], _AFTER)
        self._size = fast_length(self._before + self.samples + _AFTER)
        self._frequency_F = torch.fft.rfftfreq(self._size, 1 / SAMPLE_RATE, device=self.home)
        points_PP = torch.eye(len(TONE_HZ), device=self.home)
        self._decibels_PF = 20 * torch.log10(response(points_PP, self._frequency_F))  # of 1 dB at each point

    def __len__(self) -> int:
        """Steps of an epoch: as many as the speech fills."""
        return max(1, -(-int(self.speech.lengths.sum()) // (self.step * self.batch_size)))

    def epoch(self, epoch: int) -> "Epoch":
        """The chunks of one epoch, the same for the same seed; every walk begins anew."""
        return Epoch(self, epoch)

    def draw(self, rng: np.random.Generator) -> Way:
        """Draw a walk."""
        i, room = int(rng.integers(len(self.speech))), int(rng.integers(len(self.rooms_NR)))
        noise, other = (int(k) for k in rng.choice(len(self.noise), size=2, p=self._noise_shares))
        snr_db, level_dbfs, (lowest_hz, highest_hz) = self._condition(rng)
        latest = max(0, int(self.noise.lengths[other]) - self.step)
        change = draw_variation(rng, self._noise_paths[other], latest)  # half of them without the other noise
        played = int(self.speech.lengths[i] / change.speech_speed)
        wait = self._wait(rng)
        n_chunks = max(1, (wait + played) // self.step)
        needed = int(n_chunks * self.step * change.noise_speed)
        first = int(rng.integers(max(1, int(self.noise.lengths[noise]) - needed + 1)))
        level = 0.0 if snr_db is None else 10 ** ((level_dbfs - snr_db) / 20)
        ratio = 0.0 if change.other is None else 10 ** (change.other_db / 20)
        whole = np.hypot(1, ratio)
        start = -wait or int(rng.integers(max(1, played - n_chunks * self.step + 1)))
        speech_gain = _gain(10 ** (level_dbfs / 20), self.speech.rms(i) * self._room_gain[room])
        numbers = (
            *(self.speech.starts[i], self.speech.lengths[i], start, speech_gain),
            *self._part(noise, first, needed, level / whole, change.backwards),
            *self._part(other, change.other_offset, needed, level * ratio / whole, change.backwards),
            *(change.speech_speed, -change.noise_speed if change.backwards else change.noise_speed),
            *(room, lowest_hz, highest_hz),
        )
        return Way(
            Walk._make(numbers), (*change.speech_tone_db, *change.noise_tone_db), n_chunks, self._draw_sample(rng)
        )

    def _part(self, i: int, first: int, needed: int, level: float, backwards: bool) -> tuple[float, ...]:
        """Of a noise that is heard from `first` on, or up to there backwards: the four numbers of a walk."""
        length = int(self.noise.lengths[i])
        count = min(needed, length - first)
        start = first + count if backwards else first
        return self.noise.starts[i], length, start, _gain(level, self.noise.rms(i, first, count))

    def _wait(self, rng: np.random.Generator) -> int:
        """Samples of noise before the speech begins; 0: the walk starts inside it."""
        share = self.conditions.waiting_share
        waits = share > 0 and rng.random() < share  # without a share nothing is drawn: older recipes stay what they are
        return int(SAMPLE_RATE * rng.uniform(*WAITING_S)) if waits else 0

    def _draw_sample(self, rng: np.random.Generator) -> Sample:
        share = self.conditions.sample_share
        if share == 0 or rng.random() >= share:
            return Sample()
        longest = self.samples / SAMPLE_RATE
        seconds, before, kind = rng.uniform(min(SAMPLE_S, longest), longest), rng.uniform(0, BEFORE_S), rng.random()
        return Sample(float(seconds), float(before), kind < OTHER_SHARE, OTHER_SHARE <= kind < 2 * OTHER_SHARE)

    def _condition(self, rng: np.random.Generator) -> tuple[float | None, float, tuple[float, float]]:
        """SNR (None: no noise), level of the speech, and the band."""
        c = self.conditions
        kind, place = rng.random(2)
        low, high = c.good_snrs_db if kind < c.clean_share + c.good_share else c.snrs_db
        snr_db = None if kind < c.clean_share else float(low + place * (high - low))
        level_dbfs = float(rng.uniform(*c.levels_dbfs))
        narrow, with_lower_end = rng.random(2)
        highest, lowest = float(rng.uniform(*HIGHEST_HZ)), float(rng.uniform(*LOWEST_HZ))
        if narrow >= c.narrow_share:
            return snr_db, level_dbfs, OPEN
        return snr_db, level_dbfs, (lowest if with_lower_end < 0.5 else OPEN[0], highest)

    def sound(self, walk: Walk, tones_db: Tensor, done_B1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Speech and noise (B, S) of a chunk, and what the noise must be multiplied by to keep its power (B, 1)."""
        first = self._before + WINDOW - HOP
        t_L = torch.arange(self._before + self.samples + _AFTER, device=self.home, dtype=torch.float64) - first
        speech_BL, noise_BL = self._speech(walk, done_B1 + t_L), self._noise(walk, done_B1 + t_L)
        room_BR = self.rooms_NR[walk.room[:, 0].long()]
        band_BF = self._band(walk)
        speech_tone_BF, noise_tone_BF = (10 ** (db @ self._decibels_PF / 20) for db in tones_db.float().chunk(2, 1))
        speech_BF = torch.fft.rfft(speech_BL, self._size) * torch.fft.rfft(room_BR, self._size)
        y_BS = self._filtered(speech_BF, speech_tone_BF * band_BF)
        noise_BF = torch.fft.rfft(noise_BL, self._size)
        v_BS = self._filtered(noise_BF, noise_tone_BF * band_BF)
        heard_BS = noise_BL[:, self._before : self._before + self.samples]
        before_B1, after_B1 = (x.square().mean(1, keepdim=True) + _EPSILON for x in (heard_BS, v_BS))
        return y_BS, v_BS, (before_B1 / after_B1).clamp(max=LOUDEST).sqrt()

    def _filtered(self, x_BF: Tensor, gain_BF: Tensor) -> Tensor:
        y_BL: Tensor = torch.fft.irfft(x_BF * gain_BF, self._size)
        return y_BL[:, self._before : self._before + self.samples]

    def _speech(self, walk: Walk, t_BL: Tensor) -> Tensor:
        """As it is played, silent outside the utterance."""
        place_BL = (walk.utterance_start + t_BL) * walk.speed
        inside_BL = (place_BL >= 0) & (place_BL < walk.utterance_length)
        samples_BL = self.speech.at(walk.utterance + torch.where(inside_BL, place_BL, 0))
        played_BL: Tensor = torch.where(inside_BL, samples_BL, 0) * walk.speech_gain.float()
        return played_BL

    def _noise(self, walk: Walk, t_BL: Tensor) -> Tensor:
        """Both as they are played, again from their start where they end."""
        way_BL = t_BL * walk.velocity
        first_BL = self.noise.at(walk.noise + (walk.noise_start + way_BL) % walk.noise_length)
        second_BL = self.noise.at(walk.other + (walk.other_start + way_BL) % walk.other_length)
        both_BL: Tensor = first_BL * walk.noise_gain.float() + second_BL * walk.other_gain.float()
        return both_BL

    def _band(self, walk: Walk) -> Tensor:
        """Gains (B, F) of telephones and codecs."""
        lower_BF = torch.sigmoid((self._frequency_F - walk.lowest_hz) / SLOPES_HZ[0])
        upper_BF = torch.sigmoid((walk.highest_hz - self._frequency_F) / SLOPES_HZ[1])
        return (lower_BF * upper_BF).float()


class Epoch:
    """The chunks of one epoch."""

    def __init__(self, mixtures: Endless, epoch: int) -> None:
        self.mixtures, self.epoch = mixtures, epoch

    def __len__(self) -> int:
        return len(self.mixtures)

    def __iter__(self) -> Iterator[Chunk]:
        m = self.mixtures
        rng = np.random.default_rng((m.seed, self.epoch, 2))
        ways = [m.draw(rng) for _ in range(m.batch_size)]
        kept_B1 = torch.ones(m.batch_size, 1, device=m.home)  # how the noise keeps its power, from the first chunk
        side = _side_stream(m.home)  # mixes while the network learns
        for _ in range(len(self)):
            ways = [m.draw(rng) if way.done == way.n_chunks else way for way in ways]
            if side is None:
                chunk, kept_B1 = self._mix(ways, kept_B1)
            else:
                with torch.cuda.stream(side):
                    chunk, kept_B1 = self._mix(ways, kept_B1)
                _hand_over(chunk, side)
            yield Chunk(*(t.to(m.device) for t in chunk))

    def _mix(self, ways: list[Way], kept_B1: Tensor) -> tuple[Chunk, Tensor]:
        """The next chunk of all walks."""
        m = self.mixtures
        rows = [[*way.walk, *way.tones_db, way.done * m.step] for way in ways]
        table_BW = _upload(torch.tensor(rows, dtype=torch.float64), m.home)
        walk = Walk._make(table_BW[:, k, None] for k in range(len(Walk._fields)))
        done_B1 = table_BW[:, -1:]
        y_BS, v_BS, keeping_B1 = m.sound(walk, table_BW[:, len(Walk._fields) : -1], done_B1)
        reset_B1 = done_B1 == 0
        sample_BS = self._samples(ways, walk, table_BW[:, len(Walk._fields) : -1], y_BS)
        kept_B1 = torch.where(reset_B1, keeping_B1, kept_B1)
        silent_BS = reset_B1 & (torch.arange(m.samples, device=m.home) < WINDOW - HOP)
        x_BS = y_BS + v_BS * kept_B1
        for way in ways:
            way.done += 1
        x_BS, y_BS = x_BS.masked_fill(silent_BS, 0), y_BS.masked_fill(silent_BS, 0)
        return Chunk(x_BS, y_BS, reset_B1[:, 0], sample_BS), kept_B1

    def _samples(self, ways: list[Way], walk: Walk, tones_db: Tensor, speech_BS: Tensor) -> Tensor:
        """What is heard before walks that begin: some of their noise, from a while ago."""
        m = self.mixtures
        sample_BS = torch.zeros(len(ways), m.samples if m.conditions.sample_share else 0, device=m.home)
        rows = [b for b, way in enumerate(ways) if way.done == 0 and way.sample.seconds]
        if not rows:
            return sample_BS
        drawn = _upload(torch.tensor([ways[b].sample for b in rows], dtype=torch.float64), m.home)
        seconds_B1, before_B1, other_B1, spoken_B1 = (drawn[:, k, None] for k in range(4))
        first_B1 = -SAMPLE_RATE * before_B1 - m.samples
        index = _upload(torch.tensor(rows), m.home)
        _, noise_BS, _ = m.sound(Walk._make(x[index] for x in walk), tones_db[index], first_B1)
        noise_BS = torch.where(other_B1 > 0, noise_BS.roll(1, 0), noise_BS)
        t_S = torch.arange(m.samples, device=m.home)
        voice_BS = speech_BS[index].roll(1, 0) * (t_S > m.samples - seconds_B1 * SAMPLE_RATE / 3)
        level_B1 = noise_BS.norm(dim=1, keepdim=True) / voice_BS.norm(dim=1, keepdim=True).clamp_min(_QUIET)
        heard_BS = noise_BS + torch.where(spoken_B1 > 0, level_B1 * voice_BS, 0)
        return sample_BS.index_copy(0, index, torch.where(t_S >= m.samples - seconds_B1 * SAMPLE_RATE, heard_BS, 0))


def _gain(level: float, rms: float) -> float:
    return level / rms if rms > _QUIET else 0.0


def _upload(x: Tensor, device: torch.device) -> Tensor:
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x


def _side_stream(device: torch.device) -> Any:
    """A stream that finds all that the current one has made; None where there are no streams."""
    if device.type != "cuda":
        return None
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    return side


def _hand_over(chunk: Chunk, side: torch.cuda.Stream) -> None:
    """The current stream waits for what the side stream makes, and its memory waits for the current stream."""
    current = torch.cuda.current_stream(side.device)
    current.wait_stream(side)
    for tensor in chunk:
        tensor.record_stream(current)
