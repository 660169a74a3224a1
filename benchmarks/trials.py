"""Several networks side by side on one GPU, on the same endless mixtures: which part of the default gives how much.

    python -m benchmarks.trials benchmarks/trials.json -o FOLDER --seconds 1000

A file of variants names each network's model, rates and loss: `benchmarks/trials.json` the parts of the prior,
`benchmarks/shapes.json` its shape, `benchmarks/losses.json` what it is trained for. A model's settings are those of
`Variant`, and "rank", its atoms per source; with "start", it goes on from a trained `PriorDRNMF`; "average_share" is a
recipe's. A loss may also have "objective", a weight of the paper's.

Each network has a stream and a CUDA graph of its own. Rates fall like a cosine over the time that is given, so that all
of it is used. The average of the weights is validated on dev, on dev with less noise and at -6 dB, every `--every`
seconds; history.json and the weights are left in FOLDER each time. DRNMF_CORPUS names the corpus.
"""

import argparse
import json
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.variants import LEVEL, POWER, SPARSITY, Variant
from drnmf.data.batches import Dataset
from drnmf.data.endless import Chunk, Conditions, Endless
from drnmf.data.folders import Pool
from drnmf.data.manifests import read_manifest
from drnmf.maths.nmf import train_dictionaries
from drnmf.models.folders import load_model
from drnmf.models.lstm import LSTMMask
from drnmf.models.prior_drnmf import PriorDRNMF
from drnmf.signal.metrics import decompose, ratio_db
from drnmf.signal.spectra import istft, stft
from drnmf.training.losses import speech_gain, weighted
from drnmf.training.optimiser import AveragedAdam
from drnmf.training.perceptual import pesq_score

WARMUP = 300  # steps
CONDITIONS = {"snrs_db": (-6.0, 9.0), "good_snrs_db": (9.0, 30.0), "good_share": 0.3, "clean_share": 0.06}
OTHERS = {"levels_dbfs": (-45.0, -12.0), "narrow_share": 0.08}


class Run:
    """One network that is trained: its optimiser, its state, and where it is on its own stream."""

    def __init__(self, name: str, settings: dict[str, Any], W_FN: Tensor, chunk: Chunk) -> None:
        model = {key: value for key, value in settings["model"].items() if key not in ("kind", "rank")}
        device = chunk.noisy.device
        network: Any
        if settings["model"].get("kind") == "LSTM":
            generator = torch.Generator().manual_seed(model.pop("seed", 0))
            network = LSTMMask(2, level=LEVEL, power=POWER, generator=generator, **model)
        else:
            network = Variant(W_FN, **model)
        if "start" in settings:
            network.go_on_from(load_model(settings["start"]))
        self.name, self.settings, self.chunk, self.network = name, settings, chunk, network.to(device)
        self.rates = (settings["rate"], settings.get("recurrent_rate", settings["rate"]))
        groups = [{"params": group} for group in network.groups()]
        share = settings.get("average_share", 0.05)
        self.optimiser = AveragedAdam(groups, beta2=0.99, epsilon=1e-12, clip=1.0, average=0.999, share=share)
        weights = {"si_sdr": 1.0, "pesq": 5.0, "gain": 0.05, "limit_db": 30.0, **settings.get("loss", {})}
        self.objective = weights.pop("objective", 0.0)
        network.has_objective = self.objective > 0
        self.loss = weighted(**weights)
        self.state = tuple(s.detach().clone() for s in network.start(len(chunk.reset)))
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.steps, self.history = 0, list[dict[str, float]]()

    def gradients(self) -> Tensor:
        """The loss of the chunk, its gradients in the parameters, the state in its place."""
        self.network.zero_grad(set_to_none=True)
        X, Y = self.chunk.spectra()
        start = self.network.start(len(self.chunk.reset))
        begin = self.chunk.reset
        state = tuple(
            torch.where(begin.view(-1, *[1] * (first.ndim - 1)), first, now)
            for first, now in zip(start, self.state, strict=True)
        )
        mask, after = self.network.separate(X.abs(), state)
        total, count = self.loss(mask, X, Y, self.chunk.mask())
        loss = total / count
        if self.objective:
            loss = loss + self.objective * self.network.objective
        loss.backward()
        for place, tensor in zip(self.state, after, strict=True):
            place.copy_(torch.nan_to_num(tensor.detach()))
        return loss.detach()

    def step(self, fallen: float) -> None:
        """One step at rates that have fallen so far."""
        self.steps += 1
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=False):
            group["lr"] = rate * fallen * min(1.0, self.steps / WARMUP)
        self.optimiser.step(self.gradients)


