import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import workers
from command import wait_for_file
from drnmf.errors import InputError
from drnmf.parallel import in_processes, in_threads


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_is_done_once(jobs):
    said = []
    results = dict(in_processes(workers.square, iter(range(10)), jobs, lambda *step: said.append(step)))
    assert {number: square for number, (square, _, _) in results.items()} == {n: n**2 for n in range(10)}
    processes = {process for _, process, _ in results.values()}
    if jobs == 1:
        assert processes == {os.getpid()}
        assert said == [(f"square, of {n}", n, 10) for n in range(10)]
    else:
        assert os.getpid() not in processes
        assert {threads for _, _, threads in results.values()} == {"1"}
        assert {what.partition(",")[0] for what, _, _ in said} <= {"square 1", "square 2"}
        assert sorted((what.partition(", ")[2], done) for what, done, _ in said) == [(f"of {n}", n) for n in range(10)]


def test_tasks_are_taken_only_as_fast_as_they_are_done():
    taken = []

    def tasks():
        for n in range(30):
            taken.append(n)
            yield n

    results = in_processes(workers.square, tasks(), 2)
    next(results)
    assert len(taken) == 8  # four for each process
    results.close()


def test_a_worker_that_dies_is_one_line():
    with pytest.raises(InputError, match="a worker process died, perhaps for lack of memory; try again with fewer"):
        list(in_processes(workers.die, range(3), 2))


def test_what_is_half_done_is_removed_when_the_run_stops(tmp_path):
    def stop_when_it_runs(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(in_processes(workers.wait_for_the_end, [tmp_path / "a", tmp_path / "b"], 2, stop_when_it_runs))
    assert list(tmp_path.iterdir()) == []


def test_a_stop_reaches_the_parent_alone():
    [(_, blocked)] = in_processes(workers.blocked_signals, [0], 2)
    assert blocked >= {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    """They hold standard error open, so it ends with the last of them; SIGTERM does not end them while there is one."""
    script = tmp_path / "script.py"
    script.write_text(
        "import workers\nfrom pathlib import Path\nfrom drnmf.parallel import in_processes\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "if __name__ == '__main__':\n"
        "    list(in_processes(workers.wait_for_the_end, [folder / 'a', folder / 'b'], 2))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, env=environment) as parent:
        wait_for_file(tmp_path / "a", parent)
        wait_for_file(tmp_path / "b", parent)
        parent.kill()
        parent.communicate(timeout=5)  # the workers would go on for 10 s


@pytest.mark.parametrize("jobs", [0, -1])
def test_jobs_are_at_least_one(jobs):
    with pytest.raises(InputError, match="jobs must be at least 1"):
        list(in_processes(workers.square, [], jobs))


def test_threads_keep_the_order_and_tell_the_first_of_all_problems():
    def work(n: int) -> tuple[int, int]:
        time.sleep(0.01 * (5 - n))
        if n in (2, 4):
            raise InputError(f"{n} is broken")
        tried.append(n)
        return n, threading.get_ident()

    said, tried = [], []
    assert [n for n, _ in in_threads(work, [0, 1, 3], "counting", lambda *step: said.append(step))] == [0, 1, 3]
    assert said == [("counting", 1, 3), ("counting", 2, 3), ("counting", 3, 3)]
    tried.clear()
    with pytest.raises(InputError, match=r"^2 is broken \(and 1 more like this\)$"):
        in_threads(work, range(6), "counting")
    assert sorted(tried) == [0, 1, 3, 5]
