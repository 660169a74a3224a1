"""How long work tells how far it is: everywhere in the package by the same call."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and of how much: 0 where that is not known.

What comes before a comma names the kind of work ("file, a.wav"): all of a kind share one bar on the screen.
"""


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that nobody watches."""
