"""On the way to the default: its network, its training, and how files are heard."""

from functools import partial

from benchmarks.tables.stored import Tables, markdown, stored, title

PRIOR = {
    "add_own": "add; each layer has a dictionary, 200 units",
    "mul_own": "mul; each layer has a dictionary, 200 units",
    "add_tied": "add; one dictionary, another for the mask",
    "mul_tied": "mul; one dictionary, another for the mask",
    "mul_one": "mul; one dictionary for everything",
    "mul_tied_pesq4": "as mul_tied, with 4 x PESQ in the loss",
    "mul_tied_pesq12": "as mul_tied, with 12 x PESQ in the loss",
    "lstm": "LSTM 2 x 208",
}


def prior() -> str:
    """The last line of each network in the first trial of the recurrent prior."""
    trial = stored("docs/results/prior/trial-1.json")
    rows = []
    for name, words in PRIOR.items():
        last = trial["history"][name][-1]
        explained = f"{last['explained']:.0%}" if "explained" in last else "-"
        scores = [f"{last[key]:.2f}" for key in ("dev_sdr", "dev_si", "dev_pesq", "d20_si", "clean_si")]
        rows.append([words, f"{trial['params'][name]:,}", *scores, f"{last['dev_gain']:.1f}", explained])
    head = ["network", "parameters", "dev SDR", "SI-SDR", "PESQ", "20 dB: SI-SDR", "clean: SI-SDR", "gain", "explained"]
    return markdown(head, rows)


SECOND = {
    "si": "SI-SDR, 256 units: **the default then**",
    "base": "SDR, 256 units",
    "u384": "SDR, 384 units",
    "two": "SDR, two GRUs of 256 units",
    "log": "SDR, the GRU hears log(1 + 4 g)",
    "nomake": "SDR, without the gain r",
    "lstm": "SDR, LSTM 2 x 168",
}


def second_trial() -> str:
    """The last line of each network in the second trial."""
    networks = stored("docs/results/prior/trial-2.json")["networks"]
    keys = ("dev_sdr", "dev_si", "dev_pesq", "d20_sdr", "d30_sdr", "clean_sdr", "low_gain")
    rows = []
    for name, words in SECOND.items():
        last = networks[name]["history"][-1]
        explained = last.get("explained")
        share = "-" if explained is None else f"{explained:.0%}" if explained > 0 else "none"
        rows.append([words, f"{networks[name]['parameters']:,}", *(f"{last[key]:.2f}" for key in keys), share])
    scores = ["dev SDR", "SI-SDR", "PESQ", "20 dB: SDR", "30 dB: SDR", "clean: SDR", "gain at -6 dB"]
    return markdown(["network", "parameters", *scores, "explained"], rows)


def third_trial() -> str:
    """The losses of the third trial."""
    keys = {"dev: sdr": "dev SDR", "dev: pesq": "PESQ", "20 dB: sdr": "20 dB: SDR", "20 dB: pesq": "PESQ"}
    keys |= {"30 dB: sdr": "30 dB: SDR", "clean: sdr": "clean: SDR", "-6 dB: sdr": "-6 dB: SDR"}
    networks = stored("docs/results/prior/trial-3.json")["networks"]
    rows = [[name, *(f"{scores[key]:.2f}" for key in keys)] for name, scores in networks.items()]
    return markdown(["limit", *keys.values()], rows)


def two_seeds() -> str:
    """What one recipe gives with two seeds."""
    rows = []
    for seed, run in stored("docs/results/prior/run-3.json")["seeds"].items():
        found = run["every third mixture"]
        scores = [f"{found[name][key]:.2f}" for name in ("dev", "20 dB", "30 dB", "clean") for key in ("sdr", "pesq")]
        rows.append([seed, f"{run['summary']['validation_loss']:.2f}", f"{found['dev']['si_sdr']:.2f}", *scores])
    head = [f"{name}: {score}" for name in ("dev", "20 dB", "30 dB", "clean") for score in ("SDR", "PESQ")]
    return markdown(["seed", "validation loss", "dev: SI-SDR", *head], rows)


def trained_further() -> str:
    """The default before and after its second part, and the same conditions from the beginning."""
    found = stored("docs/results/prior/run-5.json")
    runs = {
        "200 epochs, the first part alone": found["before"]["scores"],
        "**and 42 epochs of the second: the default then**": found["from the default"]["scores"],
        "the second part's mixtures from the beginning, 140 epochs": found["from the beginning"][
            "scores of seed 1, epoch 140"
        ],
    }
    names = {"dev": ("sdr", "si_sdr", "pesq"), "20 dB": ("sdr",), "30 dB": ("sdr",), "clean": ("sdr",)}
    rows = [
        [name, *(f"{sets[s][key]:.2f}" for s, keys in names.items() for key in keys)] for name, sets in runs.items()
    ]
    return markdown(["seed 1", "dev: SDR", "SI-SDR", "PESQ", "20 dB: SDR", "30 dB: SDR", "clean: SDR"], rows)


