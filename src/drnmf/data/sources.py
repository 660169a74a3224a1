"""Public recordings as their publishers distribute them, for a corpus of one's own: LibriSpeech, ESC-50, any folder.

LibriSpeech/train-clean-100/103/1240/103-1240-0000.flac          openslr.org/12: subset, speaker, chapter
ESC-50-master/meta/esc50.csv, ESC-50-master/audio/*.wav          github.com/karolpiczak/ESC-50
"""

import csv
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from drnmf.errors import InputError
from drnmf.files import find_audio, read_plain

_UTTERANCE = re.compile(r"(\d+)-(\d+)-\d+\.flac")
_MOST_BYTES = 2**24
_ESC50 = ("filename", "category", "src_file")


@dataclass(frozen=True)
class Source:
    """One recording; those of one `group`, a speaker or an original recording, stay in one set."""

    path: Path
    group: str
    origin: str


def read_librispeech(root: Path | str) -> list[Source]:
    """All utterances below a folder, grouped by speaker, in order of path."""
    found = []
    for path in find_audio(root):
        named = _UTTERANCE.fullmatch(path.name)
        if named is not None and path.parts[-3:-1] == named.groups():
            speaker, chapter = named.groups()
            subset = path.parts[-4] if len(path.parts) > 3 else "?"
            found.append(Source(path, speaker, f"LibriSpeech {subset}, speaker {speaker}, chapter {chapter}"))
    if not found:
        raise InputError(f"{root}: is not LibriSpeech, it has no file like 103/1240/103-1240-0000.flac")
    return found


def read_esc50(root: Path | str) -> list[Source]:
    """All clips of ESC-50, grouped by the Freesound recording that they were cut from."""
    root = Path(root)
    path = root / "meta" / "esc50.csv"
    if not path.is_file():
        raise InputError(f"{root}: is not ESC-50, it has no meta/esc50.csv")
    rows = list(csv.DictReader(read_plain(path, _MOST_BYTES).decode("utf-8-sig", errors="replace").splitlines()))
    if not rows or any(row.get(name) is None for row in rows for name in _ESC50):
        raise InputError(f"{path}: is not the table of ESC-50, which has the columns {', '.join(_ESC50)}")
    sources = [
        Source(
            root / "audio" / row["filename"],
            f"freesound {row['src_file']}",
            f"ESC-50 {row['filename']}: {row['category']}, freesound.org sound {row['src_file']}",
        )
        for row in sorted(rows, key=lambda row: row["filename"])
    ]
    missing = [source.path for source in sources if source.path.parent != root / "audio" or not source.path.is_file()]
    if missing:
        raise InputError(f"{path}: names {missing[0]}, which does not exist")
    return sources


def read_folder(root: Path | str) -> list[Source]:
    """All sound files below a folder; each is a recording of its own."""
    root = Path(root)
    names = {path: path.relative_to(root).as_posix() if path != root else path.name for path in find_audio(root)}
    return [Source(path, f"{root.name}/{name}", f"{root.name}/{name}") for path, name in names.items()]


def without_copies(sources: Sequence[Source]) -> tuple[list[Source], list[Source]]:
    """The first of all recordings with the same bytes, and the others: packages share sounds."""
    first: list[Source] = []
    copies: list[Source] = []
    seen: set[bytes] = set()
    for source in sources:
        with open(source.path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        (copies if content in seen else first).append(source)
        seen.add(content)
    return first, copies


def listing(sources: Iterable[Source]) -> str:
    """A short sum of what recordings there are, by their names and sizes."""
    lines = sorted(f"{source.group} {source.path.name} {source.path.stat().st_size}" for source in sources)
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]
