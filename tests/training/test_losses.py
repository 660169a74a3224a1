import pytest
import torch

from drnmf.signal import metrics
from drnmf.signal.spectra import analyse, synthesise
from drnmf.training import losses
from drnmf.training.perceptual import pesq_loss
from examples import recording


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    clean, noise = torch.randn(2, 2, 512 + 128 * 139, generator=generator, dtype=torch.float64)
    X, Y = analyse(clean + noise), analyse(clean)
    valid = torch.arange(X.shape[1]) < torch.tensor([[140], [130]])
    X, Y = X * valid[..., None], Y * valid[..., None]
    mask = torch.rand(X.shape, generator=generator, dtype=torch.float64)
    return mask, X, Y, valid


@pytest.mark.parametrize("loss", losses.LOSSES.values())
def test_padding_does_not_count(loss, batch):
    mask, X, Y, valid = batch
    junk = ~valid[..., None]
    spoiled = loss(mask + junk, X + junk, Y - 2 * junk, valid)
    torch.testing.assert_close(spoiled, loss(mask, X, Y, valid))


@pytest.mark.parametrize("loss", losses.LOSSES.values())
def test_batch_is_the_sum_of_its_sequences(loss, batch):
    whole = loss(*batch)
    parts = [loss(*(part[i : i + 1] for part in batch)) for i in range(2)]
    torch.testing.assert_close(whole, tuple(sum(values) for values in zip(*parts, strict=True)))


@pytest.mark.parametrize("loss", losses.LOSSES.values())
def test_gradients(loss, batch):
    mask, X, Y, valid = batch
    # a few cells stand for all: finite differences over 70,000 would take an hour
    few = mask[:, :3, :2].clone().requires_grad_()

    def total(few):
        return loss(torch.cat([torch.cat([few, mask[:, :3, 2:]], 2), mask[:, 3:]], 1), X, Y, valid)[0]

    assert torch.autograd.gradcheck(total, few)


def test_signal_approximation_by_hand():
    X, Y = torch.tensor([[[3 + 4j]]]), torch.tensor([[[0 + 2j]]])
    total, count = losses.signal_approximation(torch.tensor([[[0.5]]]), X, Y, torch.tensor([[True]]))
    assert (total.item(), count.item()) == (0.25, 1)


def test_phase_sensitive_is_the_complex_error_up_to_a_constant(batch):
    mask, X, Y, valid = batch

    def complex_error(mask):
        return (mask * X - Y).abs().square().sum()

    here, there = (losses.phase_sensitive(m, X, Y, valid)[0] for m in (mask, 1 - mask))
    torch.testing.assert_close(here - there, complex_error(mask) - complex_error(1 - mask))


@pytest.mark.parametrize("name", ["si_sdr", "sdr"])
def test_waveform_losses_are_the_metrics(name, batch):
    mask, X, Y, valid = batch
    expected = getattr(metrics, name)(synthesise(mask * X), synthesise(Y)).sum()
    total, count = losses.LOSSES[name](mask, X, Y, valid)
    assert count == 2
    torch.testing.assert_close(-total, expected)


@pytest.mark.parametrize("name", ["si_sdr", "sdr"])
def test_silent_and_short_sequences_are_harmless(name):
    X = torch.zeros(2, 140, 257, dtype=torch.complex64)
    X[1, :20] = 1
    mask = torch.full(X.shape, 0.5, requires_grad=True)
    valid = torch.arange(140) < torch.tensor([[140], [20]])
    total, _ = losses.LOSSES[name](mask, X, X, valid)
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(mask.grad).all()


def test_snr_by_hand():
    """Power 4 and, because the phases differ, error |2 - 2j|^2 = 8: an SNR of 1/2, a loss of 3 dB."""
    X, Y = torch.full((1, 125, 3), 2 + 0j), torch.full((1, 125, 3), 2j)
    total, count = losses.snr(torch.ones(X.shape), X, Y, torch.ones(1, 125, dtype=torch.bool))
    assert count == 1
    assert total.item() == pytest.approx(3.0103, abs=1e-4)
    halved, _ = losses.snr(torch.full(X.shape, 0.5), X, Y, torch.ones(1, 125, dtype=torch.bool))
    assert halved.item() == pytest.approx(0.9691, abs=1e-4)  # error |1 - 2j|^2 = 5


