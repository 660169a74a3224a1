"""What came of `drnmf.paper.runs`: its folder of cells as records, as tables, and as the figure of learning curves.

A record is what is known of one cell. Tables show means over the seeds that are there, with half of their range behind
a ±; cells that are not there are shown as "-" and listed below.
"""

import csv
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from drnmf.files import write_atomically
from drnmf.models.folders import CONFIG, load_model
from drnmf.paper.runs import DIVERGED, SETS, SUMMARY, Cell
from drnmf.paper.waspaa2017 import PUBLISHED, RECIPES, ROWS, SIZES, Row, ablations, pace, settings
from drnmf.use.tables import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("drnmf")

Record = dict[str, Any]
Lines = list[list[object]]
"""Cells of a table, the first line its head."""

COLUMNS = ("dev_loss", "dev_sdr", "test_sdr")
"""Those of the paper's table."""
_DIGITS = {"dev_loss": 4, "test_stoi": 3, "real_time_factor": 4}


def records(recipe: str, folder: Path) -> list[Record]:
    """All cells of a recipe that have a model."""
    found = []
    for size in SIZES:
        for row in [*ROWS, *ablations(recipe)]:
            models = sorted((folder / recipe / str(size) / row.id).glob(f"*/{CONFIG}"))
            seeds = [int(path.parent.name) for path in models if path.parent.name.isdigit()]
            found += [_record(Cell(recipe, size, row, seed), folder) for seed in seeds]
    return found


def _record(cell: Cell, folder: Path) -> Record:
    path, row = folder / cell.id, cell.row
    model = load_model(path)
    parameters = sum(p.numel() for p in model.parameters()) or sum(b.numel() for b in model.buffers())
    record: Record = {"recipe": cell.recipe, "size": cell.size, "row": row.id, "seed": cell.seed, "name": row.name}
    record |= {"K": row.K, "N": row.N, "P": parameters, "finished": True, "best_epoch": None, "epochs": None}
    if (path / "history.csv").is_file():
        found = [loss if math.isfinite(loss) else math.inf for loss in losses(path / "history.csv")[1]]
        record |= {"best_epoch": found.index(min(found)), "epochs": len(found) - 1}
        record["finished"] = (path / SUMMARY).is_file()
    record["diverged"] = (path / DIVERGED).is_file()
    for name in SETS:
        scores = path / "scores" / f"{name}.json"
        summary = json.loads(scores.read_text())["summary"][-1] if scores.is_file() else {}
        record |= {f"{name}_{key}": value for key, value in summary.items() if not key.endswith("_improvement")}
        record.pop(f"{name}_snr_db", None)
    speed = folder / f"speed-{cell.recipe}.json"
    factors = json.loads(speed.read_text())["real_time_factor"] if speed.is_file() else {}
    sparse = factors.get(f"snmf-n{row.N}")
    record["real_time_factor"] = factors.get(row.id)
    record["times_faster"] = sparse / factors[row.id] if sparse and row.id in factors else None
    record |= {f"paper_{key}": value for key, value in _published(row, cell.size).items()}
    return record


def losses(path: Path) -> tuple[list[float], list[float]]:
    """Those of training and of validation in a history.csv, epoch by epoch."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [float(row["training_loss"]) for row in rows], [float(row["validation_loss"]) for row in rows]


def paper_table(found: Sequence[Record]) -> Lines:
    """Table 1 of the paper, its columns and rows; the line above all is the noisy input."""
    head = ["model", "K", "N", "P"]
    noisy = ["noisy", "-", "-", "-"]
    for size in SIZES:
        for key in COLUMNS:
            head += [f"{size}% {_title(key)}", "paper"]
            noisy += [_cell(found, key.replace("_sdr", "_sdr_noisy")) if "sdr" in key else "-", "-"]
    return [[*head], [*noisy], *([*_line(found, row)] for row in ROWS)]


def _line(found: Sequence[Record], row: Row) -> Iterator[object]:
    """A row of the table: each of our values, and beside it the paper's."""
    P = next((f"{record['P']:,}" for record in found if record["row"] == row.id), "-")
    yield from (row.name, row.K, row.N, P)
    for size in SIZES:
        mine = _of(found, row, size)
        published = _published(row, size)
        for key in COLUMNS:
            yield _cell(mine, key) + (_mark(mine) if key == COLUMNS[0] else "")
            yield _cell([published], key)


