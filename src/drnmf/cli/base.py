"""The command itself, which the other modules add to, and the options that several commands have."""

import os
from pathlib import Path
from typing import Annotated

import typer

import drnmf
from drnmf.cli import terminal

app = typer.Typer(
    help="Deep recurrent NMF for speech separation.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
CORES = os.cpu_count() or 1
MODEL = "A model's folder, or the bundled model: default."

ModelName = Annotated[str, typer.Argument(help=MODEL)]
Jobs = Annotated[int, typer.Option(help="Number of processes.", min=1)]
Seed = Annotated[int, typer.Option(help="Seed of the random choices.")]
Epochs = Annotated[int | None, typer.Option(help="Train for at most this many epochs, instead of the recipe's number.")]
Metric = Annotated[
    list[str] | None,
    typer.Option(
        help="sdr, si_sdr, pesq, stoi, composite or dnsmos. Repeat for several. [default: the first four; for public "
        "test sets also composite]"
    ),
]
Dnsmos = Annotated[
    Path | None,
    typer.Option(envvar="DRNMF_DNSMOS", help="Folder of DNSMOS's networks, for the metric dnsmos."),
]
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
Quiet = Annotated[
    bool,
    typer.Option(
        "-q", "--quiet", help="Say nothing but results and errors.", callback=terminal.set_quiet, expose_value=False
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"drnmf {drnmf.__version__}")
        raise typer.Exit


@app.callback()
def _all_commands(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
