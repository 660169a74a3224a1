"""What TensorBoard shows of a run: curves for every epoch, and how three mixtures of the validation set look and sound.

The mixtures are always the same. Their pictures and sounds are written after epochs 1, 2, 5, 10, 20, 50 and so on, and
after the last. The SDR is that of all three, one after the other.
"""

from collections.abc import Sequence
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from drnmf.data.batches import Dataset
from drnmf.models.base import Separator
from drnmf.signal import SAMPLE_RATE
from drnmf.signal.audio import Samples
from drnmf.signal.metrics import decompose, ratio_db
from drnmf.signal.spectra import istft, stft
from drnmf.training.backpropagation import Record

_MIXTURES = 3
_SECONDS = 4
_RANGE_DB = 70.0  # of a picture, below its loudest place
_COLOURS = ((0, 0, 4), (81, 18, 124), (183, 55, 121), (252, 137, 97), (252, 253, 191))  # from silent to loud
_GAP = 4  # pixels between two spectrograms


class Board(L.Callback):
    """Writes to the run's TensorBoard what `record` has just added."""

    def __init__(self, record: Record, validation: Dataset) -> None:
        self.record, self.validation = record, validation
        self._heard: list[tuple[Tensor, Tensor]] = []
        self._shown = -1  # the last epoch with pictures

    def on_sanity_check_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """The model as it was initialised, with the mixtures and what they should become."""
        self._heard = chosen(self.validation) if trainer.is_global_zero and trainer.loggers else []
        if len(self.record.rows) > 1:  # the run is being continued
            return
        self._write(trainer, {})
        for number, (noisy, clean) in enumerate(self._heard, 1):
            self._sound(trainer, f"mixture {number}/noisy", noisy, 0)
            self._sound(trainer, f"mixture {number}/clean", clean, 0)

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """After epochs that were validated."""
        if self.record.rows[-1]["epoch"] != trainer.current_epoch + 1:
            return
        self._write(
            trainer,
            {
                "loss/training": self.record.rows[-1]["training_loss"],
                "gradient_norm": self.record.run.gradient_norm(),
                **_rates(trainer.optimizers[0].param_groups),
            },
        )

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """The last epoch's pictures, if it has none yet."""
        epoch = int(self.record.rows[-1]["epoch"])
        if self._heard and self._shown != epoch:
            self._show(trainer, self._estimates(), epoch)

    def _write(self, trainer: L.Trainer, scalars: dict[str, float]) -> None:
        if not self._heard:
            return
        row = self.record.rows[-1]
        epoch = int(row["epoch"])
        estimates = self._estimates()
        whole = torch.cat(estimates), torch.cat([clean for _, clean in self._heard]).to(estimates[0])
        scalars |= {"loss/validation": row["validation_loss"], "sdr": float(ratio_db(*decompose(*whole, 512)))}
        for name, value in scalars.items():
            _writer(trainer).add_scalar(name, value, epoch)
        if str(epoch).rstrip("0") in ("", "1", "2", "5"):
            self._show(trainer, estimates, epoch)

    @torch.no_grad()
    def _estimates(self) -> list[Tensor]:
        """The mixtures, enhanced by the model as it would be saved now."""
        model = self.record.run.model
        was_training = model.training
        with self.record.run.averaged():
            model.eval()
            estimates = [_enhanced(model, noisy.to(model.like)) for noisy, _ in self._heard]
        model.train(was_training)
        return estimates

    def _show(self, trainer: L.Trainer, estimates: Sequence[Tensor], epoch: int) -> None:
        self._shown = epoch
        for number, (estimate, (noisy, clean)) in enumerate(zip(estimates, self._heard, strict=True), 1):
            self._sound(trainer, f"mixture {number}/enhanced", estimate, epoch)
            picture = spectrograms([noisy, estimate, clean])
            _writer(trainer).add_image(f"mixture {number}: noisy, enhanced, clean", picture, epoch, dataformats="HWC")

    def _sound(self, trainer: L.Trainer, name: str, x: Tensor, epoch: int) -> None:
        _writer(trainer).add_audio(name, x.float().cpu().clamp(-1, 1)[None], epoch, SAMPLE_RATE)


def _enhanced(model: Separator, noisy: Tensor) -> Tensor:
    X = stft(noisy)
    mask, _ = model.separate(X.abs()[None])
    return istft(mask[0] * X, len(noisy))


def chosen(validation: Dataset) -> list[tuple[Tensor, Tensor]]:
    """Mixtures and targets from the beginning, the middle and the end of a set, the first seconds of each."""
    items = validation.items()
    places = np.linspace(0, len(items) - 1, _MIXTURES).round().astype(int)
    pairs = [validation.waveforms(items[place]) for place in sorted(set(places.tolist()))]
    return [(noisy[: _SECONDS * SAMPLE_RATE], clean[: _SECONDS * SAMPLE_RATE]) for noisy, clean in pairs]


def spectrograms(sounds: Sequence[Tensor]) -> Samples:
    """A picture (height, width, 3): one spectrogram below the other, low frequencies at the bottom of each.

    A pixel is the loudest of two bins and two frames: small pictures keep a run's folder small.
    """
    levels_TF = [20 * torch.log10(max_pool2d(stft(x.float().cpu()).abs()[None], 2)[0] + 1e-10) for x in sounds]
    loudest = max(float(level.max()) for level in levels_TF)
    rows = []
    for level_TF in levels_TF:
        share_FT = (1 + (level_TF.T.flip(0) - loudest) / _RANGE_DB).clamp(0, 1).numpy()
        rows += [_coloured(share_FT), np.full((_GAP, share_FT.shape[1], 3), 255, np.uint8)]
    return np.concatenate(rows[:-1])


def _coloured(share_FT: Samples) -> Samples:
    places = np.linspace(0, 255, len(_COLOURS))
    channels = [np.interp(np.arange(256), places, values) for values in zip(*_COLOURS, strict=True)]
    table = np.stack(channels, -1).astype(np.uint8)
    return table[(255 * share_FT).astype(np.uint8)]


def _rates(groups: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The learning rates; a second group is the recurrent part's."""
    names = ["learning_rate/all"] if len(groups) == 1 else ["learning_rate/layers", "learning_rate/recurrent"]
    return {name: float(group["lr"]) for name, group in zip(names, groups, strict=True)}


def _writer(trainer: L.Trainer) -> Any:
    logger: Any = trainer.loggers[0]
    return logger.experiment
