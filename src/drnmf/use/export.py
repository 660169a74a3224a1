"""A model as an ONNX graph that takes one frame: magnitude and state in, mask and next state out.

    inputs    magnitude (1, F), state_0, state_1, ...          float32
    outputs   mask (1, F), next_state_0, next_state_1, ...     of the states' shapes

Every state is zeros before the first frame; after that, what came out as next_state_i goes in as state_i. A model that
looks at single frames has no states. The file's metadata say how magnitudes are made: sample rate, window and hop.
"""

import copy
import json
from pathlib import Path

from drnmf.errors import InputError
from drnmf.files import write_atomically
from drnmf.models.base import Separator
from drnmf.models.graph import Graph
from drnmf.signal.spectra import HOP, SAMPLE_RATE, WINDOW

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError:
    raise InputError("export needs the package onnx, which is not installed: pip install 'drnmf[onnx]'") from None

OPSET = 17
_IR_VERSION = 8  # the one of opset 17: a newer one would only lock out older runtimes


def export(model: Separator, path: Path | str) -> None:
    """Write `model` as an ONNX file; a reader never sees a half-written one."""
    write_atomically(path, onnx_model(model).SerializeToString())


def onnx_model(model: Separator) -> onnx.ModelProto:
    """The ONNX model of the frame-by-frame network, checked."""
    exact = copy.deepcopy(model).cpu().double().requires_grad_(False)  # constants are rounded once, when stored
    shapes = [(1, *shape) for shape in model.state_shapes]
    inputs = {"magnitude": (1, model.n_features), **{f"state_{i}": shape for i, shape in enumerate(shapes)}}
    outputs = {"mask": (1, model.n_features), **{f"next_state_{i}": shape for i, shape in enumerate(shapes)}}
    graph = Graph()
    mask, states = exact.onnx_frame(graph, *inputs)
    nodes = [helper.make_node(op, before, after, **attributes) for op, before, after, attributes in graph.operations]
    nodes += [helper.make_node("Identity", [v], [name]) for name, v in zip(outputs, [mask, *states], strict=True)]
    constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]

    kind = type(model).__name__
    proto = helper.make_model(
        helper.make_graph(nodes, kind, _values(inputs), _values(outputs), constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="drnmf",
    )
    metadata = {
        "model": kind,
        "config": json.dumps(model.config),
        "sample_rate": str(SAMPLE_RATE),
        "window": str(WINDOW),
        "hop": str(HOP),
        "front_end": "periodic square-root Hann window before the FFT and after its inverse; halve the overlap-add",
        "state": "zeros before the first frame, then the previous frame's next_state",
    }
    helper.set_model_props(proto, metadata)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _values(shapes: dict[str, tuple[int, ...]]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
