"""A model as an ONNX graph that takes one frame: magnitude and state in, mask and next state out.

    inputs    magnitude (1, F), state_0, state_1, ...          float32
    outputs   mask (1, F), next_state_0, next_state_1, ...     of the states' shapes

Every state is zeros before the first frame; after that, what came out as next_state_i goes in as state_i. A model that
looks at single frames has no states. The file's metadata say how magnitudes are made: sample rate, window and hop.

The graph is built node by node rather than traced: exponentials, normalisations and step sizes become constants, each
dictionary is stored once, and a DR-NMF layer is five nodes where tracing makes seventy. Layers are evaluated in the
factored form, x - W h first: it needs one matrix in the file instead of two, and far less work for many atoms.
"""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.files import write_atomically
from drnmf.maths.divergence import FLOOR
from drnmf.maths.nmf import unit_norm
from drnmf.models import DRNMF, DeepNMF, ISTAMask, LSTMMask, SistaRNN, SparseNMFMask
from drnmf.models.base import MASK_FLOOR, Separator
from drnmf.signal.level import ATTACK, RELEASE, SILENCE
from drnmf.signal.spectra import HOP, SAMPLE_RATE, WINDOW

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError:
    raise InputError("export needs the package onnx, which is not installed: pip install 'drnmf[onnx]'") from None

OPSET = 17
_IR_VERSION = 8  # the one of opset 17: a newer one would only lock out older runtimes

Frame = tuple[str, list[str]]
"""Names of the mask and of the next states."""


