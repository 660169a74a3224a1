"""The pages: no dead links, all public names, and numbers that the program gives. `make docs` builds the site."""

import os
import re
import subprocess
from pathlib import Path

import drnmf
from examples import build

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)|src=\"(?!https?:)([^\"]+)\"")


def pages() -> list[Path]:
    """All Markdown files of the repository."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    named = done.stdout.split() or [
        str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    ]
    return [ROOT / name for name in named if (ROOT / name).exists()]


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_link_is_dead():
    dead = []
    for page in pages():
        for link in (first or second for first, second in LINK.findall(page.read_text())):
            path, _, anchor = link.partition("#")
            target = Path(os.path.normpath(page.parent / path)) if path else page
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert dead == []


def test_every_public_name_has_its_place():
    shown = re.findall(r"^::: drnmf\.(?:signal\.)?(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(drnmf.__all__)


def test_every_page_is_in_the_menu():
    menu = set(re.findall(r"^ +- (?:\w+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    missing = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")} - menu
    assert missing == set(), "name them in mkdocs.yml"


def test_latency_is_as_the_page_says():
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \|$", (ROOT / "docs/streaming.md").read_text(), re.MULTILINE)
    assert len(rows) >= 5
    model = build("drnmf").float()
    for rate, samples, ms in (map(int, row) for row in rows):
        assert drnmf.Streamer(model, rate).latency == samples
        assert round(1000 * samples / rate) == ms
