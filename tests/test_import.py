import inspect
import subprocess
import sys

import pytest

import drnmf

PUBLIC = [
    "Streamer",
    "stft",
    "istft",
    "beta_divergence",
    "sparse_nmf",
    "enhance",
    "infer_activations",
    "train_dictionaries",
    "ista",
    "warm_start_ista",
    "fista",
    "lipschitz",
    "step_bounds",
    "ratio_mask",
    "save_model",
    "load_model",
    "DRNMF",
    "LSTMMask",
    "SparseNMFMask",
    "ISTAMask",
    "DeepNMF",
    "SistaRNN",
    "OracleMask",
    "Separator",
    "InputError",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name):
    assert name in drnmf.__all__
    assert hasattr(drnmf, name)


@pytest.mark.parametrize("name", drnmf.__all__)
def test_everything_public_is_documented_and_typed(name):
    thing = getattr(drnmf, name)
    assert inspect.getdoc(thing)
    if thing not in (drnmf.InputError, drnmf.audio):  # an exception's arguments are Python's own
        parameters = inspect.signature(thing).parameters.values()
        assert [p.name for p in parameters if p.annotation is p.empty] == []


@pytest.mark.parametrize("model", [drnmf.DRNMF])
def test_every_option_is_documented(model):
    text = inspect.getdoc(model)
    assert [name for name in inspect.signature(model).parameters if f"{name}: " not in text] == []


def test_import_is_fast_and_light():
    program = """
import sys, time, torch
start = time.perf_counter()
import drnmf
print(time.perf_counter() - start)
print(*{name.split(".")[0] for name in sys.modules} & {"lightning", "matplotlib", "scipy", "sklearn", "pesq"})
"""
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split("\n")
        for _ in range(2)
    ]
    assert min(float(seconds) for seconds, *_ in runs) < 1  # the best: another program may have been busy
    assert runs[0][1] == ""
