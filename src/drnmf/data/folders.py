"""Folders of recordings: clean speech, noise and room responses to be mixed, or pairs that are mixed already."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from drnmf.data.mixing import Item, Mixture, Pair, check_decibels
from drnmf.data.recordings import Sizes, shorter
from drnmf.data.variation import draw_variation
from drnmf.errors import InputError, raise_first
from drnmf.files import find_audio

SNRS_DB = (-6.0, -3.0, 0.0, 3.0, 6.0, 9.0)
LEVELS_DBFS = (-33.0, -25.0)


def read_pairs(noisy: Path | str, clean: Path | str) -> list[Pair]:
    """Pair the files of two folders by name; the format may differ."""
    mixtures, targets = ({_name(path, folder): path for path in find_audio(folder)} for folder in (noisy, clean))
    for mine, others, where in (mixtures, targets, clean), (targets, mixtures, noisy):
        lonely = [path for name, path in mine.items() if name not in others]
        raise_first([f"{path}: has no partner of that name in {where}" for path in lonely])
    return [Pair(id=name, noisy=path, clean=targets[name]) for name, path in mixtures.items()]


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What mixtures are drawn from: every utterance once an epoch, with a random room, background, SNR and level."""

    speech: tuple[Path, ...]
    background: tuple[Path, ...]
    rirs: tuple[Path, ...] = ()
    snrs_db: tuple[float, ...] = SNRS_DB
    levels_dbfs: tuple[float, float] = LEVELS_DBFS
    background_rows: tuple[int, ...] = ()  # how often a list has each background; empty: all alike

    def __post_init__(self) -> None:
        check_decibels("an SNR", *self.snrs_db)
        check_decibels("a level", *self.levels_dbfs)
        low, high = self.levels_dbfs
        if low > high:
            raise InputError(f"levels {self.levels_dbfs} must be (lowest, highest)")

    @classmethod
    def from_folders(cls, speech: Path | str, noise: Path | str, rirs: Path | str | None = None) -> "Pool":
        """All sound files under the folders."""
        rooms = [] if rirs is None else find_audio(rirs)
        return cls(speech=tuple(find_audio(speech)), background=tuple(find_audio(noise)), rirs=tuple(rooms))

    @classmethod
    def from_items(cls, items: Iterable[Item]) -> "Pool":
        """The recordings, SNRs and range of levels of a manifest, to draw new mixtures from."""
        mixtures = [item for item in items if isinstance(item, Mixture)]
        if not mixtures:
            raise InputError("ready pairs of noisy and clean files cannot be mixed anew: use them as fixed mixtures")
        levels = [m.level_dbfs for m in mixtures]
        backgrounds = Counter(m.background for m in mixtures)
        return cls(
            speech=tuple(dict.fromkeys(m.speech for m in mixtures)),
            background=tuple(backgrounds),
            background_rows=tuple(backgrounds.values()),
            rirs=tuple(dict.fromkeys(m.rir for m in mixtures if m.rir is not None)),
            snrs_db=tuple(sorted({m.snr_db for m in mixtures})),
            levels_dbfs=(min(levels), max(levels)),
        )

    @property
    def files(self) -> list[Path]:
        """Every file a mixture may use."""
        return list(dict.fromkeys((*self.speech, *self.background, *self.rirs)))

    def check_fit(self, sizes: Sizes) -> None:
        """Every background covers the longest utterance."""
        longest = max(self.speech, key=lambda path: sizes[path])
        raise_first([shorter(b, longest, sizes) for b in self.background if sizes[b] < sizes[longest]])

    def draw(
        self, sizes: Sizes, *, seed: int, epoch: int = 0, count: int | None = None, varied: bool = False
    ) -> list[Mixture]:
        """Mixtures of one epoch, `count` of them (None: as many as utterances): the same for the same arguments."""
        count = len(self.speech) if count is None else count
        rng = np.random.default_rng((seed, epoch))
        rounds = -(-count // len(self.speech))
        order = np.concatenate([rng.permutation(len(self.speech)) for _ in range(rounds)])
        snrs = rng.choice(self.snrs_db, count)
        levels = np.round(rng.uniform(*self.levels_dbfs, count), 2)
        rooms = rng.integers(max(1, len(self.rirs)), size=count)
        backgrounds = rng.integers(len(self.background), size=count)
        places = rng.random(count)
        mixtures = []
        for i in range(count):
            speech, background = self.speech[order[i]], self.background[backgrounds[i]]
            rir = self.rirs[rooms[i]] if self.rirs else None
            offset = int(places[i] * (sizes[background] - sizes[speech] + 1))
            variation = None
            if varied:
                other = self.background[rng.integers(len(self.background))]
                variation = draw_variation(rng, other, sizes[other] - sizes[speech])
            numbers = offset, float(snrs[i]), float(levels[i])
            mixtures.append(Mixture(f"{i:05d}", speech, rir, background, *numbers, variation))
        return mixtures

    def hold_out(self, every: int = 10) -> tuple["Pool", "Pool"]:
        """Two pools that share no utterance and, where there is more than one of them, no background or room."""
        if len(self.speech) < 2:
            raise InputError(f"{self.speech[0]}: is the only utterance: give more, or a validation set")
        rest, held = {}, {}
        for name in ("speech", "background", "rirs"):
            files = getattr(self, name)
            held[name] = files[::every]
            rest[name] = tuple(file for i, file in enumerate(files) if i % every) or files
        return replace(self, **rest, background_rows=()), replace(self, **held, background_rows=())


def hold_out(items: Sequence[Item], every: int = 10) -> tuple[list[Item], list[Item]]:
    """The items of every tenth clean recording, the first included, apart from the rest: no utterance in both."""

    def source(item: Item) -> Path:
        return item.clean if isinstance(item, Pair) else item.speech

    files = list(dict.fromkeys(source(item) for item in items))
    if len(files) < 2:
        raise InputError(f"{files[0]}: is the only utterance: give more, or a validation set")
    held = set(files[::every])
    return [item for item in items if source(item) not in held], [item for item in items if source(item) in held]


def _name(path: Path, folder: Path | str) -> str:
    if path == Path(folder):
        return path.stem
    return path.relative_to(folder).with_suffix("").as_posix()
