import contextlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drnmf import InputError, LSTMMask, OracleMask, Separator, load_model, save_model
from drnmf.models.folders import CONFIG, WEIGHTS
from examples import MODELS, build, dictionary, noisy, spectra

FILES = sorted([CONFIG, WEIGHTS])


def same(first: Separator, second: Separator) -> bool:
    """The same kind of model with the same settings and, bit for bit, the same weights."""
    a, b = first.state_dict(), second.state_dict()
    return (
        type(first) is type(second)
        and first.config == second.config
        and list(a) == list(b)
        and all(a[key].dtype == b[key].dtype and torch.equal(a[key], b[key]) for key in a)
    )


def saved(folder: Path, name: str = "drnmf") -> Path:
    save_model(build(name), folder)
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def change_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_model_comes_back_bit_for_bit(tmp_path, name, dtype):
    model, folder = build(name).to(dtype), tmp_path / "a" / "model"
    save_model(model, folder)
    assert files(folder) == FILES
    again = load_model(str(folder))
    assert same(model, again)
    assert not again.training
    x = noisy()[None, 20:40].to(dtype)
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=0)
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]


def test_a_trained_model_is_saved_as_it_is_now(tmp_path):
    model = build("drnmf")
    optimiser = torch.optim.Adam(model.parameters())
    model(noisy()[None])[0].sum().backward()
    optimiser.step()
    save_model(model, tmp_path)
    assert same(model, load_model(tmp_path))
    assert not same(build("drnmf"), load_model(tmp_path))


def test_the_files_can_be_read_without_us(tmp_path):
    from safetensors.torch import load_file

    config = json.loads((saved(tmp_path) / CONFIG).read_text())
    assert config["model"] == "DRNMF"
    assert (config["sample_rate"], config["window"], config["hop"]) == (16000, 512, 128)
    assert config["config"]["n_layers"] == 3
    assert torch.equal(load_file(tmp_path / WEIGHTS)["log_W"], build("drnmf").log_W)


def test_a_model_saved_before_two_options_were_removed_still_loads(tmp_path):
    saved(tmp_path)
    options = json.loads((tmp_path / CONFIG).read_text())["config"]
    change_config(tmp_path, config={**options, "transition": False, "momentum": False})
    assert same(load_model(tmp_path), build("drnmf"))


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"transition": True}, "transition = True was removed; drnmf's commit d82fef1 can read this model"),
        ({"momentum": True}, "momentum = True was removed; drnmf's commit d82fef1 can read this model"),
        ({"alpha_range": "stable"}, "alpha_range must be one of free, weighted, got 'stable'"),
    ],
)
def test_a_model_that_used_a_removed_option_is_refused_in_one_line(option, text, tmp_path):
    saved(tmp_path)
    options = json.loads((tmp_path / CONFIG).read_text())["config"]
    change_config(tmp_path, config={**options, **option})
    with pytest.raises(InputError, match=f"config.json: {text}$"):
        load_model(tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_loading_draws_no_random_numbers_and_computes_no_eigenvectors(name, tmp_path, monkeypatch):
    """A model made only to be overwritten would take longer than reading its weights."""
    saved(tmp_path, name)
    for function in ("eigh", "eigvalsh", "matrix_norm", "svdvals"):
        monkeypatch.setattr(torch.linalg, function, lambda *_, **__: pytest.fail("loading computes first weights"))
    before = torch.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["drnmf", "sista", "deep_nmf", "snmf", "ista"])
def test_a_model_made_from_a_dictionary_draws_no_random_numbers(name):
    dictionary()
    before = torch.get_rng_state()
    build(name)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize(
    ("owner", "function", "nth"),
    [(os, "open", 2), (Path, "write_bytes", 1), (Path, "write_bytes", 2), (Path, "replace", 1)],
)
def test_a_failure_while_saving_leaves_the_old_model(tmp_path, monkeypatch, owner, function, nth, error):
    old, calls, real = build("drnmf"), [], getattr(owner, function)
    save_model(old, tmp_path)

    def failing(*args, **options):
        calls.append(args)
        if len(calls) == nth:
            raise error
        return real(*args, **options)

    monkeypatch.setattr(owner, function, failing)
    with pytest.raises((InputError, KeyboardInterrupt)):
        save_model(build("lstm"), tmp_path)
    monkeypatch.undo()
    assert len(calls) == nth
    assert same(old, load_model(tmp_path))
    assert files(tmp_path) == FILES


def test_saving_again_replaces_the_model(tmp_path):
    saved(tmp_path)
    saved(tmp_path, "lstm")
    assert same(build("lstm"), load_model(tmp_path))
    assert files(tmp_path) == FILES


