"""The pictures of the pages, made from stored numbers and the bundled model: `python -m benchmarks.figures`."""

import json
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import growth
from drnmf.paper.tables import learning_curves, losses
from drnmf.paper.waspaa2017 import SEED, Row
from drnmf.pictures import demo, plots
from drnmf.pictures.show import save

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = Path(__file__).parent / "results.json"
HOME10 = {
    "fixed": {
        "DR-NMF, K = 2": "drnmf-k2",
        "DR-NMF, K = 5": "drnmf-k5",
        "DR-NMF, K = 2, per atom": "drnmf-k2-atom",
        "DR-NMF, K = 5, per atom": "drnmf-k5-atom",
        "LSTM, N = 54": "lstm-2x54",
        "LSTM, N = 244": "lstm-2x244",
    },
    "fresh": {
        "DR-NMF, K = 2, per atom, power 0.5": "drnmf-k2-atom-p5-fresh",
        "DR-NMF, K = 5, per atom, power 0.5": "drnmf-k5-atom-p5-fresh",
        "LSTM, N = 54": "lstm-2x54-fresh",
        "LSTM, N = 244": "lstm-2x244-fresh",
    },
}
"""Names of histories in docs/results/home10: the first trials, on 10 % of the training set."""


def history(recipe: str, size: int, row: Row) -> Path | None:
    path = DOCS / "results" / "waspaa2017" / f"{recipe}-{size}-{row.id}-{SEED}.csv"
    return path if path.is_file() else None


def main() -> None:
    for recipe in ("paper", "tuned"):
        save(learning_curves(recipe, partial(history, recipe)), DOCS / f"learning-curves-{recipe}.png")
    for kind, names in HOME10.items():
        curves = {name: losses(DOCS / "results" / "home10" / f"{stem}.csv") for name, stem in names.items()}
        save(plots.learning_panels({f"{kind} mixtures".capitalize(): curves}), DOCS / f"learning-curves-{kind}.png")
    growth.draw(json.loads(RESULTS.read_text())["growth"]["rows"], DOCS)
    with tempfile.TemporaryDirectory() as folder:
        demo.run(folder)
        (DOCS / "demo.png").write_bytes((Path(folder) / "demo.png").read_bytes())


if __name__ == "__main__":
    main()
