import re

import pytest
from benchmarks import pages


@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_holds_what_the_stored_numbers_make_of_it(name):
    text = (pages.ROOT / name).read_text()
    assert pages.renew(text) == text, "python -m benchmarks.pages writes the tables anew"
    assert text.count("<!-- table:") == text.count("<!-- end -->") == len(pages.MARKED.findall(text))


@pytest.mark.parametrize("name", pages.PAGES)
def test_no_table_of_numbers_is_written_by_hand(name):
    by_hand = pages.MARKED.sub("", (pages.ROOT / name).read_text())
    if name == "docs/results/log.md":
        return  # holds what was tried before figures were stored
    assert re.findall(r"^\|.*--:.*\|$", by_hand, re.MULTILINE) == []


DOCUMENTS = [
    pages.ROOT / "README.md",
    pages.ROOT / "CONTRIBUTING.md",
    pages.ROOT / "SECURITY.md",
    *sorted((pages.ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"
    for name, target in re.findall(r"\[`(\w+)`\]\(([^)]+\.py)\)", text):
        source = (page.parent / target).read_text()
        assert re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE), f"{target} has no {name}"
