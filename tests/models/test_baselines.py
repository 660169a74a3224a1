"""The separators beside DR-NMF, each against an independent computation."""

import math

import numpy as np
import pytest
import torch

from drnmf import (
    DRNMF,
    DeepNMF,
    InputError,
    ISTAMask,
    LSTMMask,
    OracleMask,
    SistaRNN,
    SparseNMFMask,
    ista,
    lipschitz,
    warm_start_ista,
)
from drnmf.models.deep_nmf import stack_context
from examples import DEVICES, dictionary, noisy, seeded, spectra

FROM_DICTIONARY = {
    "DRNMF": lambda W, **o: DRNMF.from_dictionary(W, 2, **o),
    "SistaRNN": lambda W, **o: SistaRNN.from_dictionary(W, 2, **o),
    "ISTAMask": ISTAMask.from_dictionary,
    "SparseNMFMask": SparseNMFMask.from_dictionary,
    "DeepNMF": lambda W, **o: DeepNMF.from_dictionary(W, 2, n_untied=1, **o),
}
NAN = float("nan")


def sequences() -> torch.Tensor:
    return noisy()[20:80].view(2, 30, -1)


def numpy_mask(h: np.ndarray, W: np.ndarray, n_speech: int) -> np.ndarray:
    speech, noise = h[..., :n_speech] @ W[:, :n_speech].T, h[..., n_speech:] @ W[:, n_speech:].T
    return np.abs(speech) / np.maximum(np.abs(speech) + np.abs(noise), 1e-5)


def multiplicative_updates(x: np.ndarray, dictionaries: list[np.ndarray], beta: float, sparsity: float) -> np.ndarray:
    """Activations (T, N) of frames (T, F), one update with each dictionary, from W^T x; beta in [1, 2]."""
    H = x @ dictionaries[0]
    for W in dictionaries:
        model = H @ W.T
        H = H * ((x * model ** (beta - 2)) @ W) / (model ** (beta - 1) @ W + sparsity)
    return H


def close(result: torch.Tensor, expected: np.ndarray, atol: float = 1e-9) -> None:
    torch.testing.assert_close(result, torch.from_numpy(expected), rtol=0, atol=atol)


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0])
def test_sparse_nmf_is_that_many_multiplicative_updates(beta):
    W = dictionary().numpy()
    model = SparseNMFMask.from_dictionary(dictionary(), n_speech=4, n_iter=9, beta=beta, sparsity=0.3)
    for x in sequences():
        h = multiplicative_updates(x.numpy(), 9 * [W], beta, 0.3)
        close(model(x[None])[0][0], numpy_mask(h, W, 4))


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("alpha", [None, 20.0])
def test_ista_is_algorithm_2_or_1(alpha, warm_start):
    x, W = sequences(), dictionary()
    h = (warm_start_ista if warm_start else ista)(x, W, n_iter=4, alpha=alpha, sparsity=0.3)
    model = ISTAMask.from_dictionary(W, n_speech=5, n_iter=4, alpha=alpha, sparsity=0.3, warm_start=warm_start)
    close(model(x)[0], numpy_mask(h.numpy(), W.numpy(), 5))


