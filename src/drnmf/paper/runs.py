"""Run the paper's experiments: train and score the cells of its table, each in a folder of its own.

    FOLDER/RECIPE/SIZE/ROW/SEED/         one cell: a training run (see `drnmf.training`), then scores/SET.json
    FOLDER/dictionaries/                 steps 1 and 2, made once for all cells that start from the same
    FOLDER/speed-RECIPE.json             real-time factors, all measured in one run

A finished cell is kept, and one that was stopped is continued. Training needs no package for scoring and vice versa:
the two may happen on different machines.
"""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from drnmf.data.batches import Dataset
from drnmf.data.chime2 import read_chime2
from drnmf.data.manifests import read_manifest
from drnmf.data.mixing import Item
from drnmf.errors import DivergedError, InputError
from drnmf.files import make_folder, write_atomically
from drnmf.models.folders import CONFIG, load_model
from drnmf.models.kinds import MODELS
from drnmf.paper.waspaa2017 import RECIPES, ROWS, SEED, SIZES, Row, ablations, merged, pace, settings
from drnmf.parallel import end_with_parent
from drnmf.progress import Progress, silent
from drnmf.signal.spectra import SAMPLE_RATE, istft, stft
from drnmf.use.evaluation import evaluate

if TYPE_CHECKING:
    from drnmf.training.recipe import Recipe

log = logging.getLogger("drnmf")

SETS = ("dev", "test", "newhome", "unseen")
SUMMARY, DIVERGED = "summary.json", "diverged.json"


@dataclass(frozen=True)
class Cell:
    """One model of the table: a row, trained on `size` percent of the training set."""

    recipe: str
    size: int
    row: Row
    seed: int = SEED

    @property
    def id(self) -> str:
        """Its name, which is also its folder."""
        return f"{self.recipe}/{self.size}/{self.row.id}/{self.seed}"


@dataclass(frozen=True)
class Corpus:
    """A CHiME2 tree, or a folder of manifests: train.csv, dev.csv, test.csv, and newhome.csv and unseen.csv if any."""

    root: Path
    is_chime2: bool

    @classmethod
    def open(cls, root: Path | str) -> "Corpus":
        """Find out which of the two it is."""
        root = Path(root).resolve()
        if not (root / "train.csv").is_file():
            try:
                read_chime2(root, "dev")
            except InputError as error:
                raise InputError(f"{root}: has no train.csv, and is no CHiME2 tree either ({error})") from None
            return cls(root, True)
        for name in ("dev.csv", "test.csv"):
            if not (root / name).is_file():
                raise InputError(f"{root}: has train.csv but no {name}; drnmf mix writes one")
        return cls(root, False)

    def sets(self) -> list[str]:
        """The sets to score."""
        if self.is_chime2:
            return ["dev", "test"]
        return [name for name in SETS if (self.root / f"{name}.csv").is_file()]

    def items(self, name: str) -> Sequence[Item]:
        """The mixtures of a set."""
        return read_chime2(self.root, name) if self.is_chime2 else read_manifest(self.root / f"{name}.csv")

    def paths(self) -> dict[str, Any]:
        """What a recipe's [data] says of it."""
        if self.is_chime2:  # mixed already: there is nothing to mix anew
            return {"chime2": str(self.root), "fresh": False, "varied": False}
        return {"train": str(self.root / "train.csv"), "validation": str(self.root / "dev.csv")}


def choose_cells(
    recipe: str = "paper",
    *,
    sizes: Sequence[int] | None = None,
    seeds: Sequence[int] = (SEED,),
    with_ablations: bool = False,
    only: Sequence[str] = (),
) -> list[Cell]:
    """The cells of a recipe's table, by default of both `sizes`; all of one seed, then those of the next.

    `only` keeps those whose id has one of these as whole words: "n200" is not "n2000". The signs *, ? and [] match
    anything; "ablation" adds the ablations.
    """
    if recipe not in RECIPES:
        raise InputError(f"there is no recipe {recipe!r}; known: {', '.join(RECIPES)}")
    sizes = sizes or list(SIZES)
    if unknown := set(sizes) - set(SIZES):
        raise InputError(f"the training set comes in {' and '.join(map(str, SIZES))} %, not {unknown.pop()}")
    rows = [(size, row) for size in sizes for row in ROWS]
    if 10 in sizes and (with_ablations or any("ablation" in part for part in only)):
        rows += [(10, row) for row in ablations(recipe)]
    cells = [Cell(recipe, size, row, seed) for seed in dict.fromkeys(seeds) for size, row in rows]
    chosen = [cell for cell in cells if not only or any(_has(cell.id, part) for part in only)]
    if not chosen:
        raise InputError(f"no cell goes by {' or '.join(only)}; --list shows them")
    return chosen


