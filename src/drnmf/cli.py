"""The command `drnmf`."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from drnmf.errors import Diverged, InputError

if TYPE_CHECKING:
    from drnmf.evaluation import Table

app = typer.Typer(
    help="Deep recurrent NMF for speech separation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
_stderr = Console(stderr=True)
_CORES = os.cpu_count() or 1

Jobs = Annotated[int, typer.Option(help="Processes to use.", min=1)]
Seed = Annotated[int, typer.Option(help="Of everything random.")]


def main() -> None:
    """Run the command line; a mistake is one line and exit status 2, a run that diverged is 3."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        app()
    except (InputError, Diverged) as error:
        _stderr.print(f"drnmf: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        sys.exit(2 if isinstance(error, InputError) else 3)
    except KeyboardInterrupt:
        _stderr.print("stopped")
        sys.exit(130)


@app.command(
    epilog="Examples: `drnmf train recipe.toml -o model`  ·  `drnmf train --speech voices/ --noise home/ -o model`"
)
def train(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe (TOML) with every setting.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the run and its model.")] = ...,  # type: ignore[assignment]
    speech: Annotated[Path | None, typer.Option(help="Folder of clean speech, instead of a recipe.")] = None,
    noise: Annotated[Path | None, typer.Option(help="Folder of noise recordings.")] = None,
    rooms: Annotated[Path | None, typer.Option(help="Folder of room responses.")] = None,
    devices: Annotated[int | None, typer.Option(help="Number of GPUs or processes, instead of the recipe's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs, instead of the recipe's.")] = None,
) -> None:
    """Train a model. The same command continues a run that was stopped."""
    from dataclasses import replace

    from drnmf.recipe import Recipe, folders_recipe
    from drnmf.training import train as run

    if recipe is not None and (speech or noise or rooms):
        raise InputError("give either a recipe or --speech and --noise, not both")
    if recipe is not None:
        settings = Recipe.read(recipe)
    elif speech and noise:
        settings = folders_recipe(speech, noise, rooms)
    else:
        raise InputError("give a recipe, or --speech and --noise; see drnmf train --help")
    changes = {"devices": devices, "max_epochs": epochs}
    given: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    settings = replace(settings, training=replace(settings.training, **given))
    with _progress() as progress:
        run(settings, output, progress=progress)
    _stderr.print(f"the model is in {output}", highlight=False)


@app.command(epilog="Examples: `drnmf evaluate model test.csv`  ·  `drnmf evaluate model test.csv --save scores`")
def evaluate(
    model: Annotated[str, typer.Argument(help="Folder of a model, or the name of one that comes with drnmf.")],
    manifest: Annotated[Path, typer.Argument(help="Manifest (CSV) of mixtures.")],
    metric: Annotated[list[str] | None, typer.Option(help="sdr, si_sdr, pesq, stoi; all that are installed.")] = None,
    save: Annotated[Path | None, typer.Option(help="Also write SAVE.csv, .json and .md.")] = None,
    every: Annotated[int, typer.Option(help="Take every n-th mixture.", min=1)] = 1,
    jobs: Jobs = _CORES,
) -> None:
    """Enhance the mixtures of a manifest with a model and score the result."""
    from drnmf.checkpoint import load_model
    from drnmf.data.batches import Dataset
    from drnmf.data.manifests import read_manifest
    from drnmf.evaluation import evaluate as run

    with _progress() as progress:
        dataset = Dataset(read_manifest(manifest)[::every], progress=progress)
        mixtures = ((m.id, m.snr_db, *dataset.waveforms(m)) for m in dataset.items())
        count = _counting(progress, "scoring", len(dataset))
        table = run(load_model(model), mixtures, metrics=metric, jobs=jobs, progress=count)
    _tell(table, save)


@app.command(epilog="Example: `drnmf score enhanced/ clean/ --noisy noisy/`")
def score(
    estimates: Annotated[Path, typer.Argument(help="File or folder to score.")],
    references: Annotated[Path, typer.Argument(help="The clean file, or folder of files of the same names.")],
    noisy: Annotated[Path | None, typer.Option(help="The unprocessed input, to tell the improvement.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="sdr, si_sdr, pesq, stoi; all that are installed.")] = None,
    save: Annotated[Path | None, typer.Option(help="Also write SAVE.csv, .json and .md.")] = None,
    jobs: Jobs = _CORES,
) -> None:
    """Score sound files against their clean references."""
    from drnmf.evaluation import score_files

    with _progress() as progress:
        count = _counting(progress, "scoring", None)
        table = score_files(estimates, references, noisy=noisy, metrics=metric, jobs=jobs, progress=count)
    _tell(table, save)


@app.command(
    epilog="Examples: `drnmf mix voices/ home/ -o train.csv`  ·  `drnmf mix voices/ home/ --rooms rirs/ -o pairs/`"
)
def mix(
    speech: Annotated[Path, typer.Argument(help="Folder of clean speech.")],
    noise: Annotated[Path, typer.Argument(help="Folder of noise recordings.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A manifest (.csv), or a folder for noisy/ and clean/.")
    ],
    rooms: Annotated[Path | None, typer.Option(help="Folder of room responses.")] = None,
    count: Annotated[int | None, typer.Option(help="Number of mixtures; one for each utterance.", min=1)] = None,
    snr: Annotated[list[float] | None, typer.Option(help="SNR in dB; repeat for several. -6, -3, ... 9.")] = None,
    level: Annotated[tuple[float, float], typer.Option(help="Lowest and highest speech level in dBFS.")] = (
        -33.0,
        -25.0,
    ),
    seed: Seed = 2016,
) -> None:
    """Draw mixtures of speech and noise: a manifest of them, or the sound files themselves."""
    from drnmf.data.folders import SNRS_DB, Pool
    from drnmf.data.manifests import write_manifest, write_mixtures
    from drnmf.data.recordings import Recordings, scan

    pool = Pool.from_folders(speech, noise, rooms, snrs_db=tuple(snr or SNRS_DB), levels_dbfs=level)
    with _progress() as progress:
        sizes = scan(pool.files, progress=progress)
        pool.check_fit(sizes)
        mixtures = pool.draw(sizes, seed=seed, count=count)
        if output.suffix == ".csv":
            write_manifest(output, mixtures)
        else:
            write_mixtures(output, mixtures, Recordings(sizes, in_memory=False), progress=progress)
    _stderr.print(f"{len(mixtures)} mixtures in {output}", highlight=False)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each kind of work that reports itself as (what, done, total)."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    tasks = {}
    with Progress(*columns, console=_stderr, transient=True, disable=not _stderr.is_terminal) as bars:

        def report(what: str, done: int, total: int) -> None:
            kind = what.partition(",")[0]
            if kind not in tasks:
                tasks[kind] = bars.add_task(what, total=total)
            bars.update(tasks[kind], description=what, completed=done, total=total)
            if done >= total:
                bars.update(tasks[kind], visible=False)

        yield report


def _counting(
    progress: Callable[[str, int, int], None], what: str, total: int | None
) -> Callable[[int, int | None], None]:
    return lambda done, of: progress(what, done, of or total or done)


def _tell(table: "Table", save: Path | None) -> None:
    print(table.text(), end="")
    if save is not None:
        for suffix, text in ((".csv", table.csv()), (".json", table.json()), (".md", table.markdown())):
            Path(f"{save}{suffix}").write_text(text)
    if table.failures:
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
