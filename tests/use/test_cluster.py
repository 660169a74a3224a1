"""Files on a cluster by Ray: here a cluster of one machine, of which a worker is killed."""

import os
import shutil
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from command import drnmf
from drnmf import load_model
from drnmf.use import cluster, folders

FILES = ["a.flac", "b.flac", "deep/c.flac", "deep/d.flac", "e.flac"]


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray", reason="pip install 'drnmf[ray]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # where workers find this module
        here = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100_000_000}
        ray.init(**({} if "RAY_ADDRESS" in os.environ else here), log_to_driver=False)
        yield ray
        ray.shutdown()


@pytest.fixture
def recordings(tmp_path, speech_dir):
    """Five real recordings, one of them deeper."""
    for name, source in zip(FILES, sorted(speech_dir.glob("*.flac")), strict=True):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / "in" / name)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Watched:
    """The real work, which notes each start and each arrival in a worker; with `fatal` files, the worker is killed."""

    def __init__(self, work, log: Path, fatal: tuple[str, ...], times: int) -> None:
        self.work, self.log, self.fatal, self.times = work, log, fatal, times

    def __reduce__(self):
        return _arrived, (self.work, self.log, self.fatal, self.times)

    def note(self, what: str) -> int:
        """Write it down; how often it had been before."""
        with self.log.open("a+") as log:
            log.seek(0)
            before = log.read().splitlines().count(what)
            log.write(f"{what}\n")
        return before

    def __call__(self, task, progress):
        before = self.note(f"start {task.source.name}")

        def killed(*_):
            if task.source.name in self.fatal and before < self.times:
                os.kill(os.getpid(), signal.SIGKILL)  # half of the file is written

        return self.work(task, killed)


def _arrived(*state):
    work = Watched(*state)
    work.note(f"model in {os.getpid()}")
    return work


def watched(recordings: Path, fatal: tuple[str, ...], times: int) -> tuple[dict[int, str | None], Counter]:
    """What came of the files, and what was noted."""
    tasks = folders.plan([recordings / "in"], recordings / "out")
    work = partial(folders._attempt_unless_done, model=load_model("default"), overwrite=False)
    results = dict(cluster.on_ray(Watched(work, recordings / "log", fatal, times), tasks))
    return results, Counter((recordings / "log").read_text().splitlines())


def test_a_lost_worker_s_file_is_done_again_and_every_other_once(ray, recordings):
    results, notes = watched(recordings, ("c.flac",), times=1)
    assert set(results.values()) == {None}
    starts = {name: notes.pop(f"start {Path(name).name}") for name in FILES}
    assert starts == {name: 2 if name == "deep/c.flac" else 1 for name in FILES}
    assert 2 <= len(notes) <= 5  # workers, a new one among them
    assert set(notes.values()) == {1}  # each got the model once
    drnmf("enhance", recordings / "in", "-o", recordings / "here")
    assert contents(recordings / "out") == contents(recordings / "here")


def test_a_file_that_kills_every_worker_is_a_failure_of_one_line(ray, recordings, monkeypatch):
    monkeypatch.setattr(cluster, "_TRIES", 1)
    results, _ = watched(recordings, ("a.flac",), times=9)
    (failure,) = filter(None, results.values())
    assert "a.flac: the worker died, 2 times" in failure
    assert len(failure.splitlines()) == 1
    assert set(FILES[1:]) <= set(contents(recordings / "out"))
    assert FILES[0] not in contents(recordings / "out")


def test_the_command_goes_on_where_it_ended(ray, recordings):
    command = ["enhance", recordings / "in", "-o", recordings / "out", "--engine", "ray"]
    assert drnmf(*command).stderr == "5 enhanced\n"
    for name in FILES[:2]:
        (recordings / "out" / name).unlink()
    done = contents(recordings / "out")
    (recordings / "in/bad.wav").write_bytes(b"no sound")
    said = drnmf(*command, status=1).stderr
    assert "failed: " in said
    assert "2 enhanced, 3 skipped because they exist (--overwrite does them again), 1 failed\n" in said
    assert done.items() <= contents(recordings / "out").items()
    assert set(contents(recordings / "out")) == set(FILES)


def test_an_engine_that_does_not_exist(recordings):
    said = drnmf("enhance", recordings / "in", "-o", recordings / "out", "--engine", "rey", status=2).stderr
    assert said == "drnmf: there is no engine 'rey'; known: processes, ray\n"


def test_without_ray_one_line_says_what_to_install(recordings, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = drnmf("enhance", recordings / "in", "-o", recordings / "out", "--engine", "ray", status=2).stderr
    assert said == "drnmf: enhancing on a cluster needs Ray: pip install 'drnmf[ray]'\n"
