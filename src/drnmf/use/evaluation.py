"""Scoring: pairs of estimate and reference -> one row for each -> a table by SNR.

`score_files` scores sound files, `evaluate` a model, both at 16 kHz, in `jobs` processes (`parallel.in_processes`).
A pair that cannot be scored becomes a Failure with its reason; the others are still scored.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from drnmf.errors import InputError
from drnmf.files import find_audio
from drnmf.models.base import Separator
from drnmf.parallel import in_processes
from drnmf.progress import Progress, silent
from drnmf.signal import audio
from drnmf.signal.composite import composite
from drnmf.signal.dnsmos import Listener
from drnmf.signal.metrics import ScoreWarning, check_pair, pesq, sdr, si_sdr, snr, stoi
from drnmf.signal.spectra import SAMPLE_RATE, istft, n_frames, stft
from drnmf.use.tables import render

USUAL = ("sdr", "si_sdr", "pesq", "stoi")
PUBLISHED = ("pesq", "composite", "stoi", "si_sdr", "sdr")  # what tables of public test sets have
METRICS = (*USUAL, "composite", "dnsmos")  # the last two give several scores each
_PACKAGES = {"pesq": "pesq", "stoi": "pystoi", "composite": "pesq", "dnsmos": "onnxruntime"}

Example = tuple[str, float | None, Tensor, Tensor]  # name, SNR in dB if known, noisy and clean (samples,) at 16 kHz


@dataclass(frozen=True)
class Row:
    """One scored pair; a score is None where the metric is not defined, and `notes` say why."""

    id: str
    snr_db: float | None
    scores: dict[str, float | None]
    noisy: dict[str, float | None] | None = None  # the scores of the noisy input
    loss: float | None = None  # mean over the pair's `cells` time-frequency cells of (mask * |X| - |Y|)^2
    cells: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A pair that could not be scored, and why in one line."""

    id: str
    reason: str


Task = tuple[str, Callable[[], Row]] | Failure  # what has failed already only passes through


@dataclass(frozen=True)
class Table:
    """Scored pairs and, in four forms, their means by SNR and overall."""

    rows: tuple[Row, ...]
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    def summary(self) -> list[dict[str, Any]]:
        """One line for each known SNR and a last one for "all": count, mean scores, improvement, mean loss."""
        levels = sorted({row.snr_db for row in self.rows if row.snr_db is not None})
        groups = [_means(db, [row for row in self.rows if row.snr_db == db]) for db in levels]
        return [*groups, _means("all", self.rows)]

    def json(self) -> str:
        """The summary, every row, every failure and the notes."""
        return json.dumps({"summary": self.summary(), **asdict(self)}, indent=2, allow_nan=False) + "\n"

    def csv(self) -> str:
        """The summary, unrounded; what is not defined stays empty."""
        lines = self.summary()
        return render([list(lines[-1]), *(line.values() for line in lines)], "csv")

    def markdown(self) -> str:
        """The summary, rounded, and a list of what could not be scored."""
        remarks = "".join(f"- {remark}\n" for remark in self._remarks())
        return render(self._cells(), "markdown") + ("\n" + remarks if remarks else "")

    def text(self) -> str:
        """The summary, rounded and aligned, and what could not be scored."""
        cells = self._cells()
        table = render(cells, "text", together=[_metric(str(key)) for key in cells[0]])
        return table + "".join(f"{remark}\n" for remark in self._remarks())

    def _cells(self) -> list[list[str | None]]:
        lines = self.summary()
        return [list(lines[-1]), *([_cell(key, value) for key, value in line.items()] for line in lines)]

    def _remarks(self) -> list[str]:
        notes = [f"{row.id}: {note}" for row in self.rows for note in row.notes]
        return [*self.notes, *notes, *(f"failed: {failure.id}: {failure.reason}" for failure in self.failures)]