def export(model: Separator, path: Path | str) -> None:
    """Write `model` as an ONNX file; a reader never sees a half-written one."""
    content = onnx_model(model).SerializeToString()
    try:
        write_atomically(Path(path), content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None


def onnx_model(model: Separator) -> onnx.ModelProto:
    """The ONNX model of the frame-by-frame network, checked."""
    graph, F = _Graph(), model.n_features
    exact = copy.deepcopy(model).cpu().double().requires_grad_(False)  # constants are rounded once, when stored
    remembers = getattr(model, "warm_start", True)
    needed = model.state_shapes if remembers else model.state_shapes[1:]
    shapes = [(1, *shape) for shape in needed if 0 not in shape]
    inputs = {"magnitude": (1, F), **{f"state_{i}": shape for i, shape in enumerate(shapes)}}
    mask, states = _frame(graph, exact, *inputs)
    outputs = {"mask": (1, F), **{f"next_state_{i}": shape for i, shape in enumerate(shapes)}}
    for name, value in zip(outputs, [mask, *states], strict=True):
        graph.operations.append(helper.make_node("Identity", [value], [name]))

    kind = type(model).__name__
    proto = helper.make_model(
        helper.make_graph(graph.operations, kind, _values(inputs), _values(outputs), graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="drnmf",
    )
    helper.set_model_props(proto, _metadata(kind, model.config))
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _values(shapes: dict[str, tuple[int, ...]]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]


def _metadata(kind: str, config: dict[str, object]) -> dict[str, str]:
    return {
        "model": kind,
        "config": json.dumps(config),
        "sample_rate": str(SAMPLE_RATE),
        "window": str(WINDOW),
        "hop": str(HOP),
        "front_end": "periodic square-root Hann window before the FFT and after its inverse; halve the overlap-add",
        "state": "zeros before the first frame, then the previous frame's next_state",
    }


class _Graph:
    """Nodes and constants of a graph that grows; values are known by their names, and equal ones are made once."""

    def __init__(self) -> None:
        self.operations: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self._made: dict[object, list[str]] = {}

    def constant(self, value: Tensor | float | list[int]) -> str:
        """A stored array: int64 for a list, else float32."""
        dtype = torch.int64 if isinstance(value, list) else torch.float32
        array = torch.as_tensor(value).to(dtype).contiguous().numpy()
        key = array.shape, array.dtype, array.tobytes()
        if key not in self._made:
            self._made[key] = [f"constant_{len(self.constants)}"]
            self.constants.append(numpy_helper.from_array(array, self._made[key][0]))
        return self._made[key][0]

    def node(self, op: str, *inputs: str | Tensor | float | list[int], **attributes: Any) -> str:
        """The result of an operation on values, which are names or what is to be stored."""
        return self.nodes(op, 1, *inputs, **attributes)[0]

    def nodes(self, op: str, count: int, *inputs: str | Tensor | float | list[int], **attributes: Any) -> list[str]:
        """All `count` results of an operation."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        key = op, *names, *sorted(attributes.items())
        if key not in self._made:
            self._made[key] = [f"{op.lower()}_{len(self.operations)}" + "_" * i for i in range(count)]
            self.operations.append(helper.make_node(op, names, self._made[key], **attributes))
        return self._made[key]


def _frame(graph: _Graph, model: Separator, x: str, *state: str) -> Frame:
    """What `model.separate` does with one frame."""
    match model:
        case DRNMF():
            return _drnmf(graph, model, x, *state)
        case ISTAMask():
            return _ista(graph, model, x, *state)
        case SistaRNN():
            return _sista(graph, model, x, *state)
        case SparseNMFMask():
            return _sparse_nmf(graph, model, x)
        case DeepNMF():
            return _deep_nmf(graph, model, x, *state)
        case LSTMMask():
            return _lstm(graph, model, x, *state)
    raise InputError(f"{type(model).__name__} cannot be exported: it is not a model that a file can hold")


def _drnmf(graph: _Graph, model: DRNMF, magnitude: str, *state: str) -> Frame:
    W_KFN, h0 = model.dictionaries(), model.h0()[None]
    heard: list[str] = []
    if model.level is not None:
        magnitude, after = _levelled(graph, magnitude, state[-1], model.level)
        state, heard = state[:-1], [after]
    x = magnitude if model.power == 1 else graph.node("Pow", magnitude, model.power)
    h = graph.node("Add", *state, h0) if state else graph.constant(h0)  # the state is h - h0: it starts at zero
    for k, (W, alpha, sparsity) in enumerate(zip(W_KFN, model.alpha(W_KFN), model.sparsity(), strict=True)):
        h = _ista_step(graph, h, x, W, alpha, sparsity, residual=k > 0 or model.residual_first_layer)
    mask = _dictionary_mask(graph, h, model.reconstruction(), model.n_speech)
    return mask, [*([graph.node("Sub", h, h0)] if state else []), *heard]


def _levelled(graph: _Graph, magnitude: str, state: str, level: float) -> tuple[str, str]:
    """Magnitudes at a level, and the running level's next state: `drnmf.signal.level` has the formula."""
    loudness, peak = (graph.node("Slice", state, [i], [i + 1], [1]) for i in (0, 1))
    power = graph.node("ReduceMean", graph.node("Mul", magnitude, magnitude), axes=(1,))
    loudness = graph.node("Add", loudness, graph.node("Mul", graph.node("Sub", power, loudness), ATTACK))
    peak = graph.node("Max", graph.node("Mul", peak, RELEASE), loudness)
    gain = graph.node("Div", level, graph.node("Max", graph.node("Sqrt", peak), SILENCE))
    return graph.node("Mul", magnitude, gain), graph.node("Concat", loudness, peak, axis=1)


def _ista(graph: _Graph, model: ISTAMask, x: str, *state: str) -> Frame:
    h = state[0] if state else graph.constant(torch.zeros(1, model.W.shape[1]))
    for _ in range(model.n_iter):
        h = _ista_step(graph, h, x, model.W, model.alpha, torch.tensor([model.sparsity]))
    return _dictionary_mask(graph, h, model.W, model.n_speech), [h] if state else []


def _ista_step(
    graph: _Graph, h: str, x: str, W: Tensor, alpha: Tensor, sparsity: Tensor, *, residual: bool = True
) -> str:
    """relu(h + (W^T (x - W h) - sparsity) / alpha); without `residual`, W h is left out."""
    error = graph.node("Gemm", h, W, x, transB=1, alpha=-1.0) if residual else x
    step = graph.node("Mul", graph.node("Gemm", error, W, -sparsity), 1 / alpha)
    return graph.node("Relu", graph.node("Add", h, step))


def _sista(graph: _Graph, model: SistaRNN, x: str, state: str) -> Frame:
    W_KFN, h0 = unit_norm(model.W), model.h0[None]
    h = graph.node("Add", state, h0)
    previous = graph.node("Gemm", h, W_KFN[-1], transB=1)
    logs = torch.stack([model.log_alpha, model.log_sparsity, model.log_coupling], 1)
    for W, (alpha, sparsity, coupling) in zip(W_KFN, logs.exp().tolist(), strict=True):
        target = graph.node("Add", x, graph.node("Mul", previous, coupling))
        error = graph.node("Gemm", h, W, target, transB=1, alpha=-(1 + coupling))
        z = graph.node("Gemm", error, W, h, alpha=1 / alpha)
        h = graph.node("Shrink", z, lambd=sparsity / alpha, bias=sparsity / alpha)  # soft thresholding
    speech, noise = (graph.node("Abs", source) for source in _sources(graph, h, W_KFN[-1], model.n_speech))
    return _ratio_mask(graph, speech, noise), [graph.node("Sub", h, h0)]


def _sparse_nmf(graph: _Graph, model: SparseNMFMask, x: str) -> Frame:
    h = graph.node("Gemm", x, model.W)
    for _ in range(model.n_iter):
        h = _multiplicative_step(graph, h, x, model.W, model.beta, model.sparsity)
    return _dictionary_mask(graph, h, model.W, model.n_speech), []


def _deep_nmf(graph: _Graph, model: DeepNMF, magnitude: str, *state: str) -> Frame:
    frames, F = graph.node("Reshape", magnitude, [1, 1, model.n_features]), model.n_features
    if state:
        frames = graph.node("Concat", *state, frames, axis=1)
    x = graph.node("Reshape", frames, [1, model.context * F])
    W_untied = unit_norm(torch.exp(model.log_W))
    h = graph.node("Gemm", x, model.W)
    for W in [*[model.W] * model.n_tied, *W_untied]:
        h = _multiplicative_step(graph, h, x, W, model.beta, model.sparsity)
    mask = _dictionary_mask(graph, h, W_untied[-1, -F:], model.n_speech)
    return mask, [graph.node("Slice", frames, [1], [model.context], [1])] if state else []


def _multiplicative_step(graph: _Graph, h: str, x: str, W: Tensor, beta: float, sparsity: float) -> str:
    """One of `nmf.multiplicative_updates`; what does not depend on h is made once."""
    model = graph.node("Max", graph.node("Gemm", h, W, transB=1), FLOOR)
    gain = x if beta == 2 else graph.node("Mul", x, graph.node("Pow", model, beta - 2))
    power = model if beta == 2 else graph.node("Pow", model, beta - 1)
    denominator = graph.node("Max", graph.node("Gemm", power, W, torch.tensor([sparsity])), FLOOR)
    ratio = graph.node("Div", graph.node("Gemm", gain, W), denominator)
    if not 1 <= beta <= 2:
        gamma = 1 / (2 - beta) if beta < 1 else 1 / (beta - 1)
        ratio = graph.node("Pow", graph.node("Max", ratio, FLOOR), gamma)
    return graph.node("Mul", h, ratio)


def _lstm(graph: _Graph, model: LSTMMask, x: str, *state: str) -> Frame:
    layers, units, F = model.lstm.num_layers, model.lstm.hidden_size, model.n_features
    y, after = graph.node("Reshape", x, [1, 1, F]), []
    for k in range(layers):
        before = [graph.node("Slice", s, [k], [k + 1], [1]) for s in state]  # (1, 1, units), as ONNX wants them
        weights = [_reordered(getattr(model.lstm, f"{name}_l{k}")) for name in ("weight_ih", "weight_hh")]
        biases = torch.cat([_reordered(getattr(model.lstm, f"{name}_l{k}")) for name in ("bias_ih", "bias_hh")], 1)
        _, y, c = graph.nodes("LSTM", 3, y, *weights, biases, "", *before, hidden_size=units)
        after.append((y, c))
    z = graph.node("Gemm", graph.node("Reshape", y, [1, units]), model.output.weight, model.output.bias, transB=1)
    return graph.node("Sigmoid", z), [graph.node("Concat", *s, axis=1) for s in zip(*after, strict=True)]


def _reordered(weight: Tensor) -> Tensor:
    """PyTorch's gates (input, forget, cell, output) in ONNX's order (input, output, forget, cell), one direction."""
    i, f, c, o = weight.chunk(4)
    return torch.cat([i, o, f, c])[None]


def _sources(graph: _Graph, h: str, W: Tensor, n_speech: int) -> tuple[str, str]:
    """Reconstructions of speech and noise. The other's activations are zeroed: so W, stored anyhow, stays whole."""
    is_speech = (torch.arange(W.shape[1]) < n_speech).to(W)[None]
    speech, noise = (
        graph.node("Gemm", graph.node("Mul", h, which), W, transB=1) for which in (is_speech, 1 - is_speech)
    )
    return speech, noise


def _dictionary_mask(graph: _Graph, h: str, W: Tensor, n_speech: int) -> str:
    return _ratio_mask(graph, *_sources(graph, h, W, n_speech))


def _ratio_mask(graph: _Graph, speech: str, noise: str) -> str:
    return graph.node("Div", speech, graph.node("Max", graph.node("Add", speech, noise), MASK_FLOOR))
