"""Datasets, and batches of sequences for the trainer.

The paper cuts *spectrograms* into sequences of at most 500 frames. Spectra are computed on the training device, so a
batch holds waveforms, cut such that their spectra are those frames exactly. Frame t of a signal x covers samples
[128 t - 512, 128 t), zeros outside the signal (see `signal.spectra`): frames a to b - 1 are the full windows inside
x[128 a - 512 : 128 (b - 1)]. Zeros behind a shorter sequence change none of its frames.

A mixture is made once an epoch and then cut; the sequences wait in a window from which batches are drawn at random, so
that those of one utterance are spread over many batches. Everything random is drawn in the main process from
(seed, epoch): the number of workers changes nothing.
"""

import functools
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from drnmf.data.folders import Pool
from drnmf.data.mixing import Item, Mixture, Pair
from drnmf.data.recordings import Recordings, check_fit, check_sound, files_of, scan
from drnmf.errors import raise_first
from drnmf.parallel import in_threads
from drnmf.progress import Progress, silent
from drnmf.signal.spectra import HOP, WINDOW, analyse, n_frames

_CHUNK = 500 * 16000  # samples, padding included, that are mixed at a time
_WINDOW = 500_000  # frames from which batches are drawn: about an hour of sound, 0.5 GB


class Batch(NamedTuple):
    """Sequences of frames as waveforms (B, samples), and how many frames of each count (B,)."""

    noisy: Tensor
    clean: Tensor
    frames: Tensor

    def spectra(self) -> tuple[Tensor, Tensor]:
        """Complex spectra of mixtures and targets, both (B, T, 257)."""
        return analyse(self.noisy), analyse(self.clean)

    def mask(self) -> Tensor:
        """Which frames count: boolean (B, T)."""
        T = (self.noisy.shape[1] - WINDOW) // HOP + 1
        return torch.arange(T, device=self.frames.device) < self.frames[:, None]


class Dataset:
    """Mixtures and their targets, checked when made.

    `source` is a list of mixtures or pairs, or a pool to draw them from: once or, if `fresh`, anew for every epoch, and
    then also `varied` at random (see `drnmf.data.variation`). `in_memory` decodes all recordings now; None: if they
    fit. Batches are delivered on `device` and, if it has room for the recordings, mixed there.
    """

    def __init__(
        self,
        source: Sequence[Item] | Pool,
        *,
        fresh: bool = False,
        varied: bool = False,
        seed: int = 0,
        in_memory: bool | None = None,
        device: torch.device | str = "cpu",
        progress: Progress = silent,
    ) -> None:
        items: list[Item] = [] if isinstance(source, Pool) else list(source)
        pool = source if isinstance(source, Pool) else Pool.from_items(items) if fresh else None
        sizes = scan(files_of(items) if pool is None else pool.files, progress=progress)
        if pool is not None:
            pool.check_fit(sizes)
            items = list(pool.draw(sizes, seed=seed))
        self._pool, self._varied = pool if fresh else None, varied
        self._items = items
        self.seed = seed
        self.device = torch.device(device)
        check_fit(items, sizes)
        self.recordings = Recordings(sizes, in_memory=in_memory, device=device, progress=progress)
        if self.recordings.in_memory and not fresh:
            self._check_backgrounds()
        if not self.recordings.in_memory:
            in_threads(check_sound, list(sizes), "checking sound", progress)

    def items(self, epoch: int = 0) -> list[Item]:
        """The mixtures of an epoch; all epochs have equally many."""
        if self._pool is None:
            return self._items
        return list(self._pool.draw(self.recordings.sizes, seed=self.seed, epoch=epoch, varied=self._varied))

    def __len__(self) -> int:
        return len(self._items)

    def waveforms(self, item: Item) -> tuple[Tensor, Tensor]:
        """One mixture and its target, both (samples,)."""
        noisy, clean, _ = self.recordings.waveforms([item])
        return noisy[0].to(self.device), clean[0].to(self.device)

    def length(self, item: Item) -> int:
        """Number of samples of one mixture."""
        return self.recordings.sizes[item.clean if isinstance(item, Pair) else item.speech]

    def _check_backgrounds(self) -> None:
        silent = [
            f"mixture {m.id}: {m.background} is silent from sample {m.offset} on, as long as the speech lasts"
            for m in self._items
            if isinstance(m, Mixture) and not self.recordings.load(m.background, m.offset, self.length(m)).any()
        ]
        raise_first(silent)