def score_pair(
    id: str,
    estimate: Tensor,
    reference: Tensor,
    *noisy: Tensor,
    metrics: Sequence[str] = USUAL,
    dnsmos: Path | None = None,
) -> Row:
    """Score one estimate (..., samples) and, where given, the noisy input; scores are means over channels."""
    check_pair(estimate, reference)
    for x in noisy:
        check_pair(x, reference, name="noisy input")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ScoreWarning)
        after, *before = (_scores(metrics, x, reference, dnsmos) for x in (estimate, *noisy))
    notes = dict.fromkeys(str(warning.message) for warning in caught if warning.category is ScoreWarning)
    return Row(id, None, after, before[0] if before else None, notes=tuple(notes))


def score_files(
    estimates: Path | str,
    references: Path | str,
    *,
    noisy: Path | str | None = None,
    metrics: Sequence[str] | None = None,
    dnsmos: Path | None = None,
    jobs: int = 1,
    progress: Progress = silent,
) -> Table:
    """Score a file against a file, or a folder against a folder, paired by path below the folder or else by name.

    A reference without an estimate is a failure: without it the mean would be too good. With the `noisy` inputs the
    table shows the improvement, by SNR rounded to whole dB. `metrics` are some of METRICS, None for the usual ones that
    are installed, and for dnsmos where the folder of its networks is given.
    """
    metrics, notes = _choose(metrics, USUAL, dnsmos)
    scorer = partial(_score_paths, metrics=metrics, dnsmos=dnsmos)
    tasks = list(_file_tasks(Path(estimates), Path(references), None if noisy is None else Path(noisy), scorer))
    if all(isinstance(task, Failure) for task in tasks):
        raise InputError(f"no file in {estimates} goes by the name of one in {references}: nothing to score")
    return _run(tasks, jobs, len(tasks), progress, notes)


def evaluate(
    model: Separator,
    mixtures: Iterable[Example],
    *,
    metrics: Sequence[str] | None = None,
    usual: Sequence[str] = USUAL,
    dnsmos: Path | None = None,
    with_noisy: bool = True,
    batch_size: int = 8,
    jobs: int = 1,
    total: int = 0,
    progress: Progress = silent,
) -> Table:
    """Enhance every mixture with `model` on its device, score the result and the input, and take the loss.

    `metrics` are some of METRICS, None for the `usual` ones that are installed, and for dnsmos where the folder
    of its networks is given. The input, whose scores no model changes, is left out unless `with_noisy`.
    `batch_size` consecutive mixtures go through the model at once, while `jobs` processes score those before. `total`
    is their number, for `progress`.
    """
    metrics, notes = _choose(metrics, usual, dnsmos)
    scorer = partial(_score_waves, metrics=metrics, dnsmos=dnsmos)
    was_training = model.training
    try:
        tasks = _model_tasks(model.eval(), mixtures, batch_size, scorer, with_noisy)
        return _run(tasks, jobs, total, progress, notes)
    finally:
        model.train(was_training)


def _choose(
    metrics: Sequence[str] | None, usual: Sequence[str], dnsmos: Path | None
) -> tuple[Sequence[str], tuple[str, ...]]:
    """The metrics to compute, and a note on each that is left out because its package is not installed."""
    remedy = {metric: f"pip install {p}" for metric, p in _PACKAGES.items() if find_spec(p) is None}
    notes: tuple[str, ...] = ()
    if metrics is None:
        metrics = [m for m in usual if m not in remedy] + ([] if dnsmos is None else ["dnsmos"])
        notes = tuple(f"{m} left out: {remedy[m]}" for m in usual if m in remedy)
    elif dnsmos is None and "dnsmos" in metrics:
        raise InputError("dnsmos needs its networks: give --dnsmos, the folder of sig_bak_ovr.onnx")
    for metric in metrics:
        if metric not in METRICS:
            raise InputError(f"unknown metric {metric!r}: choose from {', '.join(METRICS)}")
        if metric in remedy:
            raise InputError(f"{metric} needs a package that is not installed: {remedy[metric]}")
    if dnsmos is not None and "dnsmos" in metrics:
        _listener(dnsmos)  # now: a folder without the networks is no failure of every pair
    return metrics, notes


