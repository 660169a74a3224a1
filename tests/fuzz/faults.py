"""Faults while files are written: full and broken disks, Ctrl-C, and SIGKILL at any moment.

What was there before is whole or replaced by something whole, and the next run does the rest and leaves no litter.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from unittest import mock

import soundfile

from drnmf import InputError, load_model, save_model
from drnmf.signal import audio
from drnmf.use.files import enhance_file
from drnmf.use.folders import enhance_tree, plan
from fuzz.sounds import Random, model, whole

CALLS = [
    (os, "open"),
    (os, "fsync"),
    (Path, "replace"),
    (Path, "write_bytes"),
    (soundfile.SoundFile, "read"),
    (soundfile.SoundFile, "write"),
]
ERRORS = [(OSError, 28, "No space left on device"), (OSError, 5, "Input/output error"), (KeyboardInterrupt,)]
SHORT = 50


def attempt(random: Random, folder: Path) -> str | None:
    """The fault that was survived; None where it did not come."""
    sounds = folder / "in"
    sounds.mkdir()
    for i in range(3):
        (sounds / f"{i}.wav").write_bytes(whole("WAV", "PCM_16", 16000, 1))
    return kill(random, folder) if random.random() < 0.2 else fail(random, folder)


def fail(random: Random, folder: Path) -> str | None:
    """One call fails; then all is done again without a fault."""
    owner, name = CALLS[random.integers(len(CALLS))]
    (error, *arguments), left = ERRORS[random.integers(len(ERRORS))], int(random.integers(1, 4))
    real = getattr(owner, name)

    def failing(*args: object, **options: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            raise error(*arguments)
        return real(*args, **options)

    work = (enhance_one, save)[random.integers(2)]
    work(folder)
    with suppress(KeyboardInterrupt, InputError), mock.patch.object(owner, name, failing):
        work(folder)
    whole_and_alone(folder)
    work(folder)
    whole_and_alone(folder)
    return None if left > 0 else arguments[-1] if arguments else "Ctrl-C"


def enhance_one(folder: Path) -> None:
    enhance_file(folder / "in/0.wav", folder / "a.wav", model(), removed=folder / "b.flac", overwrite=True)


def save(folder: Path) -> None:
    save_model(model(), folder / "model")


def whole_and_alone(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} <= {"in", "a.wav", "b.flac", "model"}
    for path in (folder / "a.wav", folder / "b.flac"):
        assert not path.exists() or audio.read(path)[0].shape == (1, 16000)
    if (folder / "model").exists():
        assert {path.name for path in (folder / "model").iterdir()} == {"config.json", "model.safetensors"}
        load_model(folder / "model")


def kill(random: Random, folder: Path) -> str:
    """A run over a folder is killed at any moment; the next one completes it."""
    tasks = plan([folder / "in"], folder / "out")
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            enhance_tree(tasks, model())
        os._exit(0)
    time.sleep(random.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for path in (folder / "out").glob("[!.]*"):
        assert audio.read(path)[0].shape == (1, 16000)
    result = enhance_tree(tasks, model())
    assert (len(result.done) + len(result.skipped), result.failures) == (3, ())
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["0.wav", "1.wav", "2.wav"]
    return "SIGKILL"
