"""How good the enhanced sound is, beside others."""

from functools import partial

from benchmarks.tables.speed import hops
from benchmarks.tables.stored import SYSTEMS, Record, Tables, markdown, stored, title

QUALITY = "docs/results/quality.json"
NOISY = ("dev", "test", "newhome", "unseen")
GOOD = ("10 dB", "20 dB", "30 dB", "clean")


def systems() -> list[str]:
    """All that were scored, ours first."""
    found = stored(QUALITY)
    return [*(name for name in SYSTEMS if name in found), *(name for name in found if name not in SYSTEMS)]


def sets_of(name: str) -> Record:
    found: Record = stored(QUALITY)[name]["sets"]
    return found


def scored_sets(sets: tuple[str, ...]) -> list[str]:
    """Those that have been scored."""
    return [set for set in sets if set in sets_of("default")]


def score(name: str, set: str, key: str) -> str:
    value = sets_of(name).get(set, {}).get(key)
    if value is None or (set == "clean" and name == "noisy" and "sdr" in key):
        return "-"
    return f"{value:.{3 if key == 'stoi' else 2}f}"


def by_set(key: str) -> str:
    """Systems by sets."""
    sets = scored_sets(NOISY)
    lines = [[SYSTEMS.get(name, name), *(score(name, set, key) for set in sets)] for name in systems()]
    return markdown([title(key), *sets], lines)


def good_recordings() -> str:
    """Three scores of each system, by SNR."""
    sets = scored_sets(GOOD)
    lines = []
    for name in systems():
        if any(set in sets_of(name) for set in sets):
            three = (" / ".join(score(name, set, key) for key in ("sdr", "pesq", "stoi")) for set in sets)
            lines.append([SYSTEMS.get(name, name), *three])
    return markdown(["SDR / PESQ / STOI", *sets], lines)


def speech_gain() -> str:
    """How loud the speech is afterwards: by SNR on test, on good recordings, and where the speech begins."""
    snrs = list(sets_of("default")["test"]["by_snr"])
    good = scored_sets(GOOD)
    lines = []
    for name in systems()[1:]:
        scores = sets_of(name)
        gains = [scores["test"]["by_snr"][snr]["gain_db"] for snr in snrs]
        gains += [scores.get(set, {}).get("gain_db") for set in good]
        gains += [scores.get("onset", {}).get(f"median_{when}_gain_db") for when in ("early", "late")]
        lines.append([SYSTEMS.get(name, name), *("-" if gain is None else f"{gain:.1f}" for gain in gains)])
    return markdown(["gain of speech in dB", *(f"{snr} dB" for snr in snrs), *good, "first 100 ms", "later"], lines)


def card(name: str) -> str:
    """One model on all sets, before and after."""
    keys = ("sdr", "si_sdr", "pesq", "stoi")
    sets = [set for set in NOISY + GOOD if set in sets_of(name)]
    lines = [[set, *(f"{score('noisy', set, key)} to {score(name, set, key)}" for key in keys)] for set in sets]
    return markdown(["set", *map(title, keys)], lines)


def scored() -> str:
    """Where the figures of quality come from."""
    sets = sets_of("default").values()
    counts = ", ".join(f"`{name}` {record['count']}" for name, record in sets_of("default").items())
    commits, dates = (", ".join(sorted({record[key] for record in sets})) for key in ("commit", "date"))
    return f"Mixtures scored: {counts}. Commits {commits}; {dates}.\n"


def samples() -> str:
    """Which scores of others are of fewer mixtures than the default's."""
    said = []
    for name in systems():
        fewer = [
            f"`{set}` {record['count']}"
            for set, record in sets_of(name).items()
            if record["count"] < sets_of("default").get(set, record)["count"]
        ]
        said += [f"Of {SYSTEMS.get(name, name)} fewer: {', '.join(fewer)}.\n"] if fewer else []
    return "".join(said)


def lead() -> str:
    """What the default does, beside the rivals and to good recordings, in two points."""
    ours, noisy = sets_of("default"), sets_of("noisy")
    gains = [ours[set]["sdr"] - noisy[set]["sdr"] for set in ("test", "newhome", "unseen")]
    ahead = {
        set: " and ".join(f"{ours[set]['sdr'] - sets_of(name)[set]['sdr']:.1f}" for name in ("GTCRN", "DTLN"))
        for set in ("test", "unseen")
    }
    change = {set: ours[set]["sdr"] - noisy[set]["sdr"] for set in ("20 dB", "30 dB")}
    onset = ours["onset"]
    return (
        f"- On the [home corpus](home-corpus.md), the default raises SDR by {min(gains):.1f} to {max(gains):.1f} dB. "
        f"It is ahead of GTCRN and DTLN by {ahead['test']} dB on `test`, and by {ahead['unseen']} dB on `unseen`.\n"
        f"- Good recordings stay good: at 20 dB their SDR changes by {change['20 dB']:+.1f} dB, at 30 dB by "
        f"{change['30 dB']:+.1f} dB; the speech of the first 100 ms by {onset['median_early_gain_db']:+.1f} dB.\n"
    )


