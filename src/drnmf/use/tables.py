"""One table, in the form its reader needs."""

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Literal

WIDTH = 80  # columns of a terminal that nobody has made wider


def render(
    rows: Iterable[Iterable[object]],
    form: Literal["text", "markdown", "csv"],
    *,
    keys: int = 1,
    together: Sequence[object] = (),
) -> str:
    """Rows of cells, the head first, as aligned text, Markdown or CSV; None is "-", and in CSV an empty cell.

    Text that would be too wide becomes several tables, one below the other. Each begins with the first columns, `keys`
    of them. `together` has a mark for each column: neighbours with the same are not parted.
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
    marks = list(together or range(len(columns)))[keys:]
    groups = [
        [column for column, _ in some] for _, some in groupby(zip(columns[keys:], marks, strict=True), itemgetter(1))
    ]
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
