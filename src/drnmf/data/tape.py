"""Recordings end to end in one tensor, read at any places. Names of tensors end in their shape: B walks, L samples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from drnmf.data.recordings import Recordings

_BLOCK = 128  # samples whose energy is added up once


class Tape:
    """Recordings end to end, with some silence after each."""

    def __init__(self, recordings: Recordings, paths: Sequence[Path]) -> None:
        sounds = [recordings.load(path) for path in paths]
        padded = [pad(x, (0, _BLOCK - len(x) % _BLOCK)) for x in sounds]
        self.samples = torch.cat(padded)
        self.lengths = np.array([len(x) for x in sounds])
        self.starts = np.cumsum([0, *(len(x) for x in padded)])[:-1]
        energy = self.samples.square().view(-1, _BLOCK).sum(1, dtype=torch.float64)
        self._energy = np.cumsum([0.0, *energy.tolist()])

    def __len__(self) -> int:
        return len(self.lengths)

    def rms(self, i: int, start: int = 0, count: int | None = None) -> float:
        """Of a part of recording i, to the nearest blocks."""
        count = int(self.lengths[i]) if count is None else count
        first = (int(self.starts[i]) + start) // _BLOCK
        last = -(-(int(self.starts[i]) + start + count) // _BLOCK)
        return float(np.sqrt(max(0.0, self._energy[last] - self._energy[first]) / max(1, count)))

    def at(self, place_BL: Tensor) -> Tensor:
        """Samples (B, L) at places between them, by a straight line from one to the next."""
        below_BL = place_BL.floor()
        index_BL = below_BL.long()
        first_BL, second_BL = self.samples[index_BL], self.samples[index_BL + 1]
        return first_BL + (place_BL - below_BL).float() * (second_BL - first_BL)
