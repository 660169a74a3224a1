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
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from drnmf.data.mixing import Mixture
from drnmf.data.recordings import Recordings, files_of
from drnmf.errors import InputError, raise_first
from drnmf.files import make_folder, write_atomically
from drnmf.parallel import in_threads
from drnmf.progress import Progress, silent
from drnmf.signal import audio
from drnmf.signal.spectra import SAMPLE_RATE

COLUMNS = ("id", "speech", "rir", "background", "offset", "snr_db", "level_dbfs")


def read_manifest(path: Path | str) -> list[Mixture]:
    """Read a manifest, and check that every file it names exists."""
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: has no column {missing[0]}; a manifest has {', '.join(COLUMNS)}")
            mixtures = [_mixture(row, path, reader.line_num) for row in reader]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except csv.Error as error:
        raise InputError(f"{path}: is not a CSV file: {error}") from error
    if not mixtures:
        raise InputError(f"{path}: has no rows")
    raise_first([f"{path}: names {file}, which does not exist" for file in files_of(mixtures) if not file.is_file()])
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


def _mixture(row: dict[str, str], path: Path, line: int) -> Mixture:
    try:
        offset, snr_db, level_dbfs = int(row["offset"]), float(row["snr_db"]), float(row["level_dbfs"])
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}, line {line}: {error}") from error
    if not (isfinite(snr_db) and isfinite(level_dbfs) and row["id"] and row["speech"] and row["background"]):
        raise InputError(f"{path}, line {line}: is incomplete or has numbers that are not finite")
    speech, background = path.parent / row["speech"], path.parent / row["background"]
    rir = path.parent / row["rir"] if row["rir"] else None
    return Mixture(row["id"], speech, rir, background, offset, snr_db, level_dbfs)