_listener = cache(Listener)  # one for each process


def _scores(
    metrics: Sequence[str], estimate: Tensor, reference: Tensor, dnsmos: Path | None
) -> dict[str, float | None]:
    """Every score of a signal, None where it is not defined; the means over channels."""
    e, r = estimate.reshape(-1, estimate.shape[-1]), reference.reshape(-1, reference.shape[-1])
    channels = [_channel_scores(metrics, *pair, dnsmos) for pair in zip(e, r, strict=True)]
    means = {name: fmean(scores[name] for scores in channels) for name in channels[0]}
    return {name: None if math.isnan(value) else value for name, value in means.items()}


def _channel_scores(metrics: Sequence[str], e: Tensor, r: Tensor, dnsmos: Path | None) -> dict[str, float]:
    scores: dict[str, float] = {}
    for metric in metrics:
        if metric == "composite":
            scores |= composite(e, r, wide_pesq=scores.get("pesq"))
        elif metric == "dnsmos":
            assert dnsmos is not None
            scores |= _listener(dnsmos).score(e.numpy())
        elif metric in ("pesq", "stoi"):
            scores[metric] = (pesq if metric == "pesq" else stoi)(e, r)
        else:
            scores[metric] = (sdr if metric == "sdr" else si_sdr)(e, r).item()
    return scores


def _file_tasks(
    estimates: Path, references: Path, noisy: Path | None, scorer: Callable[[str, Sequence[Path]], Row]
) -> Iterator[Task]:
    alone = estimates.stem if estimates.is_file() else None  # a file goes with a file, whatever their names
    truths, inputs = _index(references, alone), {} if noisy is None else _index(noisy, alone)
    used = set()
    for id, path in _index(estimates).items():
        reference, before = _find(id, truths), _find(id, inputs)
        used.add(reference)
        if reference is None or (noisy is not None and before is None):
            yield Failure(id, f"{path}: no file of that name in {references if reference is None else noisy}")
        else:
            paths = [path, reference] if before is None else [path, reference, before]
            yield id, partial(scorer, id, paths)
    if alone is None:
        yield from (Failure(id, f"{path}: no estimate for it") for id, path in truths.items() if path not in used)


def _index(path: Path, alone: str | None = None) -> dict[str, Path]:
    """Sound files by their path below `path`, without suffix; a single file by the name `alone`, or its own."""
    if path.is_file():
        return {alone or path.stem: path}
    index: dict[str, Path] = {}
    for file in find_audio(path):
        key = file.relative_to(path).with_suffix("").as_posix()
        if index.setdefault(key, file) != file:
            raise InputError(f"{file}: which one to score, this or {index[key].name}? Move one of them away")
    return index


def _find(id: str, index: dict[str, Path]) -> Path | None:
    """The file at that path, or else the only one of that name."""
    name = id.rpartition("/")[2]
    keys = [id] if id in index else [key for key in index if key.rpartition("/")[2] == name]
    return index[keys[0]] if len(keys) == 1 else None


def _score_paths(id: str, paths: Sequence[Path], metrics: Sequence[str], dnsmos: Path | None) -> Row:
    estimate, clean, *noisy = (audio.read(path, sample_rate=SAMPLE_RATE)[0] for path in paths)
    row = score_pair(id, estimate, clean, *noisy, metrics=metrics, dnsmos=dnsmos)
    snr_db = float(round(snr(noisy[0], clean).mean().item())) if noisy else None
    rates = [(path, audio.info(path).rate) for path in paths]
    resampled = tuple(f"{path}: resampled from {rate} Hz" for path, rate in rates if rate != SAMPLE_RATE)
    return replace(row, snr_db=snr_db, notes=resampled + row.notes)


