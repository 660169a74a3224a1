"""The sections of a recipe, each checked when it is made. Defaults are the paper's."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from drnmf.data.mixing import DECIBELS
from drnmf.errors import InputError, shown
from drnmf.models.own import is_own, own
from drnmf.training.initial import check_model
from drnmf.training.losses import LOSSES, Loss, weighted
from drnmf.training.settings import Settings

Count = Annotated[int, Field(ge=1, le=10**9)]
Processes = Annotated[int, Field(ge=1, le=1024)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Decibels = Annotated[float, Field(ge=-DECIBELS, le=DECIBELS)]
Range = Annotated[list[Decibels], Field(min_length=2, max_length=2)]
Place = Annotated[str, Field(min_length=1)]


class EndlessSettings(Settings):
    """Mixtures that never repeat, in chunks of `max_frames` between which a network keeps its state."""

    section = "data.endless"

    snrs_db: Range = Field(default=[-6.0, 9.0])
    """Lowest and highest SNR of most mixtures."""
    good_snrs_db: Range = Field(default=[9.0, 30.0])
    """Those of recordings that are good already."""
    good_share: Share = 0.22
    """Share of mixtures with `good_snrs_db`."""
    clean_share: Share = 0.08
    """Share of speech without any noise."""
    levels_dbfs: Range = Field(default=[-40.0, -15.0])
    """Lowest and highest level of the speech."""
    narrow_share: Share = 0.08
    """Share with the bandwidth of telephones and codecs."""
    waiting_share: Share = 0.0
    """Share in which the noise is heard alone at first, for up to 5 s."""
    sample_share: Share = 0.0
    """Share before which the network learns the noise from a sample (`maths.adaptation`)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("snrs_db", "good_snrs_db", "levels_dbfs"):
            _check_range(name, getattr(self, name))
        if self.good_share + self.clean_share > 1:
            raise InputError("good_share and clean_share must not exceed 1 together")
        return self


class DataSettings(Settings):
    """Where the recordings are: one of four ways in, and how they become sequences."""

    section = "data"

    train: Place | None = None
    """A manifest (CSV) of mixtures."""
    validation: Place | None = None
    """A manifest of mixtures to stop on; without it, files are held out."""
    speech: Place | None = None
    """A folder of clean speech, mixed with `noise`."""
    noise: Place | None = None
    """A folder of noise."""
    rooms: Place | None = None
    """A folder of room responses, for `speech`."""
    noisy: Place | None = None
    """A folder of noisy files, paired by name with `clean`."""
    clean: Place | None = None
    """A folder of clean files."""
    chime2: Place | None = None
    """The root of a CHiME2-WSJ0 tree."""
    subset: Count = 1
    """Take every n-th utterance of the training list, starting with the first."""
    fresh: bool = False
    """Draw new mixtures every epoch instead of keeping the first."""
    varied: bool = False
    """Vary the recordings of fresh mixtures at random: their speed, frequency response, a second noise."""
    levels_dbfs: Range | None = None
    """Lowest and highest level of the speech in fresh mixtures; None: those of the manifest, or usual ones."""
    max_frames: Count = 500
    """Longest sequence; longer utterances are split."""
    held_out: Annotated[float, Field(ge=1e-6, lt=1)] = 0.1
    """Fraction of the files to hold out where there is no validation set."""
    in_memory: bool | None = None
    """Decode everything once and keep it; None: if it fits."""
    workers: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Processes that decode what does not fit into memory; None: up to 8."""
    endless: EndlessSettings | None = None
    """Train on mixtures that never repeat."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        ways = {"train": self.train, "speech + noise": self.speech, "noisy + clean": self.noisy, "chime2": self.chime2}
        given = [way for way, value in ways.items() if value]
        if len(given) != 1:
            raise InputError(f"needs exactly one of {', '.join(ways)}; got {' and '.join(given) or 'none'}")
        for first, second in (("speech", "noise"), ("noisy", "clean")):
            if bool(getattr(self, first)) != bool(getattr(self, second)):
                raise InputError(f"{first} and {second} go together")
        if self.validation and not self.train:
            raise InputError("validation goes with train: otherwise files are held out")
        if self.rooms and not self.speech:
            raise InputError("rooms goes with speech + noise")
        if self.subset > 1 and self.speech:
            raise InputError("subset is for lists of utterances: with speech + noise, give fewer files")
        self._check_fresh()
        if self.endless:
            self._check_endless()
        return self

    def _check_endless(self) -> None:
        if self.noisy or self.chime2:
            raise InputError("endless needs speech and noise apart: use speech + noise, or a manifest")
        if self.fresh:
            raise InputError("endless mixtures are always fresh and varied: leave fresh out")
        if self.in_memory is False:
            raise InputError("endless mixtures are made in memory: leave in_memory out")

    def _check_fresh(self) -> None:
        if self.fresh and (self.noisy or self.chime2):
            raise InputError("fresh = true needs speech and noise apart: use speech + noise, or a manifest")
        if self.varied and not self.fresh:
            raise InputError("varied = true needs fresh = true: only fresh mixtures are varied")
        if self.levels_dbfs is None:
            return
        if not self.fresh:
            raise InputError("levels_dbfs needs fresh = true: fixed mixtures have the levels of their list")
        _check_range("levels_dbfs", self.levels_dbfs)


