import shutil
from pathlib import Path

import pytest

from drnmf import save_model
from drnmf.data.folders import Pool
from drnmf.data.manifests import write_manifest
from drnmf.data.recordings import scan
from drnmf.errors import InputError
from drnmf.files import find_audio, staged, write_atomically, write_together
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
