"""Training on endless mixtures, a network's state carried from chunk to chunk.

Every step does the same to tensors of the same shapes, so that `training.optimiser` can make a CUDA graph of it.
"""

import logging
import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from drnmf.data.endless import Chunk
from drnmf.errors import DivergedError
from drnmf.models.base import Separator, State
from drnmf.signal.spectra import analyse
from drnmf.training.backpropagation import CHECK_EVERY, Backpropagation
from drnmf.training.losses import Loss
from drnmf.training.optimiser import AveragedAdam

log = logging.getLogger("drnmf")

HOPELESS = 20  # steps in a row without a finite gradient, after which training has diverged


class EndlessBackpropagation(Backpropagation):
    """Minimise a loss over chunks; validation and the saved model use the average of the weights.

    Args:
        model: what is trained.
        loss: its mean over the chunk's sequences is minimised.
        learning_rate: of all parameters but the recurrent part.
        recurrent_rate: of the recurrent part, if the model has one.
        falling: the rates fall to zero like a cosine, step by step.
        warmup_steps: during which the rates rise to what they are.
        objective: weight of the paper's objective beside the loss, for models that give it.
        adam: the other arguments of `AveragedAdam`.
    """

    def __init__(
        self,
        model: Separator,
        loss: Loss,
        learning_rate: float,
        *,
        recurrent_rate: float,
        falling: bool,
        warmup_steps: int,
        objective: float = 0.0,
        adam: dict[str, float],
    ) -> None:
        super().__init__(model, loss, learning_rate, falling=falling)
        self.automatic_optimization = False
        self.rates = (learning_rate, recurrent_rate)
        self.warmup_steps, self.objective, self.adam = warmup_steps, objective, adam
        self._optimiser: AveragedAdam | None = None
        self._chunk: Chunk | None = None  # where every chunk is copied to, since a graph knows places only
        self._state: State = ()
        self._sums = torch.zeros(2, dtype=torch.float64)  # of finite losses, and their number
        self._averaged: AbstractContextManager[None] | None = None

    def configure_optimizers(self) -> Any:
        """Adam with averages; the recurrent part has a rate of its own."""
        groups = [{"params": p, "base": r} for p, r in zip(self.model.groups(), self.rates, strict=False)]
        self._optimiser = AveragedAdam(groups, **self.adam)
        return self._optimiser

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the model has the average of its weights."""
        assert self._optimiser is not None
        return self._optimiser.averaged()

    def on_train_epoch_start(self) -> None:
        """Forget the last epoch's losses and what was skipped."""
        assert self._optimiser is not None
        self._sums.zero_()
        self._optimiser.skipped[1].zero_()
        self._optimiser.norms.zero_()

    def training_step(self, chunk: Chunk, index: int) -> None:  # type: ignore[override]
        """One step, at the rate of this moment."""
        if self._chunk is None:
            self._chunk = Chunk(*(t.clone() for t in chunk))
            self._state = tuple(s.detach().clone() for s in self._start(chunk))
            self._sums = self._sums.to(self.device)
        for place, tensor in zip(self._chunk, chunk, strict=True):
            place.copy_(tensor)
        optimiser: Any = self.optimizers()  # Lightning counts its steps
        factor = self._rate(self.trainer.global_step)
        for group in optimiser.param_groups:
            group["lr"] = factor * group["base"]
        optimiser.step(closure=self._gradients)
        if (index + 1) % CHECK_EVERY == 0:
            self._check_finite()

    def _rate(self, step: int) -> float:
        """What the rates are multiplied by."""
        steps = int(self.trainer.num_training_batches) * (self.trainer.max_epochs or 1)
        falling = 0.5 * (1 + math.cos(math.pi * step / steps)) if self.falling else 1.0
        warmup = min(self.warmup_steps, steps // 10)  # of a short run only a part
        return falling * min(1.0, (step + 1) / max(1, warmup))

    def _gradients(self) -> Tensor:
        """The loss of the chunk, its gradients in the parameters, the state in its place."""
        chunk = self._chunk
        assert chunk is not None
        self.model.zero_grad(set_to_none=True)
        X, Y = chunk.spectra()
        start = self._start(chunk)
        state = tuple(_begun(chunk.reset, *both) for both in zip(start, self._state, strict=True))
        objective: Tensor | float = 0.0
        if self.objective:
            mask, after, objective = self.model.separate_and_judge(X.abs(), state)
        else:
            mask, after = self.model.separate(X.abs(), state)
        total, count = self.loss(mask, X, Y, chunk.mask())
        loss = total / count + self.objective * objective
        loss.backward()  # type: ignore[no-untyped-call]
        for place, tensor in zip(self._state, after, strict=True):
            place.copy_(torch.nan_to_num(tensor.detach()))
        loss = loss.detach()
        finite = loss.isfinite()
        self._sums += torch.stack([torch.where(finite, loss, 0).double(), finite.double()])
        return loss

    def _start(self, chunk: Chunk) -> State:
        """The state before a walk, with what a sample of its noise says where there are samples."""
        start = self.model.start(len(chunk.reset))
        return (*start, self.model.moved(analyse(chunk.sample).abs())) if chunk.sample.shape[1] else start

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing: the optimiser looks at the gradients."""

    def gradient_norm(self) -> float:
        """The mean over the steps of the epoch that ends."""
        assert self._optimiser is not None
        total, count = self._optimiser.norms
        return float(total / count.clamp_min(1))

    def epoch_loss(self) -> float:
        """The mean training loss of the epoch that ends."""
        self._check_finite()
        assert self._optimiser is not None
        if skipped := int(self._optimiser.skipped[1]):
            log.info("epoch %d: %d steps skipped, their gradients were not finite", self.current_epoch + 1, skipped)
        return float(self._sums[0] / self._sums[1].clamp_min(1))

    def on_validation_epoch_start(self) -> None:
        """Validate the average."""
        super().on_validation_epoch_start()
        self._averaged = self.averaged()
        self._averaged.__enter__()

    def on_validation_epoch_end(self) -> None:
        """Go on with the weights themselves."""
        assert self._averaged is not None
        self._averaged.__exit__(None, None, None)
        super().on_validation_epoch_end()

    def _check_finite(self) -> None:
        assert self._optimiser is not None
        if (skipped := int(self._optimiser.skipped[0])) >= HOPELESS:
            raise DivergedError(
                f"the last {skipped} steps had no finite gradient (epoch {self.current_epoch + 1}): "
                "the training loss is not a finite number any more"
            )


def _begun(reset_B: Tensor, start: Tensor, carried: Tensor) -> Tensor:
    """States (B, ...): the start where a walk begins."""
    return torch.where(reset_B.view(-1, *[1] * (start.ndim - 1)), start, carried)
