"""The paper's experiments as data: the rows of its table, two recipes for them, and ablations.

Settings are tables as in a recipe's file (`training.recipe`), without the paths of [data]. PAPER holds each row as the
paper has it, TUNED and ABLATIONS what they change, where None removes a setting. How fast and how long each cell is
trained stands in PACE. To tune a row, change its lines.
"""

from dataclasses import dataclass
from typing import Any

Tables = dict[str, dict[str, Any]]
Pace = tuple[float | None, int]
"""Adam's rate, None where nothing is trained, and the most epochs."""

SIZES = {100: 1, 10: 10}
"""Percent of the training set, and every how many utterances that takes."""
SEED = 2016
BASE = "drnmf-k5-n200"
"""The row that the ablations change."""
_ABLATION = "ablation-"


@dataclass(frozen=True)
class Row:
    """A line of the table: how it is called in files and in the table, and what the columns K and N say."""

    id: str
    name: str
    K: int
    N: int


ROWS = (
    Row("snmf-n200", "Sparse NMF, MU", 200, 200),
    Row("snmf-n2000", "Sparse NMF, MU", 200, 2000),
    Row("lstm-2x54", "LSTM", 2, 54),
    Row("lstm-2x244", "LSTM", 2, 244),
    Row("lstm-5x70", "LSTM", 5, 70),
    Row("lstm-5x250", "LSTM", 5, 250),
    Row("deepnmf-n2000", "Deep NMF, last 3 untied", 25, 2000),
    Row("drnmf-k2-n200", "DR-NMF", 2, 200),
    Row("drnmf-k2-n2000", "DR-NMF", 2, 2000),
    Row("drnmf-k5-n200", "DR-NMF", 5, 200),
    Row("drnmf-k5-n2000", "DR-NMF", 5, 2000),
)