def swap_weights(folder: Path) -> None:
    shutil.copy(saved(folder / "other", "drnmf_cold") / WEIGHTS, folder / WEIGHTS)


def swap_config(folder: Path) -> None:
    shutil.copy(saved(folder / "other", "lstm") / CONFIG, folder / CONFIG)


def nonsense_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"nonsense")
    change_config(folder, sha256=sha256(b"nonsense").hexdigest())


def other_sizes(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text())["config"]
    change_config(folder, config=config | {"n_layers": 4})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-1]), "model.safetensors: damaged"),
        (lambda f: (f / WEIGHTS).write_bytes(b""), "model.safetensors: damaged"),
        (swap_weights, "damaged, or not the weights of its config.json"),
        (swap_config, "damaged, or not the weights of its config.json"),
        (lambda f: (f / WEIGHTS).unlink(), "model.safetensors: cannot be read .No such file"),
        (lambda f: (f / CONFIG).unlink(), "not a model, it has no config.json"),
        (lambda f: (f / CONFIG).write_bytes(b"\xff\xfe\x00"), "config.json: not readable as a model's config"),
        (lambda f: (f / CONFIG).write_text("{"), "config.json: not readable as a model's config"),
        (lambda f: (f / CONFIG).write_text("[1, 2]"), "not a drnmf model's configuration"),
        (lambda f: (f / CONFIG).write_text('{"architectures": ["Bert"]}'), "not a drnmf model's configuration"),
        (lambda f: change_config(f, format=2), r"newer drnmf \(format 2\); upgrade"),
        (lambda f: change_config(f, format="1"), "not a drnmf model's configuration"),
        (lambda f: change_config(f, model="Transformer"), "unknown kind of model 'Transformer'; known: DRNMF"),
        (lambda f: change_config(f, model=["DRNMF"]), "unknown kind of model"),
        (lambda f: change_config(f, sample_rate=8000), "sample_rate is 8000, this version works with 16000"),
        (lambda f: change_config(f, hop=None), "hop is None"),
        (
            lambda f: change_config(f, config={"colour": "red"}),
            r"DRNMF has no option 'colour'; known: n_layers, n_atoms,",
        ),
        (
            lambda f: change_config(f, config={"n_atoms": 4}),
            r"config\.json: DRNMF needs n_layers; known: n_layers, n_at",
        ),
        (lambda f: change_config(f, config=7), r"config\.json: no DRNMF has such options"),
        (other_sizes, "do not belong together.*size mismatch"),
        (nonsense_weights, "do not belong together"),
    ],
)
def test_folders_that_hold_no_model_say_so_in_one_line(tmp_path, damage, message):
    damage(saved(tmp_path))
    with pytest.raises(InputError, match=message) as error:
        load_model(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_damaged_byte_of_the_weights_goes_unnoticed(data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(LSTMMask(1, 2, n_features=3), folder)
        weights = bytearray((folder / WEIGHTS).read_bytes())
        weights[data.draw(st.integers(0, len(weights) - 1))] ^= data.draw(st.integers(1, 255))
        (folder / WEIGHTS).write_bytes(weights)
        with pytest.raises(InputError, match="damaged"):
            load_model(folder)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
)


@settings(max_examples=80, deadline=None)
@given(key=st.sampled_from(["format", "model", "config", "sha256", "sample_rate", "window", "hop"]), value=json_values)
def test_no_foreign_configuration_raises_anything_else(key, value):
    with tempfile.TemporaryDirectory() as name:
        save_model(LSTMMask(1, 2, n_features=3), name)
        change_config(Path(name), **{key: value})
        with contextlib.suppress(InputError):
            assert isinstance(load_model(name), LSTMMask)  # a change that means the same


def reweigh(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the weights, and the digest too: what somebody would give us who means it."""
    tensors = safetensors.torch.load_file(folder / WEIGHTS)
    change(tensors)
    content = safetensors.torch.save(tensors)
    (folder / WEIGHTS).write_bytes(content)
    change_config(folder, sha256=sha256(content).hexdigest())


def convert(dtype: torch.dtype, *names: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.update({name: tensors[name].to(dtype) for name in names or tensors})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["log_W"][0, 3, 1].fill_(math.nan), "holds weights that are NaN or infinite"),
        (lambda t: t["log_sparsity"][0].fill_(-math.inf), "holds weights that are NaN or infinite"),
        (convert(torch.float8_e4m3fn), "its weights are float8_e4m3fn; save them as float32"),
        (convert(torch.complex64), "its weights are complex64; save them"),
        (convert(torch.float32, "log_W"), "its weights are float32 and float64; save them"),
        (convert(torch.int32), "do not belong together"),
        (lambda t: t.update(more=torch.zeros(1)), "do not belong together.*more"),
        (lambda t: t.pop("log_h0"), "do not belong together.*log_h0"),
        (lambda t: t.update(log_h0=torch.zeros(2**18)), r"cannot be read \(\d+ bytes, \d+ are the most\)"),
    ],
)
def test_weights_that_nobody_can_compute_with_are_refused_in_one_line(change, message, tmp_path):
    reweigh(saved(tmp_path), change)
    with pytest.raises(InputError, match=message) as error:
        load_model(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_the_size_are_taken(dtype, tmp_path):
    reweigh(saved(tmp_path), convert(dtype))
    assert load_model(tmp_path).log_W.dtype == dtype


WRONG_OPTIONS = {
    "n_speech": [100.5, "100", True, [3]],
    "n_layers": [1.0, False, None, 10**400, 1001],
    "n_atoms": [1e3, 10**6, 2**63, None],
    "n_features": [10**9, {}],
    "level": [math.inf, math.nan, "1", True],
    "power": [math.inf, math.nan, None, 1e308],
    "sparsity": [math.inf, math.nan, "1"],
    "warm_start": [1, "no", None],
    "generator": [3],
    "alpha_range": ["stable", 3, None, ["free"]],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG_OPTIONS.items() for value in values]
)
def test_a_wrong_option_is_named_before_anything_is_built(name, value, tmp_path, monkeypatch):
    saved(tmp_path)
    options = json.loads((tmp_path / CONFIG).read_text())["config"]
    change_config(tmp_path, config=options | {name: value})
    monkeypatch.setattr(torch.nn.Module, "__init__", lambda *_: pytest.fail("a model is being built"))
    with pytest.raises(InputError, match=rf"config\.json: ({name} must be |a model with \d+ weights)") as error:
        load_model(tmp_path)
    assert len(str(error.value)) < 250 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("DRNMF", {"n_layers": 1000, "n_atoms": 200_000, "tied": True}),  # small on disk, and a layer each in memory
        ("LSTMMask", {"n_layers": 1000, "n_units": 100_000}),
        ("DeepNMF", {"n_layers": 9, "n_untied": 9, "n_atoms": 9, "context": 10**6}),
        ("PriorDRNMF", {"n_units": 10**6}),
    ],
)
def test_a_few_bytes_cannot_name_a_model_that_fills_the_memory(kind, options, tmp_path):
    saved(tmp_path)
    change_config(tmp_path, model=kind, config=options)
    with pytest.raises(InputError, match=r"a model with \d+ weights is too large"):
        load_model(tmp_path)


ENDLESS = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "a terabyte that takes no room on the disk": lambda path: (path.touch(), os.truncate(path, 2**40)),
}


@pytest.mark.skipif(os.name != "posix", reason="has no such files")
@pytest.mark.parametrize("make", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("name", FILES)
def test_what_never_ends_is_not_read(name, make, tmp_path):
    path = saved(tmp_path) / name
    path.unlink()
    make(path)
    with pytest.raises(InputError, match=r"\(not a plain file\)|\d+ are the most|it has no config\.json"):
        load_model(tmp_path)


def test_a_configuration_can_be_nested_as_deep_as_it_likes(tmp_path):
    for text in ("[" * 100_000, '{"a":' * 100_000, f'{{"format": 1, "config": {"[" * 900 + "]" * 900}}}'):
        (saved(tmp_path) / CONFIG).write_text(text)
        with pytest.raises(InputError, match=r"config\.json: "):
            load_model(tmp_path)


def test_one_s_own_model_that_has_no_entry_is_refused_by_its_name(tmp_path):
    class Mine(Separator):
        pass

    with pytest.raises(
        InputError, match=r"Mine cannot be saved: it is not in drnmf\.models\.kinds\.MODELS, nor in a module"
    ):
        save_model(Mine(257), tmp_path / "mine")


def test_names_that_are_no_models(tmp_path):
    for name in ("a" * 5000, "a\0b", "/dev/zero", ""):
        with pytest.raises(InputError, match=r"no such model folder|not a model"):
            load_model(name)
    with pytest.raises(InputError, match="no-such-model: no such model folder; bundled models: "):
        load_model("no-such-model")
    with pytest.raises(InputError, match=r"not a model, it has no config\.json"):
        load_model(tmp_path)


def test_what_cannot_be_saved(tmp_path):
    speech, noise = (X[None] for X in spectra())
    with pytest.raises(InputError, match=r"OracleMask cannot be saved: it is not in drnmf\.models\.kinds\.MODELS"):
        save_model(OracleMask(speech, noise), tmp_path / "oracle")
    assert not (tmp_path / "oracle").exists()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"file: this folder cannot be made \(File exists\)"):
        save_model(build("lstm"), tmp_path / "file")