def second_parts() -> str:
    """What else the second part was, on some mixtures of dev."""
    names = {"dev": ("sdr", "pesq"), "20 dB": ("sdr",), "30 dB": ("sdr",), "clean": ("sdr",)}
    rows = []
    for words, part in stored("docs/results/prior/run-6.json")["second parts"].items():
        files = [f"{part['scores']['files'][set][key]:.2f}" for set, keys in names.items() for key in keys]
        live = [f"{part['scores']['live'][set]['sdr']:.2f}" for set in ("dev", "20 dB", "30 dB")]
        rows.append([words, *files, *live])
    head = ["files: dev SDR", "PESQ", "20 dB: SDR", "30 dB: SDR", "clean: SDR", "live: dev SDR", "20 dB", "30 dB"]
    return markdown(["second part", *head], rows)


def with_the_objective() -> str:
    """The second part as it was, and with the paper's objective: all mixtures."""
    names = {"dev": ("sdr", "pesq"), "test": ("sdr", "pesq"), "20 dB": ("sdr",), "30 dB": ("sdr",), "clean": ("sdr",)}
    rows = []
    for words, part in stored("docs/results/prior/run-7.json")["second parts"].items():
        scores = [f"{part['scores'][set][key]:.2f}" for set, keys in names.items() for key in keys]
        share = part["explained"]
        rows.append([words, *scores, "-" if share is None else f"{share:.1%}"])
    head = [f"{set}: {title(key)}" for set, keys in names.items() for key in keys]
    return markdown(["second part", *head, "explained"], rows)


def along_the_training() -> str:
    """How the SDR of files rises and falls with the epochs."""
    found = stored("docs/results/prior/run-6.json")["along the training of seed 2016: SDR of files"]
    sets = list(next(iter(found.values())))
    rows = [[set, *(f"{scores[set]:.2f}" for scores in found.values())] for set in sets]
    return markdown(["part, epochs", *found], rows)


def parts_of_the_prior() -> str:
    """What each part of the default's network gives: the fourth trial, whose first network is the default's."""
    return _side_by_side("docs/results/prior/trial-4.json", "{:.0%}")


def shapes_of_the_prior() -> str:
    """The fifth trial: other shapes of the default's network."""
    return _side_by_side("docs/results/prior/trial-5.json", "{:.1%}")


def losses_of_the_prior() -> str:
    """The sixth trial: what else a trained network may be trained for."""
    return _side_by_side("docs/results/prior/trial-6.json", "{:.1%}", {"-6 dB: gain": "gain at -6 dB"})


def _side_by_side(file: str, share: str, more: dict[str, str] | None = None) -> str:
    """The last line of each network that `benchmarks.trials` trained."""
    keys = {"dev: sdr": "dev SDR", "dev: pesq": "PESQ", "-6 dB: sdr": "-6 dB: SDR", "20 dB: sdr": "20 dB: SDR"}
    keys |= {"30 dB: sdr": "30 dB: SDR", "clean: sdr": "clean: SDR", **(more or {})}
    rows = []
    for name, network in stored(file)["networks"].items():
        last = network["history"][-1]
        explained = share.format(last["dev: explained"]) if "dev: explained" in last else "-"
        rows.append([name, f"{network['parameters']:,}", *(f"{last[key]:.2f}" for key in keys), explained])
    return markdown(["network", "parameters", *keys.values(), "explained"], rows)


def ahead(file: str) -> str:
    """What a file gains when some of it is heard first."""
    ways = stored(file)["ways"]
    sets = list(ways["nothing"])
    rows = [[way, *(f"{found[set]:.2f}" for set in sets)] for way, found in ways.items()]
    return markdown(["heard first", *sets], rows)


def ahead_of_rivals() -> str:
    """Whether listening ahead would help others, in one sentence."""
    found = stored("docs/results/ahead.json")["rivals"]
    changes = {name: [after - before for before, after in found[name].values()] for name in ("DTLN", "GTCRN")}
    said = (f"that of {name} by {dev:+.1f} dB and by {good:+.1f} dB at 20 dB" for name, (dev, good) in changes.items())
    return f"The others are run as published. Heard so, their SDR on `dev` would change, too: {', '.join(said)}.\n"


TABLES: Tables = {
    "prior": prior,
    "prior, second trial": second_trial,
    "prior, third trial": third_trial,
    "prior, two seeds": two_seeds,
    "prior, trained further": trained_further,
    "prior, second parts": second_parts,
    "prior, with the objective": with_the_objective,
    "prior, along the training": along_the_training,
    "prior, parts": parts_of_the_prior,
    "prior, shapes": shapes_of_the_prior,
    "prior, losses": losses_of_the_prior,
    "ahead, at first": partial(ahead, "docs/results/prior/ahead.json"),
    "ahead": partial(ahead, "docs/results/ahead.json"),
    "ahead of rivals": ahead_of_rivals,
}
