"""How long work tells how far it is: everywhere in the package by the same call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and of how much: 0 where that is not known.

What comes before a comma names the kind of work ("file, a.wav"): all of a kind share one bar on the screen.
"""


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that nobody watches."""


@contextmanager
def bars(console: "Console", *, hidden: bool) -> Iterator[Progress]:
    """A `Progress` that is a bar for each kind of work."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    tasks = {}
    with Bars(*columns, console=console, transient=True, disable=hidden) as shown:

        def report(what: str, done: int, total: int) -> None:
            kind = what.partition(",")[0]
            if kind not in tasks:
                tasks[kind] = shown.add_task(what)
            shown.update(tasks[kind], description=what, completed=done, total=total or None, visible=done != total)

        yield report
