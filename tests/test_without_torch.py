"""What has a compiled form works without PyTorch, to the same bits; what needs it says so in one line."""

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from drnmf import LSTMMask, Separator, Streamer, audio, cli, enhance, load_model, save_model
from drnmf.engines import streams
from drnmf.pictures import demo
from drnmf.use.files import enhance_file
from small import streamed

REFUSED = '("torch", "lightning", "matplotlib")'
REFUSING = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
""".replace("REFUSED", REFUSED)
COMPILED = pytest.mark.skipif(not streams.available(), reason="steps.c is not compiled here")
RATES = (16000, 44100, 48000)
COMMAND = "from drnmf.cli import main; main()"
MODULES = [
    "drnmf",
    "drnmf.cli",
    "drnmf.engines.library",
    "drnmf.engines.streams",
    "drnmf.errors",
    "drnmf.files",
    "drnmf.models.folders",
    "drnmf.models.packed",
    "drnmf.parallel",
    "drnmf.progress",
    "drnmf.signal.audio",
    "drnmf.signal.composite",
    "drnmf.signal.dnsmos",
    "drnmf.signal.pipes",
    "drnmf.use.adaptation",
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


@pytest.fixture(scope="module")
def noisy_files(tmp_path_factory) -> Path:
    """A folder of stereo files at three rates, and what PyTorch's model makes of them, in files of the same names."""
    folder = tmp_path_factory.mktemp("noisy")
    model = load_model("default")
    assert isinstance(model, Separator)
    if not streams.available():
        pytest.skip("steps.c is not compiled here")
    x = demo.recording("noisy")
    for rate in RATES:
        sound = audio.resample(np.stack([x, 0.5 * np.roll(x, 300)]), 16000, rate)
        for name in ("in", "with", "with_removed"):
            (folder / name).mkdir(exist_ok=True)
        audio.write(folder / "in" / f"{rate}.wav", sound, rate)
        enhance_file(
            folder / "in" / f"{rate}.wav",
            folder / "with" / f"{rate}.wav",
            model,
            removed=folder / "with_removed" / f"{rate}.wav",
        )
    return folder


def assert_same_files(first: Path, second: Path) -> None:
    for rate in RATES:
        assert (first / f"{rate}.wav").read_bytes() == (second / f"{rate}.wav").read_bytes(), rate


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_becomes_the_same_bytes(noisy_files, tmp_path, jobs):
    options = ["-o", tmp_path / "out", "--removed", tmp_path / "removed", "--jobs", jobs]
    without_torch(COMMAND, "enhance", noisy_files / "in", *options)
    assert_same_files(tmp_path / "out", noisy_files / "with")
    assert_same_files(tmp_path / "removed", noisy_files / "with_removed")


def test_a_file_and_a_pipe_become_what_they_do_with_torch(noisy_files, tmp_path):
    source, expected = noisy_files / "in" / "44100.wav", (noisy_files / "with" / "44100.wav").read_bytes()
    without_torch(COMMAND, "enhance", source, "-o", tmp_path / "file.wav")
    assert (tmp_path / "file.wav").read_bytes() == expected
    command = [sys.executable, "-c", REFUSING + COMMAND, "enhance", "-"]
    done = subprocess.run(command, input=source.read_bytes(), capture_output=True, timeout=120, check=True)
    y = soundfile.read(io.BytesIO(done.stdout))[0].T
    np.testing.assert_allclose(y, streamed(audio.read_array(source)[0], 44100), rtol=0, atol=2**-15)


def test_arrays_and_streams_become_the_same_numbers(noisy_files, tmp_path):
    """Awkward blocks; and PyTorch's model against the packed one, which is loaded by its name."""
    program = """
import numpy as np, soundfile
from drnmf import Streamer, enhance, load_model
from drnmf.models.packed import PackedModel

assert isinstance(load_model("default"), PackedModel)
for rate in (16000, 44100, 48000):
    x = soundfile.read(f"in/{rate}.wav", dtype="float32")[0].T
    streamer = Streamer("default", rate, channels=2, max_attenuation=12)
    parts = [streamer.feed(x[:, i : i + 777]) for i in range(0, x.shape[1], 777)]
    np.save(f"{sys.argv[1]}/{rate}.npy", np.concatenate([*parts, streamer.flush()], 1))
    np.save(f"{sys.argv[1]}/{rate}_whole.npy", enhance(x, rate, load_model("default"), strength=0.9))
assert "torch" not in sys.modules
"""
    without_torch(program, tmp_path, cwd=noisy_files)
    model = load_model("default")
    for rate in RATES:
        x = soundfile.read(noisy_files / "in" / f"{rate}.wav", dtype="float32")[0].T
        streamer = Streamer(model, rate, channels=2, max_attenuation=12)
        parts = [streamer.feed(x[:, i : i + 777]) for i in range(0, x.shape[1], 777)]
        np.testing.assert_array_equal(np.load(tmp_path / f"{rate}.npy"), np.concatenate([*parts, streamer.flush()], 1))
        np.testing.assert_array_equal(np.load(tmp_path / f"{rate}_whole.npy"), enhance(x, rate, model, strength=0.9))


