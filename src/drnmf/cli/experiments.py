"""Commands that repeat the paper: `reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from drnmf.cli import terminal
from drnmf.cli.base import AsJson, Epochs, Quiet, app
from drnmf.errors import InputError
from drnmf.files import make_folder
from drnmf.parallel import stop_like_ctrl_c


@app.command(
    epilog="Examples: `drnmf reproduce waspaa2017 --data corpus -o runs`  ·  "
    "`drnmf reproduce waspaa2017 -o runs --only 10/drnmf --list`  ·  `drnmf reproduce waspaa2017 -o runs --table`"
)
def reproduce(
    experiment: Annotated[str, typer.Argument(help="Name of the experiment: waspaa2017, the paper's.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for all runs and the tables.")],
    data: Annotated[Path | None, typer.Option(help="Folder with the manifests train.csv, ..., or CHiME2.")] = None,
    recipe: Annotated[str, typer.Option(help="paper: the paper's settings; tuned: those best on dev.")] = "paper",
    size: Annotated[list[int] | None, typer.Option(help="Percent of the training set. [default: 10 and 100]")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only cells with these words in their name; * is allowed.")
    ] = None,
    ablations: Annotated[bool, typer.Option("--ablations", help="Also train the ablations, on 10 %.")] = False,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed. Repeat for several: mean and spread. [default: 2016]")
    ] = None,
    epochs: Epochs = None,
    train_only: Annotated[bool, typer.Option("--train-only", help="Train, but do not score.")] = False,
    list_cells: Annotated[bool, typer.Option("--list", help="List the cells and their progress, and exit.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Write the tables of what is done, and exit.")] = False,
    jobs: Annotated[int, typer.Option(help="Number of trainings at once, and of processes that score.", min=1)] = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train and score every model of the paper's table. The same command continues what was stopped."""
    from drnmf.paper import runs as run
    from drnmf.paper.tables import write_report
    from drnmf.paper.waspaa2017 import SEED

    if experiment != "waspaa2017":
        raise InputError(f"there is no experiment {experiment!r}; known: waspaa2017")
    cells = run.choose_cells(recipe, sizes=size, seeds=seed or [SEED], with_ablations=ablations, only=only or ())
    if list_cells:
        longest = max(len(cell.id) for cell in cells)
        for cell in cells:
            print(f"{cell.id:{longest}}  {run.state(cell, output)}")
        return
    if not table:
        if data is None:
            raise InputError("give --data, the folder of the corpus")
        stop_like_ctrl_c()
        corpus = run.Corpus.open(data)
        with terminal.progress() as progress:
            run.train_cells(cells, corpus, output, epochs=epochs, jobs=jobs, progress=progress)
            if not train_only:
                run.score_cells(cells, corpus, output, jobs=jobs, progress=progress)
                run.measure_speed(cells, corpus, output)
    make_folder(output)
    print(write_report(recipe, output)["json" if as_json else "txt"], end="")