@pytest.mark.parametrize("name", losses.OVER_SEQUENCES)
def test_sequences_count_from_one_second_on(name, batch):
    mask, X, Y, _ = (part[:, :140] for part in batch)
    lengths = torch.tensor([[125], [124]])
    valid = torch.arange(X.shape[1]) < lengths
    total, count = losses.LOSSES[name](mask, X, Y, valid)
    alone, _ = losses.LOSSES[name](mask[:1], X[:1], Y[:1], valid[:1])
    assert count == 1
    assert total != 0
    torch.testing.assert_close(total, alone)


@pytest.mark.parametrize("loss", [losses.signal_approximation, losses.phase_sensitive])
def test_cells_are_counted_over_frames_and_frequencies(loss):
    X, Y = torch.full((2, 4, 3), 2 + 0j), torch.full((2, 4, 3), 1 + 0j)
    valid = torch.tensor([[True, True, True, False], [True, True, False, False]])
    total, count = loss(torch.ones(X.shape), X, Y, valid)
    assert (total.item(), count.item()) == (15, 15)  # five frames of three bins, an error of 1 in each


def alone(**weights):
    return losses.weighted(**{"si_sdr": 0.0, "pesq": 0.0, "gain": 0.0, "limit_db": 30.0, **weights})


@pytest.fixture
def speech():
    """A real sentence in noise at 10 dB, and without: X, Y (1, T, F), and which frames count."""
    clean, noise = (recording(name, 40000)[None].float() for name in ("speech/austen_0870", "noise/guitar"))
    noise *= 0.3 * clean.norm() / noise.norm()
    X, Y = analyse(clean + noise), analyse(clean)
    return X, Y, torch.ones(X.shape[:2], dtype=torch.bool)


def test_far_below_its_limit_the_si_sdr_is_the_usual_one(speech):
    X, Y, valid = speech
    mask = torch.full(X.shape, 0.7)
    limited, usual = alone(si_sdr=1.0, limit_db=60.0)(mask, X, Y, valid)[0], losses.si_sdr(mask, X, Y, valid)[0]
    assert float(limited) == pytest.approx(float(usual), abs=1e-3)


@pytest.mark.parametrize("limit_db", [20.0, 30.0])
def test_perfect_speech_reaches_the_limit(limit_db, speech):
    _, Y, valid = speech
    total, count = alone(si_sdr=2.0, limit_db=limit_db)(torch.ones(Y.shape), Y, Y, valid)
    assert float(total / count) == pytest.approx(-2 * limit_db, abs=1e-3)


@pytest.mark.parametrize(("gain", "squared_db"), [(1.0, 0.0), (0.5, 36.25), (2.0, 36.25)])
def test_speech_that_changes_its_level_costs(gain, squared_db, speech):
    _, Y, valid = speech
    total, count = alone(gain=1.0)(torch.full(Y.shape, gain), Y, Y, valid)
    assert float(total / count) == pytest.approx(squared_db, abs=1e-2)


def test_the_sum_has_every_weight(speech):
    X, Y, valid = speech
    mask = torch.full(X.shape, 0.6)
    parts = [float(alone(**{name: 1.0})(mask, X, Y, valid)[0]) for name in ("si_sdr", "pesq", "gain")]
    assert parts[1] == pytest.approx(float(pesq_loss(synthesise(mask * X), synthesise(Y))), rel=1e-5)
    whole, _ = losses.weighted(si_sdr=1.0, pesq=8.0, gain=0.1, limit_db=30.0)(mask, X, Y, valid)
    assert float(whole) == pytest.approx(parts[0] + 8 * parts[1] + 0.1 * parts[2], rel=1e-5)


def test_silent_targets_do_not_count_and_have_finite_gradients(speech):
    X, Y, valid = speech
    X, Y, valid = (torch.cat([t, t, t]) for t in (X, Y, valid))
    Y[1], X[2], Y[2] = 0, 0, 0
    mask = torch.full(X.shape, 0.6, requires_grad=True)
    loss = losses.weighted(si_sdr=1.0, pesq=8.0, gain=0.1, limit_db=30.0)
    total, count = loss(mask, X, Y, valid)
    assert int(count) == 1
    torch.testing.assert_close(total, loss(mask[:1], X[:1], Y[:1], valid[:1])[0])
    total.backward()
    assert mask.grad.isfinite().all()
    assert mask.grad[0].abs().max() > 0
    assert not mask.grad[1:].any()
