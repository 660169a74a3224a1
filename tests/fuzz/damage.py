"""What every class of inputs is damaged with. All of it is drawn from a seeded generator: a case can be repeated."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from drnmf import InputError

Random = np.random.Generator
Case = tuple[str, Callable[[], object]]
"""What a case is, and what to do; that ends well, or raises InputError."""


def pick(rng: Random, choices: Sequence[Any]) -> Any:
    return choices[rng.integers(len(choices))]


def damaged(data: bytes, rng: Random) -> bytes:
    """A file's content with bits changed, parts missing, twice, zero or foreign."""
    content = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, length = int(rng.integers(len(content) + 1)), int(rng.integers(1, 64))
        match rng.integers(6):
            case 0 if content:
                content[min(at, len(content) - 1)] ^= 1 << int(rng.integers(8))
            case 1:
                del content[at:]
            case 2:
                del content[at : at + length]
            case 3:
                content[at:at] = content[at : at + length]
            case 4:
                content[at : at + length] = bytes(length)
            case 5:
                content[at:at] = rng.bytes(length)
    return bytes(content)


def outcome(case: Case) -> str:
    """ "done", or the line with which it was refused; anything else that it raises goes on to whoever asks."""
    try:
        case[1]()
    except InputError as error:
        line = str(error)
        assert line, "refused without a word"
        assert "\n" not in line, f"not one line: {line!r}"
        assert len(line) < 2000, f"{len(line)} characters: {line[:200]}"
        return line
    return "done"


def first(cases: Iterator[Case], count: int) -> Iterator[tuple[str, str]]:
    """The names and outcomes of the first cases; a fault says which case it was."""
    for number in range(count):
        case = next(cases)
        try:
            yield case[0], outcome(case)
        except Exception as fault:
            raise AssertionError(f"case {number}, {case[0]}: {type(fault).__name__}: {fault}") from fault
