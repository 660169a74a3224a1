"""What a noise that is learned gives."""

from statistics import fmean

from benchmarks.tables.stored import Tables, markdown, stored


def waiting() -> str:
    """Whether speech suffers that keeps one waiting, in one sentence."""
    found = stored("docs/results/streams.json")["waiting"]
    return (
        f"After three seconds of the noise alone, the SI-SDR of today's default on `dev` (as streams, {found['count']} "
        f"mixtures) is {found['change']:+.2f} ± {found['standard error']:.2f} dB from what it is without them.\n"
    )


def keeps_learning() -> str:
    """What a stream gains that learns by itself, in one sentence."""
    found = stored("docs/results/streams.json")["learning"]
    said = (f"{r['change']:+.2f} ± {r['standard error']:.2f} dB ({name})" for name, r in found.items())
    return (
        f"All {found['dev']['count']} mixtures of `dev`, those of a background one after the other in a stream that "
        f"keeps learning: SI-SDR changes by {', '.join(said)}.\n"
    )


def learned_noise() -> str:
    """What a sample of the noise changes, by set: in dB of SI-SDR with its standard error, and in PESQ."""
    found = stored("docs/results/adaptation.json")["sets"]
    rows = [["nothing: SI-SDR", *(f"{record['means']['nothing']:.2f}" for record in found.values())]]
    cases = [case for case in found["newhome"]["gains"] if not case.endswith("PESQ")]
    for case in cases:
        gains = [record["gains"].get(case) for record in found.values()]
        rows.append([case, *("-" if gain is None else f"{gain[0]:+.2f} ± {gain[1]:.2f}" for gain in gains)])
    changes = [record["gains"]["3 s: PESQ"] for record in found.values()]
    rows.append(["3 s: PESQ", *(f"{mean:+.2f} ± {error:.2f}" for mean, error in changes)])
    return markdown(["a sample of", *found], rows)


LEARNED = ("dev", "test", "newhome", "unseen")


def learned_by_likeness() -> str:
    """What three seconds give where the noise is still the same, and where it is not."""
    found = stored("docs/results/adaptation.json")["sets"]
    rows = []
    for number, words in enumerate(("least alike", "between", "most alike")):
        thirds = [found[name]["by likeness"][number] for name in LEARNED]
        rows.append([words, *(f"{third['gain']:+.2f} ({third['likeness']:.2f})" for third in thirds)])
    return markdown(["sample and noise", *LEARNED], rows)


def finetuned() -> str:
    """What training further on the same seconds gives, and takes."""
    found = stored("docs/results/finetuning.json")["sets"]
    rows = []
    for name, means in found.items():
        changes = [f"{means[case] - means['as it is']:+.2f} dB" for case in ("learned", "trained")]
        times = [f"{means[f'seconds to {what}']:.1f} s" for what in ("learn", "train")]
        rows.append([f"{name}, {means['count']} mixtures", f"{means['as it is']:.2f}", *changes, *times])
    head = ["SI-SDR", "as it is", "learned", "trained further", "time to learn", "time to train"]
    return markdown(head, rows)


def known_background() -> str:
    """What training further on the rest of a background gives."""
    rows = []
    for name, found in stored("docs/results/background.json")["sets"].items():
        seconds = [row["seconds"] for row in found["backgrounds"]]
        gains = [fmean(row["gains"]) for row in found["backgrounds"]]
        heard, by_background = (
            f"{min(seconds):.0f} to {max(seconds):.0f} s",
            f"{min(gains):+.2f} to {max(gains):+.2f} dB",
        )
        mean, error = found["gain"]
        rows.append([name, str(found["count"]), heard, f"{mean:+.2f} ± {error:.2f} dB", by_background])
    return markdown(["set", "mixtures", "trained on", "SI-SDR", "by background"], rows)


TABLES: Tables = {
    "waiting": waiting,
    "keeps learning": keeps_learning,
    "learned noise": learned_noise,
    "learned noise, by likeness": learned_by_likeness,
    "trained on a noise": finetuned,
    "known backgrounds": known_background,
}