def atoms() -> str:
    """Whether the default's atoms are still spectra, in one paragraph."""
    found = stored("docs/results/atoms.json")["default"]
    other = stored("docs/results/atoms.json")["an earlier first part of seed 2016"]  # whose start was kept
    return (
        f"On `dev` the default's W h holds {found['explained']:.0%} of the energy of what is heard. "
        f"{found['used']} of its {found['atoms']} atoms are active in a hundredth of the frames or more. "
        f"The cosine between an atom and the one it started as (of an earlier training, seed 2016) is "
        f"{other['kept_median']:.2f} in the middle; for a tenth of them it is below {other['kept_low']:.2f}, for "
        f"another above {other['kept_high']:.2f}.\n"
    )


def compared() -> str:
    """The README's table: quality and speed of each system."""
    columns = [(set, "sdr") for set in scored_sets(("test", "newhome", "unseen", "20 dB"))] + [("test", "pesq")]
    head = ["", *(f"{set}: {title(key)}" for set, key in columns), "8 ms of live sound"]
    lines = []
    times = {**hops(), "live": hops()["default"]}
    del times["default"]
    for name in systems():
        live = times.get(name)
        time = "-" if live is None else f"{live:.3f} ms"
        lines.append([SYSTEMS.get(name, name), *(score(name, *column) for column in columns), time])
    return markdown(head, lines)


def promise() -> str:
    """What the default does for a recording, in one sentence."""
    before, after = (stored(QUALITY)[name]["sets"]["test"]["sdr"] for name in ("noisy", "default"))
    live = hops()["default"]
    return (
        f"**The default model raises SDR by {after - before:.1f} dB on recordings of a noisy home, and needs "
        f"{live:.3f} ms on one core of a CPU for 8 ms of live sound,** {live / 8:.1%} of the time there is.\n"
    )


SEEDS = {"default": "the default, seed 1", "seed 2016": "seed 2016", "GTCRN": "GTCRN", "DTLN": "DTLN"}


def two_seeds() -> str:
    """The default's recipe with another seed, beside the published ones in the same run."""
    found = stored("docs/results/seeds.json")
    names, rows = ("test", "newhome", "unseen", *GOOD[1:]), []
    for name, words in SEEDS.items():
        sets = [found[name]["sets"][set] for set in names]
        rows.append([words, *(f"{s['sdr']:.2f} / {s['pesq']:.2f}" for s in sets)])
    return markdown(["SDR / PESQ", *names], rows)


ALIKE = {
    "default today": "today's default, seed 1",
    "default": "the default then, seed 1",
    "first part": "its first part alone",
    "first part, other seed": "the same, seed 2016",
    "LSTM": "LSTM 2 x 168, seed 1",
    "default, 10 %": "the default's network, on 10 % of `train.csv`",
    "LSTM, 10 %": "LSTM 2 x 168, on 10 % of `train.csv`",
}


def alike() -> str:
    """Two seeds, and an LSTM that was trained alike."""
    found = stored("docs/results/alike.json")
    names, rows = ("test", "newhome", "unseen", *GOOD[1:]), []
    for name, words in ALIKE.items():
        sets = [found[name]["sets"].get(set) for set in names]
        rows.append([words, *("-" if s is None else f"{s['sdr']:.2f} / {s['pesq']:.2f}" for s in sets)])
    return markdown(["SDR / PESQ", *names], rows)


def dnsmos() -> str:
    """What a network says that has never heard the speech alone."""
    found = stored("docs/results/dnsmos.json")
    scores = {"dnsmos_sig": "speech (SIG)", "dnsmos_bak": "background (BAK)", "dnsmos_ovrl": "overall (OVRL)"}
    scores |= {"dnsmos_p808": "P.808", "sdr": "SDR"}
    rows = [[SYSTEMS.get(name, name), *(f"{record[key]:.2f}" for key in scores)] for name, record in found.items()]
    return markdown([f"{found['default']['count']} mixtures of test", *scores.values()], rows)


TABLES: Tables = {
    "DNSMOS": dnsmos,
    "two seeds": two_seeds,
    "alike": alike,
    "promise": promise,
    "compared": compared,
    "atoms": atoms,
    "lead": lead,
    "scored": scored,
    "fewer scored": samples,
    "SDR": partial(by_set, "sdr"),
    "SI-SDR": partial(by_set, "si_sdr"),
    "PESQ": partial(by_set, "pesq"),
    "STOI": partial(by_set, "stoi"),
    "good recordings": good_recordings,
    "speech": speech_gain,
    "card, default": partial(card, "default"),
}
