"""The paper's experiments as data: the rows of its table, two recipes for them, and ablations.

Settings are tables as in a recipe's file (`training.recipe`), without the paths of [data]. PAPER holds each row as the
paper has it, TUNED and ABLATIONS what they change, where None removes a setting. `pace` says how fast and how long each
cell is trained.
"""

from dataclasses import dataclass
from typing import Any

Tables = dict[str, dict[str, Any]]

SIZES = {100: 1, 10: 10}
"""Percent of the training set, and every how many utterances that takes."""
SEED = 2016
BASE = "drnmf-k5-n200"
"""The row that the ablations change."""
_ABLATION = "ablation-"
SNMF, LSTM, DEEP_NMF, DR_NMF = "Sparse NMF, MU", "LSTM", "Deep NMF, last 3 untied", "DR-NMF"


@dataclass(frozen=True)
class Row:
    """A line of the table: how it is called in files and in the table, and what the columns K and N say."""

    id: str
    name: str
    K: int
    N: int


ROWS = (
    Row("snmf-n200", SNMF, 200, 200),
    Row("snmf-n2000", SNMF, 200, 2000),
    Row("lstm-2x54", LSTM, 2, 54),
    Row("lstm-2x244", LSTM, 2, 244),
    Row("lstm-5x70", LSTM, 5, 70),
    Row("lstm-5x250", LSTM, 5, 250),
    Row("deepnmf-n2000", DEEP_NMF, 25, 2000),
    Row("drnmf-k2-n200", DR_NMF, 2, 200),
    Row("drnmf-k2-n2000", DR_NMF, 2, 2000),
    Row("drnmf-k5-n200", DR_NMF, 5, 200),
    Row("drnmf-k5-n2000", DR_NMF, 5, 2000),
)


PUBLISHED: dict[str, dict[int, tuple[float | None, float, float | None]]] = {
    "snmf-n200": {100: (0.0987, 7.14, 8.18), 10: (0.1319, 6.51, 7.47)},
    "snmf-n2000": {100: (0.0846, 7.71, 8.61), 10: (0.0890, 7.43, 8.37)},
    "lstm-2x54": {100: (0.0408, 11.51, 12.53), 10: (0.0512, 10.34, 11.35)},
    "lstm-2x244": {100: (0.0339, 11.95, 12.90), 10: (0.0481, 10.59, 11.57)},
    "lstm-5x70": {100: (0.0426, 10.90, 11.94), 10: (0.0542, 10.22, 11.26)},
    "lstm-5x250": {100: (0.0344, 12.35, 13.30), 10: (0.0566, 10.25, 11.32)},
    "deepnmf-n2000": {100: (None, 10.20, None)},  # in the text, from Le Roux et al.
    "drnmf-k2-n200": {100: (0.0320, 10.94, 11.86), 10: (0.0362, 10.39, 11.33)},
    "drnmf-k2-n2000": {100: (0.0295, 11.21, 12.11), 10: (0.0354, 10.54, 11.43)},
    "drnmf-k5-n200": {100: (0.0286, 11.14, 12.04), 10: (0.0332, 10.88, 11.80)},
    "drnmf-k5-n2000": {100: (0.0266, 11.31, 12.19), 10: (0.0316, 11.12, 11.99)},
}
"""Table 1 as the paper prints it, by percent of the training set: loss on dev, SDR on dev and on test, of CHiME2."""