def _dictionary(N: int) -> dict[str, Any]:
    """Steps 1 and 2. The paper does not say how long they took; so many updates and frames bound them for N = 2000."""
    return {"rank_per_source": N // 2, "max_iter": 300, "max_frames": 200_000}


def _snmf(N: int) -> Tables:
    return {"dictionary": _dictionary(N), "model": {"kind": "SparseNMFMask", "n_iter": 200}}


def _lstm(K: int, N: int) -> Tables:
    return {
        "model": {"kind": "LSTMMask", "n_layers": K, "n_units": N},
        "training": {"gradient_clip": 1.0},
    }


def _deep_nmf(N: int) -> Tables:
    """The paper quotes this one from Le Roux et al.; how to train it on this corpus is our choice."""
    return {
        "dictionary": _dictionary(N),
        "model": {"kind": "DeepNMF", "n_layers": 25, "n_untied": 3},
        "training": {"gradient_clip": 0.0},
    }


def _drnmf(K: int, N: int, *, alpha: float) -> Tables:
    return {
        "dictionary": _dictionary(N),
        "model": {"kind": "DRNMF", "n_layers": K, "alpha": alpha},
        "training": {"gradient_clip": 0.0},
    }


PAPER: dict[str, Tables] = {
    "snmf-n200": _snmf(200),
    "snmf-n2000": _snmf(2000),
    "lstm-2x54": _lstm(2, 54),
    "lstm-2x244": _lstm(2, 244),
    "lstm-5x70": _lstm(5, 70),
    "lstm-5x250": _lstm(5, 250),
    "deepnmf-n2000": _deep_nmf(2000),
    "drnmf-k2-n200": _drnmf(2, 200, alpha=50.0),
    "drnmf-k2-n2000": _drnmf(2, 2000, alpha=400.0),
    "drnmf-k5-n200": _drnmf(5, 200, alpha=50.0),
    "drnmf-k5-n2000": _drnmf(5, 2000, alpha=400.0),
}


_FRESH = {"fresh": True, "varied": True}
_FALLING = {"loss": "snr", "schedule": "cosine"}
_LSTM_TUNED: Tables = {"data": _FRESH, "training": _FALLING}


def _drnmf_tuned(alpha: float | None = None) -> Tables:
    """A trained alpha, within its bounds, and a trained lambda for each atom; magnitudes to the power 0.5.

    `alpha` is where all of them start, by default at ||W||^2.
    """
    return {
        "data": _FRESH,
        "dictionary": {"sparsity": 0.3},
        "model": {
            "alpha": alpha,
            "alpha_per": "atom",
            "alpha_range": "weighted",
            "sparsity_per": "atom",
            "train_sparsity": True,
            "power": 0.5,
            "sparsity": 0.3,
        },
        "training": {**_FALLING, "gradient_clip": 1.0},
    }


TUNED: dict[str, Tables] = {
    "snmf-n200": {},
    "snmf-n2000": {},
    "lstm-2x54": _LSTM_TUNED,
    "lstm-2x244": _LSTM_TUNED,
    "lstm-5x70": _LSTM_TUNED,
    "lstm-5x250": _LSTM_TUNED,
    "deepnmf-n2000": {"data": _FRESH, "training": {**_FALLING, "gradient_clip": 1.0}},
    "drnmf-k2-n200": _drnmf_tuned(alpha=50.0),
    "drnmf-k2-n2000": _drnmf_tuned(),
    "drnmf-k5-n200": _drnmf_tuned(alpha=50.0),
    "drnmf-k5-n2000": _drnmf_tuned(),
}
"""What is changed in the paper's settings, chosen on dev."""

PACE: dict[str, dict[str, dict[int, Pace]]] = {
    "paper": {
        "snmf-n200": {100: (None, 400), 10: (None, 400)},
        "snmf-n2000": {100: (None, 400), 10: (None, 400)},
        "lstm-2x54": {100: (1e-4, 400), 10: (1e-4, 400)},
        "lstm-2x244": {100: (1e-4, 400), 10: (1e-4, 400)},
        "lstm-5x70": {100: (1e-4, 400), 10: (1e-4, 400)},
        "lstm-5x250": {100: (1e-4, 400), 10: (1e-4, 400)},
        "deepnmf-n2000": {100: (1e-3, 400), 10: (1e-3, 400)},
        "drnmf-k2-n200": {100: (1e-3, 400), 10: (1e-3, 400)},
        "drnmf-k2-n2000": {100: (1e-3, 400), 10: (1e-3, 400)},
        "drnmf-k5-n200": {100: (1e-3, 1200), 10: (1e-3, 1200)},
        "drnmf-k5-n2000": {100: (1e-3, 1200), 10: (1e-3, 1200)},
    },
    "tuned": {
        "snmf-n200": {100: (None, 20), 10: (None, 100)},
        "snmf-n2000": {100: (None, 20), 10: (None, 100)},
        "lstm-2x54": {100: (4e-3, 20), 10: (4e-3, 100)},
        "lstm-2x244": {100: (4e-3, 20), 10: (4e-3, 100)},
        "lstm-5x70": {100: (2e-3, 20), 10: (4e-3, 100)},
        "lstm-5x250": {100: (1e-3, 20), 10: (2e-3, 100)},
        "deepnmf-n2000": {100: (2e-3, 20), 10: (2e-3, 100)},
        "drnmf-k2-n200": {100: (4e-2, 20), 10: (4e-2, 100)},
        "drnmf-k2-n2000": {100: (4e-2, 20), 10: (4e-2, 100)},
        "drnmf-k5-n200": {100: (4e-2, 20), 10: (4e-2, 100)},
        "drnmf-k5-n2000": {100: (4e-2, 20), 10: (4e-2, 100)},
    },
}
"""How fast and how long each row is trained, by the size of the training set; sparse NMF is not trained at all."""
ABLATION_PACE: dict[str, Pace] = {"paper": (1e-3, 1200), "tuned": (4e-2, 40)}
"""The same for the ablations."""

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
    if not is_ablation(row):
        return merged(PAPER[row.id], RECIPES[recipe][row.id])
    return merged(merged(PAPER[BASE], RECIPES[recipe][BASE]), ABLATIONS[row.id.removeprefix(_ABLATION)])


def pace(recipe: str, row: Row, size: int) -> Pace:
    """How fast and how long a cell is trained."""
    return ABLATION_PACE[recipe] if is_ablation(row) else PACE[recipe][row.id][size]


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
