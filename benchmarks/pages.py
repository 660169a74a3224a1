"""The tables of the pages, made from stored numbers: `python -m benchmarks.pages`.

A page holds its tables between markers, and what stands between them is replaced:

    <!-- table: NAME -->
    <!-- end -->

The numbers are those of docs/results (quality.json, the paper's cells as CSV) and benchmarks/results*.json. A test
holds that every page is what this command makes of it.
"""

import re

from benchmarks.tables import learning, paper, prior, quality, reliability, sounds, speed
from benchmarks.tables.stored import ROOT

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
SUBJECTS = (paper, quality, prior, learning, speed, reliability, sounds)
TABLES = {name: table for subject in SUBJECTS for name, table in subject.TABLES.items()}


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
