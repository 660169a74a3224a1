"""What C is given fits, whoever calls; and every set of instructions computes the same."""

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drnmf import DRNMF, InputError, LSTMMask, PriorDRNMF, Separator, Streamer
from drnmf.engines import compiled, library, streams
from drnmf.engines.scan import scan
from drnmf.maths.thresholding import unfolded_ista
from drnmf.signal import BINS
from engines.problems import NAMES, assert_same, problem, values_and_gradients
from examples import noisy, recording, seeded

if compiled.library() is None:
    pytest.skip("steps.c is not compiled here: there was no C compiler", allow_module_level=True)

ENGINES = Path(compiled.__file__).parent
REFUSED = (InputError, RuntimeError, IndexError)  # by us, or by PyTorch before it comes to C


def gram(n_features: int = BINS) -> DRNMF:
    return DRNMF(n_layers=2, n_atoms=24, n_features=n_features, generator=seeded())


def factored(n_features: int = BINS) -> DRNMF:
    return DRNMF(n_layers=2, n_atoms=300, n_features=n_features, generator=seeded())


def prior(n_features: int = BINS) -> PriorDRNMF:
    sizes = {"n_layers": 2, "n_atoms": 24, "n_units": 16, "n_features": n_features}
    return PriorDRNMF(**sizes, level=1.0, generator=seeded())


def lstm(n_features: int = BINS) -> LSTMMask:
    return LSTMMask(1, 8, n_features=n_features, generator=seeded())


COMPILED = pytest.mark.parametrize("make", [gram, factored, prior])
EVERY = pytest.mark.parametrize("make", [gram, factored, prior, lstm])


def entries(model: Separator) -> list:
    """All ways from frames into a model that its own check does not guard, then the one that it does."""
    found = [model.separate, model]
    return [model.activations, *found] if isinstance(model, DRNMF) else found


def changed(state: tuple[torch.Tensor, ...], place: int, how) -> tuple[torch.Tensor, ...]:
    return tuple(how(tensor) if i == place else tensor for i, tensor in enumerate(state))


def test_one_place_hands_out_addresses():
    for path in ENGINES.glob("*.py"):
        found = re.findall(r"data_ptr|ctypes\.data\b", path.read_text())
        assert not found or path.name in ("library.py", "cuda_kernel.py"), path.name


@EVERY
@pytest.mark.parametrize("bins", [0, 1, 256, 258, 400])
def test_other_frames_are_refused(make, bins):
    for enter in entries(make().freeze()):
        with pytest.raises(REFUSED):
            enter(torch.rand(1, 3, bins))


@COMPILED
@pytest.mark.parametrize(
    "how",
    [
        lambda s: s[:, :-1],
        lambda s: torch.cat([s, s], 1),
        lambda s: torch.cat([s, s], 0),
        lambda s: s[:0],
        lambda s: s[0],
        lambda s: s.double(),
        lambda s: s.long(),
    ],
    ids=["narrow", "wide", "more", "none", "flat", "double", "whole numbers"],
)
def test_other_states_are_refused(make, how):
    model = make().freeze()
    x = torch.rand(1, 3, BINS)
    for place in range(len(model.state_shapes) - isinstance(model, PriorDRNMF)):  # C does not read the level
        for enter in entries(model):
            _, state = model(x)
            with pytest.raises(InputError):
                enter(x, changed(state, place, how))


def test_other_states_of_an_lstm_are_refused():
    model, x = lstm().freeze(), torch.rand(1, 3, BINS)
    _, (h, c) = model(x)
    for state in ((h[:, :, :-1], c), (h, c[0]), (h, torch.cat([c, c])), (h, c.double()), (h[:, :0], c)):
        for enter in entries(model):
            with pytest.raises(REFUSED):
                enter(x, state)


def test_states_that_only_together_have_the_right_size_are_refused():
    model, x = prior().freeze(), torch.rand(1, 3, BINS)
    _, (h, g, c, level) = model(x)
    with pytest.raises(InputError, match="the state h"):
        model.separate(x, (torch.cat([h, h[:, :4]], 1), g[:, :-4], c, level))