def _model_tasks(
    model: Separator, mixtures: Iterable[Example], batch_size: int, scorer: Callable[..., Row], with_noisy: bool
) -> Iterator[Task]:
    remaining = iter(mixtures)
    while batch := list(islice(remaining, batch_size)):
        sound = []
        for mixture in batch:
            try:
                check_pair(mixture[2], mixture[3], name="noisy input")
                if mixture[2].ndim != 1:
                    raise InputError(f"a mixture must be (samples,), got {tuple(mixture[2].shape)}: pass one channel")
                sound.append(mixture)
            except InputError as error:
                yield Failure(mixture[0], str(error))
        for (id, snr_db, noisy, clean), (estimate, loss, cells) in zip(sound, _enhance(model, sound), strict=True):
            # as arrays, because tensors would travel through shared memory, one open file each
            waves = [wave.cpu().numpy() for wave in (estimate, clean, *([noisy] if with_noisy else []))]
            yield id, partial(scorer, id, waves, snr_db=snr_db, loss=loss, cells=cells)


@torch.inference_mode()
def _enhance(model: Separator, mixtures: list[Example]) -> list[tuple[Tensor, float, int]]:
    """Enhanced waveform, loss and number of time-frequency cells of each mixture.

    Shorter ones are followed by zeros. Models are causal and `stft` adds zeros anyway, so this changes nothing.
    """
    if not mixtures:
        return []
    _, _, noisy, clean = zip(*mixtures, strict=True)
    X, Y = (stft(pad_sequence(list(waves), batch_first=True).to(model.like)) for waves in (noisy, clean))
    mask, _ = model(X.abs())
    errors = (mask * X.abs() - Y.abs()).square()
    results = []
    for S, error, length in zip(mask * X, errors, map(len, noisy), strict=True):
        T = n_frames(length)
        results.append((istft(S[:T], length), error[:T].double().mean().item(), error[:T].numel()))
    return results


def _score_waves(
    id: str, waves: Sequence[audio.Samples], metrics: Sequence[str], dnsmos: Path | None, **known: Any
) -> Row:
    return replace(score_pair(id, *map(torch.from_numpy, waves), metrics=metrics, dnsmos=dnsmos), **known)


def _run(tasks: Iterable[Task], jobs: int, total: int, progress: Progress, notes: tuple[str, ...]) -> Table:
    results = {}
    for number, result in in_processes(_attempt, tasks, jobs):
        results[number] = result
        progress("scoring", len(results), total)
    ordered = [results[number] for number in sorted(results)]
    failures = tuple(result for result in ordered if isinstance(result, Failure))
    return Table(tuple(result for result in ordered if isinstance(result, Row)), failures, notes)


def _attempt(task: Task, progress: Progress) -> Row | Failure:
    if isinstance(task, Failure):
        return task
    try:
        return task[1]()
    except InputError as error:
        return Failure(task[0], str(error))


def _means(label: float | str, rows: Sequence[Row]) -> dict[str, Any]:
    """Each metric's means are over the pairs for which it is defined, the same for noisy and estimate."""
    line: dict[str, Any] = {"snr_db": label, "count": len(rows)}
    for metric in rows[0].scores if rows else ():
        scores = [(row.scores[metric], (row.noisy or row.scores)[metric]) for row in rows]
        pairs = [(after, before) for after, before in scores if after is not None and before is not None]
        if rows[0].noisy is not None:
            line[f"{metric}_noisy"] = fmean(before for _, before in pairs) if pairs else None
        line[metric] = fmean(after for after, _ in pairs) if pairs else None
        if rows[0].noisy is not None:
            line[f"{metric}_improvement"] = fmean(after - before for after, before in pairs) if pairs else None
    if rows and rows[0].loss is not None:
        line["loss"] = sum((row.loss or 0) * row.cells for row in rows) / sum(row.cells for row in rows)
    return line


def _metric(key: str) -> str:
    """Whose column it is."""
    return key.removesuffix("_noisy").removesuffix("_improvement")


def _cell(key: str, value: float | str | None) -> str | None:
    if value is None:
        return None
    if key in ("snr_db", "count"):
        return f"{value:g}" if isinstance(value, float) else str(value)
    digits = 6 if key == "loss" else 3 if key.startswith("stoi") else 2
    return f"{value:+z.{digits}f}" if key.endswith("_improvement") else f"{value:.{digits}f}"
