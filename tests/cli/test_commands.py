"""The commands as a person types them, from recordings to a score."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from command import drnmf
from drnmf import __version__, cli
from drnmf.data.manifests import read_manifest
from drnmf.errors import DivergedError
from drnmf.signal import audio


@pytest.fixture(scope="module")
def workshop(tmp_path_factory, speech_dir, noise_dir):
    """A folder with short voices, a manifest, mixtures, and a model trained on them."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "voices").mkdir()
    for path in speech_dir.glob("*.flac"):
        audio.write(folder / "voices" / path.name, audio.read(path, count=24000)[0], 16000)
    drnmf("mix", folder / "voices", noise_dir, "-o", folder / "test.csv", "--snr", 0, "--snr", 6)
    drnmf("mix", folder / "voices", noise_dir, "-o", folder / "pairs", "--seed", 7)
    (folder / "recipe.toml").write_text(
        '[data]\ntrain = "test.csv"\nmax_frames = 50\n[dictionary]\nrank_per_source = 8\nmax_iter = 20\n'
        '[model]\nn_layers = 2\n[training]\nmax_epochs = 2\nlearning_rate = 1e-2\naccelerator = "cpu"\n'
    )
    drnmf("train", folder / "recipe.toml", "-o", folder / "model")
    return folder


def test_evaluate_prints_and_saves_a_table(workshop):
    done = drnmf(
        "evaluate", workshop / "model", workshop / "test.csv", "--metric", "sdr", "--save", workshop / "scores"
    )
    assert "sdr_improvement" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    lines = json.loads((workshop / "scores.json").read_text())["summary"]
    assert lines[-1]["count"] == 5
    assert {line["snr_db"] for line in lines} <= {0, 6, "all"}
    assert (workshop / "scores.csv").read_text().startswith("snr_db,count,sdr_noisy,sdr,")
    assert (workshop / "scores.md").read_text().startswith("| snr_db |")


def test_score_of_the_noisy_files_themselves_is_no_gain(workshop):
    noisy, clean = workshop / "pairs" / "noisy", workshop / "pairs" / "clean"
    done = drnmf("score", noisy, clean, "--noisy", noisy, "--metric", "si_sdr", "--jobs", 1)
    assert done.stdout.splitlines()[-1].split()[0] == "all"
    assert "+0.00" in done.stdout


