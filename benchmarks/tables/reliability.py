"""What was tried to break it."""

from benchmarks.tables.stored import ROOT, Tables, markdown, stored

RELIABILITY = "docs/results/reliability"


def fuzz() -> str:
    """Random inputs by class: what was tried, and what became of it."""
    rows = []
    for found in stored(f"{RELIABILITY}/fuzz.json").values():
        accepted = found["tried"] - found["refused"] - len(found["wrong"])
        counts = [f"{n:,}" for n in (found["tried"], accepted, found["refused"], len(found["wrong"]))]
        rows.append([found["what"], *counts, f"{found['taken_mb']} MB"])
    head = ["inputs", "tried", "accepted", "refused in one line", "failures", "most memory taken"]
    return markdown(head, rows)


def faults() -> str:
    """Faults that were put in while files were written."""
    found = stored(f"{RELIABILITY}/fuzz.json")["faults"]
    lost = str(len(found["wrong"]))
    return markdown(["fault", "times", "files lost or half"], [[k, f"{n:,}", lost] for k, n in found["kinds"].items()])


def long_sound() -> str:
    rows = [
        [r["what"], r["header"], f"{r['bytes'] / 1e9:.2f} GB", f"{r['peak_mb']} MB"]
        for r in stored(f"{RELIABILITY}/long.json")["rows"]
    ]
    return markdown(["sound", "header", "size", "peak memory"], rows, words=2)


def soak() -> str:
    r = stored(f"{RELIABILITY}/soak.json")
    return (
        f"In {r['minutes']:.0f} minutes: {r['streams']:,} streams, {r['sound_hours']:.1f} hours of sound, "
        f"{r['blocks']:,} blocks, and {r['refused']:,} bad ones, all refused; {r['different_samples']} "
        f"samples other than the file's; {r['growth_mb']:.1f} MB more memory at the end than at the beginning.\n"
    )


def sanitizers() -> str:
    if not (ROOT / f"{RELIABILITY}/sanitize.json").exists():
        return "Not stored yet.\n"
    found = stored(f"{RELIABILITY}/sanitize.json")
    rows = [[name, f"{passed:,}", str(found["reports"])] for name, passed in found["passed"].items()]
    return markdown(["instructions", "tests passed", "reports"], rows)


def tried() -> str:
    runs = [*stored(f"{RELIABILITY}/fuzz.json").values(), stored(f"{RELIABILITY}/long.json")]
    commits, dates = (", ".join(sorted({run[key] for run in runs})) for key in ("commit", "date"))
    return f"Inputs, faults and long sound were tried at commits {commits}; {dates}.\n"


TABLES: Tables = {
    "fuzz": fuzz,
    "faults": faults,
    "long": long_sound,
    "soak": soak,
    "sanitizers": sanitizers,
    "tried": tried,
}
