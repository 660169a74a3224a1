"""A tag's part of the changelog; an error if the tag is not this version's: python .github/version.py v0.2.0."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(tag: str, source: str, changelog: str) -> str:
    """What stands under the heading of `tag` in the changelog, once `source` says the same version."""
    version = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    if [tag] != [f"v{found}" for found in version]:
        sys.exit(f"the tag is {tag}, but src/drnmf/__init__.py says {version}")
    dated = rf"^## \[{re.escape(tag[1:])}\] - \d{{4}}-\d\d-\d\d$"
    _, found, after = re.sub(dated, "\0", changelog, count=1, flags=re.MULTILINE).partition("\0")
    if not found:
        sys.exit(f"CHANGELOG.md has no heading '## [{tag[1:]}] - DATE'")
    return re.split(r"^(?:## |\[.+\]: )", after, maxsplit=1, flags=re.MULTILINE)[0].strip()


if __name__ == "__main__":
    print(notes(sys.argv[1], (ROOT / "src/drnmf/__init__.py").read_text(), (ROOT / "CHANGELOG.md").read_text()))