@COMPILED
def test_numbers_of_another_kind_are_refused(make):
    network = make().freeze().network
    x, state = torch.rand(1, 3, BINS, dtype=torch.float64), torch.zeros(1, len(network.silent), dtype=torch.float64)
    with pytest.raises(InputError, match="must be"):
        streams.frames(network, x, state)
    if isinstance(network, streams.Network):
        with pytest.raises(InputError, match="must be"):
            network.activations(x, state)


@EVERY
def test_the_layout_in_memory_does_not_matter(make):
    model = make().freeze()
    x = torch.rand(2, 6, BINS, generator=seeded())
    mask, state = model(x)
    turned = x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    strided = torch.stack([x, -x], 3)[..., 0]
    spread = tuple(torch.stack([s, s], s.ndim)[..., 0] for s in state)
    for other in (turned, strided):
        assert not other.is_contiguous()
        torch.testing.assert_close(model.separate(other)[0], mask, rtol=0, atol=1e-6)
    torch.testing.assert_close(model.separate(x, spread), model.separate(x, state), rtol=0, atol=0)


@COMPILED
def test_a_network_whose_parts_do_not_fit_is_refused(make):
    network = make().freeze().network
    parts = {name: value for name, value in network._asdict().items() if isinstance(value, np.ndarray)}
    assert len(parts) >= 5
    for name, values in parts.items():
        turned = [] if name == "silent" else [values[..., ::-1]]  # a stream copies its state
        narrow = (values[..., :-n].copy() for n in (1, 16, 32))
        for other in (*narrow, values[..., :-1], values.astype(np.float16), *turned):
            with pytest.raises(InputError):
                streams.Stream(network._replace(**{name: other}), channels=1, strength=1.0)


@settings(max_examples=60, deadline=None)
@given(
    make=st.sampled_from([gram, factored, prior]),
    shape=st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, 24, 256, BINS, BINS, 300])),
    batch=st.integers(0, 3),
    widths=st.tuples(*[st.sampled_from([0, 16, 24, 24, 300, 300])] * 3),
    dtypes=st.tuples(*[st.sampled_from([torch.float32, torch.float32, torch.float64, torch.bfloat16])] * 2),
)
def test_frames_and_states_of_any_shape(make, shape, batch, widths, dtypes):
    """Either refused, or what PyTorch computes."""
    model, x = make(), torch.rand(shape, generator=seeded()).to(dtypes[0])
    state = [torch.rand(batch, width, generator=seeded()).to(dtypes[1]) for width in widths[: len(model.state_shapes)]]
    state += [torch.zeros(batch, 2)] * (len(model.state_shapes) - len(state))
    fits = [tuple(s.shape[1:]) for s in state] == [*model.state_shapes] and batch == shape[0]
    try:
        mask, _ = model.freeze().separate(x, tuple(state))
    except REFUSED:
        return
    assert shape[1] == 0 or shape[0] == 0 or (fits and shape[2] == BINS and {*dtypes} == {torch.float32})
    if mask.numel():
        torch.testing.assert_close(mask, model.separate(x, tuple(state))[0].detach(), rtol=0, atol=1e-4)


@COMPILED
@pytest.mark.parametrize(
    "options",
    [
        {"top": slice(0, BINS + 1)},
        {"top": slice(-3, 5)},
        {"top": slice(5, 5)},
        {"top": slice(7, 5)},
        {"top": slice(None, 5)},
        {"top": slice(0, 10**9)},
        {"channels": 0},
        {"channels": -1},
    ],
    ids=str,
)
def test_streams_that_would_leave_their_memory_are_refused(make, options):
    with pytest.raises(InputError):
        make().freeze().stream(**{"channels": 1, "strength": 1.0, "top": None, "silence": 0.0, **options})


@COMPILED
@pytest.mark.parametrize("bins", [1, 129, 513])
def test_streams_of_other_frames_are_refused(make, bins):
    with pytest.raises(InputError, match="257 bins"):
        make(bins).freeze().stream(channels=1, strength=1.0, top=None, silence=0.0)


