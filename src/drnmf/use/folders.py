"""Many files: folder trees mirrored, in one process or several, on one machine or as one of many.

`plan` says which file becomes which, `shard` picks one machine's part, `enhance_tree` does them. Files appear only when
they are complete, so whatever exists is done, and a second run continues where the first one stopped.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drnmf.errors import InputError
from drnmf.files import MEDIA, SUFFIXES, find_audio, left_out
from drnmf.models.folders import load_ready
from drnmf.parallel import in_processes
from drnmf.progress import Progress, silent
from drnmf.use.adaptation import adapted, read_noise
from drnmf.use.cluster import on_ray
from drnmf.use.files import PIPE, enhance_file

if TYPE_CHECKING:
    from drnmf.models.base import Separator
    from drnmf.models.packed import PackedModel


@dataclass(frozen=True)
class Task:
    """One file to enhance."""

    source: Path
    target: Path
    removed: Path | None = None

    def __str__(self) -> str:
        return str(self.source)


@dataclass(frozen=True)
class Result:
    """What became of the tasks; `failures` say why in one line each."""

    done: tuple[Task, ...]
    skipped: tuple[Task, ...]
    failures: tuple[str, ...]


def target(inputs: Sequence[Path], output: str | None, suffix: str | None = None) -> tuple[Path, bool]:
    """Where to write, and whether that is a folder: for several inputs it always is.

    For one file `output` is a folder if it is there as one, or ends with a slash. Where it is left out, noisy.wav
    becomes noisy.enhanced.wav beside it, and a pipe goes on as a pipe.
    """
    several = len(inputs) > 1 or inputs[0].is_dir()
    if output is not None:
        return Path(output), several or output.endswith(("/", os.sep)) or os.path.isdir(output)
    if Path(PIPE) in inputs:
        return Path(PIPE), several
    if several:
        raise InputError("give -o, the folder to write to; only for one file it can be left out")
    source = inputs[0]
    return source.with_name(f"{source.stem}.enhanced{suffix or source.suffix}"), False


def plan(inputs: Sequence[Path], output: Path, *, removed: Path | None = None, suffix: str | None = None) -> list[Task]:
    """What to write for several files and folders.

    A folder's tree is mirrored in `output`, or in a folder of its name there if there are more inputs; a file keeps its
    name. `removed` is another folder like `output`, for what is removed; `suffix` changes the format, such as ".flac".
    """
    for folder in (output, removed):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: is a file; several files need a folder to be written to")
    if any(str(given) == PIPE for given in (*inputs, output)):
        raise InputError(f"{PIPE} stands for one stream of sound: it goes with no other input, and with no folder")
    outputs = [Path(os.path.realpath(folder)) for folder in (output, removed) if folder is not None]
    if len(outputs) > len(set(outputs)):
        raise InputError(f"{output}: cannot hold both what is kept and what is removed; choose two folders")
    tasks: dict[Path, Task] = {}
    becomes: dict[Path, Path] = {}
    for source, name in _sources(inputs):
        if _is_below(source, outputs):
            continue  # the result of an earlier run, when it lies below the input
        name = name if suffix is None else name.with_suffix(suffix)
        for place in (folder / name for folder in outputs):
            if (other := becomes.setdefault(place, source)) != source:
                raise InputError(f"{source} and {other} would both become {place}; do one of them apart")
        tasks[name] = Task(source, output / name, None if removed is None else removed / name)
    if not tasks:
        raise InputError(f"{output}: holds all the input; choose another output")
    return list(tasks.values())


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return not set(folders).isdisjoint(Path(os.path.realpath(path)).parents)


def others(inputs: Sequence[Path], *outputs: Path | None) -> list[str]:
    """A line for each file in these folders of which `plan` makes no task, and why; results are not named."""
    places = [Path(os.path.realpath(folder)) for folder in outputs if folder is not None]
    reasons = {path: why for folder in inputs if folder.is_dir() for path, why in left_out(folder, media=True).items()}
    return [f"{path}: {why}" for path, why in reasons.items() if not _is_below(path, places)]


def suffix_of(format: str | None) -> str | None:
    """The suffix of files of a format given by name, such as "flac"; None for None."""
    if format is None:
        return None
    suffix = f".{format.lower().lstrip('.')}"
    known = SUFFIXES | MEDIA
    if suffix not in known:
        raise InputError(f"unknown format {format!r}; choose from {', '.join(sorted(s[1:] for s in known))}")
    return suffix


def _sources(inputs: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Files, and their paths below the output folder."""
    for given in inputs:
        if not given.is_dir():
            yield given, Path(given.name)
            continue
        for path in find_audio(given, media=True):
            below = path.relative_to(given)
            yield path, below if len(inputs) == 1 else Path(given.resolve().name) / below


