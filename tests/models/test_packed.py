"""Models in C without PyTorch against the same models in PyTorch: numbers, pictures, and what is refused."""

import inspect
import json
import pickle
from dataclasses import fields
from hashlib import sha256

import numpy as np
import pytest
import safetensors.torch
import torch

import drnmf
from drnmf import InputError, Streamer, save_model
from drnmf.engines import streams
from drnmf.models.folders import CONFIG, PACKED, WEIGHTS, load_ready
from drnmf.models.kinds import MODELS as KINDS
from drnmf.models.packed import PackedModel
from examples import MODELS, build, dictionary, noisy, recording

if not streams.available():
    pytest.skip("steps.c is not compiled here: there was no C compiler", allow_module_level=True)

NAMES = [name for name in MODELS if "drnmf" in name]
EVERY = pytest.mark.parametrize("name", [*NAMES, "tied", "many_atoms"])
MORE = {
    "tied": lambda: drnmf.DRNMF.from_dictionary(dictionary(), 3, tied=True, alpha_per="atom"),
    "many_atoms": lambda: drnmf.DRNMF(n_layers=2, n_atoms=300, sparsity=0.1),  # in the factored form
}


def made(name: str) -> drnmf.Separator:
    return MORE[name]() if name in MORE else build(name)


def both(name: str, folder, dtype: torch.dtype = torch.float64) -> tuple[drnmf.Separator, PackedModel]:
    model = made(name).to(dtype)
    save_model(model, folder)
    packed = load_ready(folder)
    assert isinstance(packed, PackedModel)
    return model, packed


@pytest.mark.parametrize("name", PACKED)
def test_options_are_those_of_the_model(name):
    _, options = PACKED[name]
    ours, theirs = (dict(inspect.signature(kind).parameters) for kind in (options, KINDS[name]))
    del theirs["generator"]
    assert {n: (p.annotation, p.default) for n, p in ours.items()} == {
        n: (p.annotation, p.default) for n, p in theirs.items()
    }
    assert list(ours) == list(theirs) == [field.name for field in fields(options)]
    assert options.removed_options == KINDS[name].removed_options


@EVERY
def test_shapes_are_those_of_the_model(name):
    model = made(name)
    _, options = PACKED[type(model).__name__]
    expected = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    assert options(**model.config).shapes() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@EVERY
def test_the_network_is_the_frozen_model_s_bit_for_bit(name, dtype, tmp_path):
    model, packed = both(name, tmp_path, dtype)
    ours, theirs = packed.network._asdict(), model.ready().network._asdict()
    for part in theirs:
        np.testing.assert_equal(ours[part], theirs[part], part)
    assert packed.network.silent.dtype == str(dtype).removeprefix("torch.")


@EVERY
def test_weights_act_as_in_pytorch(name, tmp_path):
    model, packed = both(name, tmp_path)
    assert packed.n_speech == model.n_speech
    for ours, theirs in ((packed.spectra(), model.spectra()), (packed.learned(), model.learned())):
        assert list(ours) == list(theirs)
        for part, values in theirs.items():
            np.testing.assert_allclose(ours[part], values.detach().numpy(), rtol=1e-10, atol=1e-12, err_msg=part)


@EVERY
def test_it_sees_and_hears_what_pytorch_does(name, tmp_path):
    model, packed = both(name, tmp_path)
    X = noisy()[:60].numpy()
    (mask, heard), (expected_mask, expected) = packed.look(X), model.look(X)
    np.testing.assert_allclose(mask, expected_mask, rtol=0, atol=1e-9)
    assert mask.std() > 0.01
    assert list(heard) == list(expected)
    for part, values in expected.items():
        np.testing.assert_allclose(heard[part], values, rtol=1e-7, atol=1e-9, err_msg=part)


def test_it_travels_to_other_processes(tmp_path):
    _, packed = both("prior_drnmf", tmp_path, torch.float32)
    x = recording("speech/austen_0880", 8000).float().numpy()
    first, second = (Streamer(model).feed(x) for model in (packed, pickle.loads(pickle.dumps(packed))))
    assert first.any()
    np.testing.assert_array_equal(first, second)


def store(folder, tensors) -> None:
    content = safetensors.torch.save(tensors)
    (folder / WEIGHTS).write_bytes(content)
    config = json.loads((folder / CONFIG).read_text()) | {"sha256": sha256(content).hexdigest()}
    (folder / CONFIG).write_text(json.dumps(config))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_the_size_are_taken(dtype, tmp_path):
    model = made("drnmf_options").to(dtype)
    save_model(model, tmp_path)
    packed, frozen = load_ready(tmp_path), model.ready()
    assert packed.network.silent.dtype == np.float32
    for part, values in frozen.network._asdict().items():
        np.testing.assert_array_equal(packed.network._asdict()[part], values, part)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["log_W"][0, 3, 1].fill_(torch.nan), "holds weights that are NaN or infinite"),
        (lambda t: t.update(log_h0=t["log_h0"].float()), "its weights are float32 and float64; save them as float32"),
        (lambda t: t.update(log_h0=t["log_h0"].int()), "do not belong together.*numbers of type I32"),
        (lambda t: t.update(more=torch.zeros(1)), "do not belong together.*more"),
        (lambda t: t.pop("log_h0"), "do not belong together.*log_h0"),
        (
            lambda t: t.update(log_h0=torch.zeros(11).double()),
            r"do not belong together.*size mismatch for log_h0: \(11,",
        ),
        (lambda t: t.update(log_h0=torch.zeros(2**18)), r"cannot be read \(\d+ bytes, \d+ are the most\)"),
    ],
)
def test_weights_that_nobody_can_compute_with_are_refused_in_one_line(change, message, tmp_path):
    save_model(made("drnmf"), tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / WEIGHTS)
    change(tensors)
    store(tmp_path, tensors)
    with pytest.raises(InputError, match=message) as error:
        load_ready(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, r"config\.json: DRNMF has no option 'colour'; known: n_layers, n_atoms,"),
        ({"n_layers": 1.0}, r"config\.json: n_layers must be a whole number"),
        ({"n_layers": 1000, "n_atoms": 10_000}, r"config\.json: a model with \d+ weights is too large"),
        ({"power": 0}, r"config\.json: power must be positive"),
        ({"sparsity_per": "bin"}, r"config\.json: sparsity_per must be one of layer, atom"),
        ({"n_speech": 12}, r"config\.json: of 12 atoms at least one must be speech"),
        ({"momentum": True}, r"config\.json: momentum = True was removed"),
        ({"n_layers": 4}, "do not belong together.*size mismatch"),
    ],
)
def test_options_that_make_no_model_are_refused_in_one_line(change, message, tmp_path):
    save_model(made("drnmf"), tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    config["config"] |= change
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(InputError, match=message) as error:
        load_ready(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["lstm", "snmf", "deep_nmf"])
def test_other_kinds_are_loaded_by_pytorch(name, tmp_path):
    save_model(build(name), tmp_path)
    assert isinstance(load_ready(tmp_path), drnmf.Separator)
