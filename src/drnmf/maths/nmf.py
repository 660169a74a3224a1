"""Sparse NMF by "well-done" multiplicative updates (Le Roux, Weninger and Hershey, 2015).

Minimises D_beta(V || W H) + sparsity * sum(H) over nonnegative W (F, N) with unit-norm columns and H (N, T). Each
iteration updates H, then W along the gradient of the objective in which W is replaced by W / ||W||, then brings W's
columns back to unit norm. All data are visited in chunks of frames, so only V and H themselves are ever held whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.maths.divergence import FLOOR, beta_divergence
from drnmf.progress import Progress, silent

CHUNK = 2**16
"""Frames per chunk: 67 MB for each F x chunk array in float32."""


@dataclass(frozen=True)
class Factorisation:
    """V ~ W H, with the objective and the divergence after every iteration, one value each."""

    W: Tensor
    H: Tensor
    cost: Tensor
    divergence: Tensor


def sparse_nmf(
    V: Tensor,
    rank: int,
    *,
    beta: float = 2.0,
    sparsity: float = 1.0,
    fixed: Tensor | None = None,
    init: tuple[Tensor, Tensor] | None = None,
    max_iter: int = 1000,
    tol: float = 1e-4,
    generator: torch.Generator | None = None,
    chunk: int = CHUNK,
    progress: Progress = silent,
) -> Factorisation:
    """Factorise nonnegative data V (F, T) into `rank` atoms; see the module's text for the objective.

    Args:
        V: data, float32 or float64, on any device.
        rank: number of columns of W, those of `fixed` included.
        beta: which divergence; 2 Euclidean, 1 Kullback-Leibler, 0 Itakura-Saito, or any other real number.
        sparsity: weight of sum(H), the paper's lambda.
        fixed: dictionary (F, n) whose columns come first in W and never change; scaled to unit norm if they are not.
        init: (W0, H0) to start from, of shapes (F, rank) and (rank, T); W0 is scaled to unit norm and H0 to match.
        max_iter: most iterations.
        tol: stop when the cost changes by less than this fraction in one iteration; 0 never stops early.
        generator: source of the random start.
        chunk: most frames held in temporary arrays at a time; the result does not depend on it beyond rounding.
        progress: told the cost after every iteration.

    Examples:
        >>> from drnmf import audio, sparse_nmf, stft
        >>> V = stft(audio.read("clean.wav")[0][0]).abs().mT  # (257, frames)
        >>> factors = sparse_nmf(V, rank=10, max_iter=20)
        >>> factors.W.shape, factors.H.shape
        (torch.Size([257, 10]), torch.Size([10, 667]))
    """
    W, H, n_fixed = _start(V, rank, sparsity, fixed, init, generator)
    costs: list[float] = []
    divergences: list[float] = []
    for iteration in range(max_iter):
        for v, h in _chunks(V, H, chunk):
            h *= _longest_falling_step(v, W, h, beta, sparsity)
        penalty = sparsity * float(H.sum(dtype=torch.float64))
        numerator, denominator = _dictionary_gradient(V, W, H, n_fixed, beta, chunk)
        last = costs[-1] if costs else float("inf")
        # The update of W is a heuristic; on the rare occasion that it overshoots, a shorter step in the same direction
        # is taken, in the end none: H's update alone cannot raise the cost.
        for exponent in (1.0, 0.5, 0.25, 0.0):
            W_next = _updated_dictionary(W, n_fixed, numerator, denominator, exponent)
            divergence = _divergence(V, W_next, H, beta, chunk)
            if divergence + penalty <= last:
                break
        W = W_next
        divergences.append(divergence)
        costs.append(divergence + penalty)
        progress(f"dictionary, cost {costs[-1]:.4g}", iteration + 1, max_iter)
        if abs(costs[-1] - last) < tol * abs(last):
            break
    return Factorisation(W, H, torch.tensor(costs, dtype=torch.float64), torch.tensor(divergences, dtype=torch.float64))


def infer_activations(
    V: Tensor,
    W: Tensor,
    *,
    n_iter: int = 200,
    beta: float = 2.0,
    sparsity: float = 1.0,
    init: Tensor | None = None,
    chunk: int = CHUNK,
) -> Tensor:
    """Test time: H (N, T) for data V (F, T) under the dictionary W (F, N), by `n_iter` multiplicative updates.

    Starts from H = W^T V unless `init` is given: deterministic, and every frame is independent of the others.

    Examples:
        >>> import torch
        >>> from drnmf import infer_activations
        >>> W = torch.eye(3)
        >>> infer_activations(torch.tensor([[3.0], [1.0], [0.0]]), W, sparsity=0.5).mT
        tensor([[2.5000, 0.5000, 0.0000]])
    """
    _check(V, W, sparsity)
    if n_iter < 0:
        raise InputError(f"n_iter must not be negative, got {n_iter}")
    H = W.mT @ V if init is None else init
    _check_activations(V, W, H)
    return torch.cat([_updates(v, W, h, n_iter, beta, sparsity) for v, h in _chunks(V, H, chunk)], 1)


@dataclass(frozen=True)
class Dictionaries:
    """W = [W_speech, W_noise] with the number of speech atoms, and the cost per iteration of both trainings."""

    W: Tensor
    n_speech: int
    speech_cost: Tensor
    noise_cost: Tensor


def train_dictionaries(
    clean: Tensor,
    noisy: Tensor,
    *,
    rank_per_source: int,
    beta: float = 2.0,
    sparsity: float = 1.0,
    max_iter: int = 1000,
    tol: float = 1e-4,
    generator: torch.Generator | None = None,
    chunk: int = CHUNK,
    progress: Progress = silent,
) -> Dictionaries:
    """Steps 1 and 2 of the paper's training: a speech dictionary from clean magnitudes (F, T), then a noise dictionary.

    The noise atoms are learned on noisy magnitudes (F, T') beside the speech atoms, which stay as they are.

    Examples:
        >>> from drnmf import DRNMF, audio, stft, train_dictionaries
        >>> clean, noisy = (stft(audio.read(name)[0][0]).abs().mT for name in ("clean.wav", "noisy.wav"))
        >>> W = train_dictionaries(clean, noisy, rank_per_source=10, max_iter=20).W
        >>> W.shape  # speech, then noise
        torch.Size([257, 20])
        >>> model = DRNMF.from_dictionary(W, n_layers=5)
    """

    def factorise(V: Tensor, rank: int, fixed: Tensor | None) -> Factorisation:
        return sparse_nmf(
            V,
            rank,
            beta=beta,
            sparsity=sparsity,
            fixed=fixed,
            max_iter=max_iter,
            tol=tol,
            generator=generator,
            chunk=chunk,
            progress=progress,
        )

    speech = factorise(clean, rank_per_source, None)
    both = factorise(noisy, 2 * rank_per_source, speech.W)
    return Dictionaries(both.W, rank_per_source, speech.cost, both.cost)


def check_dictionary(W: Tensor, *, signed: bool = False) -> None:
    """Refuse what cannot be a dictionary (F, N); only a `signed` one may hold negative values."""
    if W.ndim != 2 or 0 in W.shape or not W.is_floating_point():
        raise InputError(f"a dictionary is a float array (F, N), F > 0, N > 0, got {W.dtype} of shape {tuple(W.shape)}")
    if not torch.isfinite(W).all():
        raise InputError("the dictionary holds NaN or infinite values")
    if not signed and (W < 0).any():
        raise InputError("the dictionary holds negative values: its atoms are magnitude spectra")
    if not W.any(0).all():
        raise InputError("a column of the dictionary is zero: every atom needs a positive value")


def unit_norm(W: Tensor) -> Tensor:
    """W with its columns scaled to unit norm."""
    norm: Tensor = W.norm(dim=-2, keepdim=True)
    return W / norm


def multiplicative_updates(x: Tensor, W: Tensor, h: Tensor, n_iter: int, *, beta: float, sparsity: float) -> Tensor:
    """`n_iter` multiplicative updates of h (..., T, N) for frames x (..., T, F); they can be differentiated."""
    return _updates(x.mT, W, h.mT, n_iter, beta, sparsity).mT


def _updates(v: Tensor, W: Tensor, h: Tensor, n_iter: int, beta: float, sparsity: float) -> Tensor:
    if beta == 2:
        return _euclidean_updates(v, W, h, n_iter, sparsity)
    for _ in range(n_iter):
        h = h * _activation_factor(v, W, h, beta, sparsity)
    return h


def _euclidean_updates(v: Tensor, W: Tensor, h: Tensor, n_iter: int, sparsity: float) -> Tensor:
    """For beta = 2, where W^T v stays as it is, and W^T W is worth having if it saves multiplications."""
    F, N = W.shape
    frames = n_iter * (v.numel() // F)
    projected = W.mT @ v
    gram = W.mT @ W if N * (F + frames) < 2 * F * frames else None
    for _ in range(n_iter):
        model = W.mT @ (W @ h) if gram is None else gram @ h
        h = h * projected / (model + sparsity).clamp_min(FLOOR)
    return h


def _activation_factor(v: Tensor, W: Tensor, h: Tensor, beta: float, sparsity: float | Tensor) -> Tensor:
    """What h is multiplied with: (W^T (v Wh^(beta-2)) / (W^T Wh^(beta-1) + sparsity))^gamma."""
    ratio = _ratio(v, W, h, beta, sparsity)
    if 1 <= beta <= 2:
        return ratio
    return ratio.clamp_min(FLOOR) ** _gamma(beta)  # floor: at silence the ratio is 0, where a root has no gradient


def _longest_falling_step(v: Tensor, W: Tensor, h: Tensor, beta: float, sparsity: float) -> Tensor:
    """As `_activation_factor`, with exponent 1, a longer step than gamma, in frames whose cost it does not raise."""
    if 1 <= beta <= 2:
        return _activation_factor(v, W, h, beta, sparsity)
    ratio = _ratio(v, W, h, beta, sparsity)
    short = ratio.clamp_min(FLOOR) ** _gamma(beta)
    before, after = (beta_divergence(v, W @ a, beta, dim=0) + sparsity * a.sum(0) for a in (h, h * ratio))
    return torch.where(after <= before, ratio, short)


def _ratio(v: Tensor, W: Tensor, h: Tensor, beta: float, sparsity: float | Tensor) -> Tensor:
    gain, model = _weighted(v, W @ h, beta)
    return (W.mT @ gain) / (W.mT @ model + sparsity).clamp_min(FLOOR)


def _gamma(beta: float) -> float:
    """The exponent with which the update minimises a majoriser (Fevotte and Idier, 2011), so that no cost rises."""
    return 1 / (2 - beta) if beta < 1 else 1 / (beta - 1)


def _weighted(v: Tensor, model: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """The pair (v model^(beta-2), model^(beta-1)) that all gradients of the beta-divergence are made of."""
    model = model.clamp_min(FLOOR)
    if beta == 2:
        return v, model
    if beta == 1:
        return v / model, torch.ones_like(model)
    return v * model ** (beta - 2), model ** (beta - 1)


def _dictionary_gradient(
    V: Tensor, W: Tensor, H: Tensor, n_fixed: int, beta: float, chunk: int
) -> tuple[Tensor, Tensor]:
    """Negative and positive part of the gradient for W's free columns, in the space of normalised columns."""
    free = W[:, n_fixed:]
    gain_part, model_part = torch.zeros_like(free), torch.zeros_like(free)
    for v, h in _chunks(V, H, chunk):
        gain, model = _weighted(v, W @ h, beta)
        gain_part += gain @ h[n_fixed:].mT
        model_part += model @ h[n_fixed:].mT
    numerator = gain_part + free * (free * model_part).sum(0)
    denominator = model_part + free * (free * gain_part).sum(0)
    return numerator, denominator


def _updated_dictionary(W: Tensor, n_fixed: int, numerator: Tensor, denominator: Tensor, exponent: float) -> Tensor:
    """W with its free columns multiplied by (numerator / denominator)^exponent and brought to unit norm."""
    free = W[:, n_fixed:]
    updated = free * (numerator / denominator.clamp_min(FLOOR)) ** exponent
    peak = updated.amax(0)  # divided out first: the squares of an atom close to zero would underflow
    # an atom that is never active has no gradient, and would become 0 / 0: it stays as it is
    return torch.cat([W[:, :n_fixed], torch.where(peak > 0, unit_norm(updated / peak), free)], 1)


def _divergence(V: Tensor, W: Tensor, H: Tensor, beta: float, chunk: int) -> float:
    return sum(float(beta_divergence(v, W @ h, beta)) for v, h in _chunks(V, H, chunk))


def _chunks(V: Tensor, H: Tensor, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of matching frames of V and H."""
    yield from zip(torch.split(V, chunk, 1), torch.split(H, chunk, 1), strict=True)


def _start(
    V: Tensor,
    rank: int,
    sparsity: float,
    fixed: Tensor | None,
    init: tuple[Tensor, Tensor] | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, int]:
    """Checked initial W (unit norm, fixed columns first) and H, and the number of fixed columns."""
    if V.ndim != 2 or 0 in V.shape or not V.is_floating_point():
        raise InputError(f"data must be a float array (F, T), F > 0, T > 0, got {V.dtype} of shape {tuple(V.shape)}")
    if fixed is not None:
        _check(V, fixed, sparsity)
    n_fixed = 0 if fixed is None else fixed.shape[1]
    if rank < 1 or rank < n_fixed:
        raise InputError(f"rank must be at least 1 and count the {n_fixed} fixed columns, got {rank}")
    F, T = V.shape
    if init is None:
        source = None if generator is None else generator.device
        random = [torch.rand(s, generator=generator, dtype=V.dtype, device=source) for s in ((F, rank), (rank, T))]
        W, H = (r.to(V.device) for r in random)
    else:
        W, H = init
    if W.shape != (F, rank):
        raise InputError(f"the initial dictionary has shape {tuple(W.shape)}, expected {(F, rank)}")
    W = W if fixed is None else torch.cat([fixed, W[:, n_fixed:]], 1)
    _check(V, W, sparsity)
    _check_activations(V, W, H)
    norm = W.norm(dim=0)
    norm[:n_fixed][(norm[:n_fixed] - 1).abs() < 1e-6] = 1  # fixed columns of unit norm stay exactly as they came
    return W / norm, H * norm[:, None], n_fixed


def _check(V: Tensor, W: Tensor, sparsity: float) -> None:
    """Refuse data and dictionaries that do not fit each other or are not nonnegative numbers."""
    if V.ndim != 2 or W.ndim != 2 or V.shape[0] != W.shape[0]:
        raise InputError(f"data {tuple(V.shape)} and dictionary {tuple(W.shape)} must be (F, T) and (F, N)")
    if V.dtype != W.dtype or V.device != W.device:
        raise InputError(f"data are {V.dtype} on {V.device}, the dictionary is {W.dtype} on {W.device}")
    check_dictionary(W)
    _check_nonnegative("data", V)
    if not sparsity >= 0:
        raise InputError(f"sparsity must not be negative, got {sparsity}")


def _check_activations(V: Tensor, W: Tensor, H: Tensor) -> None:
    expected = (W.shape[1], V.shape[1])
    if H.shape != expected or H.dtype != V.dtype or H.device != V.device:
        raise InputError(
            f"initial activations are {H.dtype} on {H.device} of shape {tuple(H.shape)}, "
            f"expected {V.dtype} on {V.device} of shape {expected}"
        )
    _check_nonnegative("initial activations", H)


def _check_nonnegative(name: str, values: Tensor) -> None:
    if not torch.isfinite(values).all():
        raise InputError(f"the {name} hold NaN or infinite values")
    if (values < 0).any():
        raise InputError(f"the {name} hold negative values: NMF needs magnitudes")