def test_ista_is_what_dr_nmf_is_before_training():
    x, W = sequences(), dictionary()
    torch.testing.assert_close(
        ISTAMask.from_dictionary(W, n_iter=3)(x), DRNMF.from_dictionary(W, 3)(x), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("n_untied", [1, 3, 6])
def test_deep_nmf_is_sparse_nmf_before_training(n_untied, beta):
    x, W = sequences(), dictionary()
    deep = DeepNMF.from_dictionary(W, 6, n_untied=n_untied, beta=beta, sparsity=0.3)
    plain = SparseNMFMask.from_dictionary(W, n_iter=6, beta=beta, sparsity=0.3)
    torch.testing.assert_close(deep(x)[0], plain(x)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("context", [1, 3])
def test_deep_nmf_with_trained_layers_and_context(context):
    model = DeepNMF.from_dictionary(dictionary(context), 5, n_untied=2, context=context, n_speech=4)
    assert [tuple(p.shape) for p in model.parameters()] == [(2, 257 * context, 12)]
    with torch.no_grad():
        model.log_W += 0.3 * torch.randn(model.log_W.shape, generator=seeded(), dtype=model.log_W.dtype)
    untied = np.exp(model.log_W.detach().numpy())
    untied /= np.sqrt((untied**2).sum(1, keepdims=True))
    for x in sequences().numpy():
        past = [np.concatenate([np.zeros((j, 257)), x[: len(x) - j]]) for j in range(context)]  # j frames ago
        h = multiplicative_updates(np.concatenate(past[::-1], 1), 3 * [dictionary(context).numpy()] + [*untied], 2, 1)
        close(model(torch.from_numpy(x)[None])[0][0], numpy_mask(h, untied[-1][-257:], 4))


def test_context_is_stacked_oldest_first():
    frames = torch.arange(8.0).view(4, 2)
    assert stack_context(frames, 3).tolist() == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7]]


def signed_dictionary() -> torch.Tensor:
    return torch.randn(9, 6, generator=seeded(), dtype=torch.float64)


def test_sista_is_its_recurrence_with_coefficients_of_either_sign():
    model = SistaRNN.from_dictionary(signed_dictionary(), 3, n_speech=2, sparsity=0.1, coupling=0.5)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.2 * torch.randn(p.shape, generator=seeded(1), dtype=p.dtype)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    W = weights["W"] / np.sqrt((weights["W"] ** 2).sum(1, keepdims=True))
    alpha, lam, mu = (np.exp(weights[f"log_{name}"]) for name in ("alpha", "sparsity", "coupling"))
    x = 4 * torch.rand(20, 9, generator=seeded(2), dtype=torch.float64).numpy()
    h, activations = weights["h0"], []
    for x_t in x:
        previous = W[-1] @ h
        for k in range(3):
            gradient = W[k].T @ (W[k] @ h - x_t) + mu[k] * W[k].T @ (W[k] @ h - previous)
            z = h - gradient / alpha[k]
            h = np.sign(z) * np.maximum(np.abs(z) - lam[k] / alpha[k], 0)
        activations.append(h)
    assert (np.stack(activations) < 0).any()
    mask, (state,) = model(torch.from_numpy(x)[None])
    close(state[0], h)
    close(mask[0], numpy_mask(np.stack(activations), W[-1], 2))


def test_many_layers_of_sista_solve_its_problem():
    model = SistaRNN.from_dictionary(signed_dictionary(), 3000, sparsity=0.8, coupling=0.5)
    W = model.W[0].detach()
    start = torch.randn(1, 6, generator=seeded(3), dtype=torch.float64)
    x = 2 * torch.rand(1, 1, 9, generator=seeded(4), dtype=torch.float64)
    h = model(x, (start,))[1][0][0].detach()
    smooth = W.mT @ (W @ h - x[0, 0]) + 0.5 * W.mT @ (W @ h - W @ start[0])  # gradient of the smooth part
    active = h != 0
    assert 0 < active.sum() < 6
    torch.testing.assert_close(smooth[active], -0.8 * h[active].sign(), rtol=0, atol=1e-6)
    assert (smooth[~active].abs() <= 0.8 + 1e-6).all()


def test_sista_steps_at_its_lipschitz_constant_by_default():
    W = dictionary()
    expected = 1.1 * lipschitz(W)
    torch.testing.assert_close(SistaRNN.from_dictionary(W, 2).log_alpha.exp(), torch.full((2,), expected).to(W))
    with pytest.warns(RuntimeWarning, match="oscillates"):
        SistaRNN.from_dictionary(W, 2, alpha=0.4 * expected)


