"""One table, in the form its reader needs."""

import csv
import io
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Literal

WIDTH = 80  # columns of a terminal that nobody has made wider


def render(
    rows: Iterable[Iterable[object]],
    form: Literal["text", "markdown", "csv"],
    *,
    keys: int = 1,
    together: Callable[[str], str] = str,
) -> str:
    """Rows of cells, the head first, as aligned text, Markdown or CSV; None is "-", and in CSV an empty cell.

    Text that would be too wide becomes several tables, one below the other. Each begins with the first columns, `keys`
    of them; neighbours of whose heads `together` makes the same are not parted.
    """
    if form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()
    lines = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if form == "markdown":
        lines.insert(1, ["---", *["--:"] * (len(lines[0]) - 1)])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    columns = list(zip(*lines, strict=True))
    groups = [list(group) for _, group in groupby(columns[keys:], lambda column: together(column[0]))]
    return "\n".join(_aligned(columns) for columns in _fitted(columns[:keys], groups))


Columns = list[tuple[str, ...]]


def _fitted(first: Columns, groups: Iterable[Columns]) -> list[Columns]:
    """The groups of columns, as many side by side as there is room for, each time after the `first`."""
    tables = [first]
    for group in groups:
        if tables[-1] is not first and _width(tables[-1] + group) > WIDTH:
            tables.append(first)
        tables[-1] = tables[-1] + group
    return tables


def _width(columns: Columns) -> int:
    return sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1)


def _aligned(columns: Columns) -> str:
    widths = [max(map(len, column)) for column in columns]
    rows = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in zip(*columns, strict=True))
    return "".join("  ".join(row).rstrip() + "\n" for row in rows)
