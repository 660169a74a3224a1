import shutil
from pathlib import Path

import pytest

from drnmf.errors import InputError
from drnmf.files import find_audio, staged, write_atomically, write_together


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
    with pytest.raises(fault):
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