def _published(row: Row, size: int) -> Record:
    """What the paper says of a row."""
    return dict(zip(COLUMNS, PUBLISHED.get(row.id, {}).get(size, ()), strict=False))


def further_table(found: Sequence[Record]) -> Lines:
    """What the paper's table leaves out, a line for each cell that is there."""
    columns = ("test_si_sdr", "test_pesq", "test_stoi", "newhome_sdr", "unseen_sdr", "real_time_factor", "times_faster")
    lines: Lines = [["model", "K", "N", "training set", "best epoch", *map(_title, columns)]]
    for row in ROWS:
        for size in SIZES:
            if mine := _of(found, row, size):
                scores = [_cell(mine, key) for key in columns]
                lines.append([row.name + _mark(mine), row.K, row.N, f"{size} %", _epochs(mine), *scores])
    return lines


def ablation_table(recipe: str, found: Sequence[Record]) -> Lines:
    """The ablations, the first of which changes nothing, on 10 % of the training set."""
    columns = ("dev_loss", "dev_sdr", "test_sdr", "test_si_sdr", "test_pesq", "test_stoi")
    lines: Lines = [["model", "P", "best epoch", *map(_title, columns)]]
    for row in ablations(recipe):
        if mine := _of(found, row, 10):
            scores = [_cell(mine, key) for key in columns]
            lines.append([row.name + _mark(mine), f"{mine[0]['P']:,}", _epochs(mine), *scores])
    return lines


def changes(recipe: str) -> list[str]:
    """What a recipe changes in the paper's settings, a line for each row where it does."""
    found = []
    for row in ROWS:
        tables = RECIPES[recipe][row.id]
        new = [(f"{section}.{key}", value) for section, table in tables.items() for key, value in table.items()]
        words = [f"no {key}" if value is None else f"{key} = {value}" for key, value in new]
        for size in SIZES:
            rate, epochs = pace(recipe, row, size)
            if rate is not None and (rate, epochs) != pace("paper", row, size):
                words.append(f"on {size} %: rate {rate:g} for {epochs} epochs")
        found += [f"{row.name}, K = {row.K}, N = {row.N}: {', '.join(words)}"] if words else []
    return found


def remarks(found: Sequence[Record]) -> list[str]:
    """What the tables lack, and what their marks mean."""
    there = {(record["size"], record["row"]) for record in found}
    missing = [f"{size}/{row.id}" for size in SIZES for row in ROWS if (size, row.id) not in there]
    said = [f"missing: {', '.join(missing)}"] if missing else []
    said.append("paper: the paper's own values, measured on CHiME2; on another corpus rows compare, values do not")
    if any(record["diverged"] for record in found):
        said.append("† diverged: these are the best weights before")
    if any(not record["finished"] and not record["diverged"] for record in found):
        said.append("… training is not finished")
    return said


def write_report(recipe: str, folder: Path) -> dict[str, str]:
    """Write table-RECIPE as .txt, .md, .csv and .json and learning-curves-RECIPE.png; return the forms by suffix."""
    found = records(recipe, folder)
    tables = {
        "Table 1": paper_table(found),
        "Further scores on test, and speed": further_table(found),
        "Ablations, on 10 % of the training set": ablation_table(recipe, found),
    }
    lists = {"Remarks": remarks(found), "Changes to the paper's settings": changes(recipe)}
    forms = {
        "txt": _document(tables, lists, "text"),
        "md": _document(tables, lists, "markdown"),
        "csv": _flat(found),
        "json": json.dumps(found, indent=2) + "\n",
    }
    for suffix, content in forms.items():
        write_atomically(folder / f"table-{recipe}.{suffix}", content.encode())
    if find_spec("matplotlib") is None:
        log.info("the figure is left out: pip install matplotlib")
    elif any(record["epochs"] for record in found):
        _draw(recipe, folder)
    return forms