Sounds = list[tuple[Tensor, Tensor, list[int]]]  # mixtures and speech (B, S), and how long each is


def validation_sets(corpus: Path, device: torch.device) -> dict[str, Sounds]:
    """Dev; parts of it with less noise, with none, and at -6 dB."""
    items: Any = read_manifest(corpus / "dev.csv")
    dataset = Dataset(items, in_memory=True)
    picks = {"dev": items, "clean": items[3::5]}
    for k, snr_db in ((0, 10.0), (1, 20.0), (2, 30.0), (4, -6.0)):
        picks[f"{snr_db:g} dB"] = [replace(item, snr_db=snr_db) for item in items[k::5]]
    sets = {}
    for name, picked in picks.items():
        pairs = sorted((dataset.waveforms(item) for item in picked), key=lambda pair: len(pair[0]))
        pairs = [(y, y) for _, y in pairs] if name == "clean" else pairs
        sets[name] = [stacked(pairs[i : i + 40], device) for i in range(0, len(pairs), 40)]
    return sets


def stacked(pairs: list[tuple[Tensor, Tensor]], device: torch.device) -> tuple[Tensor, Tensor, list[int]]:
    x_BS, y_BS = (
        nn.utils.rnn.pad_sequence(list(sounds), batch_first=True).to(device) for sounds in zip(*pairs, strict=True)
    )
    return x_BS, y_BS, [len(x) for x, _ in pairs]


@torch.no_grad()
def validate(network: Any, sets: dict[str, Sounds]) -> dict[str, float]:
    """SDR, PESQ on every third mixture, gain of the speech; and what the atoms explain."""
    row = {}
    for name, sounds in sets.items():
        found: dict[str, list[Tensor]] = {"sdr": [], "gain": [], "pesq": [], "explained": []}
        for x_BS, y_BS, lengths in sounds:
            X = stft(x_BS)
            e_BS = istft(network.separate(X.abs())[0] * X, x_BS.shape[1])
            inside = (
                torch.arange(x_BS.shape[1], device=x_BS.device) < torch.tensor(lengths, device=x_BS.device)[:, None]
            )
            e_BS = e_BS * inside
            found["sdr"].append(ratio_db(*decompose(e_BS, y_BS, 512)))
            found["gain"].append(20 * torch.log10(speech_gain(e_BS, y_BS).clamp_min(1e-4)))
            for i in range(0, len(lengths), 3):
                found["pesq"].append(pesq_score(e_BS[i : i + 1, : lengths[i]], y_BS[i : i + 1, : lengths[i]]))
            if isinstance(network, Variant):
                found["explained"].append(network.explained[None])
        row |= {f"{name}: {key}": round(float(torch.cat(values).mean()), 3) for key, values in found.items() if values}
    return row


def report(runs: list[Run], sets: dict[str, Sounds], folder: Path, begun: float) -> None:
    for run in runs:
        with run.optimiser.averaged():
            row = {"step": run.steps, "seconds": round(time.time() - begun), **validate(run.network, sets)}
            weights = {name: value.cpu().clone() for name, value in run.network.state_dict().items()}
        torch.save(weights, folder / f"{re.sub('[^a-zA-Z0-9]+', '-', run.name)}.pt")
        run.history.append(row)
        print(run.name, json.dumps(row), flush=True)
    found = {
        run.name: {
            "settings": run.settings,
            "parameters": sum(p.numel() for p in run.network.parameters()),
            "history": run.history,
        }
        for run in runs
    }
    (folder / "history.json").write_text(json.dumps(found, indent=1))


