"""The paper's table, from its cells in docs/results/waspaa2017."""

import csv
from functools import cache, partial
from statistics import fmean

from benchmarks.tables.stored import ROOT, Record, Tables, markdown, title


@cache
def cells(recipe: str) -> list[Record]:
    """All trainings of the paper's experiment with one recipe."""
    with (ROOT / f"docs/results/waspaa2017/table-{recipe}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def values(records: list[Record], key: str) -> list[float]:
    return [float(record[key]) for record in records if record[key]]


def mean(records: list[Record], key: str, digits: int = 2) -> str:
    """Mean over the seeds, and half of their range where there are several."""
    found = values(records, key)
    if not found:
        return "-"
    spread = f" ±{(max(found) - min(found)) / 2:.{digits}f}" if len(found) > 1 else ""
    return f"{fmean(found):.{digits}f}{spread}"


def mark(records: list[Record]) -> str:
    return "…" if any(record["finished"] == "False" for record in records) else ""


def rows_of(recipe: str) -> list[str]:
    """Rows of the paper's table in its order."""
    return list(dict.fromkeys(r["row"] for r in cells(recipe) if not r["row"].startswith("ablation")))


def seeds(recipe: str, size: str, row: str) -> list[Record]:
    return [r for r in cells(recipe) if r["size"] == size and r["row"] == row]


def paper() -> str:
    """The paper's table, its settings and tuned ones side by side."""
    head = ["model", "K", "N", "P", "paper, 100 %: loss", "SDR", "paper, 10 %: loss", "SDR"]
    head += ["tuned, 100 %: SDR", "tuned, 10 %: SDR"]
    lines = []
    for row in rows_of("paper"):
        first = seeds("paper", "100", row)[0]
        line = [first["name"], first["K"], first["N"], f"{int(first['P']):,}"]
        for size in ("100", "10"):
            here = seeds("paper", size, row)
            line += [mean(here, "dev_loss", 4) + mark(here), mean(here, "test_sdr")]
        for size in ("100", "10"):
            here = seeds("tuned", size, row)
            line.append(mean(here, "test_sdr") + mark(here))
        lines.append(line)
    return markdown(head, lines)


def details(recipe: str) -> str:
    """All that was measured of each cell."""
    columns = {"dev_sdr": 2, "test_sdr": 2, "test_si_sdr": 2, "test_pesq": 2, "test_stoi": 3}
    columns |= {"newhome_sdr": 2, "unseen_sdr": 2, "real_time_factor": 4, "times_faster": 1}
    head = ["model", "K", "N", "set", "best epoch", "dev loss", *(title(key) for key in columns)]
    lines = []
    for row in rows_of(recipe):
        for size in ("100", "10"):
            here = seeds(recipe, size, row)
            first = here[0]
            epochs = ", ".join(f"{r['best_epoch']} of {r['epochs']}" for r in here if r["epochs"]) or "-"
            line = [first["name"] + mark(here), first["K"], first["N"], f"{size} %", epochs, mean(here, "dev_loss", 4)]
            lines.append(line + [mean(here, key, digits) for key, digits in columns.items()])
    return markdown(head, lines)


CHANGES = {
    "nothing": "nothing: tuned, on 10 % of the set, 40 epochs",
    "no-recurrence": "no recurrence: every frame starts from h₀",
    "random-dictionary": "random atoms instead of sparse NMF's",
    "tied-layers": "one dictionary for all layers",
    "alpha-free": "α without a bound, as in the paper",
    "alpha-stable": "α above one bound for all atoms (deleted)",
    "lambda-fixed": "λ fixed, as in the paper",
    "original-first-layer": "the first layer of the authors' code",
    "separate-reconstruction": "a dictionary of its own for the mask",
    "momentum": "FISTA's momentum between layers (deleted)",
    "transition": "a learned transition between frames (deleted)",
    "phase-sensitive-loss": "loss: phase-sensitive",
    "sdr-loss": "loss: SDR",
    "si-sdr-loss": "loss: SI-SDR",
}


def ablations() -> str:
    """Single changes to one network, the largest loss first."""
    found = {r["row"].removeprefix("ablation-"): r for r in cells("tuned") if r["row"].startswith("ablation")}
    base = float(found["nothing"]["test_sdr"])
    worst_first = sorted(found, key=lambda name: (name != "nothing", float(found[name]["test_sdr"])))
    head = ["change", "parameters", "dev SDR", "test SDR", "difference", "test SI-SDR"]
    lines = []
    for name in worst_first:
        record = found[name]
        dev, test, si = (float(record[key]) for key in ("dev_sdr", "test_sdr", "test_si_sdr"))
        difference = "" if name == "nothing" else f"{test - base:+.2f}"
        lines.append([CHANGES[name], f"{int(record['P']):,}", f"{dev:.2f}", f"{test:.2f}", difference, f"{si:.2f}"])
    return markdown(head, lines)


TABLES: Tables = {
    "paper": paper,
    "details, the paper's settings": partial(details, "paper"),
    "details, tuned": partial(details, "tuned"),
    "ablations": ablations,
}
