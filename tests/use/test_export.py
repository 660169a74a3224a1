"""The exported network is the model: the same masks and states under onnxruntime, over real frames."""

import itertools
import json
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

import drnmf
from drnmf import InputError, istft, stft
from drnmf.models.base import Separator
from drnmf.signal import audio
from drnmf.use import export
from examples import MODELS, build, dictionary, noisy, recording, seeded

EXAMPLE = Path(__file__).parents[2] / "examples" / "stream_onnx.py"
# In float32 PyTorch itself is this far from float64 here: signed sums cancel.
TOLERANCE = {"sista": 1e-4}
# Those that look at single frames; deep NMF without context too.
STATELESS = {"drnmf_cold", "snmf", "ista_cold", "deep_nmf"}


OPTIONS = {
    "atom": {"alpha_per": "atom", "sparsity_per": "atom", "train_sparsity": True, "alpha_range": "weighted"},
    "original": {"first_layer": "original", "power": 0.5},
    "separate": {"reconstruction": "separate", "power": 0.7, "alpha_range": "weighted"},
    "cold": {"warm_start": False, "alpha_per": "atom"},
    "level": {"level": 1.5, "power": 0.5},
    "level_cold": {"level": 1.5, "warm_start": False},
}


def trained(model: Separator) -> Separator:
    """As after training: layers that differ from each other, and an h0 that is not zero."""
    generator = seeded(1)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            if key == "log_h0":
                weight.copy_(torch.linspace(-3, 0, len(weight)))
    return model


def session(model: Separator) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(export.onnx_model(model).SerializeToString(), options)


