"""Noise atoms that move towards a sample."""

import numpy as np
import pytest

from drnmf.maths import adaptation
from drnmf.maths.adaptation import moved_atoms

RANDOM = np.random.default_rng(0)


def unit(W: np.ndarray) -> np.ndarray:
    return W / np.linalg.norm(W, axis=-2, keepdims=True)


def atoms(F: int = 30, R: int = 6) -> np.ndarray:
    return unit(RANDOM.random((F, R)) ** 4)


def noise(W: np.ndarray, T: int = 200) -> np.ndarray:
    """Frames (T, F) in which two of the atoms are active."""
    H = 3 * RANDOM.random((T, 2))
    return H @ W[:, :2].T


def test_atoms_that_explain_the_sample_come_near_it_and_others_stay():
    own, true = atoms(), atoms()
    true[:, 2:] = own[:, 2:]
    true[:, :2] = unit(0.5 * own[:, :2] + 0.5 * true[:, :2])
    moved = moved_atoms(noise(true), own)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=0), 1, atol=1e-6)
    near = (moved * true).sum(0) - (own * true).sum(0)
    assert near[:2].min() > 0.01
    assert (moved[:, 2:] * own[:, 2:]).sum(0).min() > 0.9


def test_the_pull_says_how_far(monkeypatch):
    own, x = atoms(), noise(atoms())
    distances = []
    for pull in (0.1, 3.0, 1000.0):
        monkeypatch.setattr(adaptation, "PULL", pull)
        distances.append(np.linalg.norm(moved_atoms(x, own) - own))
    assert distances[0] > 1.5 * distances[1] > 10 * distances[2]


def test_how_loud_and_how_long_the_sample_is_matters_little():
    own, x = atoms(), 5 * noise(atoms())
    once, twice = moved_atoms(x, own), moved_atoms(np.concatenate([x, x]), own)
    np.testing.assert_allclose(once, twice, atol=1e-6)


def test_silence_and_nothing_change_nothing():
    own = atoms()
    for x in (np.zeros((50, 30)), np.zeros((0, 30))):
        np.testing.assert_allclose(moved_atoms(x, own), own, atol=1e-4)


def test_tensors_and_many_samples_at_once():
    torch = pytest.importorskip("torch")
    own = atoms()
    samples = np.stack([noise(atoms()), noise(atoms())])
    together = moved_atoms(torch.from_numpy(samples), torch.from_numpy(own)).numpy()
    for x, moved in zip(samples, together, strict=True):
        np.testing.assert_allclose(moved_atoms(x, own), moved, atol=1e-9)