def test_one_bad_file_is_reported_and_not_fatal(workshop, tmp_path):
    clean = workshop / "pairs" / "clean"
    for path in clean.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "00001.flac").write_bytes(b"this is not sound")
    done = drnmf("score", tmp_path, clean, "--metric", "sdr", "--jobs", 1, status=1)
    assert "failed: 00001" in done.stdout
    assert done.stdout.splitlines()[1].split()[:2] == ["all", "4"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "-o", "out"], "give a recipe, or --speech and --noise"),
        (["train", "missing.toml", "-o", "out"], "missing.toml: cannot be read"),
        (["train", "r.toml", "--speech", "a", "--noise", "b", "-o", "out"], "either a recipe or"),
        (["train", "--speech", "nowhere", "--noise", "nowhere", "-o", "OUT"], "no such folder"),
        (["evaluate", "no-such-model", "test.csv"], "test.csv: cannot be read"),
        (["score", "nowhere", "nothing"], "nothing: no such folder"),
        (["score", "nowhere", "nothing.wav"], "nothing.wav: no such file"),
        (["mix", "nowhere", "nothing", "-o", "x.csv"], "no such folder"),
        (["mix", "a" * 5000, "nothing", "-o", "x.csv"], "no such folder"),
        (["enhance", "a" * 300, "-o", "out"], "aaa: File name too long"),
        (["evaluate", "default", "a" * 300], "aaa: cannot be read (File name too long)"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path):
    arguments = [str(tmp_path / "out") if a in ("out", "OUT") else a for a in arguments]
    done = drnmf(*arguments, status=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_mistake_at_the_shell_ends_with_status_2(tmp_path):
    command = [sys.executable, "-m", "drnmf.cli", "mix", "nowhere", "nothing", "-o", str(tmp_path / "x.csv")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (2, "drnmf: nowhere: no such folder\n")


def test_a_run_that_diverges_ends_with_status_3(workshop, tmp_path, monkeypatch):
    def diverge(*_, **__):
        raise DivergedError("the loss left all bounds")

    monkeypatch.setattr("drnmf.training.run.train", diverge)
    done = drnmf("train", workshop / "recipe.toml", "-o", tmp_path, status=3)
    assert done.stderr == "drnmf: the loss left all bounds\n"


def test_the_seed_decides_what_is_drawn(workshop, noise_dir, tmp_path):
    for name, seed in [("a", 7), ("b", 7), ("c", 8)]:
        drnmf("mix", workshop / "voices", noise_dir, "-o", tmp_path / f"{name}.csv", "--seed", seed)
    a, b, c = ((tmp_path / f"{name}.csv").read_text() for name in "abc")
    assert a == b != c


def test_the_level_and_the_snr_of_mixtures(workshop, noise_dir, tmp_path):
    drnmf("mix", workshop / "voices", noise_dir, "-o", tmp_path / "a.csv", "--level", -40, -38, "--snr", 12)
    mixtures = read_manifest(tmp_path / "a.csv")
    assert all(-40 <= m.level_dbfs <= -38 and m.snr_db == 12 for m in mixtures)


def test_a_table_as_json_is_what_is_saved(workshop):
    noisy, clean = workshop / "pairs" / "noisy", workshop / "pairs" / "clean"
    scored = ["score", noisy, clean, "--metric", "si_sdr", "--jobs", 1]
    evaluated = ["evaluate", workshop / "model", workshop / "test.csv", "--metric", "si_sdr", "--jobs", 1]
    for command in (scored, evaluated):
        done = drnmf(*command, "--json", "--save", workshop / "as_json")
        assert done.stdout == (workshop / "as_json.json").read_text()
        assert json.loads(done.stdout)["summary"][-1]["count"] == 5


def test_quiet_says_results_and_errors_alone(workshop, noise_dir, tmp_path):
    mix = ["mix", workshop / "voices", noise_dir, "-o", tmp_path / "a.csv", "--overwrite"]
    assert drnmf(*mix).stderr == f"5 mixtures in {tmp_path / 'a.csv'}\n"
    assert drnmf(*mix, "--quiet").stderr == ""
    assert drnmf(*mix).stderr != ""  # only that once
    done = drnmf("train", workshop / "recipe.toml", "-o", tmp_path / "model", "-q")
    assert (done.stdout, done.stderr) == ("", "")
    clean = workshop / "pairs" / "clean"
    assert "si_sdr" in drnmf("score", clean, clean, "--metric", "si_sdr", "--jobs", 1, "-q").stdout
    assert "no such folder" in drnmf("mix", "nowhere", noise_dir, "-o", tmp_path / "b.csv", "-q", status=2).stderr
    shutil.copytree(clean, tmp_path / "in")
    (tmp_path / "in" / "bad.wav").write_bytes(b"no sound")
    done = drnmf("enhance", tmp_path / "in", "-m", workshop / "model", "-o", tmp_path / "out", "-q", status=1)
    assert "failed: " in done.stderr


def test_the_version():
    assert drnmf("--version").stdout == f"drnmf {__version__}\n"


@pytest.mark.parametrize(("words", "expected"), [("drnmf enh", "enhance"), ("drnmf enhance --str", "--strength")])
def test_a_shell_completes_commands_and_options(words, expected, tmp_path):
    (tmp_path / "drnmf").write_text("from drnmf.cli import main; main()")
    asked = {"_DRNMF_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, tmp_path / "drnmf"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"{expected}\n"


COMMANDS = typer.main.get_command(cli.app)
ROOT = Path(__file__).parents[2]


def parse(line: str) -> None:
    """Read a command line as the shell and the command would, without running it."""
    _, name, *arguments = shlex.split(line, comments=True)
    COMMANDS.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("name", sorted(COMMANDS.commands))
def test_every_help_has_examples_that_work(name):
    text = drnmf(name, "--help").stdout
    assert "Example" in text
    assert "--quiet" in text
    examples = re.findall(r"drnmf [a-z][^`|>]*", COMMANDS.commands[name].epilog)
    assert examples
    for example in examples:
        parse(example)


def test_the_commands_of_the_readme_work():
    lines = re.findall(r"^ *(?:\$ )?(drnmf [a-z].*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        parse(line.partition(" | ")[0].partition(" > ")[0])
    with pytest.raises(Exception, match="No such option"):
        parse("drnmf enhance a.wav --no-such-option")


@pytest.mark.parametrize("command", ["score", "evaluate"])
def test_a_table_that_cannot_be_saved_is_one_line_before_anything_is_scored(command, workshop, monkeypatch):
    monkeypatch.setattr("drnmf.use.evaluation.score_pair", lambda *_, **__: pytest.fail("scoring has begun"))
    clean = workshop / "pairs" / "clean"
    arguments = {"score": (clean, clean, "--jobs", 1), "evaluate": (workshop / "model", workshop / "test.csv")}[command]
    done = drnmf(command, *arguments, "--metric", "si_sdr", "--save", workshop / "no/scores", status=2)
    assert "no/scores: cannot be written, the folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["set.csv", "pairs"])
def test_mixtures_that_exist_are_replaced_only_if_one_says_so(name, workshop, noise_dir, tmp_path):
    """Nor is anything beside them touched, such as a train.tmp of one's own."""
    other = tmp_path / "set.tmp"
    other.write_text("mine")
    arguments = ["mix", workshop / "voices", noise_dir, "-o", tmp_path / name, "--seed"]
    drnmf(*arguments, 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = drnmf(*arguments, 2, status=2)
    assert "exists already; choose another name, or use --overwrite" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    drnmf(*arguments, 2, "--overwrite")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after.keys() == before.keys()
    assert after != before
    assert other.read_text() == "mine"
