"""Find sound files, and write any file so that nobody ever reads half of it."""

import errno
import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from drnmf.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au", ".w64", ".caf", ".sph"})


MEDIA = frozenset({".m4a", ".mp4", ".webm", ".aac", ".wma", ".mov", ".mkv"})  # what ffmpeg reads and writes


def find_audio(folder: Path | str, *, media: bool = False) -> list[Path]:
    """Every sound file under a folder, in order of name; a single file is taken as it is.

    With `media`, also containers and videos.
    """
    folder = Path(folder)
    if os.path.isfile(folder):  # not Path's, which raises for a name that is too long
        return [folder]
    if not os.path.isdir(folder):
        raise InputError(f"{folder}: no such {'file' if folder.suffix.lower() in SUFFIXES | MEDIA else 'folder'}")
    found = [where / name for where, names in _walk(folder) for name in names if _why_not(name, media) is None]
    if not found:
        raise InputError(f"{folder}: has no sound files (looked for {', '.join(sorted(SUFFIXES))})")
    return sorted(found)


def left_out(folder: Path | str, *, media: bool = False) -> dict[Path, str]:
    """Every file under a folder that `find_audio` does not take, in order of name, and why."""
    reasons = {where / name: _why_not(name, media) for where, names in _walk(Path(folder)) for name in names}
    return {path: why for path, why in sorted(reasons.items()) if why is not None}


def _why_not(name: str, media: bool) -> str | None:
    """Why a file in a folder is not taken for sound, if it is not."""
    if name.startswith("."):
        return "is hidden"
    suffix = Path(name).suffix.lower()
    return (
        None if suffix in (SUFFIXES | MEDIA if media else SUFFIXES) else f"is no sound file, by its suffix '{suffix}'"
    )


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders and the names of their files.

    Links come after everything else, each once, and none to a folder around itself: whatever the loops, it ends.
    """
    waiting, seen = [folder], set()
    for start in waiting:  # which grows
        for where, folders, names in os.walk(start):
            yield Path(where), names
            for path in (Path(where) / name for name in sorted(folders)):
                if not path.is_symlink():
                    continue
                link = path.lstat()
                if (link.st_dev, link.st_ino) in seen or _leads_back(path, folder):
                    continue
                seen.add((link.st_dev, link.st_ino))
                waiting.append(path)


def _leads_back(link: Path, folder: Path) -> bool:
    """Whether a link goes to a folder through which one came to it from `folder`, or to one around that."""
    target = link.resolve()
    way = [parent for parent in link.parents if parent.is_relative_to(folder)]
    return any(parent.resolve().is_relative_to(target) for parent in way)


def check_place(target: Path) -> None:
    """Find out now, not after hours of work, that a file has no folder to be written to."""
    if not os.path.isdir(target.parent):
        raise InputError(f"{target}: cannot be written, the folder {target.parent} does not exist; make it first")


@contextmanager
def staged(*targets: Path | str) -> Iterator[list[Path]]:
    """Temporary files beside the targets, to be written inside the block.

    When the block ends well they take the targets' names, all of them; when it fails they are removed and the targets
    stay as they were. They are hidden and keep their suffix: a format may depend on it.
    """
    moves = []
    with ExitStack() as stack:
        for target in map(Path, targets):
            try:  # now: a folder in which nothing can be written shows before the work
                moves.append((stack.enter_context(_reserved(target)), target))
            except OSError as error:
                check_place(target)
                raise InputError(f"{target}: cannot be written ({error.strerror})") from None
        yield [temporary for temporary, _ in moves]
        for temporary, target in moves:
            try:
                temporary.replace(target)
            except OSError as error:
                raise InputError(f"{target}: cannot be written ({error.strerror})") from None


@contextmanager
def _reserved(target: Path) -> Iterator[Path]:
    """A new file beside the target, which no other process or thread takes; removed at the end if it is still there."""
    temporary, lock = _lock_one(target) if fcntl is not None else _make_one(target)
    try:
        yield temporary
    finally:
        if lock is None or _has_name(lock, temporary):
            temporary.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


def _lock_one(target: Path) -> tuple[Path, int]:
    """An empty file, and the descriptor that locks it.

    The kernel ends a lock with its process, however that ends: what a killed one left is taken over by whoever writes
    the same target next. Links, pipes and what belongs to others are passed over.
    """
    for number in itertools.count():
        temporary = _hidden(target, str(number))
        try:
            lock = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError:
            if not os.path.lexists(temporary):
                raise
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_name(lock, temporary):
                os.truncate(lock, 0)
                return temporary, lock
        except BlockingIOError:
            pass  # somebody is writing it
        os.close(lock)
    raise AssertionError


def _make_one(target: Path) -> tuple[Path, None]:
    """Where files cannot be locked, a name that nobody else chooses."""
    temporary = _hidden(target, token_hex(4))
    temporary.touch(exist_ok=False)
    return temporary, None


def _hidden(target: Path, mark: str) -> Path:
    return target.with_name(f".{target.stem[:50]}.{mark}{target.suffix}")  # the whole stem may leave no room for a mark


def _has_name(descriptor: int, path: Path) -> bool:
    """Whether a plain file is open that still has this name: whoever had locked it may have renamed it."""
    return path.is_file() and os.path.samestat(os.fstat(descriptor), path.stat())


@contextmanager
def open_plain(path: Path | str, most: int) -> Iterator[BinaryIO]:
    """A file to be read, of at most `most` bytes; pipes and devices, which may never end, are refused unopened."""
    try:
        if "\0" in str(path):
            raise OSError(errno.EINVAL, "no file has a name with NUL")
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes, {most} are the most")
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def read_plain(path: Path | str, most: int) -> bytes:
    """The content of such a file."""
    with open_plain(path, most) as file:
        return file.read()


def write_atomically(path: Path | str, content: bytes | str, *, keep: Path | None = None) -> None:
    """Write one file: whole, or not at all. What was there before gets the name `keep`, if one is given."""
    write_together({Path(path): content}, {} if keep is None else {Path(path): keep})


def write_together(contents: Mapping[Path, bytes | str], keep: Mapping[Path, Path] | None = None) -> None:
    """Write several files, and give them their names only when all are complete; `keep` has new names of old files."""
    try:
        with staged(*contents) as temporaries:
            for temporary, content in zip(temporaries, contents.values(), strict=True):
                # names of files need not be UTF-8; their bytes come back as they were
                data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
                temporary.write_bytes(data)
                _sync(temporary)
            for old, name in (keep or {}).items():
                if old.is_file():
                    old.replace(name)
    except OSError as error:
        raise InputError(f"{next(iter(contents))}: cannot be written ({error.strerror})") from None


def make_folder(path: Path | str) -> None:
    """Make a folder and those around it, where they are missing."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: this folder cannot be made ({error.strerror})") from None


def _sync(path: Path) -> None:
    """Onto the disk: else, after a power cut, the name may be there and the content not."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
