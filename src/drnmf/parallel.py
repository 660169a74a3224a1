"""Many tasks at once: in processes, or in threads where the work is done outside Python's lock.

What processes need is imported with the first of them: a command that starts none should not wait for it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from drnmf.errors import InputError, raise_first
from drnmf.progress import Progress, silent

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Event

Task = TypeVar("Task")
Result = TypeVar("Result")


def stop_like_ctrl_c() -> None:
    """Let a scheduler's stop, or a terminal that goes away, end a command as Ctrl-C does: no half-written files."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it
            signal.signal(number, signal.default_int_handler)


def in_threads(
    work: Callable[[Task], Result], tasks: Sequence[Task], what: str, progress: Progress = silent
) -> list[Result]:
    """Results in the order of the tasks. All are tried; then the first InputError is raised, with their number."""
    from concurrent.futures import ThreadPoolExecutor

    results = []

    def attempt(task: Task) -> Result | InputError:
        try:
            return work(task)
        except InputError as error:
            return error

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for result in pool.map(attempt, tasks):
            results.append(result)
            progress(what, len(results), len(tasks))
    raise_first([str(result) for result in results if isinstance(result, InputError)])
    return [result for result in results if not isinstance(result, InputError)]


def in_processes(
    work: Callable[[Task, Progress], Result], tasks: Iterable[Task], jobs: int, progress: Progress = silent
) -> Iterator[tuple[int, Result]]:
    """(number of the task, result) as they are done, in `jobs` processes; one job is done in this process.

    Tasks are taken only as fast as they are done, since they may need memory. `work` travels to each process once: what
    all tasks share belongs there. What it says to its `progress` arrives at ours, with the number of the process.
    The calling script needs the usual `if __name__ == "__main__":`.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    if jobs == 1:
        for number, task in enumerate(tasks):
            yield number, work(task, progress)
        return
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    spawn = get_context("spawn")  # a fork of a process in which torch has started threads may hang
    stop, said = spawn.Event(), spawn.SimpleQueue()
    numbers: dict[int, int] = {}
    waiting: dict[Future[Result], int] = {}
    remaining = enumerate(tasks)
    with ProcessPoolExecutor(jobs, spawn, _start_worker, (work, stop, said)) as pool:
        try:
            while True:
                while len(waiting) < 4 * jobs and (following := next(remaining, None)) is not None:
                    with _signals_blocked():
                        waiting[pool.submit(_work, following[1])] = following[0]
                if not waiting:
                    return
                finished, _ = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                while not said.empty():
                    process, what, done, total = said.get()
                    kind, comma, rest = what.partition(",")
                    progress(f"{kind} {numbers.setdefault(process, len(numbers) + 1)}{comma}{rest}", done, total)
                for future in finished:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool:
            raise InputError("a worker process died, perhaps for lack of memory; try again with fewer jobs") from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """While workers start, which inherit it: a stop reaches all processes, but the first one is to stop the others."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Alone:
    """What one thread at a time may do. Nobody waits: who comes second has made a mistake, which waiting would hide."""

    def __init__(self, what: str) -> None:
        self._what, self._lock = what, threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InputError(f"{self._what} is in use by another thread: make one for each")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Stopped(BaseException):
    """The run is over: what is half done is to be removed."""


_in_worker: dict[str, Any] = {}  # what a worker is given once


def _start_worker(work: Callable[..., Any], stop: Event, said: SimpleQueue[Any]) -> None:
    end_with_parent()
    use_one_thread()  # several processes with a thread for each core would wait for each other
    _in_worker.update(work=work, stop=stop, said=said)


def use_one_thread() -> None:
    """Keep PyTorch to one thread, now or when it is imported: products of single frames are small."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def end_with_parent() -> None:
    """In a process that multiprocessing started: it outlives no parent, however that ended."""
    from multiprocessing import parent_process

    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(task: Any) -> Any:
    return _in_worker["work"](task, _say)


def _say(what: str, done: int, total: int) -> None:
    if _in_worker["stop"].is_set():
        raise _Stopped
    _in_worker["said"].put((os.getpid(), what, done, total))
