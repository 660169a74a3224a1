"""Sounds to hear."""

from benchmarks.tables.stored import Tables, markdown, stored


def sounds() -> str:
    """The sounds that `benchmarks.sounds` makes."""
    head = ["recording", "before", "after", "what was removed", "SDR before", "after"]
    lines = []
    for name, scores in stored("docs/sounds/scores.json").items():
        players = [player(f"{name}-{kind}.mp3") for kind in ("noisy", "enhanced", "removed")]
        sdrs = [f"{scores[key]:.1f} dB" if key in scores else "-" for key in ("before", "after")]
        lines.append([scores["title"], *players, *sdrs])
    return markdown(head, lines, words=4)


def learned_sounds() -> str:
    """The same of those whose noise was learned."""
    head = ["recording", "before", "after", "after it has learned the noise", "SDR before", "after", "learned"]
    lines = []
    for name, scores in stored("docs/sounds/scores.json").items():
        if "learned" in scores:
            players = [player(f"sounds/{name}-{kind}.mp3") for kind in ("noisy", "enhanced", "learned")]
            sdrs = [f"{scores[key]:.1f} dB" for key in ("before", "after", "learned")]
            lines.append([scores["title"], *players, *sdrs])
    return markdown(head, lines, words=4)


def player(file: str) -> str:
    """Where there are none, as on GitHub, a link."""
    return f'<audio controls preload="none" src="{file}"><a href="{file}">listen</a></audio>'


TABLES: Tables = {
    "sounds": sounds,
    "sounds of learned noises": learned_sounds,
}
