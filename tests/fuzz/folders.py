"""Folders with odd names, links, loops, pipes and broken files, enhanced as a tree, twice.

Every file is either enhanced or a failure with its reason; the second run finds all of it done.
"""

import os
from pathlib import Path

from drnmf.use.folders import enhance_tree, plan
from fuzz.sounds import DAMAGES, FORMATS, Random, model, naming, whole

PARTS = [b"a", b"\xff\xfe", b" ", b"[red]", b"$x$", b"-o", b"~", b"%s", b"\xc3\xa4" * 60, b"..a", b"\x01", b"{0}", b"*"]
SMALL = [form for form in FORMATS if form[0] in ("pcm.wav", "a.flac", "a.au", "law.wav")]
SHORT = 40


def name(random: Random) -> str:
    return os.fsdecode(b"".join(PARTS[i] for i in random.integers(len(PARTS), size=random.integers(1, 3))))


def make_tree(random: Random, root: Path) -> None:
    folders = [root]
    for _ in range(random.integers(1, 5)):
        folders.append(folders[random.integers(len(folders))] / name(random))
        folders[-1].mkdir(exist_ok=True)
    for _ in range(random.integers(1, 8)):
        suffix, *form = SMALL[random.integers(len(SMALL))]
        path = folders[random.integers(len(folders))] / (name(random) + Path(suffix).suffix)
        data = bytearray(whole(*form)[:2000])
        if random.random() < 0.3:
            data = DAMAGES[random.integers(len(DAMAGES))](data, random)
        if not path.exists():
            path.write_bytes(data)
    for _ in range(random.integers(6)):
        place = folders[random.integers(len(folders))] / (name(random) + str(random.choice(["", ".wav"])))
        if os.path.lexists(place):
            continue
        kind = random.integers(5)
        if kind == 0:
            os.mkfifo(place)
        elif kind == 1:
            place.symlink_to(place.name)
        elif kind == 2:
            place.symlink_to("nowhere")
        else:
            place.symlink_to(os.path.relpath(folders[random.integers(len(folders))], place.parent))


def attempt(random: Random, folder: Path) -> None:
    root, out = folder / "in", folder / "out"
    root.mkdir()
    make_tree(random, root)
    removed = folder / "removed" if random.random() < 0.3 else None
    out = root / "out" if random.random() < 0.2 else out
    with naming(root):
        tasks = plan([root], out, removed=removed)
    first = enhance_tree(tasks, model())
    assert len(first.done) + len(first.failures) == len(tasks)
    assert all(path.is_file() for task in first.done for path in (task.target, task.removed) if path is not None)
    written = sorted(path for path in out.rglob("*") if path.is_file())
    assert written == sorted(task.target for task in first.done)
    second = enhance_tree(plan([root], out, removed=removed), model())
    assert (len(second.done), len(second.skipped)) == (0, len(first.done))
    assert len(second.failures) == len(first.failures)