def shard(tasks: Sequence[Task], part: str) -> list[Task]:
    """Every N-th task from the I-th for "I/N": the shards 1/N to N/N do each task once."""
    first, _, count = part.partition("/")
    if not (first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count)):
        raise InputError(f"a shard is I/N with I from 1 to N, such as 1/4, got {part!r}")
    return list(tasks[int(first) - 1 :: int(count)])


def enhance_tree(
    tasks: Sequence[Task],
    model: "Separator | PackedModel | str | Path" = "default",
    *,
    overwrite: bool = False,
    noise_samples: Sequence[Path | str] = (),
    jobs: int = 1,
    engine: str = "processes",
    progress: Progress = silent,
    **settings: Any,
) -> Result:
    """Enhance every file that has not been done before, in `jobs` processes; what fails does not stop the others.

    With the engine "ray" all processors of a cluster take part. `settings` are those of `enhance_file`, for all files.
    """
    if engine not in ("processes", "ray"):
        raise InputError(f"there is no engine {engine!r}; known: processes, ray")
    is_done = [not overwrite and _is_done(task) for task in tasks]
    skipped = [task for task, done in zip(tasks, is_done, strict=True) if done]
    left = [task for task, done in zip(tasks, is_done, strict=True) if not done]
    model = load_ready(model) if isinstance(model, str | Path) else model
    if noise_samples and left:
        model = adapted(model, [read_noise(path) for path in noise_samples])  # here: once for all files
    work = partial(_attempt, model=model, overwrite=overwrite, **settings)
    if engine == "ray":
        outcomes = on_ray(partial(_attempt_unless_done, **work.keywords), left)
    else:
        outcomes = in_processes(work, left, jobs, progress)
    results: dict[int, str | None] = {}
    for number, failure in outcomes:
        results[number] = failure
        progress("files", len(results), len(left))
    done = tuple(task for number, task in enumerate(left) if results[number] is None)
    failures = tuple(failure for _, failure in sorted(results.items()) if failure is not None)
    return Result(done, tuple(skipped), failures)


def _is_done(task: Task) -> bool:
    return all(path.exists() for path in _written(task))


def _written(task: Task) -> list[Path]:
    return [task.target] if task.removed is None else [task.target, task.removed]


def summary(result: Result, others: Sequence[str] = ()) -> str:
    """What became of the tasks, in a few lines, and of other files that lie in their folders."""
    lines = [f"skipped: {other}" for other in others]
    lines += [f"failed: {failure}" for failure in result.failures]
    counts = [f"{len(result.done)} enhanced"]
    if others:
        counts.append(f"{len(others)} skipped")
    if result.skipped:
        counts.append(f"{len(result.skipped)} skipped because they exist (--overwrite does them again)")
    if result.failures:
        counts.append(f"{len(result.failures)} failed")
    return "\n".join([*lines, ", ".join(counts)])


def _attempt(task: Task, progress: Progress, **settings: Any) -> str | None:
    """Do one task; what went wrong, if anything."""
    try:
        for path in _written(task):
            path.parent.mkdir(parents=True, exist_ok=True)
        enhance_file(task.source, task.target, removed=task.removed, progress=progress, **settings)
    except InputError as error:
        return str(error)
    except OSError as error:
        return f"{task.target}: cannot be written: {error.strerror}"
    return None


def _attempt_unless_done(task: Task, progress: Progress, *, overwrite: bool, **settings: Any) -> str | None:
    """The same where a worker may have been lost just after it had done the task."""
    return None if _is_done(task) and not overwrite else _attempt(task, progress, overwrite=overwrite, **settings)
