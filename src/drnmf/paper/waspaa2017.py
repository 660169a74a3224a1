"""The experiments of the paper as data: the rows of its table, two recipes for them, and ablations.

Settings are tables as in a recipe's file (`training.recipe`), without [data]'s paths. The paper's stand in PAPER. TUNED
and ABLATIONS hold what they change, and None takes a setting away. To tune a row, change its line.
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
        "training": {"learning_rate": 1e-4, "gradient_clip": 1.0, "max_epochs": 400},
    }


def _deep_nmf(N: int) -> Tables:
    """The paper quotes this one from Le Roux et al.; how to train it on this corpus is our choice."""
    return {
        "dictionary": _dictionary(N),
        "model": {"kind": "DeepNMF", "n_layers": 25, "n_untied": 3},
        "training": {"learning_rate": 1e-3, "gradient_clip": 0.0, "max_epochs": 400},
    }


def _drnmf(K: int, N: int, *, alpha: float, max_epochs: int) -> Tables:
    return {
        "dictionary": _dictionary(N),
        "model": {"kind": "DRNMF", "n_layers": K, "alpha": alpha},
        "training": {"learning_rate": 1e-3, "gradient_clip": 0.0, "max_epochs": max_epochs},
    }


PAPER: dict[str, Tables] = {
    "snmf-n200": _snmf(200),
    "snmf-n2000": _snmf(2000),
    "lstm-2x54": _lstm(2, 54),
    "lstm-2x244": _lstm(2, 244),
    "lstm-5x70": _lstm(5, 70),
    "lstm-5x250": _lstm(5, 250),
    "deepnmf-n2000": _deep_nmf(2000),
    "drnmf-k2-n200": _drnmf(2, 200, alpha=50.0, max_epochs=400),
    "drnmf-k2-n2000": _drnmf(2, 2000, alpha=400.0, max_epochs=400),
    "drnmf-k5-n200": _drnmf(5, 200, alpha=50.0, max_epochs=1200),
    "drnmf-k5-n2000": _drnmf(5, 2000, alpha=400.0, max_epochs=1200),
}


_FRESH = {"fresh": True, "varied": True}
_FALLING = {"loss": "snr", "schedule": "cosine"}


def _lstm_tuned(learning_rate: float) -> Tables:
    return {"data": _FRESH, "training": {**_FALLING, "learning_rate": learning_rate}}


def _drnmf_tuned(learning_rate: float, *, alpha: float | None = None) -> Tables:
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
        "training": {**_FALLING, "learning_rate": learning_rate, "gradient_clip": 1.0},
    }


TUNED: dict[str, Tables] = {
    "snmf-n200": {},
    "snmf-n2000": {},
    "lstm-2x54": _lstm_tuned(4e-3),
    "lstm-2x244": _lstm_tuned(4e-3),
    "lstm-5x70": _lstm_tuned(2e-3),
    "lstm-5x250": _lstm_tuned(1e-3),
    "deepnmf-n2000": {"data": _FRESH, "training": {**_FALLING, "learning_rate": 2e-3, "gradient_clip": 1.0}},
    "drnmf-k2-n200": _drnmf_tuned(4e-2, alpha=50.0),
    "drnmf-k2-n2000": _drnmf_tuned(4e-2),
    "drnmf-k5-n200": _drnmf_tuned(4e-2, alpha=50.0),
    "drnmf-k5-n2000": _drnmf_tuned(4e-2),
}
"""What is changed in the paper's settings, chosen on dev."""

EPOCHS: dict[str, dict[int, int]] = {"tuned": {100: 20, 10: 100}}
"""How many a recipe takes for each size of the training set, if not as many as its rows say."""
RATES: dict[str, dict[int, dict[str, float]]] = {"tuned": {10: {"lstm-5x70": 4e-3, "lstm-5x250": 2e-3}}}
"""Learning rates for a size of the training set, where dev chose others than the rows'."""
ABLATION_EPOCHS = {"tuned": 40}
"""How many its ablations take."""

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


def epochs(recipe: str, row: Row, size: int) -> int | None:
    """How many epochs to train, or None for as many as the settings say."""
    return ABLATION_EPOCHS.get(recipe) if is_ablation(row) else EPOCHS.get(recipe, {}).get(size)


def rate(recipe: str, row: Row, size: int) -> float | None:
    """The learning rate, or None for what the settings say."""
    return RATES.get(recipe, {}).get(size, {}).get(row.id)


def is_ablation(row: Row) -> bool:
    """Whether it is one, not a row of the table."""
    return row.id.startswith(_ABLATION)


def ablations(recipe: str) -> list[Row]:
    """The ablations that change something: those that name what the recipe does anyhow are left out."""
    (base,) = (row for row in ROWS if row.id == BASE)
    unless_told = {"alpha_range": "free", "train_sparsity": False}
    before = merged({"model": unless_told}, settings(recipe, base))
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
