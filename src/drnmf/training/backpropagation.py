"""Step 4 of the paper's training: a separator, a loss and Adam, on Lightning; and what a run leaves behind."""

import csv
import io
import logging
import math
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from drnmf.data.batches import Batch
from drnmf.errors import DivergedError
from drnmf.files import write_atomically
from drnmf.models.base import Separator
from drnmf.models.folders import save_model
from drnmf.training.losses import Loss

log = logging.getLogger("drnmf")

CHECK_EVERY = 100  # steps between looks at whether the loss is still finite: each look waits for the device


class Backpropagation(L.LightningModule):
    """Minimise a loss over batches; the mean is over all processes, so their number does not change the result."""

    def __init__(
        self,
        model: Separator,
        loss: Loss,
        learning_rate: float,
        *,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        falling: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.learning_rate, self.beta2, self.epsilon, self.falling = learning_rate, beta2, epsilon, falling
        self.validation_loss = math.nan
        self._totals: list[Tensor] = []
        self._aside: list[Tensor] = []
        self._norms: list[Tensor] = []

    def configure_optimizers(self) -> Any:
        """Adam, at a constant rate or one that falls to zero like a cosine, epoch by epoch."""
        betas = (0.9, self.beta2)
        adam = torch.optim.Adam(self.model.parameters(), lr=self.learning_rate, betas=betas, eps=self.epsilon)
        if not self.falling:
            return adam
        return [adam], [torch.optim.lr_scheduler.CosineAnnealingLR(adam, self.trainer.max_epochs or 1)]

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the model has the weights that are validated and saved: here always."""
        return nullcontext()

    def on_train_epoch_start(self) -> None:
        """Forget the last epoch's losses and gradients."""
        self._totals, self._norms = [], []

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """The batch's mean loss over all processes (whose gradients Lightning averages)."""
        total, count = self._batch_totals(batch)
        self._totals.append(torch.stack([total.detach().double(), count.double()]))
        mean_count = self.trainer.strategy.reduce(count.double(), reduce_op="mean")
        if (index + 1) % CHECK_EVERY == 0:
            self._check_finite()
        return total / mean_count.to(total)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Remember how long the gradient is, before it is clipped."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        self._norms.append(torch.nn.utils.get_total_norm(gradients))

    def gradient_norm(self) -> float:
        """The mean over the steps of the epoch that ends."""
        return float(torch.stack(self._norms).mean())

    def epoch_loss(self) -> float:
        """The mean training loss of the epoch that ends."""
        self._check_finite()
        return self._mean()

    def on_validation_epoch_start(self) -> None:
        """Put the training batches' losses aside."""
        self._aside, self._totals = self._totals, []

    def validation_step(self, batch: Batch, index: int) -> None:
        """Add up the losses of the validation set."""
        self._totals.append(torch.stack([t.double() for t in self._batch_totals(batch)]))

    def on_validation_epoch_end(self) -> None:
        """The mean over the whole validation set, on all processes the same."""
        self.validation_loss = self._mean()
        self._totals = self._aside

    def _batch_totals(self, batch: Batch) -> tuple[Tensor, Tensor]:
        X, Y = batch.spectra()  # on the training device
        mask, _ = self.model.separate(X.abs())
        return self.loss(mask, X, Y, batch.mask())

    def _mean(self) -> float:
        total, count = self.trainer.strategy.reduce(torch.stack(self._totals).sum(0), reduce_op="sum")
        return float(total / count)

    def _check_finite(self) -> None:
        bad = ~torch.stack(self._totals)[:, 0].isfinite()
        if bad.any():
            step = int(bad.nonzero()[0]) + 1
            raise DivergedError(
                f"the training loss is not a finite number any more (epoch {self.current_epoch + 1}, step {step})"
            )


class Record(L.Callback):
    """What a run leaves in its folder after every epoch: history.csv, and the best model so far or, if told, the last.

    Also stops the run: when the validation loss has not improved for `patience` epochs, or has left all bounds.
    """

    def __init__(
        self, run: Backpropagation, folder: Path, patience: int, validate_every: int = 1, *, keep_last: bool = False
    ) -> None:
        self.run, self.folder, self.patience, self.validate_every = run, folder, patience, validate_every
        self.keep_last = keep_last
        self.rows: list[dict[str, float]] = []
        self._earlier = 0.0  # seconds, before the run was continued
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the run has taken so far; without what a killed one did after its last checkpoint."""
        return self._earlier + time.monotonic() - self._begun

    @property
    def best(self) -> dict[str, float]:
        """The row with the lowest validation loss."""
        return min(self.rows, key=lambda row: row["validation_loss"])

    @property
    def kept(self) -> dict[str, float]:
        """The row of the model in the folder."""
        return self.rows[-1] if self.keep_last else self.best

    def state_dict(self) -> dict[str, Any]:
        """Goes into the checkpoint."""
        return {"rows": self.rows, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Comes from the checkpoint."""
        self.rows = state_dict["rows"]
        self._earlier = state_dict.get("seconds", 0.0)

    def on_sanity_check_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Before the first step: the model as it was initialised is epoch 0."""
        if not self.rows:  # else the run is being continued
            self._add(trainer, epoch=0, training_loss=math.nan)

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """A run that was killed between its end and saying so has nothing left to do."""
        trainer.should_stop = self._out_of_patience()

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Write the epoch down, keep the model if it is the best, stop if it is time.

        An epoch that is not validated leaves no row.
        """
        if (trainer.current_epoch + 1) % self.validate_every:
            return
        self._add(trainer, epoch=trainer.current_epoch + 1, training_loss=self.run.epoch_loss())
        last, first = self.rows[-1]["validation_loss"], self.rows[0]["validation_loss"]
        if not math.isfinite(last) or last > 10 * abs(first) + 100:
            raise DivergedError(
                f"the validation loss left all bounds: {last:.4g} after epoch {trainer.current_epoch + 1}"
            )
        if self._out_of_patience():
            log.info("no improvement for %d epochs", self.patience)
            trainer.should_stop = True

    def _out_of_patience(self) -> bool:
        return self.rows[-1]["epoch"] - self.best["epoch"] >= self.patience

    def _add(self, trainer: L.Trainer, *, epoch: int, training_loss: float) -> None:
        row: dict[str, float] = {
            "epoch": epoch,
            "step": trainer.global_step,
            "training_loss": training_loss,
            "validation_loss": self.run.validation_loss,
        }
        self.rows.append(row)
        if not trainer.is_global_zero:
            return
        if self.kept is row:
            with self.run.averaged():
                save_model(self.run.model, self.folder)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_atomically(self.folder / "history.csv", text.getvalue().encode())


class ProgressBar(L.Callback):
    """One bar over the whole run: epoch, losses, time passed and left; a line per epoch where there is no terminal."""

    def __init__(self, record: Record) -> None:
        self.record = record
        columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
        self.progress = Progress(*columns)

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Show the bar from where the run stands."""
        batches = int(trainer.num_training_batches)
        self.task = self.progress.add_task("training", total=(trainer.max_epochs or 1) * batches)
        self.progress.update(self.task, completed=trainer.current_epoch * batches)
        wanted = log.level <= logging.INFO  # not that of Python, which would hide the bar: --quiet sets this one
        if wanted and self.progress.console.is_terminal and trainer.is_global_zero:
            self.progress.start()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """One step further."""
        self.progress.advance(self.task)

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Tell the losses."""
        row, best = self.record.rows[-1], self.record.best
        if row["epoch"] != trainer.current_epoch + 1:  # not validated
            return
        text = (
            f"epoch {row['epoch']}/{trainer.max_epochs}  training {row['training_loss']:.5f}  "
            f"validation {row['validation_loss']:.5f}  best {best['validation_loss']:.5f} (epoch {best['epoch']})"
        )
        self.progress.update(self.task, description=text)
        if not self.progress.console.is_terminal:
            log.info(text)

    def teardown(self, trainer: L.Trainer, module: L.LightningModule, stage: str) -> None:
        """Leave the terminal as it was."""
        if self.progress.live.is_started:  # else it would print an empty line
            self.progress.stop()