@COMPILED
def test_a_noise_is_learned_to_the_same_bytes(noisy_files, tmp_path, noise_dir):
    """As a folder, and in all ways on the way; by PyTorch's model, too."""
    program = """
from drnmf.cli import main
for arguments in (
    ["adapt", "default", "--noise", "noise.wav", "-o", "model"],
    ["enhance", SOURCE, "-o", "sample.wav", "--noise-sample", "noise.wav"],
    ["enhance", SOURCE, "-o", "between.wav", "--noise-between", "0:00", "0:01"],
    ["enhance", SOURCE, "-o", "learned.wav", "--learn-noise"],
):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""
    source, noise = noisy_files / "in" / "44100.wav", tmp_path / "noise.wav"
    audio.write(noise, audio.read_array(noise_dir / "percussion.flac", count=16000)[0], 16000)
    without_torch(program.replace("SOURCE", repr(str(source))), cwd=tmp_path)
    model = load_model("default")
    ways = {
        "sample": {"noise_samples": [noise]},
        "between": {"noise_between": (0, 1)},
        "learned": {"learn_noise": True},
    }
    for name, way in ways.items():
        enhance_file(source, tmp_path / "with.wav", model, overwrite=True, **way)
        assert (tmp_path / "with.wav").read_bytes() == (tmp_path / f"{name}.wav").read_bytes()
    learned = load_model(tmp_path / "model")
    assert isinstance(learned, Separator)
    enhance_file(source, tmp_path / "with.wav", learned, overwrite=True)
    assert (tmp_path / "with.wav").read_bytes() == (tmp_path / "sample.wav").read_bytes()


@COMPILED
def test_pictures_are_drawn(tmp_path, speech_dir):
    """Of dictionaries, and of what the network hears in a file."""
    program = """
from drnmf.cli import main
for arguments in (["default", "-o", "default.png"], ["default", sys.argv[1], "-o", "file.png", "--seconds", "0.5"]):
    sys.argv[1:] = ["show", *arguments, "--size", "400", "300"]
    try:
        main()
    except SystemExit as end:
        assert not end.code
assert "torch" not in sys.modules
"""
    command = [sys.executable, "-c", REFUSING.replace(REFUSED, '("torch",)') + program, speech_dir / "austen_0880.flac"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for picture in ("default.png", "file.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


@COMPILED
def test_without_matplotlib_the_demonstration_has_no_picture_and_says_why(tmp_path):
    shown, _ = without_torch("from drnmf.pictures.demo import main; main()", cwd=tmp_path)
    assert re.search(r"SDR after +\d+\.\d\d dB +\(\+[67]\.", shown)
    assert shown.rstrip().endswith(
        "pictures need the package matplotlib, which is not installed: pip install 'drnmf[plot]'"
    )
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["enhanced.wav", "noisy.wav", "removed.wav"]


@COMPILED
def test_the_readme_s_python_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)
    audio.write(tmp_path / "noisy.wav", demo.recording("noisy"), 16000)
    without_torch(code, cwd=tmp_path)
    expected = enhance(audio.read_array(tmp_path / "noisy.wav")[0], 16000)
    np.testing.assert_allclose(audio.read_array(tmp_path / "enhanced.wav")[0], expected, atol=2**-15)


def test_enhancing_leaves_pytorch_alone_where_it_is(noisy_files, tmp_path):
    """Importing it would take longer than all else."""
    program = "import sys; from drnmf.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    command = [sys.executable, "-c", program, "enhance", noisy_files / "in" / "16000.wav", "-o", tmp_path / "out.wav"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
    assert (tmp_path / "out.wav").read_bytes() == (noisy_files / "with" / "16000.wav").read_bytes()


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("from drnmf import DRNMF", "drnmf.DRNMF"),
        ("import drnmf; drnmf.sparse_nmf", "drnmf.sparse_nmf"),
        (
            "from drnmf import load_model; load_model('lstm')",
            "lstm: is of the kind 'LSTMMask', which has no compiled form and",
        ),
        (
            "from drnmf import Streamer; Streamer('lstm')",
            "lstm: is of the kind 'LSTMMask', which has no compiled form and",
        ),
        (
            "from drnmf.engines import streams; streams.available = lambda: False\nimport drnmf; drnmf.Streamer()",
            "the compiled part of drnmf is missing, and without it default",
        ),
    ],
)
def test_what_needs_pytorch_says_so(program, what, tmp_path):
    save_model(LSTMMask(1, 2), tmp_path / "lstm")
    _, error = without_torch(program, cwd=tmp_path, status=1)
    assert error.splitlines()[-1] == f"drnmf.errors.InputError: {what} needs PyTorch: pip install 'drnmf[train]'"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (
            ["enhance", "SOUND", "-o", "OUT", "-m", "lstm"],
            "lstm: is of the kind 'LSTMMask', which has no compiled form and",
        ),
        (["score", "SOUND", "SOUND"], "this command"),
        (["export", "default"], "this command"),
    ],
)
def test_a_command_that_needs_pytorch_is_one_line(arguments, what, tmp_path, speech_dir):
    save_model(LSTMMask(1, 2), tmp_path / "lstm")
    paths = {"SOUND": speech_dir / "austen_0880.flac", "OUT": tmp_path / "out.wav"}
    _, error = without_torch(COMMAND, *(paths.get(a, a) for a in arguments), status=2, cwd=tmp_path)
    lines = error.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith(f"{what} needs PyTorch: pip install 'drnmf[train]'")
    assert [path.name for path in tmp_path.iterdir()] == ["lstm"]


@pytest.mark.parametrize(("package", "name"), [("lightning", "Lightning"), ("pydantic", "Pydantic")])
def test_training_without_its_packages_is_one_line(package, name, tmp_path):
    refusing = REFUSING.replace(REFUSED, repr((package,)))
    command = [sys.executable, "-c", refusing + COMMAND, "train", "recipe.toml", "-o", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (2, f"drnmf: this command needs {name}: pip install 'drnmf[train]'\n")
