"""Many files on many machines, by Ray: it starts the workers, and gives a lost one's files to others.

The machines share the folders of sound, and have drnmf installed. `ray start` makes a cluster of them; where there is
none, Ray makes one of this machine.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from drnmf.errors import InputError
from drnmf.progress import Progress, silent

Task = TypeVar("Task")
Work = Callable[[Task, Progress], str | None]

_TRIES = 3  # again, after a worker was lost: a file that kills its worker each time must not do so for ever
_in_worker: dict[str, Work[Any]] = {}  # what a worker keeps from one task to the next, such as the model


def on_ray(work: Work[Task], tasks: Sequence[Task]) -> Iterator[tuple[int, str | None]]:
    """Each task's number and what came of it, in the order they end: None, or what went wrong in one line.

    `work` travels to each worker once: what all tasks share belongs there. A task whose worker is lost is done again,
    so that it must not mind having been done before.
    """
    ray = _ray()
    started = not ray.is_initialized()
    if started:
        ray.init(logging_level=logging.ERROR)
    kept = ray.put(work)
    remote = ray.remote(max_retries=_TRIES)(_work)
    remaining = iter(enumerate(tasks))
    waiting: dict[Any, int] = {}  # futures, by the number of their task
    try:
        while True:
            room = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))  # a cluster may grow meanwhile
            while len(waiting) < room and (following := next(remaining, None)) is not None:
                number, task = following
                waiting[remote.remote([kept], task)] = number
            if not waiting:
                return
            finished, _ = ray.wait(list(waiting), timeout=1.0)
            for future in finished:
                number = waiting.pop(future)
                yield number, _result(ray, future, tasks[number])
    finally:
        for future in waiting:
            ray.cancel(future, force=True)
        if started:
            ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("enhancing on a cluster needs Ray: pip install 'drnmf[ray]'") from None
    return ray


def _result(ray: Any, future: Any, task: object) -> str | None:
    try:
        result: str | None = ray.get(future)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError):
        return f"{task}: the worker died, {1 + _TRIES} times; perhaps it needs more memory"
    except ray.exceptions.RayTaskError as error:
        reason = str(error.cause or error).strip().splitlines()[-1]
        raise InputError(f"a worker failed: {reason}; every machine needs the same drnmf") from None
    return result


def _work(kept: list[Any], task: Any) -> str | None:
    """In a worker. The list keeps Ray from fetching its content for every task anew."""
    name = kept[0].hex()
    if name not in _in_worker:
        import ray

        _in_worker.clear()
        _in_worker[name] = ray.get(kept[0])
    return _in_worker[name](task, silent)