@pytest.mark.parametrize(
    ("n_layers", "n_units", "count"), [(2, 54, 105_071), (5, 70, 268_007), (2, 244, 1_030_181), (5, 250, 2_576_507)]
)
def test_the_papers_parameter_counts_of_the_lstm(n_layers, n_units, count):
    second_bias = n_layers * 4 * n_units  # PyTorch's LSTM adds two bias vectors where one would do
    assert sum(p.numel() for p in LSTMMask(n_layers, n_units).parameters()) - second_bias == count


def test_lstm_against_single_cells():
    x, model = sequences().float(), LSTMMask(2, 8, generator=seeded())
    cells = []
    for layer, n_inputs in enumerate((257, 8)):
        cells.append(torch.nn.LSTMCell(n_inputs, 8))
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(cells[-1], name, getattr(model.lstm, f"{name}_l{layer}"))
    y, states = None, [(torch.zeros(2, 8), torch.zeros(2, 8)) for _ in cells]
    for t in range(x.shape[1]):
        y = x[:, t]
        for k, cell in enumerate(cells):
            states[k] = cell(y, states[k])
            y = states[k][0]
    expected = torch.sigmoid(y @ model.output.weight.mT + model.output.bias)
    torch.testing.assert_close(model(x)[0][:, -1], expected)


def test_lstm_starts_as_in_the_original_experiments():
    model, other = LSTMMask(2, 8, generator=seeded()), LSTMMask(2, 8, generator=seeded(1))
    assert not torch.equal(model.lstm.weight_hh_l1, other.lstm.weight_hh_l1)
    for layer in range(2):
        hh, ih = (getattr(model.lstm, f"weight_{kind}_l{layer}") for kind in ("hh", "ih"))
        torch.testing.assert_close(hh.mT @ hh, torch.eye(8))
        assert 0.9 < float(ih.detach().abs().max()) / math.sqrt(6 / sum(ih.shape)) <= 1
        bias = sum(getattr(model.lstm, f"bias_{kind}_l{layer}") for kind in ("hh", "ih")).view(4, 8)
        assert bias.sum(1).tolist() == [0, 8, 0, 0]  # gates: input, forget, cell, output


@pytest.mark.parametrize("name", FROM_DICTIONARY)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda W: W[0], r"a dictionary is a float array .* shape \(12,\)"),
        (lambda W: W[:, :0], r"\(257, 0\)"),
        (lambda W: W.long(), "int64"),
        (lambda W: W * NAN, "NaN"),
        (lambda W: W * (torch.arange(12) > 0), "a column of the dictionary is zero"),
        (lambda W: W[:, :1], "of 1 atoms at least one must be speech"),
        (lambda W: -W, "negative"),
    ],
)
def test_what_cannot_be_a_dictionary(name, change, message):
    if name == "SistaRNN" and message == "negative":
        assert FROM_DICTIONARY[name](change(dictionary()))(sequences())[0].isfinite().all()
        return
    with pytest.raises(InputError, match=message):
        FROM_DICTIONARY[name](change(dictionary()))


@pytest.mark.parametrize("name", ["DRNMF", "SistaRNN", "ISTAMask"])
@pytest.mark.parametrize("alpha", [0.0, -1.0, NAN])
def test_what_cannot_be_an_alpha(name, alpha):
    with pytest.raises(InputError, match=f"alpha must be positive, got {alpha}"):
        FROM_DICTIONARY[name](dictionary(), alpha=alpha)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LSTMMask(0, 5), "n_layers and n_units must be at least 1, got 0 and 5"),
        (lambda: LSTMMask(1, 0), "got 1 and 0"),
        (lambda: SparseNMFMask(n_atoms=4, n_iter=0), "n_iter must be at least 1, got 0"),
        (lambda: SparseNMFMask(n_atoms=0), "of 0 atoms"),
        (lambda: ISTAMask(n_atoms=4, n_iter=0), "n_iter must be at least 1, got 0"),
        (lambda: DeepNMF(n_layers=2, n_untied=3, n_atoms=4), "1 <= n_untied <= n_layers .* got 3, 2, 1"),
        (lambda: DeepNMF(n_layers=2, n_untied=0, n_atoms=4), "n_untied"),
        (lambda: DeepNMF(n_layers=2, n_untied=1, n_atoms=4, context=0), "context >= 1"),
        (lambda: DeepNMF.from_dictionary(dictionary(), 2, n_untied=1, context=0), "context = 0 frames"),
        (lambda: DeepNMF.from_dictionary(dictionary(), 2, n_untied=1, context=2), "context = 2 frames.* 257 rows"),
        (lambda: SistaRNN(n_layers=0, n_atoms=4), "n_layers >= 1"),
        (lambda: SistaRNN(n_layers=1, n_atoms=4, sparsity=0), "sparsity > 0"),
        (lambda: SistaRNN(n_layers=1, n_atoms=4, coupling=-1), "coupling > 0"),
    ],
)
def test_sizes_that_make_no_model(make, message):
    with pytest.raises(InputError, match=message):
        make()