@COMPILED
@pytest.mark.parametrize(
    "block",
    [np.ones((1, 600)), np.ones((3, 600)), np.ones(600), np.ones((2, 600), np.int16), np.ones((2, 600), complex)],
    ids=lambda block: f"{block.shape} {block.dtype}",
)
def test_other_blocks_are_refused(make, block):
    stream = make().freeze().stream(channels=2, strength=1.0, top=None, silence=0.0)
    with pytest.raises(InputError, match=r"samples \(2, n\)"):
        stream.feed(block)


def test_without_features_or_atoms():
    arguments = {**problem(3, 4, 2, 5, 0), "alpha_KN": torch.ones(2, 1, dtype=torch.float64)}
    needed = NAMES[1:]
    expected = values_and_gradients(unfolded_ista, arguments, needed=needed)
    assert_same(values_and_gradients(scan, arguments, needed=needed, form="compiled"), expected)
    with pytest.raises(InputError, match="compiled"):
        scan(**problem(3, 4, 2, 0, 5), form="compiled")


def test_a_stream_has_one_thread_at_a_time():
    """While C is at work for one, others are refused, and do it no harm."""
    x = np.float32(recording("speech/austen_0880", 4000))[None]
    stream, other = (gram().freeze().stream(channels=1, strength=1.0, top=None, silence=0.0) for _ in range(2))
    compute, begun, refused, results = stream._feed, threading.Event(), threading.Event(), []

    def slow(*arguments: object) -> int:
        begun.set()
        assert refused.wait(10)
        return compute(*arguments)

    stream._feed = slow
    thread = threading.Thread(target=lambda: results.append(stream.feed(x)), daemon=True)
    thread.start()
    assert begun.wait(10)
    for call in (lambda: stream.feed(x), stream.start):
        with pytest.raises(InputError, match="another thread"):
            call()
    refused.set()
    thread.join(timeout=10)
    np.testing.assert_array_equal(results[0], other.feed(x))


@pytest.fixture(params=library.INSTRUCTIONS)
def instructions(request) -> Iterator[str]:
    loaded = library.load()
    if not hasattr(loaded, "allow_instructions"):
        pytest.skip("an older steps.c is compiled here")
    before = os.environ.get("DRNMF_INSTRUCTIONS", library.INSTRUCTIONS[-1])
    wanted, before = (library.INSTRUCTIONS.index(name) for name in (request.param, before))
    used = loaded.allow_instructions(wanted)
    if used == wanted:
        yield request.param
    loaded.allow_instructions(before)
    if used != wanted:
        pytest.skip(f"this machine does not have {request.param}")


def test_every_set_of_instructions_computes_the_scan(instructions):
    for sizes in ((1, 9, 2, 13, 7), (5, 9, 3, 24, 33), (3, 3, 2, 431, 230)):
        arguments = problem(*sizes, per_atom=True)
        expected = values_and_gradients(unfolded_ista, arguments, needed=NAMES[1:])
        assert_same(values_and_gradients(scan, arguments, needed=NAMES[1:], form="compiled"), expected)


@COMPILED
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 3e-5)])
def test_every_set_of_instructions_computes_streams(instructions, make, dtype, tolerance, monkeypatch):
    model, x = make().to(dtype), recording("speech/austen_0880", 8000).to(dtype)
    result = Streamer(model, 44100).feed(x)
    monkeypatch.setattr(compiled, "library", lambda: None)
    torch.testing.assert_close(result, Streamer(model, 44100).feed(x), rtol=0, atol=tolerance)


@COMPILED
def test_every_set_of_instructions_computes_frames(instructions, make):
    model, x = make().double(), noisy()[None, :30].double()
    with torch.no_grad():
        torch.testing.assert_close(model.freeze()(x)[0], model(x)[0], rtol=0, atol=1e-9)


def test_an_unknown_set_of_instructions_is_refused(monkeypatch):
    monkeypatch.setenv("DRNMF_INSTRUCTIONS", "sse9")
    with pytest.raises(InputError, match="baseline, avx2, avx512"):
        library.load.__wrapped__()  # not the library that is loaded already
