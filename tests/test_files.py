import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from drnmf import save_model
from drnmf.data.folders import Pool
from drnmf.data.manifests import write_manifest
from drnmf.data.recordings import scan
from drnmf.errors import InputError
from drnmf.files import find_audio, make_folder, staged, write_atomically, write_together
from drnmf.signal import audio
from drnmf.use.files import enhance_file
from examples import AUDIO, build


def test_audio_is_found_in_subfolders_in_order_of_name(tmp_path, speech_dir):
    for name in ["b/x.flac", "a/y.FLAC", "a/.hidden.flac", "a/notes.txt", "z.wav"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(speech_dir / "austen_0880.flac", tmp_path / name)
    assert [p.relative_to(tmp_path).as_posix() for p in find_audio(tmp_path)] == ["a/y.FLAC", "b/x.flac", "z.wav"]
    assert find_audio(tmp_path / "z.wav") == [tmp_path / "z.wav"]


def test_folders_without_audio_are_named(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="has no sound files") as error:
        find_audio(tmp_path)
    assert str(tmp_path) in str(error.value)
    with pytest.raises(InputError, match=r"missing\.WAV: no such file"):
        find_audio(tmp_path / "missing.WAV")
    with pytest.raises(InputError, match="missing: no such folder"):
        find_audio(tmp_path / "missing")


def test_files_written_together_have_their_content(tmp_path):
    write_together({tmp_path / "a": b"bytes", tmp_path / "b": "text, äöü"})
    write_atomically(tmp_path / "a", "new")
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == {"a": "new", "b": "text, äöü"}


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError])
def test_a_fault_before_the_rename_leaves_the_old_files_and_no_litter(tmp_path, monkeypatch, fault):
    write_together({tmp_path / "a": "old", tmp_path / "b": "old"})

    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError if fault is OSError else fault):
        write_together({tmp_path / "a": "new", tmp_path / "b": "new"})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "old"}


def test_no_file_is_named_before_all_are_complete(tmp_path):
    write_atomically(tmp_path / "a.wav", "old")
    with staged(tmp_path / "a.wav", tmp_path / "b.wav") as temporaries:
        assert [path.suffix for path in temporaries] == [".wav", ".wav"]
        for path in temporaries:
            path.write_text("new")
        assert (tmp_path / "a.wav").read_text() == "old"
        assert find_audio(tmp_path) == [tmp_path / "a.wav"]  # what is being written is hidden
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.wav": "new", "b.wav": "new"}


SPEECH = AUDIO / "speech/austen_0880.flac"


def manifest(path: Path) -> None:
    pool = Pool(speech=(SPEECH,), background=(AUDIO / "noise/hum.flac",))
    write_manifest(path, pool.draw(scan(pool.files), seed=0))


def picture(path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    pytest.importorskip("drnmf.pictures.show").save(figure, path)


def network(path: Path) -> None:
    pytest.importorskip("drnmf.use.export").export(build("lstm").float(), path)


WRITERS = {
    "a.csv": manifest,
    "a.wav": lambda path: audio.write(path, audio.read(SPEECH)[0], 16000),
    "b.wav": lambda path: enhance_file(SPEECH, path, build("lstm").float(), overwrite=True),
    "config.json": lambda path: save_model(build("lstm"), path.parent),
    "a.png": picture,
    "a.onnx": network,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_leaves_the_old_file_when_it_fails_at_the_end(tmp_path, monkeypatch, name):
    WRITERS[name](tmp_path / name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert name in before
    (tmp_path / name).write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises((InputError, OSError), match=r"No space left|cannot be written"):
        WRITERS[name](tmp_path / name)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before | {name: b"old"}


def test_links_are_followed_but_loops_end(tmp_path, speech_dir):
    """A link to a folder shows its files; one to a folder around itself, by whichever way, shows none again."""
    inside, outside = tmp_path / "in", tmp_path / "outside"
    for folder in (inside / "a", inside / "b", outside):
        folder.mkdir(parents=True)
        shutil.copy(speech_dir / "austen_0880.flac", folder / "x.flac")
    for link, target in {
        "in/self": ".",
        "in/a/up": "..",
        "in/a/above": "../..",
        "in/twin": "a",
        "in/a/out": "../../outside",
        "outside/back": "../in",
        "outside/here": ".",
    }.items():
        (tmp_path / link).symlink_to(target)
    found = [p.relative_to(inside).as_posix() for p in find_audio(inside)]
    assert found == ["a/out/x.flac", "a/x.flac", "b/x.flac", "twin/x.flac"]


def test_links_between_all_folders_are_followed_once_each(tmp_path, speech_dir):
    """By ways without loops there would be 8! of them."""
    for n in range(8):
        (tmp_path / str(n)).mkdir()
        shutil.copy(speech_dir / "austen_0880.flac", tmp_path / f"{n}/x.flac")
        for other in range(8):
            (tmp_path / f"{n}/to{other}").symlink_to(f"../{other}")
    found = find_audio(tmp_path)
    assert {tmp_path / f"{n}/x.flac" for n in range(8)} <= set(found)
    assert len(found) == 8 + 7 * 8
    assert found == find_audio(tmp_path)


def reserve(target: Path) -> Path:
    """What `staged` would write to now."""
    with staged(target) as [temporary]:
        return temporary


def test_what_a_killed_process_left_is_taken_over(tmp_path):
    """Else a folder would fill with half files for ever."""
    code = f"""
import os, signal
from drnmf.files import staged
with staged({str(tmp_path / "a.wav")!r}) as [temporary]:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    [left] = tmp_path.iterdir()
    with staged(tmp_path / "a.wav") as [temporary]:
        assert temporary == left
        assert temporary.read_text() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    with staged(tmp_path / "a.wav") as [first], staged(tmp_path / "a.wav") as [second]:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a.wav").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_lies_where_a_temporary_would_is_left_alone(tmp_path, what):
    (tmp_path / "victim").write_text("precious")
    trap = reserve(tmp_path / "a.wav")
    make = {"link": lambda: trap.symlink_to("victim"), "pipe": lambda: os.mkfifo(trap), "folder": lambda: trap.mkdir()}
    trap.unlink(missing_ok=True)
    (tmp_path / "a.wav").unlink()
    make[what]()
    write_atomically(tmp_path / "a.wav", "sound")
    assert (tmp_path / "a.wav").read_text() == "sound"
    assert (tmp_path / "victim").read_text() == "precious"
    assert os.path.lexists(trap)


def test_a_name_as_long_as_the_disk_allows(tmp_path):
    write_atomically(tmp_path / ("ä" * 125 + ".wav"), "sound")
    assert len(os.fsencode(os.listdir(tmp_path)[0])) == 254


@pytest.mark.skipif(os.name != "posix", reason="umask is POSIX's")
@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o002, 0o664)])
@pytest.mark.parametrize("name", WRITERS)
def test_the_umask_decides_who_may_read_what_is_written(tmp_path, name, mask, mode):
    before = os.umask(mask)
    try:
        WRITERS[name](tmp_path / name)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


@pytest.mark.parametrize("name", ["two\nlines", "a\rb", "\x1b[2J", "a\0b", "\udcff", "\u2028"])
def test_whatever_a_name_holds_a_message_is_one_line_of_text(name):
    with pytest.raises(InputError) as error:
        find_audio(Path("folder") / name)
    assert str(error.value).isprintable()
    assert str(error.value).endswith(": no such folder")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # it may come from another process


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/a: this folder cannot be made \(Not a directory\)$"):
        make_folder(tmp_path / "file" / "a")
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