def speech_and_noise() -> tuple[torch.Tensor, torch.Tensor]:
    speech, noise = (X[None] for X in spectra())
    return speech, noise


@pytest.mark.parametrize("device", DEVICES)
def test_oracle_values(device):
    speech = torch.tensor([[[3 + 4j, 2, 1j, -1, 0]]], device=device)
    noise = torch.tensor([[[-5, 2j, 1, 3, 0]]], device=device, dtype=speech.dtype)
    x = (speech + noise).abs()
    ratio, _ = OracleMask(speech, noise)(x)
    torch.testing.assert_close(ratio.cpu(), torch.tensor([[[0.5, 0.5, 0.5, 0.25, 0]]]))
    # Re(S X*) / |X|^2: (-6 + 16) / 20, 4 / 8, 1 / 2, -2 / 4 cut to 0
    phase_sensitive, _ = OracleMask(speech, noise, kind="phase_sensitive")(x)
    torch.testing.assert_close(phase_sensitive.cpu(), torch.tensor([[[0.5, 0.5, 0.5, 0, 0]]]))


def test_no_other_mask_has_a_smaller_error_than_the_phase_sensitive_one():
    speech, noise = speech_and_noise()
    X = speech + noise
    best = OracleMask(speech, noise, kind="phase_sensitive")(X.abs())[0]
    error = (best * X - speech).abs()
    for other in torch.linspace(0, 1, 21):
        assert (error <= (other * X - speech).abs() + 1e-12).all()
    ratio = OracleMask(speech, noise)(X.abs())[0]
    energies = [float(e.abs().square().sum()) for e in (best * X - speech, ratio * X - speech, noise)]
    assert energies == sorted(energies)


@pytest.mark.parametrize("kind", ["ratio", "phase_sensitive"])
def test_oracles_work_frame_by_frame(kind):
    speech, noise = speech_and_noise()
    x = (speech + noise).abs()
    model = OracleMask(speech, noise, kind=kind)
    state, masks = None, []
    for frame in x.split(1, 1):
        mask, state = model(frame, state)
        masks.append(mask)
    torch.testing.assert_close(torch.cat(masks, 1), model(x)[0], rtol=0, atol=0)
    with pytest.raises(InputError, match=r"knows a batch of 1 with .* frames, asked for frames"):
        model(x[:, :1], state)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((1, 2, 3), (1, 2, 4)), {}, r"\(1, 2, 3\), \(1, 2, 4\)"),
        (((2, 3), (2, 3)), {}, "complex"),
        (((), ()), {}, "complex"),
        (((1, 2, 3), (1, 2, 3)), {"kind": "binary"}, "kind must be ratio or phase_sensitive, got 'binary'"),
    ],
)
def test_oracles_refuse(shapes, options, message):
    with pytest.raises(InputError, match=message):
        OracleMask(*(torch.zeros(shape, dtype=torch.complex64) for shape in shapes), **options)
    with pytest.raises(InputError, match="complex"):
        OracleMask(torch.ones(1, 2, 3), torch.ones(1, 2, 3))
