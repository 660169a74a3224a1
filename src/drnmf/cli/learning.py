"""Commands that make a model and judge it: `train`, `adapt`, `evaluate` and `score`."""

from pathlib import Path
from typing import Annotated

import typer

from drnmf.cli import terminal
from drnmf.cli.base import CORES, AsJson, Dnsmos, Epochs, Jobs, Metric, ModelName, Overwrite, Quiet, Save, app
from drnmf.errors import InputError
from drnmf.files import check_place
from drnmf.parallel import stop_like_ctrl_c


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
    nodes: Annotated[int | None, typer.Option(help="Number of machines, instead of the recipe's.")] = None,
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
    changes = {"devices": devices, "nodes": nodes, "max_epochs": epochs}
    settings = settings.replace(training={key: value for key, value in changes.items() if value is not None})
    with terminal.progress() as progress:
        run(settings, output, progress=progress)
    terminal.say(f"the model is in {output}")


@app.command(
    epilog="Examples: `drnmf adapt default --noise fan.wav -o fan_model`  ·  "
    "`drnmf adapt default --noise mill.wav --noise street.wav -o my_model`"
)
def adapt(
    model: ModelName,
    noise: Annotated[
        list[Path], typer.Option(metavar="FILE", help="A few seconds of your noise alone. Repeat for several.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the model.")],
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Teach a model your own noise, from a few seconds of it: a new model, in a second, without training."""
    from drnmf.models.folders import check_new, save_model
    from drnmf.use.adaptation import adapt_to_files

    check_new(output, model, overwrite)
    save_model(adapt_to_files(model, noise), output)
    terminal.say(f"the model is in {output}")


@app.command(
    epilog="Examples: `drnmf evaluate model test.csv --save scores`  ·  `drnmf evaluate default --voicebank VoiceBank/`"
)
def evaluate(
    model: ModelName,
    manifest: Annotated[Path | None, typer.Argument(help="Manifest (CSV) of mixtures.")] = None,
    voicebank: Annotated[
        Path | None, typer.Option(help="VoiceBank+DEMAND: the folder of clean_testset_wav and noisy_testset_wav.")
    ] = None,
    dns: Annotated[Path | None, typer.Option(help="DNS challenge's synthetic test set: its folder.")] = None,
    metric: Metric = None,
    dnsmos: Dnsmos = None,
    save: Save = None,
    every: Annotated[int, typer.Option(metavar="N", help="Score only every N-th mixture.", min=1)] = 1,
    as_json: AsJson = False,
    jobs: Jobs = CORES,
    quiet: Quiet = False,
) -> None:
    """Enhance the mixtures of a manifest, or of a public test set, with a model, and score the result."""
    from drnmf.data.batches import Dataset
    from drnmf.data.manifests import read_manifest
    from drnmf.data.testsets import read_dns, read_voicebank
    from drnmf.models.folders import load_model
    from drnmf.use import evaluation

    given = [(read, path) for read, path in ((read_voicebank, voicebank), (read_dns, dns)) if path is not None]
    if len(given) + (manifest is not None) != 1:
        raise InputError("give one of these: a manifest, --voicebank, --dns")
    if save is not None:
        check_place(save)
    stop_like_ctrl_c()
    usual = evaluation.PUBLISHED if given else evaluation.USUAL
    with terminal.progress() as progress:
        items = [*read_manifest(manifest)] if manifest is not None else [*given[0][0](given[0][1])]
        dataset = Dataset(items[::every], progress=progress)
        mixtures = ((m.id, m.snr_db, *dataset.waveforms(m)) for m in dataset.items())
        table = evaluation.evaluate(
            load_model(model),
            mixtures,
            metrics=metric,
            usual=usual,
            dnsmos=dnsmos,
            jobs=jobs,
            total=len(dataset),
            progress=progress,
        )
    terminal.show_table(table, save, as_json)


@app.command(epilog="Example: `drnmf score enhanced/ clean/ --noisy noisy/`")
def score(
    estimates: Annotated[Path, typer.Argument(help="Sound file or folder to score.")],
    references: Annotated[Path, typer.Argument(help="The clean file, or a folder of clean files of the same names.")],
    noisy: Annotated[Path | None, typer.Option(help="The noisy input, to show the improvement.")] = None,
    metric: Metric = None,
    dnsmos: Dnsmos = None,
    save: Save = None,
    as_json: AsJson = False,
    jobs: Jobs = CORES,
    quiet: Quiet = False,
) -> None:
    """Score sound files against their clean references."""
    from drnmf.use.evaluation import score_files

    if save is not None:
        check_place(save)
    stop_like_ctrl_c()
    with terminal.progress() as progress:
        table = score_files(
            estimates, references, noisy=noisy, metrics=metric, dnsmos=dnsmos, jobs=jobs, progress=progress
        )
    terminal.show_table(table, save, as_json)
