"""Noise atoms that move towards a noise: sparse NMF of a sample around the atoms that a network has.

    minimise  ||V - W H||^2 / 2 + lambda sum(H) + sum_j kappa_j ||w_j - w0_j||^2 / 2    over H >= 0, W >= 0, ||w_j|| = 1

The last term is a Gaussian prior that pulls each atom back to its own spectrum w0. Its strength is kappa_j = PULL
sum(h_j^2), so that how far atoms move does not depend on how long or loud the sample is. Atoms keep their places, so
that all that a network has learned of them still holds.

Functions take arrays and tensors alike, and many samples at once. Names end in their shapes: T frames, F bins, R noise
atoms; `...` are samples.
"""

from drnmf.signal.arrays import Array, functions

PULL, SPARSITY = 6.0, 0.3
FIRST, ITERATIONS = 10, 20  # updates of H alone, then of both
_LEAST = 1e-3  # of the mean of kappa: an atom that is never heard stays where it is
_FLOOR, _TINY = 1e-9, 1e-30


def moved_atoms(x_TF: Array, W_FR: Array) -> Array:
    """Noise atoms (..., F, R) near W (F, R), of unit norm, that explain the features (..., T, F) of a noise."""
    f = functions(x_TF)
    V_FT: Array = x_TF.mT
    moved_FR: Array = f.broadcast_to(W_FR, (*V_FT.shape[:-1], W_FR.shape[-1]))
    H_RT = 0.1 * f.ones_like(moved_FR.mT @ V_FT)
    for n in range(FIRST + ITERATIONS):
        H_RT = H_RT * (moved_FR.mT @ V_FT) / (moved_FR.mT @ (moved_FR @ H_RT) + SPARSITY)
        if n < FIRST:
            continue
        energy_1R = (H_RT * H_RT).sum(-1)[..., None, :]
        kappa_1R = PULL * (energy_1R + _LEAST * energy_1R.mean(-1)[..., None]) + _FLOOR
        heard_FR, explained_FR = V_FT @ H_RT.mT, (moved_FR @ H_RT) @ H_RT.mT
        moved_FR = moved_FR * (heard_FR + kappa_1R * W_FR) / (explained_FR + kappa_1R * moved_FR + _TINY)
        norm_1R = f.sqrt((moved_FR * moved_FR).sum(-2))[..., None, :] + _FLOOR
        moved_FR, H_RT = moved_FR / norm_1R, H_RT * norm_1R.mT
    return moved_FR
