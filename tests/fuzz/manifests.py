"""Manifests as somebody could write them: any text for any cell, rows cut, doubled and damaged."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import torch

from drnmf.data.batches import Dataset
from drnmf.data.manifests import COLUMNS, read_manifest
from drnmf.data.mixing import Mixture
from examples import AUDIO
from fuzz.damage import Case, Random, damaged, pick

SPEECH, NOISE = sorted((AUDIO / "speech").glob("*.flac"))[:2], sorted((AUDIO / "noise").glob("*.flac"))[:2]
CELLS = (
    *("", " ", "0", "-1", "1.5", "1e300", "-1e300", "nan", "inf", "-inf", "200", "-200", "201", "0x10", "1_0", "٣"),
    *("9" * 400, "9" * 5000, "a" * 300, "a" * 5000, "a" * 140_000, "a\0b", "é\n", '"', ",", "\udcff", "../x", "."),
    *("/dev/zero", "/dev/null", "/proc/self/mem", "~", "$HOME"),
)


def cases(rng: Random, folder: Path) -> Iterator[Case]:
    """Without end."""
    path = folder / "set.csv"
    while True:
        change = pick(rng, (cells, cells, columns, raw))
        content = change(table(rng), rng)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogateescape"))
        yield change.__name__, lambda: use(path)


def use(path: Path) -> None:
    items = read_manifest(path)
    assert all(isinstance(item, Mixture) for item in items)
    for wave in Dataset(items[:1]).waveforms(items[0]):
        assert torch.isfinite(wave).all()


def table(rng: Random) -> list[list[str]]:
    rows = [
        [str(i), str(pick(rng, SPEECH)), "", str(pick(rng, NOISE)), str(rng.integers(1000)), "3", "-25"]
        for i in range(rng.integers(1, 5))
    ]
    return [list(COLUMNS), *rows]


def written(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def cells(rows: list[list[str]], rng: Random) -> str:
    for _ in range(rng.integers(1, 3)):
        row = pick(rng, rows[1:] if rng.random() < 0.9 else rows)
        row[rng.integers(len(row))] = pick(rng, CELLS)
    return written(rows)


def columns(rows: list[list[str]], rng: Random) -> str:
    """Columns come in another order, twice or not at all; rows end early or late."""
    order = rng.permutation(len(COLUMNS))[: rng.integers(5, 9)]
    rows = [[row[i] for i in order] for row in rows]
    row = pick(rng, rows)
    row[rng.integers(len(row)) :] = pick(rng, [[], ["more"] * 9, row])
    return written(rows)


def raw(rows: list[list[str]], rng: Random) -> bytes:
    return damaged(written(rows).encode(), rng)
