"""Commands that make data: `mix`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from drnmf.cli import terminal
from drnmf.cli.base import Overwrite, Quiet, Seed, app
from drnmf.errors import InputError


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
    with terminal.progress() as progress:
        sizes = scan(pool.files, progress=progress)
        pool.check_fit(sizes)
        mixtures = pool.draw(sizes, seed=seed, count=count)
        if output.suffix == ".csv":
            write_manifest(output, mixtures)
        else:
            write_mixtures(output, mixtures, Recordings(sizes, in_memory=False), progress=progress)
    terminal.say(f"{len(mixtures)} mixtures in {output}")
