"""Stored numbers, and how a table is written."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Record = dict[str, Any]
Tables = dict[str, Callable[[], str]]  # by the names that pages call them
SYSTEMS = {"noisy": "as recorded", "default": "drnmf, default", "live": "the same, live"}
SYSTEMS |= {"DR-NMF": "the default before it", "LSTM": "an LSTM of its size"}


@cache
def stored(path: str) -> Any:
    return json.loads((ROOT / path).read_text())


def markdown(head: list[str], rows: list[list[str]], *, words: int = 1) -> str:
    """A table whose first `words` columns are words and the others numbers."""
    rule = ["---"] * words + ["--:"] * (len(head) - words)
    return "".join("| " + " | ".join(row) + " |\n" for row in [head, rule, *rows])


def title(key: str) -> str:
    name = key.replace("si_sdr", "SI-SDR").replace("sdr", "SDR").replace("pesq", "PESQ").replace("stoi", "STOI")
    return name.replace("real_time_factor", "real-time factor").replace("_", " ")
