"""Manifests as somebody could write them: any text for any cell, rows cut, doubled and damaged."""

import csv
import io
from pathlib import Path

import torch

from drnmf.data.batches import Dataset
from drnmf.data.manifests import COLUMNS, read_manifest
from examples import AUDIO
from fuzz.sounds import Random, damaged, pick

SHORT = 150
SPEECH, NOISE = sorted((AUDIO / "speech").glob("*.flac"))[:2], sorted((AUDIO / "noise").glob("*.flac"))[:2]
CELLS = (
    *("", " ", "0", "-1", "1.5", "1e300", "-1e300", "nan", "inf", "-inf", "200", "-200", "201", "0x10", "1_0", "٣"),
    *("9" * 400, "9" * 5000, "a" * 300, "a" * 5000, "a" * 140_000, "a\0b", "é\n", '"', ",", "\udcff", "../x", "."),
    *("/dev/zero", "/dev/null", "/proc/self/mem", "~", "$HOME"),
)


def attempt(random: Random, folder: Path) -> None:
    path = folder / "set.csv"
    content = pick(random, (cells, cells, columns, raw))(table(random), random)
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogateescape"))
    items = read_manifest(path)
    for wave in Dataset(items[:1]).waveforms(items[0]):
        assert torch.isfinite(wave).all()


def table(random: Random) -> list[list[str]]:
    rows = [
        [str(i), str(pick(random, SPEECH)), "", str(pick(random, NOISE)), str(random.integers(1000)), "3", "-25"]
        for i in range(random.integers(1, 5))
    ]
    return [list(COLUMNS), *rows]


def written(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def cells(rows: list[list[str]], random: Random) -> str:
    for _ in range(random.integers(1, 3)):
        row = pick(random, rows[1:] if random.random() < 0.9 else rows)
        row[random.integers(len(row))] = pick(random, CELLS)
    return written(rows)


def columns(rows: list[list[str]], random: Random) -> str:
    """Columns come in another order, twice or not at all; rows end early or late."""
    order = random.permutation(len(COLUMNS))[: random.integers(5, 9)]
    rows = [[row[i] for i in order] for row in rows]
    row = pick(random, rows)
    row[random.integers(len(row)) :] = pick(random, [[], ["more"] * 9, row])
    return written(rows)


def raw(rows: list[list[str]], random: Random) -> bytes:
    return damaged(written(rows).encode(), random)