def _has(id: str, pattern: str) -> bool:
    """Whether some words of an id in a row, which / and - part, match a pattern."""
    words = re.split("([/-])", id)
    starts = range(0, len(words), 2)
    runs = ("".join(words[i : j + 1]) for i in starts for j in starts if i <= j)
    return any(fnmatch(run, pattern.strip("/")) for run in runs)


def cell_recipe(cell: Cell, corpus: Corpus, *, epochs: int | None = None) -> "Recipe":
    """Everything that decides how a cell is trained; `epochs` bounds it further."""
    from drnmf.training.recipe import Recipe  # needs packages that scoring does not

    rate, most = pace(cell.recipe, cell.row, cell.size)
    training = {"learning_rate": rate, "max_epochs": most if epochs is None else epochs, "seed": cell.seed}
    data = {"subset": SIZES[cell.size], **corpus.paths()}
    tables = merged(settings(cell.recipe, cell.row), {"data": data, "training": training})
    return Recipe.from_tables(tables, cell.id)


def is_trained(cell: Cell, folder: Path) -> bool:
    """Whether there is nothing left to train."""
    kind = MODELS[settings(cell.recipe, cell.row)["model"]["kind"]]
    ends = (SUMMARY, DIVERGED) if kind.trainable else (SUMMARY, DIVERGED, CONFIG)
    return any((folder / cell.id / name).is_file() for name in ends)


def train_cell(
    cell: Cell, corpus: Corpus, folder: Path, *, epochs: int | None = None, progress: Progress = silent
) -> None:
    """Train a cell, or continue it. One that diverges keeps its best weights, and says so in diverged.json."""
    from drnmf.training.run import train  # needs packages that scoring does not

    log.info("training %s", cell.id)
    recipe = cell_recipe(cell, corpus, epochs=epochs)
    make_folder(folder / "dictionaries")
    try:
        train(recipe, folder / cell.id, dictionaries=_dictionaries(recipe, folder), progress=progress)
    except DivergedError as error:
        log.warning("%s: %s", cell.id, error)
        write_atomically(folder / cell.id / DIVERGED, json.dumps({"reason": str(error)}, indent=2).encode())


def train_cells(
    cells: Iterable[Cell],
    corpus: Corpus,
    folder: Path,
    *,
    epochs: int | None = None,
    jobs: int = 1,
    progress: Progress = silent,
) -> None:
    """Train the cells that are not trained yet, `jobs` of them side by side, each in a process of its own."""
    waiting = [cell for cell in cells if not is_trained(cell, folder)]
    if jobs == 1:
        for cell in waiting:
            train_cell(cell, corpus, folder, epochs=epochs, progress=progress)
        return
    dictionaries = {cell: _dictionaries(cell_recipe(cell, corpus), folder) for cell in waiting}
    running: dict[BaseProcess, Cell] = {}
    failed = []
    try:
        while waiting or running:
            for process in [process for process in running if not process.is_alive()]:
                cell = running.pop(process)
                log.info("%s: %s", cell.id, state(cell, folder))
                failed += [cell.id] if process.exitcode else []
            for cell in _ready(waiting, running.values(), dictionaries)[: jobs - len(running)]:
                waiting.remove(cell)
                process = get_context("spawn").Process(target=_train_alone, args=(cell, corpus, folder, epochs))
                process.start()
                running[process] = cell
            time.sleep(0.2)
    finally:  # Ctrl-C: what is running can be continued later
        for process in running:
            process.terminate()
            process.join()
    if failed:
        raise InputError(f"{', '.join(failed)}: could not be trained; the file log in each one's folder says why")


def _ready(waiting: Iterable[Cell], running: Iterable[Cell], dictionaries: dict[Cell, Path | None]) -> list[Cell]:
    """Those whose dictionaries are there, or are not being made by another."""
    making = {dictionaries[cell] for cell in running}
    ready = []
    for cell in waiting:
        path = dictionaries[cell]
        if path is None or path.is_file() or path not in making:
            ready.append(cell)
            making.add(path)
    return ready


