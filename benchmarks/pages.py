"""The tables of the pages, made from stored numbers: `python -m benchmarks.pages`.

A page holds its tables between markers, and what stands between them is replaced:

    <!-- table: NAME -->
    <!-- end -->

The numbers are those of docs/results (quality.json, the paper's cells as CSV) and benchmarks/results*.json. A test
holds that every page is what this command makes of it.
"""

import csv
import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/results.md",
    "docs/anywhere.md",
    "docs/adaptation.md",
    "docs/results/log.md",
    "docs/performance.md",
    "docs/reliability.md",
    "docs/sounds/index.md",
    "src/drnmf/bundled/default/MODEL_CARD.md",
)
MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)

Record = dict[str, Any]


# Stored numbers


@cache
def stored(path: str) -> Any:
    return json.loads((ROOT / path).read_text())


@cache
def cells(recipe: str) -> list[Record]:
    """All trainings of the paper's experiment with one recipe."""
    with (ROOT / f"docs/results/waspaa2017/table-{recipe}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def values(records: list[Record], key: str) -> list[float]:
    return [float(record[key]) for record in records if record[key]]


# How a table is written


def markdown(head: list[str], rows: list[list[str]], *, words: int = 1) -> str:
    """A table whose first `words` columns are words and the others numbers."""
    rule = ["---"] * words + ["--:"] * (len(head) - words)
    return "".join("| " + " | ".join(row) + " |\n" for row in [head, rule, *rows])


def mean(records: list[Record], key: str, digits: int = 2) -> str:
    """Mean over the seeds, and half of their range where there are several."""
    found = values(records, key)
    if not found:
        return "-"
    spread = f" ±{(max(found) - min(found)) / 2:.{digits}f}" if len(found) > 1 else ""
    return f"{fmean(found):.{digits}f}{spread}"


def mark(records: list[Record]) -> str:
    return "…" if any(record["finished"] == "False" for record in records) else ""


# The paper's table


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


def title(key: str) -> str:
    name = key.replace("si_sdr", "SI-SDR").replace("sdr", "SDR").replace("pesq", "PESQ").replace("stoi", "STOI")
    return name.replace("real_time_factor", "real-time factor").replace("_", " ")


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


# Quality


QUALITY = "docs/results/quality.json"
SYSTEMS = {"noisy": "as recorded", "default": "drnmf, default", "live": "the same, live"}
SYSTEMS |= {"DR-NMF": "the default before it", "LSTM": "an LSTM of its size"}


NOISY = ("dev", "test", "newhome", "unseen")
GOOD = ("10 dB", "20 dB", "30 dB", "clean")


def systems() -> list[str]:
    """All that were scored, ours first."""
    found = stored(QUALITY)
    return [*(name for name in SYSTEMS if name in found), *(name for name in found if name not in SYSTEMS)]


def sets_of(name: str) -> Record:
    found: Record = stored(QUALITY)[name]["sets"]
    return found


def scored_sets(sets: tuple[str, ...]) -> list[str]:
    """Those that have been scored."""
    return [set for set in sets if set in sets_of("default")]


def score(name: str, set: str, key: str) -> str:
    value = sets_of(name).get(set, {}).get(key)
    if value is None or (set == "clean" and name == "noisy" and "sdr" in key):
        return "-"
    return f"{value:.{3 if key == 'stoi' else 2}f}"


def by_set(key: str) -> str:
    """Systems by sets."""
    sets = scored_sets(NOISY)
    lines = [[SYSTEMS.get(name, name), *(score(name, set, key) for set in sets)] for name in systems()]
    return markdown([title(key), *sets], lines)


def good_recordings() -> str:
    """Three scores of each system, by SNR."""
    sets = scored_sets(GOOD)
    lines = []
    for name in systems():
        if any(set in sets_of(name) for set in sets):
            three = (" / ".join(score(name, set, key) for key in ("sdr", "pesq", "stoi")) for set in sets)
            lines.append([SYSTEMS.get(name, name), *three])
    return markdown(["SDR / PESQ / STOI", *sets], lines)


def speech_gain() -> str:
    """How loud the speech is afterwards: by SNR on test, on good recordings, and where the speech begins."""
    snrs = list(sets_of("default")["test"]["by_snr"])
    good = scored_sets(GOOD)
    lines = []
    for name in systems()[1:]:
        scores = sets_of(name)
        gains = [scores["test"]["by_snr"][snr]["gain_db"] for snr in snrs]
        gains += [scores.get(set, {}).get("gain_db") for set in good]
        gains += [scores.get("onset", {}).get(f"median_{when}_gain_db") for when in ("early", "late")]
        lines.append([SYSTEMS.get(name, name), *("-" if gain is None else f"{gain:.1f}" for gain in gains)])
    return markdown(["gain of speech in dB", *(f"{snr} dB" for snr in snrs), *good, "first 100 ms", "later"], lines)


def card(name: str) -> str:
    """One model on all sets, before and after."""
    keys = ("sdr", "si_sdr", "pesq", "stoi")
    sets = [set for set in NOISY + GOOD if set in sets_of(name)]
    lines = [[set, *(f"{score('noisy', set, key)} to {score(name, set, key)}" for key in keys)] for set in sets]
    return markdown(["set", *map(title, keys)], lines)


def scored() -> str:
    """Where the figures of quality come from."""
    sets = sets_of("default").values()
    counts = ", ".join(f"`{name}` {record['count']}" for name, record in sets_of("default").items())
    commits, dates = (", ".join(sorted({record[key] for record in sets})) for key in ("commit", "date"))
    return f"Mixtures scored: {counts}. Commits {commits}; {dates}.\n"


def samples() -> str:
    """Which scores of others are of fewer mixtures than the default's."""
    said = []
    for name in systems():
        fewer = [
            f"`{set}` {record['count']}"
            for set, record in sets_of(name).items()
            if record["count"] < sets_of("default").get(set, record)["count"]
        ]
        said += [f"Of {SYSTEMS.get(name, name)} fewer: {', '.join(fewer)}.\n"] if fewer else []
    return "".join(said)


def lead() -> str:
    """What the default does, beside the rivals and to good recordings, in two points."""
    ours, noisy = sets_of("default"), sets_of("noisy")
    gains = [ours[set]["sdr"] - noisy[set]["sdr"] for set in ("test", "newhome", "unseen")]
    ahead = {
        set: " and ".join(f"{ours[set]['sdr'] - sets_of(name)[set]['sdr']:.1f}" for name in ("GTCRN", "DTLN"))
        for set in ("test", "unseen")
    }
    change = {set: ours[set]["sdr"] - noisy[set]["sdr"] for set in ("20 dB", "30 dB")}
    onset = ours["onset"]
    return (
        f"- On the [home corpus](home-corpus.md), the default raises SDR by {min(gains):.1f} to {max(gains):.1f} dB. "
        f"It is ahead of GTCRN and DTLN by {ahead['test']} dB on `test`, and by {ahead['unseen']} dB on `unseen`.\n"
        f"- Good recordings stay good: at 20 dB their SDR changes by {change['20 dB']:+.1f} dB, at 30 dB by "
        f"{change['30 dB']:+.1f} dB; the speech of the first 100 ms by {onset['median_early_gain_db']:+.1f} dB.\n"
    )


def atoms() -> str:
    """Whether the default's atoms are still spectra, in one paragraph."""
    found = stored("docs/results/atoms.json")["default"]
    other = stored("docs/results/atoms.json")["seed 2016"]  # whose start was kept
    return (
        f"On `dev` the default's W h holds {found['explained']:.0%} of the energy of what is heard. "
        f"{found['used']} of its {found['atoms']} atoms are active in a hundredth of the frames or more. "
        f"The cosine between an atom and the one it started as (of the run with seed 2016) is "
        f"{other['kept_median']:.2f} in the middle; for a tenth of them it is below {other['kept_low']:.2f}, for "
        f"another above {other['kept_high']:.2f}.\n"
    )


def compared() -> str:
    """The README's table: quality and speed of each system."""
    columns = [(set, "sdr") for set in scored_sets(("test", "newhome", "unseen", "20 dB"))] + [("test", "pesq")]
    head = ["", *(f"{set}: {title(key)}" for set, key in columns), "8 ms of live sound"]
    lines = []
    times = {**hops(), "live": hops()["default"]}
    del times["default"]
    for name in systems():
        live = times.get(name)
        time = "-" if live is None else f"{live:.3f} ms"
        lines.append([SYSTEMS.get(name, name), *(score(name, *column) for column in columns), time])
    return markdown(head, lines)


def promise() -> str:
    """What the default does for a recording, in one sentence."""
    before, after = (stored(QUALITY)[name]["sets"]["test"]["sdr"] for name in ("noisy", "default"))
    live = hops()["default"]
    return (
        f"**The default model raises SDR by {after - before:.1f} dB on recordings of a noisy home, and needs "
        f"{live:.3f} ms on one core of a CPU for 8 ms of live sound,** {live / 8:.1%} of the time there is.\n"
    )


# Speed


SPEED = "benchmarks/results.json"
GPU = "benchmarks/results-gpu.json"


def part(name: str) -> list[Record]:
    found: list[Record] = stored(SPEED)[name]["rows"]
    return found


def row(of: str, case: str) -> Record:
    """The row of this case, whose name may be followed by its figures or its sizes."""
    return next(r for r in part(of) if re.split(r":|, B=", r["case"])[0] == case)


def hops(kind: str = "live") -> dict[str, float]:
    """Milliseconds for 8 ms of sound by system."""
    found = {}
    for r in part("rivals"):
        case = r["case"].split(":")[0].split(" (rivals")[0]
        if case.startswith(f"{kind}, "):
            name = case.removeprefix(f"{kind}, ").replace("DR-NMF (", "").replace(")", "")
            found[name] = r["milliseconds"]
    return found


def rivals() -> str:
    live, recording = hops(), hops("recording")

    def cell(found: dict[str, float], name: str) -> str:
        times = "" if name == "default" else f", {found[name] / found['default']:.1f} times as long"
        return f"{found[name]:.3f} ms{times}"

    lines = [[SYSTEMS.get(name, name), cell(live, name), cell(recording, name)] for name in live]
    return markdown(["8 ms of sound", "live", "in a recording"], lines)


def sparse_nmf() -> str:
    lines = []
    for N in (200, 2000):
        base = row("separators", f"sparse NMF, 200 updates, N={N}")["milliseconds"]
        times = [row("separators", f"DR-NMF K={K} N={N}")["milliseconds"] for K in (2, 5)]
        lines.append([f"N = {N}", f"{base:,.0f} ms", *(f"{t:.1f} ms, {base / t:.0f} times faster" for t in times)])
    default = row("separators", "default")["milliseconds"]
    base = row("separators", "sparse NMF, 200 updates, N=200")["milliseconds"]
    lines.append(["the default", "", "", f"{default:.1f} ms, {base / default:.0f} times faster"])
    return markdown(["5.3 s of sound", "sparse NMF, 200 updates", "DR-NMF, K = 2", "DR-NMF, K = 5"], lines)


def floor() -> str:
    lines = []
    for case, name in (("default", "the default"), ("DR-NMF K=5 N=2000", "K = 5, N = 2000")):
        r = row("floor", case)
        reading = f"{1000 * r['packed_milliseconds']:.0f} µs ({r['packed_mb']:.1f} MB)"
        lines.append([name, f"{1000 * r['milliseconds']:.0f} µs", reading, f"{1 - r['active']:.0%}"])
    return markdown(["", "one frame", "reading all that is packed", "inactive"], lines)


def files() -> str:
    lines = []
    for r in part("enhance"):
        if r["case"].startswith("file, "):
            kind = r["case"].split(", ")[1]
            lines.append([kind, r["per"], f"{r['milliseconds'] / 1000:.0f} s", f"{r['memory_mb']:.0f} MB"])
    return markdown(["file", "length", "time", "memory"], lines)


def training_step() -> str:
    lines = [
        [name, f"{row('scan', case)['milliseconds']:.0f} ms", f"{row('scan', case)['memory_mb']:.0f} MB"]
        for name, case in (("autograd over the readable loop", "readable loop"), ("`scan`", "scan"))
    ]
    return markdown(["training step", "time", "memory"], lines)


def gpu_scan() -> str:
    head = ["B, T, K, N", "PyTorch, from a CUDA graph", "kernels, as called", "kernels, from a CUDA graph", "floor"]
    lines = []
    for r in stored(GPU)["scan"]:
        sizes = ", ".join(str(r[key]) for key in "BTKN")
        times = [f"{r[key]:.1f}" for key in ("pytorch_graph", "kernels", "kernels_graph")]
        lines.append([sizes, *times, f"{r['floor']:.2f}"])
    return markdown(head, lines)


def gpu_nmf() -> str:
    lines = []
    for r in stored(GPU)["sparse_nmf"]:
        precision = "TF32" if r["tf32"] else "float32"
        speed = f"{r['rate'] / 1e12:.0f} TFLOP/s"
        lines.append([precision, f"{r['iteration']:.0f} ms", speed, f"{r['of_peak']:.0%}"])
    return markdown(["products in", "an iteration", "speed", "of a large product's"], lines)


def measured() -> str:
    """When and of which commit each part of the speed was measured."""
    lines = [[name, found["date"], found["commit"], f"{found['machine']['load_before']}"] for name, found in speeds()]
    return markdown(["part", "date", "commit", "load of the machine before"], lines, words=3)


def speeds() -> list[tuple[str, Record]]:
    return list(stored(SPEED).items())


PRIOR = {
    "add_own": "add; each layer has a dictionary, 200 units",
    "mul_own": "mul; each layer has a dictionary, 200 units",
    "add_tied": "add; one dictionary, another for the mask",
    "mul_tied": "mul; one dictionary, another for the mask",
    "mul_one": "mul; one dictionary for everything",
    "mul_tied_pesq4": "as mul_tied, with 4 x PESQ in the loss",
    "mul_tied_pesq12": "as mul_tied, with 12 x PESQ in the loss",
    "lstm": "LSTM 2 x 208",
}


def prior() -> str:
    """The last line of each network in the first trial of the recurrent prior."""
    trial = stored("docs/results/prior/trial-1.json")
    rows = []
    for name, words in PRIOR.items():
        last = trial["history"][name][-1]
        explained = f"{last['explained']:.0%}" if "explained" in last else "-"
        scores = [f"{last[key]:.2f}" for key in ("dev_sdr", "dev_si", "dev_pesq", "d20_si", "clean_si")]
        rows.append([words, f"{trial['params'][name]:,}", *scores, f"{last['dev_gain']:.1f}", explained])
    head = ["network", "parameters", "dev SDR", "SI-SDR", "PESQ", "20 dB: SI-SDR", "clean: SI-SDR", "gain", "explained"]
    return markdown(head, rows)


SECOND = {
    "si": "SI-SDR, 256 units: **the default then**",
    "base": "SDR, 256 units",
    "u384": "SDR, 384 units",
    "two": "SDR, two GRUs of 256 units",
    "log": "SDR, the GRU hears log(1 + 4 g)",
    "nomake": "SDR, without the gain r",
    "lstm": "SDR, LSTM 2 x 168",
}


def second_trial() -> str:
    """The last line of each network in the second trial."""
    networks = stored("docs/results/prior/trial-2.json")["networks"]
    keys = ("dev_sdr", "dev_si", "dev_pesq", "d20_sdr", "d30_sdr", "clean_sdr", "low_gain")
    rows = []
    for name, words in SECOND.items():
        last = networks[name]["history"][-1]
        explained = last.get("explained")
        share = "-" if explained is None else f"{explained:.0%}" if explained > 0 else "none"
        rows.append([words, f"{networks[name]['parameters']:,}", *(f"{last[key]:.2f}" for key in keys), share])
    scores = ["dev SDR", "SI-SDR", "PESQ", "20 dB: SDR", "30 dB: SDR", "clean: SDR", "gain at -6 dB"]
    return markdown(["network", "parameters", *scores, "explained"], rows)


def third_trial() -> str:
    """The losses of the third trial."""
    keys = {"dev: sdr": "dev SDR", "dev: pesq": "PESQ", "20 dB: sdr": "20 dB: SDR", "20 dB: pesq": "PESQ"}
    keys |= {"30 dB: sdr": "30 dB: SDR", "clean: sdr": "clean: SDR", "-6 dB: sdr": "-6 dB: SDR"}
    networks = stored("docs/results/prior/trial-3.json")["networks"]
    rows = [[name, *(f"{scores[key]:.2f}" for key in keys)] for name, scores in networks.items()]
    return markdown(["limit", *keys.values()], rows)


def two_seeds() -> str:
    """What one recipe gives with two seeds."""
    rows = []
    for seed, run in stored("docs/results/prior/run-3.json")["seeds"].items():
        found = run["every third mixture"]
        scores = [f"{found[name][key]:.2f}" for name in ("dev", "20 dB", "30 dB", "clean") for key in ("sdr", "pesq")]
        rows.append([seed, f"{run['summary']['validation_loss']:.2f}", f"{found['dev']['si_sdr']:.2f}", *scores])
    head = [f"{name}: {score}" for name in ("dev", "20 dB", "30 dB", "clean") for score in ("SDR", "PESQ")]
    return markdown(["seed", "validation loss", "dev: SI-SDR", *head], rows)


def trained_further() -> str:
    """The default before and after its second part, and the same conditions from the beginning."""
    found = stored("docs/results/prior/run-5.json")
    runs = {
        "200 epochs, the first part alone": found["before"]["scores"],
        "**and 42 epochs of the second: the default**": found["from the default"]["scores"],
        "the second part's mixtures from the beginning, 140 epochs": found["from the beginning"][
            "scores of seed 1, epoch 140"
        ],
    }
    names = {"dev": ("sdr", "si_sdr", "pesq"), "20 dB": ("sdr",), "30 dB": ("sdr",), "clean": ("sdr",)}
    rows = [
        [name, *(f"{sets[s][key]:.2f}" for s, keys in names.items() for key in keys)] for name, sets in runs.items()
    ]
    return markdown(["seed 1", "dev: SDR", "SI-SDR", "PESQ", "20 dB: SDR", "30 dB: SDR", "clean: SDR"], rows)


def waiting() -> str:
    """Whether speech suffers that keeps one waiting, in one sentence."""
    found = stored("docs/results/streams.json")["waiting"]
    return (
        f"After three seconds of the noise alone, its SI-SDR on `dev` (as streams, {found['count']} mixtures) is "
        f"{found['change']:+.2f} ± {found['standard error']:.2f} dB from what it is without them.\n"
    )


def keeps_learning() -> str:
    """What a stream gains that learns by itself, in one sentence."""
    found = stored("docs/results/streams.json")["learning"]
    said = (f"{r['change']:+.2f} ± {r['standard error']:.2f} dB ({name})" for name, r in found.items())
    return (
        f"All {found['dev']['count']} mixtures of `dev`, those of a background one after the other in a stream that "
        f"keeps learning: SI-SDR changes by {', '.join(said)}.\n"
    )


ALIKE = {
    "default": "the default, seed 1",
    "first part": "its first part alone",
    "first part, other seed": "the same, seed 2016",
    "LSTM": "LSTM 2 x 168, seed 1",
    "default, 10 %": "the default's network, on 10 % of `train.csv`",
    "LSTM, 10 %": "LSTM 2 x 168, on 10 % of `train.csv`",
}


def alike() -> str:
    """Two seeds, and an LSTM that was trained alike."""
    found = stored("docs/results/alike.json")
    names, rows = ("test", "newhome", "unseen", *GOOD[1:]), []
    for name, words in ALIKE.items():
        sets = [found[name]["sets"].get(set) for set in names]
        rows.append([words, *("-" if s is None else f"{s['sdr']:.2f} / {s['pesq']:.2f}" for s in sets)])
    return markdown(["SDR / PESQ", *names], rows)


def ahead(file: str) -> str:
    """What a file gains when some of it is heard first."""
    ways = stored(file)["ways"]
    sets = list(ways["nothing"])
    rows = [[way, *(f"{found[set]:.2f}" for set in sets)] for way, found in ways.items()]
    return markdown(["heard first", *sets], rows)


def ahead_of_rivals() -> str:
    """Whether listening ahead would help others, in one sentence."""
    found = stored("docs/results/ahead.json")["rivals"]
    changes = {name: [after - before for before, after in found[name].values()] for name in ("DTLN", "GTCRN")}
    said = (f"that of {name} by {dev:+.1f} dB and by {good:+.1f} dB at 20 dB" for name, (dev, good) in changes.items())
    return f"The others are run as published. Heard so, their SDR on `dev` would change, too: {', '.join(said)}.\n"


def parts_of_the_prior() -> str:
    """What each part of the default's network gives: the fourth trial, whose first network is the default's."""
    keys = {"dev: sdr": "dev SDR", "dev: pesq": "PESQ", "-6 dB: sdr": "-6 dB: SDR", "20 dB: sdr": "20 dB: SDR"}
    keys |= {"30 dB: sdr": "30 dB: SDR", "clean: sdr": "clean: SDR"}
    rows = []
    for name, network in stored("docs/results/prior/trial-4.json")["networks"].items():
        last = network["history"][-1]
        explained = f"{last['dev: explained']:.0%}" if "dev: explained" in last else "-"
        rows.append([name, f"{network['parameters']:,}", *(f"{last[key]:.2f}" for key in keys), explained])
    return markdown(["network", "parameters", *keys.values(), "explained"], rows)


def learned_noise() -> str:
    """What a sample of the noise changes, by set: in dB of SI-SDR with its standard error, and in PESQ."""
    found = stored("docs/results/adaptation.json")["sets"]
    rows = [["nothing: SI-SDR", *(f"{record['means']['nothing']:.2f}" for record in found.values())]]
    cases = [case for case in found["newhome"]["gains"] if not case.endswith("PESQ")]
    for case in cases:
        gains = [record["gains"].get(case) for record in found.values()]
        rows.append([case, *("-" if gain is None else f"{gain[0]:+.2f} ± {gain[1]:.2f}" for gain in gains)])
    changes = [record["gains"]["3 s: PESQ"] for record in found.values()]
    rows.append(["3 s: PESQ", *(f"{mean:+.2f} ± {error:.2f}" for mean, error in changes)])
    return markdown(["a sample of", *found], rows)


LEARNED = ("dev", "test", "newhome", "unseen")


def learned_by_likeness() -> str:
    """What three seconds give where the noise is still the same, and where it is not."""
    found = stored("docs/results/adaptation.json")["sets"]
    rows = []
    for number, words in enumerate(("least alike", "between", "most alike")):
        thirds = [found[name]["by likeness"][number] for name in LEARNED]
        rows.append([words, *(f"{third['gain']:+.2f} ({third['likeness']:.2f})" for third in thirds)])
    return markdown(["sample and noise", *LEARNED], rows)


def finetuned() -> str:
    """What training further on the same seconds gives, and takes."""
    found = stored("docs/results/finetuning.json")["sets"]
    rows = []
    for name, means in found.items():
        changes = [f"{means[case] - means['as it is']:+.2f} dB" for case in ("learned", "trained")]
        times = [f"{means[f'seconds to {what}']:.1f} s" for what in ("learn", "train")]
        rows.append([f"{name}, {means['count']} mixtures", f"{means['as it is']:.2f}", *changes, *times])
    head = ["SI-SDR", "as it is", "learned", "trained further", "time to learn", "time to train"]
    return markdown(head, rows)


def known_background() -> str:
    """What training further on the rest of a background gives."""
    rows = []
    for name, found in stored("docs/results/background.json")["sets"].items():
        seconds = [row["seconds"] for row in found["backgrounds"]]
        gains = [fmean(row["gains"]) for row in found["backgrounds"]]
        heard, by_background = (
            f"{min(seconds):.0f} to {max(seconds):.0f} s",
            f"{min(gains):+.2f} to {max(gains):+.2f} dB",
        )
        mean, error = found["gain"]
        rows.append([name, str(found["count"]), heard, f"{mean:+.2f} ± {error:.2f} dB", by_background])
    return markdown(["set", "mixtures", "trained on", "SI-SDR", "by background"], rows)


def dnsmos() -> str:
    """What a network says that has never heard the speech alone."""
    found = stored("docs/results/dnsmos.json")
    scores = {"dnsmos_sig": "speech (SIG)", "dnsmos_bak": "background (BAK)", "dnsmos_ovrl": "overall (OVRL)"}
    scores |= {"dnsmos_p808": "P.808", "sdr": "SDR"}
    rows = [[SYSTEMS.get(name, name), *(f"{record[key]:.2f}" for key in scores)] for name, record in found.items()]
    return markdown([f"{found['default']['count']} mixtures of test", *scores.values()], rows)


# Reliability


RELIABILITY = "docs/results/reliability"


def fuzz() -> str:
    """Random inputs by class: what was tried, and what became of it."""
    rows = []
    for found in stored(f"{RELIABILITY}/fuzz.json").values():
        accepted = found["tried"] - found["refused"] - len(found["wrong"])
        counts = [f"{n:,}" for n in (found["tried"], accepted, found["refused"], len(found["wrong"]))]
        rows.append([found["what"], *counts, f"{found['taken_mb']} MB"])
    head = ["inputs", "tried", "accepted", "refused in one line", "failures", "most memory taken"]
    return markdown(head, rows)


def faults() -> str:
    """Faults that were put in while files were written."""
    found = stored(f"{RELIABILITY}/fuzz.json")["faults"]
    lost = str(len(found["wrong"]))
    return markdown(["fault", "times", "files lost or half"], [[k, f"{n:,}", lost] for k, n in found["kinds"].items()])


def long_sound() -> str:
    rows = [
        [r["what"], r["header"], f"{r['bytes'] / 1e9:.2f} GB", f"{r['peak_mb']} MB"]
        for r in stored(f"{RELIABILITY}/long.json")["rows"]
    ]
    return markdown(["sound", "header", "size", "peak memory"], rows, words=2)


def soak() -> str:
    r = stored(f"{RELIABILITY}/soak.json")
    return (
        f"In {r['minutes']:.0f} minutes: {r['streams']:,} streams, {r['sound_hours']:.1f} hours of sound, "
        f"{r['blocks']:,} blocks, and {r['refused']:,} bad ones, all refused; {r['different_samples']} "
        f"samples other than the file's; {r['growth_mb']:.1f} MB more memory at the end than at the beginning.\n"
    )


def sanitizers() -> str:
    if not (ROOT / f"{RELIABILITY}/sanitize.json").exists():
        return "Not stored yet.\n"
    found = stored(f"{RELIABILITY}/sanitize.json")
    rows = [[name, f"{passed:,}", str(found["reports"])] for name, passed in found["passed"].items()]
    return markdown(["instructions", "tests passed", "reports"], rows)


def tried() -> str:
    runs = [*stored(f"{RELIABILITY}/fuzz.json").values(), stored(f"{RELIABILITY}/long.json")]
    commits, dates = (", ".join(sorted({run[key] for run in runs})) for key in ("commit", "date"))
    return f"Inputs, faults and long sound were tried at commits {commits}; {dates}.\n"


# Sounds


def sounds() -> str:
    """The sounds that `benchmarks.sounds` makes."""
    head = ["recording", "before", "after", "what was removed", "SDR before", "after"]
    lines = []
    for name, scores in stored("docs/sounds/scores.json").items():
        players = [player(f"{name}-{kind}.mp3") for kind in ("noisy", "enhanced", "removed")]
        sdrs = [f"{scores[key]:.1f} dB" if key in scores else "-" for key in ("before", "after")]
        lines.append([scores["title"], *players, *sdrs])
    return markdown(head, lines, words=4)


def learned_sounds() -> str:
    """The same of those whose noise was learned."""
    head = ["recording", "before", "after", "after it has learned the noise", "SDR before", "after", "learned"]
    lines = []
    for name, scores in stored("docs/sounds/scores.json").items():
        if "learned" in scores:
            players = [player(f"sounds/{name}-{kind}.mp3") for kind in ("noisy", "enhanced", "learned")]
            sdrs = [f"{scores[key]:.1f} dB" for key in ("before", "after", "learned")]
            lines.append([scores["title"], *players, *sdrs])
    return markdown(head, lines, words=4)


def player(file: str) -> str:
    """Where there are none, as on GitHub, a link."""
    return f'<audio controls preload="none" src="{file}"><a href="{file}">listen</a></audio>'


def anywhere() -> str:
    """Every form of the enhancer, by `benchmarks.anywhere`."""
    rows = []
    for name, row in stored("docs/results/anywhere.json")["forms"].items():
        size = "-" if row["megabytes"] is None else f"{row['megabytes']:.1f} MB"
        start, speed = f"{1e3 * row['start_s']:.0f} ms", f"{row['speed']:.0f}"
        rows.append([name, size, start, f"{row['latency_ms']:.0f} ms", speed])
    return markdown(["form", "size", "start", "latency", "times real time"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "anywhere": anywhere,
    "prior": prior,
    "prior, second trial": second_trial,
    "prior, third trial": third_trial,
    "prior, two seeds": two_seeds,
    "prior, trained further": trained_further,
    "waiting": waiting,
    "keeps learning": keeps_learning,
    "DNSMOS": dnsmos,
    "prior, parts": parts_of_the_prior,
    "alike": alike,
    "ahead, at first": partial(ahead, "docs/results/prior/ahead.json"),
    "ahead": partial(ahead, "docs/results/ahead.json"),
    "ahead of rivals": ahead_of_rivals,
    "learned noise": learned_noise,
    "learned noise, by likeness": learned_by_likeness,
    "trained on a noise": finetuned,
    "known backgrounds": known_background,
    "paper": paper,
    "details, the paper's settings": partial(details, "paper"),
    "details, tuned": partial(details, "tuned"),
    "ablations": ablations,
    "promise": promise,
    "compared": compared,
    "atoms": atoms,
    "lead": lead,
    "scored": scored,
    "fewer scored": samples,
    "SDR": partial(by_set, "sdr"),
    "SI-SDR": partial(by_set, "si_sdr"),
    "PESQ": partial(by_set, "pesq"),
    "STOI": partial(by_set, "stoi"),
    "good recordings": good_recordings,
    "speech": speech_gain,
    "card, default": partial(card, "default"),
    "rivals": rivals,
    "sparse NMF": sparse_nmf,
    "floor": floor,
    "files": files,
    "training step": training_step,
    "GPU": gpu_scan,
    "sparse NMF on a GPU": gpu_nmf,
    "measured": measured,
    "fuzz": fuzz,
    "faults": faults,
    "long": long_sound,
    "soak": soak,
    "sanitizers": sanitizers,
    "tried": tried,
    "sounds": sounds,
    "sounds of learned noises": learned_sounds,
}


def renew(text: str) -> str:
    """A page with its tables made anew."""
    return MARKED.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        before = path.read_text()
        after = renew(before)
        if after != before:
            path.write_text(after)
            print(f"{name}: changed")


if __name__ == "__main__":
    main()
