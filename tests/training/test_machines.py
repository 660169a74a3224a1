"""Training on two machines, as docs/cluster.md says: here two processes that take each other for another machine."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from drnmf.data.folders import Pool
from drnmf.data.manifests import write_manifest
from drnmf.data.recordings import scan
from drnmf.signal import audio
from drnmf.training import checkpoints
from drnmf.training.recipe import Recipe
from drnmf.training.run import train

ROOT = Path(__file__).parents[2]
RECIPE = """
[data]
train = "train.csv"
validation = "dev.csv"
max_frames = 50
[dictionary]
rank_per_source = 8
max_iter = 20
[model]
n_layers = 2
[training]
max_epochs = 2
batch_size = 4
learning_rate = 1e-2
accelerator = "cpu"
"""


@pytest.fixture
def workshop(tmp_path, speech_dir, noise_dir):
    """Short mixtures of real recordings, and a recipe."""
    (tmp_path / "speech").mkdir()
    for path in speech_dir.glob("*.flac"):
        audio.write(tmp_path / "speech" / path.name, audio.read(path, count=24000)[0], 16000)
    pool = Pool.from_folders(tmp_path / "speech", noise_dir)
    sizes = scan(pool.files)
    for seed, name in enumerate(("train", "dev")):
        write_manifest(tmp_path / f"{name}.csv", pool.draw(sizes, seed=seed, count=8))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def by_torchrun(number: int, port: str) -> tuple[list[str], dict[str, str]]:
    """The line of the page, for the machine of this number."""
    page = (ROOT / "docs/cluster.md").read_text()
    (line,) = re.findall(r"^    (torchrun .*?[^\\])$", page, re.MULTILINE | re.DOTALL)
    for old, new in {"NUMBER": str(number), "FIRST_MACHINE": "127.0.0.1", "29500": port, " 4": " 1"}.items():
        assert old in line
        line = line.replace(old, new)
    words = shlex.split(line.replace("\\\n", " "))
    at = words.index("drnmf")
    program = [sys.executable, "-m", "drnmf.cli"]
    return [sys.executable, "-m", "torch.distributed.run", *words[1:at], *program, *words[at + 1 :]], {}


def by_slurm(number: int, port: str) -> tuple[list[str], dict[str, str]]:
    """The line of the script, where srun has started it."""
    (line,) = re.findall(r"^srun (.*)$", (ROOT / "examples/train.slurm").read_text(), re.MULTILINE)
    told = {"NTASKS": 2, "NNODES": 2, "NTASKS_PER_NODE": 1, "PROCID": number, "NODEID": number, "LOCALID": 0}
    told |= {"NODELIST": "127.0.0.1", "JOB_ID": 1, "JOB_NAME": "drnmf"}
    variables = {f"SLURM_{name}": str(value) for name, value in told.items()} | {"MASTER_PORT": port}
    line = line.replace('"$1"', "recipe.toml").replace('"$2"', "my_model")
    line = re.sub(r'"\$(\w+)"', lambda variable: variables[variable[1]], line)
    return [sys.executable, "-m", "drnmf.cli", *shlex.split(line)[1:]], variables


@pytest.mark.slow
@pytest.mark.parametrize("launched", [by_torchrun, by_slurm])
def test_two_machines_train_like_one(launched, workshop):
    port, machines = free_port(), []
    for number in (0, 1):
        command, variables = launched(number, port)
        environment = os.environ | variables | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        log = (workshop / f"{number}.log").open("w")
        machines.append(subprocess.Popen(command, cwd=workshop, env=environment, stdout=log, stderr=log))
    try:
        ended = [machine.wait(timeout=900) for machine in machines]
    finally:
        for machine in machines:
            machine.kill()
    said = [(workshop / f"{number}.log").read_text() for number in (0, 1)]
    assert ended == [0, 0], "".join(said)
    assert "MEMBER: 1/2" in said[0]  # they met; each alone would end with the same weights
    train(Recipe.read(workshop / "recipe.toml"), workshop / "one")
    one, two = (checkpoints.read(workshop / name / "last.ckpt")["state_dict"] for name in ("one", "my_model"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-4)