def _train_alone(cell: Cell, corpus: Corpus, folder: Path, epochs: int | None) -> None:
    """The work of one process; what it says goes to the file `log`."""
    end_with_parent()
    make_folder(folder / cell.id)
    with (folder / cell.id / "log").open("a") as file:
        for stream in (1, 2):  # standard output and errors
            os.dup2(file.fileno(), stream)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)  # leave the other cores to the others
    try:
        train_cell(cell, corpus, folder, epochs=epochs)
    except InputError as error:
        log.error("%s", error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _dictionaries(recipe: "Recipe", folder: Path) -> Path | None:
    """Where the dictionaries of a recipe lie, which other cells may share."""
    from drnmf.training.dictionaries import dictionaries_name

    if MODELS[recipe.model.kind].from_dictionary is None:
        return None
    return folder / "dictionaries" / dictionaries_name(recipe)


def score_cells(
    cells: Iterable[Cell], corpus: Corpus, folder: Path, *, jobs: int = 1, progress: Progress = silent
) -> None:
    """Score the trained cells on the sets where they are not scored yet, with `jobs` processes."""
    trained = [cell for cell in cells if is_trained(cell, folder)]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name in corpus.sets():
        todo = [cell for cell in trained if not _scores(cell, folder, name).is_file()]
        if not todo:
            continue
        dataset = Dataset(corpus.items(name), device=device, progress=progress)
        for cell in todo:
            _score(cell, name, dataset, folder, jobs, progress)


def _score(cell: Cell, name: str, dataset: Dataset, folder: Path, jobs: int, progress: Progress) -> None:
    log.info("scoring %s on %s", cell.id, name)

    def count(what: str, done: int, total: int) -> None:
        progress(f"{what}, {cell.id} on {name}", done, total)

    mixtures = ((m.id, m.snr_db, *dataset.waveforms(m)) for m in dataset.items())
    metrics = None if name == "test" else ("sdr", "si_sdr")  # None: all; PESQ and STOI take most of the time
    model = load_model(folder / cell.id).to(dataset.device)
    noisy = not any(folder.glob(f"{cell.recipe}/*/*/*/scores/{name}.json"))  # the same for all: once is enough
    table = evaluate(model, mixtures, metrics=metrics, with_noisy=noisy, jobs=jobs, total=len(dataset), progress=count)
    for failure in table.failures:
        log.warning("%s on %s: %s: %s", cell.id, name, failure.id, failure.reason)
    make_folder(_scores(cell, folder, name).parent)
    write_atomically(_scores(cell, folder, name), table.json().encode())


def _scores(cell: Cell, folder: Path, name: str) -> Path:
    return folder / cell.id / "scores" / f"{name}.json"


def measure_speed(cells: Sequence[Cell], corpus: Corpus, folder: Path) -> None:
    """Real-time factors of a recipe's trained rows on one core, one after the other, if there is a new one among them.

    Each enhances the first mixture of dev as a whole, from waveform to waveform; the best of three.
    """
    path = folder / f"speed-{cells[0].recipe}.json"
    known = json.loads(path.read_text())["real_time_factor"] if path.is_file() else {}
    rows = {cell.row.id: cell for cell in cells if cell.row in ROWS and is_trained(cell, folder)}
    if set(rows) <= set(known):
        return
    dataset = Dataset(corpus.items("dev")[:1])
    noisy, _ = dataset.waveforms(dataset.items()[0])
    factors = {id: _real_time_factor(folder / cell.id, noisy) for id, cell in rows.items()}
    content = {"seconds": len(noisy) / SAMPLE_RATE, "real_time_factor": factors}
    write_atomically(path, json.dumps(content, indent=2))


@torch.inference_mode()
def _real_time_factor(path: Path, noisy: torch.Tensor) -> float:
    log.info("measuring the speed of %s", path)
    model, threads, times = load_model(path).freeze(), torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for _ in range(4):  # the first sets things up
            start = time.perf_counter()
            X = stft(noisy)
            istft(model(X.abs()[None])[0][0] * X, len(noisy))
            times.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return min(times[1:]) * SAMPLE_RATE / len(noisy)


def state(cell: Cell, folder: Path) -> str:
    """How far a cell is, in words."""
    path = folder / cell.id
    if not is_trained(cell, folder):
        if not (path / "history.csv").is_file():
            return "begun" if path.is_dir() else "-"
        rows = (path / "history.csv").read_text().splitlines()[1:]
        return f"training, epoch {rows[-1].partition(',')[0]}"
    scored = [name for name in SETS if _scores(cell, folder, name).is_file()]
    trained = "diverged" if (path / DIVERGED).is_file() else "trained"
    return f"{trained}, scored on {', '.join(scored)}" if scored else trained
