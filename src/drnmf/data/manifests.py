"""Manifests: a CSV file with one mixture per row.

    id,speech,rir,background,offset,snr_db,level_dbfs

Paths are relative to the manifest's folder, `rir` may be empty (no room), `offset` counts samples of the background at
16 kHz; further columns are ignored. `drnmf.data.mixing` has the formula that makes a mixture of a row, so a manifest
and its recordings define every sample of a set, whichever program mixes it. Every tenth row, the paper's "10 %" set, is
`read_manifest(path)[::10]`.
"""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from drnmf.data.mixing import Mixture, check_decibels
from drnmf.data.recordings import Recordings
from drnmf.errors import InputError, raise_first, shown
from drnmf.files import make_folder, open_plain, write_atomically
from drnmf.parallel import in_threads
from drnmf.progress import Progress, silent
from drnmf.signal import audio
from drnmf.signal.spectra import SAMPLE_RATE

MOST_BYTES = 2**28  # over a million rows
_LATEST = 2**48  # no file has as many samples
COLUMNS = ("id", "speech", "rir", "background", "offset", "snr_db", "level_dbfs")


def read_manifest(path: Path | str) -> list[Mixture]:
    """Read a manifest, and check that every file it names exists."""
    path = Path(path)
    with open_plain(path, MOST_BYTES) as file:
        text = io.TextIOWrapper(file, newline="", encoding="utf-8-sig", errors="surrogateescape")
        rows = csv.reader(text)
        try:
            files, mixtures = _mixtures(rows, path.parent)
        except csv.Error as error:
            raise InputError(f"{path}: is not a CSV file: {error}") from error
        except InputError as error:
            line = f", line {rows.line_num}" if rows.line_num > 1 else ""
            raise InputError(f"{path}{line}: {error}") from None
    if not mixtures:
        raise InputError(f"{path}: has no rows")
    missing = [name[:300] for name, file in files.items() if not os.path.isfile(file)]  # Path's raises if too long
    raise_first([f"{path}: names {path.parent / name}, which does not exist" for name in missing])
    return mixtures


def write_manifest(path: Path | str, mixtures: Sequence[Mixture]) -> None:
    """Write mixtures as a manifest, paths relative to its folder."""
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise InputError(f"{path}: cannot be written, its folder does not exist")

    def relative(file: Path | None) -> str:
        return "" if file is None else Path(os.path.relpath(file.resolve(), folder)).as_posix()

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for m in mixtures:
        paths = [relative(p) for p in (m.speech, m.rir, m.background)]
        writer.writerow([m.id, *paths, m.offset, f"{m.snr_db:g}", f"{m.level_dbfs:g}"])
    write_atomically(path, text.getvalue())


def write_mixtures(
    folder: Path | str,
    mixtures: Sequence[Mixture],
    recordings: Recordings,
    *,
    suffix: str = ".flac",
    subtype: str | None = None,
    progress: Progress = silent,
) -> None:
    """Write the mixtures themselves, `folder`/noisy/ID and `folder`/clean/ID: a dataset of pairs."""
    for name, times in Counter(m.id for m in mixtures).items():
        if name != Path(name).name or times > 1:
            raise InputError(f"mixture id '{name}' cannot name a file: ids must be unique and without slashes")
    for part in ("noisy", "clean"):
        make_folder(Path(folder) / part)

    def write(mixture: Mixture) -> None:
        noisy_BS, clean_BS, _ = recordings.waveforms([mixture])
        for part, x in [("noisy", noisy_BS), ("clean", clean_BS)]:
            audio.write(Path(folder) / part / (mixture.id + suffix), x[0].cpu(), SAMPLE_RATE, subtype=subtype)

    in_threads(write, mixtures, "writing mixtures", progress)


def _mixtures(rows: Iterator[list[str]], folder: Path) -> tuple[dict[str, Path], list[Mixture]]:
    """The files that a table names, and its mixtures; its first row has the names of its columns."""
    names = next(rows, [])
    for name in COLUMNS:
        if name not in names:
            raise InputError(f"has no column {name}; a manifest has {', '.join(COLUMNS)}")
    columns = [names.index(name) for name in COLUMNS]
    files: dict[str, Path] = {}  # each is made and looked at once, however many rows name it
    mixtures = []
    for row in rows:
        if not row:  # an empty line
            continue
        if len(row) <= max(columns):
            raise InputError(f"is incomplete: it has {len(row)} of {len(names)} columns")
        id, speech, rir, background, *numbers = (row[column] for column in columns)
        if not (id and speech and background):
            raise InputError("is incomplete: it needs an id, speech and a background")
        for name in (speech, rir, background):
            if name and name not in files:
                files[name] = folder / name
        room = files[rir] if rir else None
        mixtures.append(Mixture(id, files[speech], room, files[background], *_numbers(*numbers)))
    return files, mixtures


def _numbers(offset: str, snr_db: str, level_dbfs: str) -> tuple[int, float, float]:
    try:
        numbers = int(offset), float(snr_db), float(level_dbfs)
    except ValueError:
        given = ", ".join(shown(text) for text in (offset, snr_db, level_dbfs))
        raise InputError(f"offset, snr_db and level_dbfs must be numbers, the first a whole one, got {given}") from None
    if not 0 <= numbers[0] <= _LATEST:
        raise InputError(f"offset must be the number of a sample, got {shown(offset)}")
    check_decibels("snr_db and level_dbfs", *numbers[1:])
    return numbers
