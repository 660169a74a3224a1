"""What the commands say on the terminal: remarks and bars on stderr, results on stdout."""

import logging
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from drnmf.files import write_together
from drnmf.progress import Progress, bars

if TYPE_CHECKING:
    from drnmf.use.evaluation import Table

stderr = Console(stderr=True)
log = logging.getLogger("drnmf")


def set_quiet(quiet: bool) -> None:
    """What is only told is told at level INFO; a bar looks at the level, too."""
    log.setLevel(logging.WARNING if quiet else logging.INFO)


def talks() -> bool:
    """Whether more than results and errors is wanted."""
    return log.isEnabledFor(logging.INFO)


def say(text: str, level: int = logging.INFO) -> None:
    """Tell the person who typed the command; stdout is for results."""
    if log.isEnabledFor(level):
        stderr.print(text, highlight=False, soft_wrap=True, markup=False)


def progress() -> AbstractContextManager[Progress]:
    """Bars, for a person who watches."""
    return bars(stderr, hidden=not stderr.is_terminal or not talks())


def show_table(table: "Table", save: Path | None, as_json: bool) -> None:
    """Print a table, save it if wanted, and end with status 1 if something could not be scored."""
    print(table.json() if as_json else table.text(), end="")
    if save is not None:
        forms = {".csv": table.csv(), ".json": table.json(), ".md": table.markdown()}
        write_together({Path(f"{save}{suffix}"): text for suffix, text in forms.items()})
    if table.failures:
        raise typer.Exit(1)
