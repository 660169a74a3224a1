"""Commands that make data: `mix` and `corpus`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from drnmf.cli import terminal
from drnmf.cli.base import Overwrite, Quiet, Seed, app
from drnmf.errors import InputError
from drnmf.parallel import stop_like_ctrl_c


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


@app.command(
    epilog="Example: `drnmf corpus --librispeech LibriSpeech/ --esc50 ESC-50-master/ --noise games/ -o corpus`"
)
def corpus(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the corpus.")],
    librispeech: Annotated[list[Path], typer.Option(help="Folder of LibriSpeech, or of a subset. Repeat for several.")],
    esc50: Annotated[Path | None, typer.Option(help="Folder of ESC-50, with meta/esc50.csv.")] = None,
    noise: Annotated[list[Path] | None, typer.Option(help="Folder of other noise. Repeat for several.")] = None,
    rooms: Annotated[int, typer.Option(help="Rooms to simulate; 0 for none.", min=0)] = 240,
    track_seconds: Annotated[float, typer.Option(help="Length of a track of noise.", min=1, max=3600)] = 300.0,
    snr: Annotated[list[float] | None, typer.Option(help="SNR in dB. Repeat for several. [default: -6 to 9]")] = None,
    level: Annotated[tuple[float, float], typer.Option(help="Range of speech levels in dBFS.")] = (-33.0, -25.0),
    seed: Seed = 2016,
    quiet: Quiet = False,
) -> None:
    """Make a corpus to train on from public recordings: train.csv, dev.csv and test.csv, and all they name.

    No speaker, no recording of noise and no room is in two of the three. The same command goes on where it was stopped.
    """
    from drnmf.data import corpus as build
    from drnmf.data.folders import SNRS_DB
    from drnmf.data.sources import read_esc50, read_folder, read_librispeech, without_copies

    speech = [source for folder in librispeech for source in read_librispeech(folder)]
    noises = [] if esc50 is None else read_esc50(esc50)
    noises += [source for folder in noise or () for source in read_folder(folder)]
    if not noises:
        raise InputError("give noise, too: --esc50, --noise, or both")
    stop_like_ctrl_c()
    noises, copies = without_copies(noises)
    if copies:
        terminal.say(f"{len(copies)} recordings of noise are copies of others and left out, such as {copies[0].path}")
    plan = build.Plan(
        rooms=rooms, track_seconds=track_seconds, snrs_db=tuple(snr or SNRS_DB), levels_dbfs=level, seed=seed
    )
    with terminal.progress() as progress:
        counts = build.build(output, speech, noises, plan, progress=progress)
    terminal.say(f"{output}: {', '.join(f'{name}.csv with {count} mixtures' for name, count in counts.items())}")