def _paper(row: Row) -> Tables:
    """The paper does not say how long sparse NMF took; so many updates and frames bound it for N = 2000."""
    dictionary = {"rank_per_source": row.N // 2, "max_iter": 300, "max_frames": 200_000}
    if row.name == SNMF:
        return {"dictionary": dictionary, "model": {"kind": "SparseNMFMask", "n_iter": row.K}}
    if row.name == LSTM:
        model = {"kind": "LSTMMask", "n_layers": row.K, "n_units": row.N}
        return {"model": model, "training": {"gradient_clip": 1.0}}
    if row.name == DEEP_NMF:  # quoted from Le Roux et al.; how to train it on this corpus is our choice
        model = {"kind": "DeepNMF", "n_layers": row.K, "n_untied": 3}
    else:
        model = {"kind": "DRNMF", "n_layers": row.K, "alpha": 50.0 if row.N == 200 else 400.0}
    return {"dictionary": dictionary, "model": model, "training": {"gradient_clip": 0.0}}


def _tuned(row: Row) -> Tables:
    """What is changed in the paper's settings, chosen on dev."""
    if row.name == SNMF:
        return {}
    data = {"fresh": True, "varied": True}
    training: dict[str, Any] = {"loss": "snr", "schedule": "cosine"}
    if row.name != LSTM:
        training["gradient_clip"] = 1.0
    if row.name != DR_NMF:
        return {"data": data, "training": training}
    model = {
        "alpha": 50.0 if row.N == 200 else None,  # where all of them start; None: at ||W||^2
        "alpha_per": "atom",
        "alpha_range": "weighted",
        "sparsity_per": "atom",
        "train_sparsity": True,
        "power": 0.5,
        "sparsity": 0.3,
    }
    return {"data": data, "dictionary": {"sparsity": 0.3}, "model": model, "training": training}


PAPER = {row.id: _paper(row) for row in ROWS}
TUNED = {row.id: _tuned(row) for row in ROWS}

RATES: dict[str, dict[str, float | None]] = {
    "paper": {SNMF: None, LSTM: 1e-4, DEEP_NMF: 1e-3, DR_NMF: 1e-3},
    "tuned": {SNMF: None, LSTM: 4e-3, DEEP_NMF: 2e-3, DR_NMF: 4e-2},
}
"""Adam's rate; sparse NMF is not trained."""
LARGE_LSTM_RATES = {("lstm-5x70", 100): 2e-3, ("lstm-5x250", 100): 1e-3, ("lstm-5x250", 10): 2e-3}
"""Tuned rates of rows and sizes that need a lower one."""

ABLATIONS: dict[str, Tables] = {
    "nothing": {},
    "no-recurrence": {"model": {"warm_start": False}},
    # its ||W||^2 is far above that of a trained dictionary, so alpha must start there
    "random-dictionary": {"dictionary": {"random": True}, "model": {"alpha": None}},
    "tied-layers": {"model": {"tied": True}},
    "alpha-free": {"model": {"alpha_range": "free"}},
    "lambda-trained": {"model": {"train_sparsity": True}},
    "lambda-fixed": {"model": {"train_sparsity": False}},
    "original-first-layer": {"model": {"first_layer": "original"}},
    "separate-reconstruction": {"model": {"reconstruction": "separate"}},
    "phase-sensitive-loss": {"training": {"loss": "phase_sensitive"}},
    "sdr-loss": {"training": {"loss": "sdr"}},
    "si-sdr-loss": {"training": {"loss": "si_sdr"}},
}
"""Single changes to the row BASE of a recipe, on 10 % of the training set; the first is what to compare with."""

RECIPES: dict[str, dict[str, Tables]] = {"paper": {row: {} for row in PAPER}, "tuned": TUNED}


def settings(recipe: str, row: Row) -> Tables:
    """The settings of a row or of an ablation."""
    base = BASE if is_ablation(row) else row.id
    tables = merged(PAPER[base], RECIPES[recipe][base])
    return merged(tables, ABLATIONS.get(row.id.removeprefix(_ABLATION), {}))


def pace(recipe: str, row: Row, size: int) -> tuple[float | None, int]:
    """Adam's rate, None where nothing is trained, and the most epochs."""
    rate = RATES[recipe][DR_NMF if is_ablation(row) else row.name]
    if recipe == "paper":
        return rate, 1200 if row.K == 5 and row.name != LSTM else 400
    if is_ablation(row):
        return rate, 40
    return LARGE_LSTM_RATES.get((row.id, size), rate), {100: 20, 10: 100}[size]


def is_ablation(row: Row) -> bool:
    """Whether it is one, not a row of the table."""
    return row.id.startswith(_ABLATION)


def ablations(recipe: str) -> list[Row]:
    """The ablations that change something: those that a recipe already contains are left out."""
    (base,) = (row for row in ROWS if row.id == BASE)
    defaults = {"alpha_range": "free", "train_sparsity": False}
    before = merged({"model": defaults}, settings(recipe, base))
    names = [name for name, change in ABLATIONS.items() if not change or merged(before, change) != before]
    titles = {"nothing": f"{base.name}, K = {base.K}, N = {base.N}"}
    return [Row(_ABLATION + name, titles.get(name, f"- {name.replace('-', ' ')}"), base.K, base.N) for name in names]


def merged(tables: Tables, changes: Tables) -> Tables:
    """Tables with some of their settings changed, added, or (None) taken away."""
    result = {}
    for section in {**tables, **changes}:
        both = {**tables.get(section, {}), **changes.get(section, {})}
        result[section] = {key: value for key, value in both.items() if value is not None}
    return result
