"""Whether the atoms are still spectra that one can look at: `python -m benchmarks.atoms default --start FILE`.

Over the mixtures of dev, in the model's features (magnitudes at their running level, to its power):

    explained    1 - |x - W h|^2 / |x|^2 of the last layer's h: how much of what is heard the atoms hold
    used         atoms that are active in at least one of a hundred frames
    active       share of all activations above 0
    kept         cosine between an atom and the one it started as (--start: dictionaries.safetensors of the run)

Leaves them in docs/results/atoms.json. DRNMF_CORPUS names the corpus.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from benchmarks.measure import commit
from drnmf import PriorDRNMF, load_model
from drnmf.data.batches import Dataset
from drnmf.data.manifests import read_manifest
from drnmf.maths.nmf import unit_norm
from drnmf.signal.spectra import stft

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "atoms.json"
OFTEN = 0.01  # of all frames


@torch.no_grad()
def heard(model: PriorDRNMF, magnitude_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Features x (T, F) of a recording, and the activations h (T, N) that explain them."""
    *memory, _ = model.start(1)
    x_BTF = model.features(magnitude_TF[None], model.config)
    h_BTN, _, _ = model._explained(x_BTF, memory, model.weights())
    return x_BTF[0], h_BTN[0]


def measured(model: PriorDRNMF, magnitudes: list[Tensor]) -> dict[str, float]:
    """Figures over all recordings."""
    W_FN = model.dictionary().detach()
    error = energy = 0.0
    active_N, frames = torch.zeros(W_FN.shape[1]), 0
    for magnitude_TF in magnitudes:
        x_TF, h_TN = heard(model, magnitude_TF)
        error += float((x_TF - h_TN @ W_FN.mT).square().sum())
        energy += float(x_TF.square().sum())
        active_N += (h_TN > 0).sum(0)
        frames += len(x_TF)
    share_N = active_N / frames
    return {
        "explained": 1 - error / energy,
        "used": int((share_N >= OFTEN).sum()),
        "atoms": len(share_N),
        "active": float(share_N.mean()),
    }


def kept(model: PriorDRNMF, start_FN: Tensor) -> dict[str, float]:
    """Quantiles of the cosine between each atom and its start."""
    cosine_N = (unit_norm(start_FN) * model.dictionary().detach()).sum(0)
    low, median, high = (float(cosine_N.quantile(q)) for q in (0.1, 0.5, 0.9))
    return {"kept_low": low, "kept_median": median, "kept_high": high}


def main() -> None:
    """Measure, and store beside what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a bundled model, or a model's folder")
    parser.add_argument("--start", type=Path, help="the dictionaries it started from")
    parser.add_argument("--every", type=int, default=1, help="only every so-many-th mixture")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(arguments.model)
    if not isinstance(model, PriorDRNMF):
        parser.error(f"{arguments.model} is no PriorDRNMF")
    items = read_manifest(Path(os.environ["DRNMF_CORPUS"]) / "dev.csv")[:: arguments.every]
    dataset = Dataset(items, in_memory=True)
    figures: dict[str, Any] = measured(model, [stft(dataset.waveforms(item)[0]).abs() for item in items])
    if arguments.start:
        figures |= kept(model, safetensors.torch.load_file(arguments.start)["W"])
    stored = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    stored[arguments.model] = {"commit": commit(), "mixtures": len(items), **figures}
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    print(json.dumps(stored[arguments.model], indent=1))


if __name__ == "__main__":
    main()
