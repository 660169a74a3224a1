"""Find sound files, and write any file so that nobody ever reads half of it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from drnmf.errors import InputError

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au", ".w64", ".caf", ".sph"})


def find_audio(folder: Path | str) -> list[Path]:
    """Every sound file under a folder, in order of name; a single file is taken as it is."""
    folder = Path(folder)
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    found = [
        Path(where) / name
        for where, _, names in os.walk(folder, followlinks=True)
        for name in names
        if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
    ]
    if not found:
        raise InputError(f"{folder}: has no sound files (looked for {', '.join(sorted(SUFFIXES))})")
    return sorted(found)


@contextmanager
def staged(*targets: Path | str) -> Iterator[list[Path]]:
    """Temporary files beside the targets, to be written inside the block.

    When the block ends well they take the targets' names, all of them; when it fails they are removed and the targets
    stay as they were. They are hidden and keep their suffix: a format may depend on it.
    """
    moves = []
    try:
        for target in map(Path, targets):
            temporary = target.with_name(f".{target.stem}.{token_hex(4)}{target.suffix}")
            moves.append((temporary, target))  # first: Ctrl-C may come at any time
            try:
                temporary.touch(exist_ok=False)  # now: a folder in which nothing can be written shows before the work
            except OSError as error:
                raise InputError(f"{target}: cannot be written ({error.strerror})") from None
        yield [temporary for temporary, _ in moves]
        for temporary, target in moves:
            temporary.replace(target)
    finally:
        for temporary, _ in moves:
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path | str, content: bytes | str) -> None:
    """Write one file: whole, or not at all."""
    write_together({Path(path): content})


def write_together(contents: Mapping[Path, bytes | str]) -> None:
    """Write several files, and give them their names only when all are complete."""
    try:
        with staged(*contents) as temporaries:
            for temporary, content in zip(temporaries, contents.values(), strict=True):
                temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InputError(f"{next(iter(contents))}: cannot be written ({error.strerror})") from None
