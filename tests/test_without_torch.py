"""What enhancing with a compiled model needs is imported without PyTorch; what needs PyTorch says so in one line."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from drnmf import audio, cli, load_model
from drnmf.pictures import demo
from drnmf.use.files import enhance_file

REFUSING = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "lightning", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
"""
COMMAND = "from drnmf.cli import main; main()"
MODULES = [
    "drnmf",
    "drnmf.cli",
    "drnmf.engines.library",
    "drnmf.engines.streams",
    "drnmf.errors",
    "drnmf.files",
    "drnmf.models.folders",
    "drnmf.parallel",
    "drnmf.progress",
    "drnmf.signal.audio",
    "drnmf.signal.pipes",
    "drnmf.use.files",
    "drnmf.use.folders",
    "drnmf.use.live",
    "drnmf.use.streaming",
]
COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]


def without_torch(program: str, *arguments: object, status: int = 0, cwd: Path | None = None) -> tuple[str, str]:
    """What a program says on stdout and stderr where there is no PyTorch."""
    command = [sys.executable, "-c", REFUSING + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=cwd)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_it_is_imported_alone(module):
    without_torch(f"import {module}")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command):
    shown, _ = without_torch(COMMAND, *command.split(), "--help")
    assert "Usage" in shown


def test_sound_goes_from_file_to_file_block_by_block(tmp_path, speech_dir):
    program = """
import numpy as np
from drnmf.signal import audio

source, target = sys.argv[1:]
with audio.Writer(target, 16000, 1, subtype="PCM_16") as writer:
    for block in audio.read_blocks(source, 5000):
        assert type(block) is np.ndarray
        writer.write(block)
"""
    source, target = speech_dir / "austen_0880.flac", tmp_path / "copy.flac"
    without_torch(program, source, target)
    assert np.array_equal(soundfile.read(source)[0], soundfile.read(target)[0])


@pytest.mark.parametrize("rate", [16000, 44100])
def test_a_compiled_network_enhances_a_file_to_the_same_bytes(tmp_path, rate):
    """PyTorch packs it; then it runs alone, from file to file and block by block."""
    network = load_model("default").freeze().network
    if network is None:
        pytest.skip("steps.c is not compiled here")
    (tmp_path / "network.pickle").write_bytes(pickle.dumps(network))
    sound = np.stack([audio.resample(demo.recording("noisy")[None].numpy(), 16000, rate)[0]] * 2)
    audio.write(tmp_path / "in.wav", sound, rate)
    enhance_file(tmp_path / "in.wav", tmp_path / "with.wav", removed=tmp_path / "with_removed.wav")
    program = """
import pickle
from pathlib import Path
from drnmf.engines.streams import Stream
from drnmf.use.files import enhance_file

class Packed:
    n_features = 257
    network = pickle.loads(Path("network.pickle").read_bytes())

    def state_dict(self):
        return {}

    def freeze(self):
        return self

    def stream(self, **settings):
        return Stream(self.network, **settings)

enhance_file("in.wav", "without.wav", Packed(), removed="without_removed.wav")
"""
    without_torch(program, cwd=tmp_path)
    for name in ("", "_removed"):
        assert (tmp_path / f"without{name}.wav").read_bytes() == (tmp_path / f"with{name}.wav").read_bytes()


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("from drnmf import DRNMF", "drnmf.DRNMF"),
        ("import drnmf; drnmf.stft", "drnmf.stft"),
        ("from drnmf import audio; audio.read(sys.argv[1])", "audio.read"),
        ("from drnmf import load_model; load_model('default')", "the model default"),
        ("from drnmf import Streamer; Streamer('default', 48000)", "the model default"),
        ("import numpy as np, drnmf; drnmf.enhance(np.zeros(16000), 16000)", "the model default"),
    ],
)
def test_what_needs_pytorch_says_so(program, what, speech_dir):
    _, error = without_torch(program, speech_dir / "austen_0880.flac", status=1)
    assert error.splitlines()[-1] == f"drnmf.errors.InputError: {what} needs PyTorch: pip install 'drnmf[train]'"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["enhance", "SOUND", "-o", "OUT"], "the model default"),
        (["score", "SOUND", "SOUND"], "this command"),
        (["show", "default"], "this command"),
    ],
)
def test_a_command_that_needs_pytorch_is_one_line(arguments, what, tmp_path, speech_dir):
    paths = {"SOUND": speech_dir / "austen_0880.flac", "OUT": tmp_path / "out.wav"}
    _, error = without_torch(COMMAND, *(paths.get(a, a) for a in arguments), status=2)
    lines = error.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith(f"{what} needs PyTorch: pip install 'drnmf[train]'")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("package", "name"), [("lightning", "Lightning"), ("pydantic", "Pydantic")])
def test_training_without_its_packages_is_one_line(package, name, tmp_path):
    refusing = REFUSING.replace('("torch", "lightning", "matplotlib")', repr((package,)))
    command = [sys.executable, "-c", refusing + COMMAND, "train", "recipe.toml", "-o", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (2, f"drnmf: this command needs {name}: pip install 'drnmf[train]'\n")