def _draw(recipe: str, folder: Path) -> None:
    from drnmf.pictures.show import save

    def history(size: int, row: Row) -> Path | None:
        return min((folder / recipe / str(size) / row.id).glob("*/history.csv"), default=None)

    save(learning_curves(recipe, history), folder / f"learning-curves-{recipe}.png")


def learning_curves(recipe: str, history: Callable[[int, Row], Path | None]) -> "Figure":
    """Figure 2: 100 % and 10 % of the training set with 2 and 5 layers each, from the history.csv of each cell."""
    from drnmf.pictures import plots

    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for size in SIZES:
        for K in (2, 5):
            paths = {f"{row.name}, N = {row.N}": history(size, row) for row in ROWS if row.K == K}
            curves = {name: losses(path) for name, path in paths.items() if path is not None}
            panels[f"{size} % of the training set, K = {K}"] = curves
    losses_in_db = {settings(recipe, row).get("training", {}).get("loss") for row in ROWS} & {"snr", "sdr", "si_sdr"}
    return plots.learning_panels(panels, unit="dB" if losses_in_db else "")


def _of(found: Iterable[Record], row: Row, size: int) -> list[Record]:
    return [record for record in found if (record["row"], record["size"]) == (row.id, size)]


def _epochs(found: Iterable[Record]) -> str:
    return ", ".join(f"{r['best_epoch']} of {r['epochs']}" for r in found if r["epochs"] is not None) or "-"


def _mark(found: Sequence[Record]) -> str:
    return "†" if any(r["diverged"] for r in found) else "…" if any(not r["finished"] for r in found) else ""


def _title(key: str) -> str:
    words = {"sdr": "SDR", "si": "SI-", "pesq": "PESQ", "stoi": "STOI", "real": "real-"}
    title = " ".join(words.get(word, word) for word in key.split("_"))
    return title.replace("- ", "-").replace("times faster", "times faster than sparse NMF")


def _cell(found: Iterable[Record], key: str) -> str:
    """The mean over seeds and, if there are several, half their range."""
    values = [record[key] for record in found if record.get(key) is not None]
    digits = _DIGITS.get(key, 2)
    if not values:
        return "-"
    spread = f" ±{(max(values) - min(values)) / 2:.{digits}f}" if max(values) > min(values) else ""
    return f"{fmean(values):.{digits}f}{spread}"


def _document(tables: dict[str, Lines], lists: dict[str, list[str]], form: Literal["text", "markdown"]) -> str:
    """What is not empty, each under its title."""
    heading = "## " if form == "markdown" else ""
    parts = {
        title: render(lines, form, keys=_keys(lines), together=_pairs(lines[0]))
        for title, lines in tables.items()
        if len(lines) > 1
    }
    parts |= {title: "".join(f"- {line}\n" for line in lines) for title, lines in lists.items() if lines}
    return "\n".join(f"{heading}{title}\n\n{content}" for title, content in parts.items())


def _pairs(head: Sequence[object]) -> list[int]:
    """A mark for each column, the same for ours and for the paper's beside it."""
    return [i - (title == "paper") for i, title in enumerate(head)]


def _keys(lines: Lines) -> int:
    """How many columns say which model a line is about."""
    return sum(head in ("model", "K", "N", "training set") for head in lines[0])


def _flat(found: Sequence[Record]) -> str:
    keys = list(dict.fromkeys(key for record in found for key in record))
    values = [[record.get(key) for key in keys] for record in found]
    defined = [[None if isinstance(value, float) and math.isnan(value) else value for value in row] for row in values]
    return render([keys, *defined], "csv")
