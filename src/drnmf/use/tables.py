"""One table, in the form its reader needs."""

import csv
import io
from collections.abc import Iterable
from typing import Literal


def render(rows: Iterable[Iterable[object]], form: Literal["text", "markdown", "csv"]) -> str:
    """Rows of cells, the head first, as aligned text, Markdown or CSV; None is "-", and in CSV an empty cell."""
    if form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()
    lines = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if form == "markdown":
        lines.insert(1, ["---", *["--:"] * (len(lines[0]) - 1)])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = ([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines)
    return "".join("  ".join(cells).rstrip() + "\n" for cells in aligned)
