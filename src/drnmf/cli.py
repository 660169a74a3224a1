"""The command `drnmf`."""

import io
import logging
import os
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import drnmf
from drnmf.errors import DivergedError, InputError, needing_pytorch
from drnmf.files import check_place, make_folder, write_together
from drnmf.parallel import stop_like_ctrl_c
from drnmf.progress import Progress, bars

if TYPE_CHECKING:
    from drnmf.use.evaluation import Table

app = typer.Typer(
    help="Deep recurrent NMF for speech separation.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
_stderr = Console(stderr=True)
log = logging.getLogger("drnmf")
_CORES = os.cpu_count() or 1

_MODEL = "A model's folder, or the bundled model: default."
_OUTPUT = "File, FOLDER/, or - for stdout. [default: noisy.enhanced.wav beside noisy.wav]"

ModelName = Annotated[str, typer.Argument(help=_MODEL)]
Jobs = Annotated[int, typer.Option(help="Number of processes.", min=1)]
Seed = Annotated[int, typer.Option(help="Seed of the random choices.")]
Epochs = Annotated[int | None, typer.Option(help="Train for at most this many epochs, instead of the recipe's number.")]
Metric = Annotated[list[str] | None, typer.Option(help="sdr, si_sdr, pesq or stoi. Repeat for several. [default: all]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, unrounded, instead of a table.")]
Save = Annotated[Path | None, typer.Option(help="Also write the table to SAVE.csv, SAVE.json and SAVE.md.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]
Strength = Annotated[float, typer.Option(help="How much of the noise to remove, from 0 to 1.", min=0, max=1)]
MaxAttenuation = Annotated[
    float | None, typer.Option(metavar="DB", help="Lower no part of the spectrum by more dB, such as 12.", min=0)
]
SeparateChannels = Annotated[
    bool, typer.Option("--separate-channels", help="A mask for each channel, as for two microphones; else one for all.")
]


def _set_quiet(quiet: bool) -> None:
    """What is only told is told at level INFO; a bar looks at the level, too."""
    log.setLevel(logging.WARNING if quiet else logging.INFO)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"drnmf {drnmf.__version__}")
        raise typer.Exit


Quiet = Annotated[
    bool,
    typer.Option("-q", "--quiet", help="Say nothing but results and errors.", callback=_set_quiet, expose_value=False),
]


def main() -> None:
    """Run the command line; a mistake is one line and exit status 2, a run that diverged is 3, Ctrl-C is 130."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: names of files need not be UTF-8
    try:
        with needing_pytorch("this command"):
            app()
    except (InputError, DivergedError) as error:
        _stderr.print(f"drnmf: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        sys.exit(2 if isinstance(error, InputError) else 3)
    except OSError as error:  # what the system refuses: a name that is too long, a folder one may not look into
        if error.filename is None:
            raise
        _say(f"drnmf: {error.filename}: {error.strerror}", logging.ERROR)
        sys.exit(2)


@app.callback()
def _all_commands(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command(
    epilog="Examples: `drnmf enhance noisy.wav`  ·  `drnmf enhance recordings/ -o clean/ --jobs 4`  ·  "
    "`sox noisy.wav -t wav - | drnmf enhance - > clean.wav`"
)
def enhance(
    inputs: Annotated[list[Path], typer.Argument(metavar="IN", help="Sound files, folders, or - for stdin.")],
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="PATH", help=_OUTPUT)] = None,
    model: Annotated[str, typer.Option("-m", "--model", help=_MODEL)] = "default",
    strength: Strength = 1.0,
    max_attenuation: MaxAttenuation = None,
    separate_channels: SeparateChannels = False,
    removed: Annotated[Path | None, typer.Option(help="Also write what is removed, to this file or folder.")] = None,
    noise: Annotated[Path | None, typer.Option(hidden=True)] = None,
    format: Annotated[str | None, typer.Option(help="wav, flac, ogg, mp3, ... [default: the input's format]")] = None,
    overwrite: Overwrite = False,
    jobs: Jobs = 1,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Do only part I of N of the files.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Sound on - is 16-bit PCM without a header, not WAV.")] = False,
    rate: Annotated[int | None, typer.Option(help="Sample rate of --raw input in Hz.")] = None,
    channels: Annotated[int, typer.Option(help="Number of channels of --raw input.", min=1)] = 1,
    quiet: Quiet = False,
) -> None:
    """Remove noise from sound files, from whole folders of them, or from a pipe.

    In folders, files that have been written before are skipped: a run that was stopped continues.
    """
    from drnmf.use import folders
    from drnmf.use.files import PIPE, enhance_file
    from drnmf.use.streaming import use_one_thread

    use_one_thread()
    stop_like_ctrl_c()
    if noise is not None:
        _say("--noise is now called --removed; the old name will go with the next release", logging.WARNING)
        removed = removed or noise
    if raw and Path(PIPE) in inputs and rate is None:
        raise InputError("--raw input needs --rate, and --channels unless it is mono")
    suffix = folders.suffix_of(format)
    settings: dict[str, Any] = {"strength": strength, "max_attenuation": max_attenuation}
    settings |= {"separate_channels": separate_channels, "overwrite": overwrite}
    target, is_folder = folders.target(inputs, output, suffix)
    if not is_folder:
        if suffix not in (None, target.suffix.lower()) or shard is not None:
            raise InputError("--format and --shard are for several files; for one, -o names the format")
        settings |= {"raw": (rate or 0, channels) if raw else None, "removed": removed}
        with _progress() as progress:
            enhance_file(inputs[0], target, model, **settings, progress=progress)
        if output is None and str(target) != PIPE:
            _say(f"the enhanced sound is {target}")
        return
    tasks = folders.plan(inputs, target, removed=removed, suffix=suffix)
    tasks = tasks if shard is None else folders.shard(tasks, shard)
    with _progress() as progress:
        result = folders.enhance_tree(tasks, model, **settings, jobs=jobs, progress=progress)
    level = logging.WARNING if result.failures else logging.INFO
    _say(folders.summary(result, folders.others(inputs, target, removed)), level)
    if result.failures:
        raise typer.Exit(1)


@app.command(
    epilog="Examples: `drnmf train recipe.toml -o model`  ·  `drnmf train --speech voices/ --noise home/ -o model`"
)
def train(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe (TOML) that holds all settings.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the run and its model.")] = ...,  # type: ignore[assignment]
    speech: Annotated[Path | None, typer.Option(help="Folder of clean speech, instead of a recipe.")] = None,
    noise: Annotated[Path | None, typer.Option(help="Folder of noise recordings, with --speech.")] = None,
    rooms: Annotated[Path | None, typer.Option(help="Folder of room impulse responses, with --speech.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="Model to train further, with --speech.")] = None,
    devices: Annotated[int | None, typer.Option(help="Number of GPUs or processes, instead of the recipe's.")] = None,
    epochs: Epochs = None,
    quiet: Quiet = False,
) -> None:
    """Train a model, by a recipe or from two folders of sound. The same command continues a run that was stopped."""
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
    settings = settings.replace(training={key: value for key, value in changes.items() if value is not None})
    with _progress() as progress:
        run(settings, output, progress=progress)
    _say(f"the model is in {output}")


@app.command(epilog="Examples: `drnmf evaluate model test.csv`  ·  `drnmf evaluate model test.csv --save scores`")
def evaluate(
    model: ModelName,
    manifest: Annotated[Path, typer.Argument(help="Manifest (CSV) of mixtures.")],
    metric: Metric = None,
    save: Save = None,
    every: Annotated[int, typer.Option(metavar="N", help="Score only every N-th mixture.", min=1)] = 1,
    as_json: AsJson = False,
    jobs: Jobs = _CORES,
    quiet: Quiet = False,
) -> None:
    """Enhance the mixtures of a manifest with a model, and score the result."""
    from drnmf.data.batches import Dataset
    from drnmf.data.manifests import read_manifest
    from drnmf.models.folders import load_model
    from drnmf.use.evaluation import evaluate as run

    if save is not None:
        check_place(save)
    stop_like_ctrl_c()
    with _progress() as progress:
        dataset = Dataset(read_manifest(manifest)[::every], progress=progress)
        mixtures = ((m.id, m.snr_db, *dataset.waveforms(m)) for m in dataset.items())
        table = run(load_model(model), mixtures, metrics=metric, jobs=jobs, total=len(dataset), progress=progress)
    _show(table, save, as_json)


@app.command(epilog="Example: `drnmf score enhanced/ clean/ --noisy noisy/`")
def score(
    estimates: Annotated[Path, typer.Argument(help="Sound file or folder to score.")],
    references: Annotated[Path, typer.Argument(help="The clean file, or a folder of clean files of the same names.")],
    noisy: Annotated[Path | None, typer.Option(help="The noisy input, to show the improvement.")] = None,
    metric: Metric = None,
    save: Save = None,
    as_json: AsJson = False,
    jobs: Jobs = _CORES,
    quiet: Quiet = False,
) -> None:
    """Score sound files against their clean references."""
    from drnmf.use.evaluation import score_files

    if save is not None:
        check_place(save)
    stop_like_ctrl_c()
    with _progress() as progress:
        table = score_files(estimates, references, noisy=noisy, metrics=metric, jobs=jobs, progress=progress)
    _show(table, save, as_json)


@app.command(
    epilog="Examples: `drnmf mix voices/ home/ -o train.csv`  ·  `drnmf mix voices/ home/ --rooms rirs/ -o pairs/`"
)
def mix(
    speech: Annotated[Path, typer.Argument(help="Folder of clean speech.")],
    noise: Annotated[Path, typer.Argument(help="Folder of noise recordings.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Manifest (.csv), or folder for noisy/ and clean/.")],
    rooms: Annotated[Path | None, typer.Option(help="Folder of room impulse responses.")] = None,
    count: Annotated[int | None, typer.Option(help="Mixtures to draw. [default: one an utterance]", min=1)] = None,
    snr: Annotated[list[float] | None, typer.Option(help="SNR in dB. Repeat for several. [default: -6 to 9]")] = None,
    level: Annotated[tuple[float, float], typer.Option(help="Range of speech levels in dBFS.")] = (-33.0, -25.0),
    seed: Seed = 2016,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Draw random mixtures of speech and noise: a manifest of them, or the sound files themselves."""
    from drnmf.data.folders import SNRS_DB, Pool
    from drnmf.data.manifests import write_manifest, write_mixtures
    from drnmf.data.recordings import Recordings, scan

    written = [output] if output.suffix == ".csv" else [output / "noisy", output / "clean"]
    for path in written:
        if os.path.exists(path) and not overwrite:
            raise InputError(f"{path}: exists already; choose another name, or use --overwrite")
    pool = replace(Pool.from_folders(speech, noise, rooms), snrs_db=tuple(snr or SNRS_DB), levels_dbfs=level)
    with _progress() as progress:
        sizes = scan(pool.files, progress=progress)
        pool.check_fit(sizes)
        mixtures = pool.draw(sizes, seed=seed, count=count)
        if output.suffix == ".csv":
            write_manifest(output, mixtures)
        else:
            write_mixtures(output, mixtures, Recordings(sizes, in_memory=False), progress=progress)
    _say(f"{len(mixtures)} mixtures in {output}")


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
    seed: Seed = 2016,
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

    if experiment != "waspaa2017":
        raise InputError(f"there is no experiment {experiment!r}; known: waspaa2017")
    cells = run.choose_cells(recipe, sizes=size, seed=seed, with_ablations=ablations, only=only or ())
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
        with _progress() as progress:
            run.train_cells(cells, corpus, output, epochs=epochs, jobs=jobs, progress=progress)
            if not train_only:
                run.score_cells(cells, corpus, output, jobs=jobs, progress=progress)
                run.measure_speed(cells, corpus, output)
    make_folder(output)
    print(write_report(recipe, output)["json" if as_json else "txt"], end="")


@app.command(epilog="Examples: `drnmf show model`  ·  `drnmf show model noisy.wav -o heard.png`")
def show(
    model: ModelName,
    file: Annotated[Path | None, typer.Argument(help="Sound file, to draw what the model hears in it.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Picture: .png, .pdf or .svg.")] = Path("show.png"),
    start: Annotated[float, typer.Option(help="Second of the file at which to begin.")] = 0.0,
    seconds: Annotated[float, typer.Option(help="Draw at most this many seconds.")] = 60.0,
    size: Annotated[
        tuple[int, int] | None, typer.Option(help="Width and height in pixels, such as --size 1920 1080.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Draw the dictionaries of a model, layer by layer, or what it hears in a sound file."""
    from drnmf.models.folders import load_model
    from drnmf.pictures import show as pictures

    loaded, name = load_model(model), Path(model).name
    if file is None:
        figure = pictures.draw_model(loaded, name=name)
    else:
        figure = pictures.draw_file(loaded, file, name=name, start=start, seconds=seconds)
    pictures.save(figure, output, size=size)
    _say(f"the picture is {output}")


@app.command(epilog="Example: `drnmf export model -o model.onnx`; examples/stream_onnx.py runs it without drnmf")
def export(
    model: ModelName,
    output: Annotated[Path, typer.Option("-o", "--output", help="ONNX file to write.")] = Path("model.onnx"),
    quiet: Quiet = False,
) -> None:
    """Write a model as an ONNX network that takes one frame: magnitude and state in, mask and next state out."""
    from drnmf.models.folders import load_model
    from drnmf.use.export import export as run

    run(load_model(model), output)
    _say(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


@app.command(epilog="Examples: `drnmf live`  ·  `drnmf live --devices`  ·  `drnmf live --input 2 --output 'USB'`")
def live(
    model: ModelName = "default",
    input_device: Annotated[str | None, typer.Option("--input", help="Microphone: number or part of name.")] = None,
    output_device: Annotated[str | None, typer.Option("--output", help="Speakers: number or part of name.")] = None,
    rate: Annotated[int | None, typer.Option(help="Sample rate; 16000 is fastest. [default: the device's]")] = None,
    channels: Annotated[int, typer.Option(help="Number of channels: 1, or 2 for stereo.", min=1)] = 1,
    block: Annotated[float, typer.Option(help="Milliseconds of sound processed at a time.")] = 8.0,
    strength: Strength = 1.0,
    max_attenuation: MaxAttenuation = None,
    separate_channels: SeparateChannels = False,
    devices: Annotated[bool, typer.Option("--devices", help="List the sound devices, and exit.")] = False,
    quiet: Quiet = False,
) -> None:
    """Enhance what a microphone hears, live, into the speakers or another device, until Ctrl-C."""
    from drnmf.use import live as sound

    if devices:
        print(sound.devices())
        return
    pair = input_device, output_device
    settings: dict[str, Any] = {"strength": strength, "max_attenuation": max_attenuation}
    settings |= {"separate_channels": separate_channels}
    console = _stderr if log.isEnabledFor(logging.INFO) else Console(quiet=True)
    sound.run(model, *pair, rate, channels=channels, block_ms=block, console=console, **settings)


def _progress() -> AbstractContextManager[Progress]:
    return bars(_stderr, hidden=not _stderr.is_terminal or not log.isEnabledFor(logging.INFO))


def _show(table: "Table", save: Path | None, as_json: bool) -> None:
    """Print a table, save it if wanted, and end with status 1 if something could not be scored."""
    print(table.json() if as_json else table.text(), end="")
    if save is not None:
        forms = {".csv": table.csv(), ".json": table.json(), ".md": table.markdown()}
        write_together({Path(f"{save}{suffix}"): text for suffix, text in forms.items()})
    if table.failures:
        raise typer.Exit(1)


def _say(text: str, level: int = logging.INFO) -> None:
    """Tell the person who typed the command; stdout is for results."""
    if log.isEnabledFor(level):
        _stderr.print(text, highlight=False, soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
