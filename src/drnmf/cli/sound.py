"""Commands that enhance: `enhance` and `live`."""

import logging
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from drnmf.cli import terminal
from drnmf.cli.base import MODEL, Jobs, MaxAttenuation, ModelName, Overwrite, Quiet, SeparateChannels, Strength, app
from drnmf.errors import InputError
from drnmf.parallel import stop_like_ctrl_c, use_one_thread

_LOUDNESS = "Bring the result to this loudness, such as -16 for podcasts. [default: the speech's own]"
_SAMPLE = "Learn your noise from a file of it, a few seconds. Repeat for several."
_BETWEEN = "Learn it from the recording, where nobody speaks, such as 0:00 0:03."
_LEARN = "Learn it from all parts of each recording in which nobody speaks."
_OUTPUT = "File, FOLDER/, or - for stdout. [default: noisy.enhanced.wav beside noisy.wav]"


@app.command(
    epilog="Examples: `drnmf enhance noisy.wav`  ·  `drnmf enhance recordings/ -o clean/ --jobs 4`  ·  "
    "`drnmf enhance podcast.mp3 --loudness -16`  ·  `drnmf enhance noisy.wav --noise-sample fan.wav`  ·  "
    "`sox noisy.wav -t wav - | drnmf enhance - > clean.wav`"
)
def enhance(
    inputs: Annotated[list[Path], typer.Argument(metavar="IN", help="Sound files, folders, or - for stdin.")],
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="PATH", help=_OUTPUT)] = None,
    model: Annotated[str, typer.Option("-m", "--model", help=MODEL)] = "default",
    strength: Strength = 1.0,
    max_attenuation: MaxAttenuation = None,
    separate_channels: SeparateChannels = False,
    loudness: Annotated[float | None, typer.Option(metavar="LUFS", help=_LOUDNESS, min=-60, max=-5)] = None,
    true_peak: Annotated[
        float, typer.Option(metavar="DBTP", help="With --loudness: the limit of peaks.", min=-20, max=0)
    ] = -1.0,
    noise_sample: Annotated[list[Path] | None, typer.Option(metavar="FILE", help=_SAMPLE)] = None,
    noise_between: Annotated[tuple[str, str] | None, typer.Option(metavar="FROM TO", help=_BETWEEN)] = None,
    learn_noise: Annotated[bool, typer.Option("--learn-noise", help=_LEARN)] = False,
    removed: Annotated[Path | None, typer.Option(help="Also write what is removed, to this file or folder.")] = None,
    noise: Annotated[Path | None, typer.Option(hidden=True)] = None,
    format: Annotated[str | None, typer.Option(help="wav, flac, ogg, mp3, ... [default: the input's format]")] = None,
    overwrite: Overwrite = False,
    jobs: Jobs = 1,
    engine: Annotated[str, typer.Option(help="processes on this machine, or ray: a whole cluster.")] = "processes",
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

    use_one_thread()
    stop_like_ctrl_c()
    if noise is not None:
        terminal.say("--noise is now called --removed; the old name will go with the next release", logging.WARNING)
        removed = removed or noise
    if raw and Path(PIPE) in inputs and rate is None:
        raise InputError("--raw input needs --rate, and --channels unless it is mono")
    suffix = folders.suffix_of(format)
    settings: dict[str, Any] = {"strength": strength, "max_attenuation": max_attenuation}
    settings |= {"separate_channels": separate_channels, "overwrite": overwrite}
    settings |= {"loudness": loudness, "true_peak": true_peak}
    settings |= {"noise_samples": noise_sample or [], "learn_noise": learn_noise}
    if noise_between is not None:
        if len(inputs) > 1 or inputs[0].is_dir():
            raise InputError("--noise-between is for one recording; for several, use --noise-sample or --learn-noise")
        settings["noise_between"] = (_seconds(noise_between[0]), _seconds(noise_between[1]))
    target, is_folder = folders.target(inputs, output, suffix)
    if not is_folder:
        if suffix not in (None, target.suffix.lower()) or shard is not None:
            raise InputError("--format and --shard are for several files; for one, -o names the format")
        settings |= {"raw": (rate or 0, channels) if raw else None, "removed": removed}
        with terminal.progress() as progress:
            enhance_file(inputs[0], target, model, **settings, progress=progress)
        if output is None and str(target) != PIPE:
            terminal.say(f"the enhanced sound is {target}")
        return
    tasks = folders.plan(inputs, target, removed=removed, suffix=suffix)
    tasks = tasks if shard is None else folders.shard(tasks, shard)
    with terminal.progress() as progress:
        result = folders.enhance_tree(tasks, model, **settings, jobs=jobs, engine=engine, progress=progress)
    level = logging.WARNING if result.failures else logging.INFO
    terminal.say(folders.summary(result, folders.others(inputs, target, removed)), level)
    if result.failures:
        raise typer.Exit(1)


def _seconds(time: str) -> float:
    """A time as people write it: seconds, m:ss or h:mm:ss, the last with decimals if they like."""
    if not re.fullmatch(r"(\d+:[0-5]?\d:[0-5]?\d|\d+:[0-5]?\d|\d+)(\.\d*)?", time, re.ASCII):
        raise InputError(f"{time!r} is no time; write seconds, m:ss or h:mm:ss, such as 83.5 or 1:23.5")
    seconds = 0.0
    for part in time.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


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
    learn_noise: Annotated[
        float, typer.Option(metavar="SECONDS", help="Learn the noise from the first seconds, such as 3; do not speak.")
    ] = 0.0,
    keep_learning: Annotated[
        bool, typer.Option("--keep-learning", help="Learn the noise wherever nobody speaks.")
    ] = False,
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
    settings |= {"separate_channels": separate_channels, "learn_noise": learn_noise, "keep_learning": keep_learning}
    console = terminal.stderr if terminal.talks() else Console(quiet=True)
    sound.run(model, *pair, rate, channels=channels, block_ms=block, console=console, **settings)
