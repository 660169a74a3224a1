"""A model and a loss of one's own, trained, saved and used like those of the package.

DRNMF_OWN=own_model drnmf train own_model.toml -o mine      # in this folder
DRNMF_OWN=own_model drnmf enhance noisy.wav -m mine
"""

import torch
from torch import Tensor, nn

from drnmf import Separator


class GRUMask(Separator):
    """One GRU layer of `n_units`, a dense layer and a sigmoid."""

    learning_rate = 1e-3

    def __init__(self, n_units: int, *, n_features: int = 257, generator: torch.Generator | None = None) -> None:
        super().__init__(n_features, n_units=n_units)  # what makes the model again
        self.state_shapes = ((1, n_units),)
        self.gru = nn.GRU(n_features, n_units, batch_first=True)
        self.output = nn.Linear(n_units, n_features)
        for weight in self.parameters():
            nn.init.uniform_(weight, -0.1, 0.1, generator=generator)  # the recipe's seed decides

    def separate(self, magnitude: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Mask (B, T, F) and next state (B, 1, n_units) for magnitudes (B, T, F)."""
        (h,) = self.start(len(magnitude)) if state is None else state
        y, h = self.gru(magnitude, h.transpose(0, 1).contiguous())
        return torch.sigmoid(self.output(y)), (h.transpose(0, 1),)


def absolute_error(mask: Tensor, X: Tensor, Y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """|M |X| - |Y|| over time-frequency cells: a sum, and what to divide it by."""
    error = (mask * X.abs() - Y.abs()).abs() * valid[..., None]
    return error.sum(), valid.sum() * error.shape[-1]
