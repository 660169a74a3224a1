"""The command `drnmf`."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.progress
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from drnmf.errors import DivergedError, InputError, needing_pytorch
from drnmf.progress import Progress

if TYPE_CHECKING:
    from drnmf.use.evaluation import Table

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
ModelName = Annotated[str, typer.Argument(help="Folder of a model, or a bundled one: default, large.")]
Seed = Annotated[int, typer.Option(help="Of everything random.")]


def main() -> None:
    """Run the command line; a mistake is one line and exit status 2, a run that diverged is 3, Ctrl-C is 130."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        with needing_pytorch("this command"):
            app()
    except (InputError, DivergedError) as error:
        _stderr.print(f"drnmf: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        sys.exit(2 if isinstance(error, InputError) else 3)


@app.command(
    epilog="Examples: `drnmf enhance noisy.wav -o clean.wav`  ·  `drnmf enhance recordings/ -o clean/ --jobs 4`  ·  "
    "`sox noisy.wav -t wav - | drnmf enhance - > clean.wav`"
)
def enhance(
    inputs: Annotated[list[Path], typer.Argument(metavar="IN", help="Sound files, folders, or - for stdin.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write, folder for several, or - for stdout.")
    ] = None,
    model: Annotated[
        str, typer.Option("-m", "--model", help="Folder of a model, or a bundled one: default, large.")
    ] = "default",
    strength: Annotated[float, typer.Option(help="How much noise to remove, 0 to 1.", min=0, max=1)] = 1.0,
    noise: Annotated[Path | None, typer.Option(help="Also write what is removed: a file, or a folder.")] = None,
    format: Annotated[str | None, typer.Option(help="wav, flac, ogg, mp3, ... instead of the input's.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
    jobs: Jobs = 1,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Do the I-th of N parts of the files.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Sound on - is 16-bit PCM without header, not WAV.")] = False,
    rate: Annotated[int | None, typer.Option(help="Sample rate of --raw input.")] = None,
    channels: Annotated[int, typer.Option(help="Channels of --raw input.", min=1)] = 1,
) -> None:
    """Remove noise from sound files, whole folders of them, or a pipe. Files that exist are done, and skipped."""
    import signal

    from drnmf.use.files import PIPE, enhance_file
    from drnmf.use.folders import enhance_tree, plan, suffix_of, summary
    from drnmf.use.folders import shard as part
    from drnmf.use.streaming import use_one_thread

    use_one_thread()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's stop cleans up as Ctrl-C does
    piped = Path(PIPE) in inputs
    if output is None and not piped:
        raise InputError("say with -o where to write")
    if raw and piped and rate is None:
        raise InputError("--raw input needs --rate, and --channels unless it is mono")
    output, suffix = output or Path(PIPE), suffix_of(format)
    settings: dict[str, Any] = {"strength": strength, "overwrite": overwrite}
    with _progress() as progress:
        if len(inputs) == 1 and not inputs[0].is_dir():
            if suffix not in (None, output.suffix.lower()) or shard is not None:
                raise InputError("--format and --shard are for several files; for one, -o names the format")
            settings |= {"raw": (rate or 0, channels) if raw else None, "noise": noise}
            enhance_file(inputs[0], output, model, **settings, progress=progress)
            return
        tasks = plan(inputs, output, noise=noise, suffix=suffix)
        tasks = tasks if shard is None else part(tasks, shard)
        result = enhance_tree(tasks, model, **settings, jobs=jobs, progress=progress)
    _stderr.print(summary(result), highlight=False, soft_wrap=True, markup=False)
    if result.failures:
        raise typer.Exit(1)


@app.command(
    epilog="Examples: `drnmf train recipe.toml -o model`  ·  `drnmf train --speech voices/ --noise home/ -o model`"
)
def train(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe (TOML) with every setting.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the run and its model.")] = ...,  # type: ignore[assignment]
    speech: Annotated[Path | None, typer.Option(help="Folder of clean speech, instead of a recipe.")] = None,
    noise: Annotated[Path | None, typer.Option(help="Folder of noise recordings.")] = None,
    rooms: Annotated[Path | None, typer.Option(help="Folder of room responses.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="Model to go on from, with --speech and --noise.")] = None,
    devices: Annotated[int | None, typer.Option(help="Number of GPUs or processes, instead of the recipe's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs, instead of the recipe's.")] = None,
) -> None:
    """Train a model. The same command continues a run that was stopped."""
    from drnmf.training.recipe import Recipe, folders_recipe
    from drnmf.training.run import train as run

    if recipe is not None and (speech or noise or rooms or start):
        raise InputError("give either a recipe or --speech and --noise, not both; in a recipe, --from is [model] start")
    if recipe is not None:
        settings = Recipe.read(recipe)
    elif speech and noise:
        settings = folders_recipe(speech, noise, rooms, start)
    else:
        raise InputError("give a recipe, or --speech and --noise; see drnmf train --help")
    changes = {"devices": devices, "max_epochs": epochs}
    given: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    settings = settings.replace(training=given)
    with _progress() as progress:
        run(settings, output, progress=progress)
    _stderr.print(f"the model is in {output}", highlight=False)


@app.command(epilog="Examples: `drnmf evaluate model test.csv`  ·  `drnmf evaluate model test.csv --save scores`")
def evaluate(
    model: ModelName,
    manifest: Annotated[Path, typer.Argument(help="Manifest (CSV) of mixtures.")],
    metric: Annotated[list[str] | None, typer.Option(help="sdr, si_sdr, pesq, stoi; all that are installed.")] = None,
    save: Annotated[Path | None, typer.Option(help="Also write SAVE.csv, .json and .md.")] = None,
    every: Annotated[int, typer.Option(help="Take every n-th mixture.", min=1)] = 1,
    jobs: Jobs = _CORES,
) -> None:
    """Enhance the mixtures of a manifest with a model and score the result."""
    from drnmf.data.batches import Dataset
    from drnmf.data.manifests import read_manifest
    from drnmf.models.folders import load_model
    from drnmf.use.evaluation import evaluate as run

    with _progress() as progress:
        dataset = Dataset(read_manifest(manifest)[::every], progress=progress)
        mixtures = ((m.id, m.snr_db, *dataset.waveforms(m)) for m in dataset.items())
        table = run(load_model(model), mixtures, metrics=metric, jobs=jobs, total=len(dataset), progress=progress)
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
    from drnmf.use.evaluation import score_files

    with _progress() as progress:
        table = score_files(estimates, references, noisy=noisy, metrics=metric, jobs=jobs, progress=progress)
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


@app.command(
    epilog="Examples: `drnmf reproduce waspaa2017 --data corpus -o runs`  ·  `... --only 10/drnmf --list`  ·  "
    "`... --table`"
)
def reproduce(
    experiment: Annotated[str, typer.Argument(help="waspaa2017, the paper's.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for all runs and the tables.")],
    data: Annotated[Path | None, typer.Option(help="Folder of manifests (train.csv, ...), or a CHiME2 tree.")] = None,
    recipe: Annotated[str, typer.Option(help="paper: the paper's settings; tuned: chosen on dev.")] = "paper",
    size: Annotated[list[int] | None, typer.Option(help="Percent of the training set: 10, 100; both.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Part of a cell's name, such as 10/drnmf; * is known.")] = None,
    ablations: Annotated[bool, typer.Option("--ablations", help="Also the ablations, on 10 %.")] = False,
    seed: Seed = 2016,
    epochs: Annotated[int | None, typer.Option(help="Most epochs, instead of the recipe's.")] = None,
    train_only: Annotated[bool, typer.Option("--train-only", help="Score another time, or elsewhere.")] = False,
    list_cells: Annotated[bool, typer.Option("--list", help="Show the cells and how far they are, and end.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Make the tables of what is there, and end.")] = False,
    jobs: Annotated[int, typer.Option(help="Trainings side by side, and processes that score.", min=1)] = 1,
) -> None:
    """Train and score every model of the paper's table. The same command continues what was stopped."""
    import signal

    from drnmf.paper import runs as run
    from drnmf.paper.tables import write_report

    if experiment != "waspaa2017":
        raise InputError(f"there is no experiment {experiment!r}; known: waspaa2017")
    cells = run.choose_cells(recipe, sizes=size, seed=seed, with_ablations=ablations, only=only or ())
    if list_cells:
        for cell in cells:
            print(f"{cell.id:55} {run.state(cell, output)}")
        return
    if not table:
        if data is None:
            raise InputError("say with --data where the corpus is")
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's stop ends as Ctrl-C does
        corpus = run.Corpus.open(data)
        with _progress() as progress:
            run.train_cells(cells, corpus, output, epochs=epochs, jobs=jobs, progress=progress)
            if not train_only:
                run.score_cells(cells, corpus, output, jobs=jobs, progress=progress)
                run.measure_speed(cells, corpus, output)
    output.mkdir(parents=True, exist_ok=True)
    print(write_report(recipe, output), end="")


@app.command(epilog="Examples: `drnmf show model`  ·  `drnmf show model noisy.wav -o heard.png`")
def show(
    model: ModelName,
    file: Annotated[Path | None, typer.Argument(help="Sound file: draw what the model hears in it.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture: .png, .pdf or .svg.")] = Path("show.png"),
    start: Annotated[float, typer.Option(help="Where in the file to begin, in seconds.")] = 0.0,
    seconds: Annotated[float, typer.Option(help="How much of the file to draw, at most.")] = 60.0,
) -> None:
    """Draw the dictionaries of a model, layer by layer, or what it hears in a sound file."""
    from drnmf.models.folders import load_model
    from drnmf.pictures import show as pictures

    loaded, name = load_model(model), Path(model).name
    if file is None:
        figure = pictures.draw_model(loaded, name=name)
    else:
        figure = pictures.draw_file(loaded, file, name=name, start=start, seconds=seconds)
    pictures.save(figure, output)
    _stderr.print(f"the picture is {output}", highlight=False)


@app.command(epilog="Example: `drnmf export model -o model.onnx`; examples/stream_onnx.py runs it without drnmf")
def export(
    model: ModelName,
    output: Annotated[Path, typer.Option("-o", "--output", help="The ONNX file.")] = Path("model.onnx"),
) -> None:
    """Write a model as an ONNX network that takes one frame: magnitude and state in, mask and next state out."""
    from drnmf.models.folders import load_model
    from drnmf.use.export import export as run

    run(load_model(model), output)
    _stderr.print(f"{output}: {output.stat().st_size / 1e6:.1f} MB", highlight=False)


@app.command(epilog="Examples: `drnmf live`  ·  `drnmf live --devices`  ·  `drnmf live --input 2 --output 'USB'`")
def live(
    model: ModelName = "default",
    input_device: Annotated[str | None, typer.Option("--input", help="Number or part of a device's name.")] = None,
    output_device: Annotated[str | None, typer.Option("--output", help="Number or part of a device's name.")] = None,
    rate: Annotated[int | None, typer.Option(help="Sample rate in Hz; the device's own. 16000 is fastest.")] = None,
    channels: Annotated[int, typer.Option(help="1, or 2 for stereo.", min=1)] = 1,
    block: Annotated[float, typer.Option(help="Milliseconds of sound taken at a time.")] = 8.0,
    strength: Annotated[float, typer.Option(help="How much of the noise to remove, 0 to 1.")] = 1.0,
    devices: Annotated[bool, typer.Option("--devices", help="List the sound devices and end.")] = False,
) -> None:
    """Enhance what a microphone hears, live, into the speakers or another device, until Ctrl-C."""
    from drnmf.use import live as sound

    if devices:
        print(sound.devices())
        return
    sound.run(
        model,
        input_device=input_device,
        output_device=output_device,
        sample_rate=rate,
        channels=channels,
        block_ms=block,
        strength=strength,
        console=_stderr,
    )


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar for each kind of work that reports itself as (what, done, total)."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    tasks = {}
    with rich.progress.Progress(*columns, console=_stderr, transient=True, disable=not _stderr.is_terminal) as bars:

        def report(what: str, done: int, total: int) -> None:
            kind = what.partition(",")[0]
            if kind not in tasks:
                tasks[kind] = bars.add_task(what)
            bars.update(tasks[kind], description=what, completed=done, total=total or None, visible=done != total)

        yield report


def _tell(table: "Table", save: Path | None) -> None:
    print(table.text(), end="")
    if save is not None:
        for suffix, text in ((".csv", table.csv()), (".json", table.json()), (".md", table.markdown())):
            Path(f"{save}{suffix}").write_text(text)
    if table.failures:
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