class DictionarySettings(Settings):
    """Sparse NMF of the training set, of the features that the model sees."""

    section = "dictionary"

    rank_per_source: Count = 100
    beta: Annotated[float, Field(ge=-100, le=100)] = 2.0
    sparsity: NotNegative = 1.0
    max_iter: Count = 1000
    tol: NotNegative = 1e-4
    max_frames: Count = 2_000_000
    """Most frames to train on, taken evenly from the whole set: bounds memory for large corpora."""
    random: bool = False
    """Random atoms instead: shows what sparse NMF contributes to a network."""


class ModelSettings(Settings):
    """Which model; `options` are the keyword arguments of its constructor or `from_dictionary`."""

    section = "model"

    kind: str = "DRNMF"
    options: dict[str, Any] = Field(default_factory=dict)
    start: Place | None = None
    """A trained model, its folder or a bundled one's name, to train further; it has its own kind and options.

    Or the recipe (TOML) of that model, which is then trained first, in the folder "first" of the run.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.start is None:
            check_model(self.kind, self.options)
        elif self.options or self.kind != type(self).model_fields["kind"].default:
            raise InputError("start names a model that has its own kind and options: leave the others out")
        return self


class LossWeights(Settings):
    """A loss that is a sum over the waveforms of sequences."""

    section = "training.loss"

    si_sdr: NotNegative = 1.0
    """Weight of the SI-SDR in dB."""
    limit_db: Positive = 20.0
    """The most it can reach: what is nearly clean counts no more than that."""
    pesq: NotNegative = 0.0
    """Weight of what is missing of the raw PESQ of 4.5."""
    gain: NotNegative = 0.0
    """Weight of the squared change of the speech's level in dB."""
    objective: NotNegative = 0.0
    """Weight of the paper's objective, ½ |x - W h|² + λ |h|, over what it is for h = 0: what keeps atoms spectra. On
    endless mixtures, for models that give it (PriorDRNMF); validation leaves it out."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.si_sdr + self.pesq + self.gain:
            raise InputError("needs a weight above 0")
        return self


class TrainingSettings(Settings):
    """Backpropagation. None stands for the paper's value for the kind of model."""

    section = "training"

    loss: str | LossWeights = "signal_approximation"
    batch_size: Count = 32
    learning_rate: Positive | None = None
    recurrent_rate: Positive | None = None
    """Learning rate of the model's recurrent part on endless mixtures; None: `learning_rate`."""
    gradient_clip: NotNegative | None = None
    """Largest gradient norm, on endless mixtures of each part of the model; 0 for no clipping."""
    beta2: Fraction = 0.999
    """Adam's memory of squared gradients; a smaller one forgets faster."""
    epsilon: Positive = 1e-8
    """Added by Adam to the root of the squared gradients."""
    schedule: Literal["constant", "cosine"] = "constant"
    """The learning rate over the epochs: "constant" (the paper), or "cosine", falling to zero at `max_epochs`."""
    warmup_steps: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Steps during which the rates rise, on endless mixtures."""
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Memory of the average of the weights that is validated and saved, on endless mixtures; 0: no average."""
    average_share: Fraction = 0.05
    """Of the steps so far, over which that average goes, if its memory reaches so far."""
    validate_every: Count = 1
    """Epochs from one validation to the next."""
    max_epochs: Count = 400
    patience: Count = 50
    """Epochs without a better validation loss after which training stops."""
    keep: Literal["best", "last"] = "best"
    """The weights that the run ends with: those of the best validation loss, or the last, if that loss is not all that
    counts."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 2016
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = "32-true"
    accelerator: Literal["auto", "cpu", "gpu", "cuda"] = "auto"
    devices: Processes = 1
    nodes: Processes = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if is_own(self.loss):
            if not callable(self.loss_function()):
                raise InputError(f"loss = {shown(self.loss)} is not a function")
        elif isinstance(self.loss, str) and self.loss not in LOSSES:
            raise InputError(f"loss must be one of {', '.join(LOSSES)}, or module:function; got {self.loss!r}")
        if self.max_epochs % self.validate_every:
            raise InputError(f"max_epochs must be a multiple of validate_every, {self.validate_every}")
        return self

    @property
    def objective(self) -> float:
        """The weight of the paper's objective beside the loss."""
        return self.loss.objective if isinstance(self.loss, LossWeights) else 0.0

    def loss_function(self) -> Loss:
        """The loss that `loss` names or weighs."""
        if not isinstance(self.loss, str):
            return weighted(**{name: weight for name, weight in self.loss if name != "objective"})
        function: Loss = own(self.loss) if is_own(self.loss) else LOSSES[self.loss]
        return function


def _check_range(name: str, values: list[float]) -> None:
    lowest, highest = values
    if lowest > highest:
        raise InputError(f"{name} must be [lowest, highest], got {values}")
