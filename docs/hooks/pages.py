"""What mkdocs is to know of this repository: pages that lie outside docs/, the commands, and links to source files.

Nothing is copied by hand: README and its like are read where they are, and the commands' help is asked for. A link to a
file that is no page leads to the repository, if the file is there; if not, mkdocs finds no target, and says so.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

from drnmf.cli import app

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "model-card.md": "src/drnmf/bundled/default/MODEL_CARD.md",
}
"""Pages of the site whose text lies outside docs/."""
NOTEBOOKS = {"noise-to-model.md": "examples/noise_to_model.ipynb"}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    texts = {place: (ROOT / source).read_text() for place, source in ELSEWHERE.items()}
    texts |= {place: notebook_page(ROOT / source) for place, source in NOTEBOOKS.items() if (ROOT / source).exists()}
    for place, text in {**texts, "commands.md": commands_page()}.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Links as the site has them; in the repository they lead from file to file."""
    place = page.file.src_uri
    source = {**ELSEWHERE, **NOTEBOOKS}.get(place, f"docs/{place}")
    return LINK.sub(lambda link: relinked(link[1], source, place, str(config.repo_url)) + (link[2] or ""), markdown)


def relinked(target: str, source: str, place: str, repository: str) -> str:
    """Where a link in the file `source` leads from the page `place`."""
    file = os.path.normpath(os.path.join(os.path.dirname(source), target))
    pages = {path: page for page, path in {**ELSEWHERE, **NOTEBOOKS}.items()}
    if file in pages or (file.startswith("docs/") and (ROOT / file).is_file()):
        return os.path.relpath(pages.get(file, file.removeprefix("docs/")), os.path.dirname(place) or ".")
    if (ROOT / file).exists():
        return f"{repository}/{'tree' if (ROOT / file).is_dir() else 'blob'}/main/{file}"
    return target


def commands_page() -> str:
    """All commands with their options, as `--help` has them."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="drnmf", title="Commands")
    return re.sub(r"^#### (.*)$", r"### \1", text, flags=re.MULTILINE)


def notebook_page(path: Path) -> str:
    """A notebook's text, code and what it printed; pictures stay in the notebook."""
    parts = [f"*[Run it yourself: {path.name}]({path.name})*"]
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        printed = "".join(line for output in cell.get("outputs", ()) for line in output.get("text", ()))
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    title, *rest = parts[1:]
    return "\n\n".join([title, parts[0], *rest])
