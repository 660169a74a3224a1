"""Random problems for the scan, and how its results are compared."""

import torch

from examples import seeded

NAMES = ("x_BTF", "W_KFN", "alpha_KN", "sparsity_KN", "h0_BN")
OF_FRAMES = "sparsity_KBTN"


def problem(B, T, K, N, F, *, per_atom=False, seed=0):
    """Random arguments of `scan` in float64: a step neither tiny nor unstable, and thresholds that leave zeros in h."""
    generator = seeded(seed)
    x, W, alpha, sparsity, h0 = (
        torch.rand(shape, generator=generator, dtype=torch.float64)
        for shape in ((B, T, F), (K, F, N), *[(K, N if per_atom else 1)] * 2, (B, N))
    )
    L = torch.stack([torch.linalg.matrix_norm(W_FN, 2) ** 2 for W_FN in W])[:, None]
    return dict(zip(NAMES, (x, W, L * (0.7 + alpha), sparsity * F * N**0.5 / 8, h0), strict=True))


def with_sparsity_of_frames(arguments, layers, seed=0):
    """The same problem with thresholds that change from frame to frame, for all layers together or for each."""
    (B, T, _), (_, _, N) = arguments["x_BTF"].shape, arguments["W_KFN"].shape
    size = float(arguments["sparsity_KN"].mean())
    more = size * torch.randn(layers, B, T, N, generator=seeded(seed + 1), dtype=torch.float64)
    return {**arguments, OF_FRAMES: more}


def values_and_gradients(function, arguments, *, needed=NAMES, **options):
    """h, and the gradients of a random linear function of it."""
    leaves = {name: value.detach().requires_grad_(name in needed) for name, value in arguments.items()}
    h = function(**leaves, **options)
    dh = torch.randn(h.shape, generator=seeded(1), dtype=torch.float64).to(h)
    touched = sum(0 * leaves[name].sum() for name in needed)  # without frames the loop's result depends on nothing
    gradients = torch.autograd.grad((h * dh).sum() + touched, [leaves[name] for name in needed])
    return dict(zip(("h", *needed), (h.detach(), *gradients), strict=True))


def assert_same(results, expected, tolerance=1e-10):
    for name, value in expected.items():
        scale = float(value.abs().max()) if value.numel() else 1.0
        torch.testing.assert_close(results[name], value, rtol=0, atol=tolerance * max(scale, 1e-3), msg=name)