def dictionaries(endless: Endless, ranks: set[int], seed: int) -> dict[int, Tensor]:
    """Sparse NMF of the mixtures of an epoch, as `drnmf train recipes/default.toml` begins, with so many atoms each."""
    kept: tuple[list[Tensor], list[Tensor]] = ([], [])
    for chunk in endless.epoch(0):
        for spectra, frames in zip(chunk.spectra()[::-1], kept, strict=True):
            frames.append(PriorDRNMF.features(spectra.abs(), {}).flatten(0, 1)[::16])
    clean, noisy = (torch.cat(frames).mT.contiguous() for frames in kept)
    found = {}
    for rank in ranks:
        settings: Any = {"rank_per_source": rank, "sparsity": SPARSITY, "max_iter": 200}
        generator = torch.Generator().manual_seed(seed)
        found[rank] = train_dictionaries(clean, noisy, generator=generator, **settings).W.cpu()
    return found


def chunks(endless: Endless) -> Iterator[Chunk]:
    epoch = 1
    while True:
        yield from endless.epoch(epoch)
        epoch += 1


def together(runs: list[Run], fallen: float) -> None:
    """A step of each, at the same time on a GPU."""
    if runs[0].stream is None:
        for run in runs:
            run.step(fallen)
        return
    current = torch.cuda.current_stream()
    for run in runs:
        run.stream.wait_stream(current)
        with torch.cuda.stream(run.stream):
            run.step(fallen)
        if run.steps < 6:  # graphs are captured one at a time
            torch.cuda.synchronize()
    for run in runs:
        current.wait_stream(run.stream)
    torch.cuda.synchronize()


def train(
    runs: list[Run], endless: Endless, sets: dict[str, Sounds], folder: Path, seconds: float, every: float
) -> None:
    """All networks take each chunk; validation does not count as time."""
    feed, place = chunks(endless), runs[0].chunk
    begun = last = time.time()
    paused = 0.0
    while (passed := time.time() - begun - paused) < seconds:
        for to, tensor in zip(place, next(feed), strict=True):
            to.copy_(tensor)
        fallen = 0.5 * (1 + math.cos(math.pi * passed / seconds))
        together(runs, fallen)
        if time.time() - last > every:
            pause = time.time()
            report(runs, sets, folder, begun)
            last = time.time()
            paused += last - pause
    report(runs, sets, folder, begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1000)
    parser.add_argument("--every", type=float, default=100)
    parser.add_argument("--list", default="train_wide.csv", help="the corpus's list to train on")
    parser.add_argument("--subset", type=int, default=1, help="every so-many-th row of it")
    parser.add_argument("--seed", type=int, default=2016)
    parser.add_argument("--batch", type=int, default=32)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    corpus = Path(os.environ["DRNMF_CORPUS"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pool = Pool.from_items(read_manifest(corpus / arguments.list)[:: arguments.subset])
    conditions: Any = Conditions(**CONDITIONS, **OTHERS)
    endless = Endless(pool, conditions, batch_size=arguments.batch, max_frames=500, seed=arguments.seed, device=device)
    variants = json.loads(arguments.variants.read_text())
    ranks = {name: settings["model"].get("rank", 100) for name, settings in variants.items()}
    W = dictionaries(endless, set(ranks.values()), arguments.seed)
    place = Chunk(*(tensor.clone() for tensor in next(iter(endless.epoch(0)))))
    runs = [Run(name, settings, W[ranks[name]], place) for name, settings in variants.items()]
    train(runs, endless, validation_sets(corpus, device), arguments.output, arguments.seconds, arguments.every)


if __name__ == "__main__":
    main()