class Batches:
    """The sequences of one epoch in batches, the same ones for the same arguments.

    `max_frames` bounds a sequence; None: whole utterances. `workers` are processes that decode and mix; None: none in
    memory, up to 8 from disk. Of `world` processes that train together, number `rank` gets its share of every batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        epoch: int = 0,
        *,
        batch_size: int = 32,
        max_frames: int | None = 500,
        shuffle: bool = True,
        workers: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.dataset, self.epoch = dataset, epoch
        self.batch_size, self.max_frames, self.shuffle = batch_size, max_frames, shuffle
        self.rank, self.world = rank, world
        automatic = 0 if dataset.recordings.in_memory else min(8, os.cpu_count() or 1)
        on_gpu = dataset.recordings.device.type != "cpu"  # its memory cannot be shared with workers, nor need it be
        self.workers = 0 if on_gpu else automatic if workers is None else workers

    def __len__(self) -> int:
        return self._length

    @functools.cached_property
    def _length(self) -> int:
        frames = [n_frames(self.dataset.length(item)) for item in self.dataset.items(self.epoch)]
        sequences = sum(-(-n // (self.max_frames or n)) for n in frames)
        return -(-sequences // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        rng = np.random.default_rng((self.dataset.seed, self.epoch, 1))
        items = self.dataset.items(self.epoch)
        if self.shuffle:
            items = [items[i] for i in rng.permutation(len(items))]
        chunks = self._chunks(items)
        loader: DataLoader[tuple[Tensor, Tensor, Tensor]] = DataLoader(
            chunks,  # type: ignore[arg-type]  # a list will do
            batch_size=None,
            collate_fn=self.dataset.recordings.waveforms,
            num_workers=self.workers,
            generator=torch.Generator(),  # of its own: the global one is not ours to advance
        )
        waiting: list[tuple[Tensor, Tensor, int]] = []
        for done, chunk in enumerate(loader, 1):
            waiting += self._cut(*chunk)
            last = done == len(chunks)
            if self.shuffle and not last and sum(frames for _, _, frames in waiting) < _WINDOW:
                continue
            if self.shuffle:
                waiting = [waiting[i] for i in rng.permutation(len(waiting))]
            ready = len(waiting)
            if not last:  # of a shuffled window half stays, to be mixed with what comes next
                ready = ready // (2 if self.shuffle else 1) // self.batch_size * self.batch_size
            for i in range(0, ready, self.batch_size):
                yield self._collate(waiting[i : min(i + self.batch_size, ready)])
            waiting = waiting[ready:]

    def _chunks(self, items: Sequence[Item]) -> list[list[Item]]:
        """Groups of items that are made together, their padded size bounded."""
        chunks: list[list[Item]] = [[]]
        longest = 0
        for item in items:
            longest = max(longest, self.dataset.length(item))
            if chunks[-1] and (len(chunks[-1]) + 1) * longest > _CHUNK:
                chunks.append([])
                longest = self.dataset.length(item)
            chunks[-1].append(item)
        return chunks

    def _cut(self, noisy_BS: Tensor, clean_BS: Tensor, lengths_B: Tensor) -> Iterator[tuple[Tensor, Tensor, int]]:
        """The sequences of some mixtures, each as two waveforms and its number of frames."""
        both = torch.stack([noisy_BS, clean_BS]).to(self.dataset.device)
        both = torch.nn.functional.pad(both, (WINDOW, WINDOW))
        for i, length in enumerate(lengths_B.tolist()):
            total = n_frames(length)
            step = self.max_frames or total
            for start in range(0, total, step):
                frames = min(step, total - start)
                noisy, clean = both[:, i, HOP * start : HOP * (start + frames - 1) + WINDOW].clone()
                yield noisy, clean, frames

    def _collate(self, sequences: Sequence[tuple[Tensor, Tensor, int]]) -> Batch:
        # a process without a share of a small last batch gets a sequence that does not count, so as to keep step
        mine = list(sequences[self.rank :: self.world]) or [(*sequences[0][:2], 0)]
        noisy, clean, frames = zip(*mine, strict=True)
        return Batch(
            pad_sequence(list(noisy), batch_first=True),
            pad_sequence(list(clean), batch_first=True),
            torch.tensor(frames, device=self.dataset.device),
        )