def run(network: onnxruntime.InferenceSession, magnitudes: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Masks (T, F) and the last states, frame by frame from zero states."""
    state = {i.name: np.zeros(i.shape, np.float32) for i in network.get_inputs()[1:]}
    masks = []
    for x in magnitudes.float().numpy():
        mask, *after = network.run(None, {"magnitude": x[None], **state})
        state = dict(zip(state, after, strict=True))
        masks.append(mask)
    return torch.from_numpy(np.concatenate(masks)).double(), [torch.from_numpy(s).double() for s in state.values()]


def mixture() -> Tensor:
    speech = recording("speech/austen_0880")
    return speech + recording("noise/percussion", len(speech))


def long_noisy() -> Tensor:
    """Magnitudes (378, F) of three seconds: speech over percussion, with digital silence at both ends."""
    return stft(mixture()).abs()


@pytest.mark.parametrize("name", MODELS)
def test_masks_and_states_equal_pytorch(name: str) -> None:
    model, X = trained(build(name)), long_noisy()
    with torch.no_grad():
        expected, state = model(X[None])
    masks, after = run(session(model), X)
    torch.testing.assert_close(masks, expected[0], atol=TOLERANCE.get(name, 1e-5), rtol=0)
    assert float(masks.min()) >= 0
    assert float(masks.max()) <= 1 or isinstance(model, drnmf.PriorDRNMF)  # that one keeps the speech at its level
    assert (len(after) == 0) == (name in STATELESS)
    for ours, theirs, start in itertools.zip_longest(after, state, starts(model), fillvalue=0):
        torch.testing.assert_close(ours + start, theirs, atol=1e-4, rtol=1e-4)


def starts(model: Separator) -> list[Tensor]:
    """Where the first states of a model start; those of the file start at zero."""
    if isinstance(model, drnmf.PriorDRNMF):
        return [layers.log_h0.exp().detach() for layers in (model.explainer, model.listener)]
    if isinstance(model, drnmf.DRNMF):
        return [model.h0().detach()] if model.warm_start else []
    return [model.h0] if isinstance(model, drnmf.SistaRNN) else []


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_drnmf(options: dict[str, object]) -> None:
    model, X = trained(drnmf.DRNMF.from_dictionary(dictionary(), 3, sparsity=0.1, **options)), long_noisy()
    with torch.no_grad():
        expected = model(X[None])[0][0]
    assert float(expected.std()) > 0.05  # a mask that says something
    torch.testing.assert_close(run(session(model), X)[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["drnmf", "lstm", "lstm_level", "sista", "prior_drnmf"])
def test_it_carries_the_state(name: str) -> None:
    """A frame's mask depends on those before it: the oracle above would not notice a state that is never used."""
    network, X = session(trained(build(name))), noisy()
    assert (run(network, X)[0][60] - run(network, X[60:61])[0][0]).abs().max() > 1e-2


@pytest.mark.parametrize("beta", [0.0, 1.0, 1.5, 3.0])
def test_every_divergence(beta: float) -> None:
    model = drnmf.SparseNMFMask.from_dictionary(dictionary(), n_iter=5, beta=beta)
    masks, _ = run(session(model), noisy())
    torch.testing.assert_close(masks, model(noisy()[None])[0][0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_model_of_the_paper_s_size(dtype: torch.dtype) -> None:
    """K = 5, N = 200 in a file no larger than its parameters, also when they are kept in half precision."""
    model = drnmf.DRNMF(n_layers=5, n_atoms=200, sparsity=0.01, alpha_per="atom", power=0.5, generator=seeded())
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn(weight.shape, generator=seeded(2)) * (0.1 if weight.ndim == 2 else 1)
    model.to(dtype)
    proto = export.onnx_model(model)
    assert proto.ByteSize() < 4 * (5 * 257 * 200) * 1.03
    assert len(proto.graph.node) < 40
    assert next(model.parameters()).dtype == dtype  # the model given is left as it was
    X = long_noisy()
    with torch.no_grad():
        expected = model.double()(X[None])[0][0]
    torch.testing.assert_close(run(session(model), X)[0], expected, atol=1e-5, rtol=0)


def test_silence_and_the_mask_s_floor() -> None:
    masks, _ = run(session(trained(build("drnmf"))), torch.zeros(50, 257))
    assert torch.isfinite(masks).all()


def test_names_shapes_and_metadata() -> None:
    network = session(build("lstm"))
    shapes = {value.name: value.shape for value in [*network.get_inputs(), *network.get_outputs()]}
    states = {f"{which}_{i}": [1, 2, 3] for which in ("state", "next_state") for i in (0, 1)}
    assert shapes == {"magnitude": [1, 257], "mask": [1, 257], **states}
    about = network.get_modelmeta().custom_metadata_map
    assert {key: about[key] for key in ("model", "sample_rate", "window", "hop")} == {
        "model": "LSTMMask",
        "sample_rate": "16000",
        "window": "512",
        "hop": "128",
    }
    assert json.loads(about["config"]) == build("lstm").config
    (opset,) = export.onnx_model(build("lstm")).opset_import
    assert opset.version >= 17


@pytest.mark.parametrize(
    ("name", "length"),
    [("drnmf_options", 40001), ("lstm", 40000), ("drnmf_cold", 39999), ("drnmf_options", 1), ("drnmf_options", 128)],
)
def test_the_example_streams_a_file_as_pytorch_does(name: str, length: int, tmp_path: Path) -> None:
    model = trained(build(name)).float()
    export.export(model, tmp_path / "model.onnx")
    audio.write(tmp_path / "in.wav", mixture()[7000 : 7000 + length].float(), 16000, subtype="PCM_16")
    command = [sys.executable, EXAMPLE, tmp_path / "model.onnx", tmp_path / "in.wav", tmp_path / "out.wav"]
    subprocess.run(command, check=True, timeout=120)
    x, y = (audio.read(tmp_path / f"{which}.wav")[0][0] for which in ("in", "out"))
    X = stft(x)
    with torch.no_grad():
        expected = istft(model(X.abs()[None])[0][0] * X, len(x))
    assert len(y) == length
    torch.testing.assert_close(y, expected, atol=0.51 / 2**15 + 1e-6, rtol=0)  # 16-bit rounding
    with wave.open(str(tmp_path / "out.wav")) as file:
        assert file.getparams()[:4] == (1, 2, 16000, length)


def test_the_example_needs_numpy_and_onnxruntime_only() -> None:
    lines = EXAMPLE.read_text().splitlines()
    imports = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert imports == {"sys", "wave", "numpy", "onnxruntime"}
    assert len(lines) <= 32


def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    X = torch.rand(1, 3, 257, dtype=torch.complex64, generator=seeded())
    with pytest.raises(InputError, match="OracleMask cannot be exported"):
        export.export(drnmf.OracleMask(X, X), tmp_path / "oracle.onnx")
    with pytest.raises(InputError, match=r"model\.onnx: cannot be written, the folder .* does not exist"):
        export.export(build("drnmf"), tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(InputError, match=r"cannot be written \(Is a directory\)"):
        export.export(build("drnmf"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['onnx'] = None; import drnmf.use.export"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert answer.stderr.strip().splitlines()[-1].endswith("not installed: pip install 'drnmf[onnx]'")


def test_a_model_that_has_learned_a_noise(tmp_path: Path) -> None:
    learned = drnmf.adapt("default", recording("noise/hum", 32000), 16000)
    drnmf.save_model(learned, tmp_path / "learned")
    model = drnmf.load_model(tmp_path / "learned")
    export.export(model, tmp_path / "learned.onnx")
    network = onnxruntime.InferenceSession(tmp_path / "learned.onnx")
    magnitudes = stft(mixture()).abs()[:100]
    masks, _ = run(network, magnitudes)
    expected, _ = learned.look(magnitudes.float().numpy())
    np.testing.assert_allclose(masks, expected, atol=1e-4)
    unlearned, _ = run(session(drnmf.load_model("default")), magnitudes)
    assert (masks - unlearned).abs().max() > 0.1
