"""The last step of `make sanitize`: how many tests passed with each set of instructions, from pytest's own reports.

A report of a sanitizer ends the process, and make with it: what is counted here had none.
"""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.measure import commit

FIGURES = Path(__file__).parents[2] / "docs" / "results" / "reliability" / "sanitize.json"


def passed(report: Path) -> int:
    """Tests in a report that were neither skipped nor failed."""
    suite = next(ElementTree.parse(report).iter("testsuite"))
    return int(suite.attrib["tests"]) - sum(int(suite.attrib[name]) for name in ("skipped", "failures", "errors"))


def main(folder: Path) -> None:
    """Sum up the reports in a folder, one for each set of instructions."""
    found = {path.stem: passed(path) for path in sorted(folder.glob("*.xml"))}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps({"commit": commit(), "reports": 0, "passed": found}, indent=1) + "\n")
    print(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
