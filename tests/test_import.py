import importlib
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
    "adapt",
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


@pytest.mark.parametrize("name", ["stft", "ista", "enhance"])
def test_no_module_hides_a_function(name):
    for module in list(sys.modules):
        if module.startswith("drnmf."):
            importlib.import_module(module)
    assert inspect.isfunction(getattr(drnmf, name))
    assert importlib.util.find_spec(f"drnmf.{name}") is None


def test_names_that_do_not_exist_are_said_as_python_does():
    with pytest.raises(AttributeError, match="has no attribute 'dtft'"):
        drnmf.dtft  # noqa: B018
    assert set(drnmf.__all__) <= set(dir(drnmf))


def test_importing_is_light():
    heavy = {"torch", "numpy", "soundfile", "soxr", "lightning", "matplotlib", "scipy", "sklearn", "pesq"}
    program = f"import sys, drnmf; print(*{heavy} & set(sys.modules)); drnmf.DRNMF; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["", "True"]
