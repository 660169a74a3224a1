"""Settings of a training run: frozen, checked when made, read from TOML and written back as used.

    [data]            where speech and noise come from          DataSettings
    [dictionary]      steps 1 and 2: sparse NMF                 DictionarySettings
    [model]           step 3: kind, and that model's options    ModelSettings
    [training]        step 4: backpropagation                   TrainingSettings

Defaults are the paper's. Paths in a file are relative to that file and may name environment variables ($NAME).
"""

import json
import os
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from drnmf.errors import InputError
from drnmf.training.losses import LOSSES

SCHEDULES = ("constant", "cosine")
_PATHS = ("train", "validation", "speech", "noise", "rooms", "noisy", "clean", "chime2")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the recordings are: one of four ways in, and how they become sequences."""

    train: str | None = None
    """A manifest (CSV) of mixtures."""
    validation: str | None = None
    """A manifest of mixtures to stop on; without it, files are held out."""
    speech: str | None = None
    """A folder of clean speech, mixed with `noise`."""
    noise: str | None = None
    """A folder of noise."""
    rooms: str | None = None
    """A folder of room responses, for `speech`."""
    noisy: str | None = None
    """A folder of noisy files, paired by name with `clean`."""
    clean: str | None = None
    """A folder of clean files."""
    chime2: str | None = None
    """The root of a CHiME2-WSJ0 tree."""
    subset: int = 1
    """Take every n-th utterance of the training list, starting with the first."""
    fresh: bool = False
    """Draw new mixtures every epoch instead of keeping the first."""
    varied: bool = False
    """Change the recordings of fresh mixtures by chance: their speed, frequency response, a second noise."""
    levels_dbfs: list[float] | None = None
    """Lowest and highest level of the speech in fresh mixtures; None: those of the manifest, or usual ones."""
    max_frames: int = 500
    """Longest sequence; longer utterances are split."""
    held_out: float = 0.1
    """Fraction of the files to hold out where there is no validation set."""
    in_memory: bool | None = None
    """Decode everything once and keep it; None: if it fits."""
    workers: int | None = None
    """Processes that decode what does not fit into memory; None: up to 8."""

    def __post_init__(self) -> None:
        ways = {"train": self.train, "speech + noise": self.speech, "noisy + clean": self.noisy, "chime2": self.chime2}
        given = [way for way, value in ways.items() if value]
        if len(given) != 1:
            raise InputError(f"[data] needs exactly one of {', '.join(ways)}; got {' and '.join(given) or 'none'}")
        for first, second in (("speech", "noise"), ("noisy", "clean")):
            if bool(getattr(self, first)) != bool(getattr(self, second)):
                raise InputError(f"[data] {first} and {second} go together")
        if self.fresh and (self.noisy or self.chime2):
            raise InputError("[data] fresh mixtures need speech and noise apart: use speech + noise, or a manifest")
        if self.varied and not self.fresh:
            raise InputError("[data] varied = true needs fresh = true: only fresh mixtures are varied")
        if self.levels_dbfs is not None and not self.fresh:
            raise InputError("[data] levels_dbfs needs fresh = true: fixed mixtures have the levels of their list")
        if self.levels_dbfs is not None and len(self.levels_dbfs) != 2:
            raise InputError(f"[data] levels_dbfs is [lowest, highest], got {self.levels_dbfs}")
        _positive(self, "data", "subset", "max_frames")
        if not 0 < self.held_out < 1:
            raise InputError(f"[data] held_out must lie between 0 and 1, got {self.held_out}")


@dataclass(frozen=True, kw_only=True)
class DictionarySettings:
    """Sparse NMF of the training set; the model's own `power` is applied to the magnitudes first."""

    rank_per_source: int = 100
    beta: float = 2.0
    sparsity: float = 1.0
    max_iter: int = 1000
    tol: float = 1e-4
    max_frames: int = 2_000_000
    """Most frames to train on, taken evenly from the whole set: bounds memory for large corpora."""
    random: bool = False
    """Random atoms instead: what a network makes of itself without sparse NMF."""

    def __post_init__(self) -> None:
        _positive(self, "dictionary", "rank_per_source", "max_iter", "max_frames")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which model; `options` are the keyword arguments of its constructor or `from_dictionary`."""

    kind: str = "DRNMF"
    options: dict[str, Any] = field(default_factory=dict)
    start: str | None = None
    """A trained model, its folder or a bundled one's name, to go on from; it has its own kind and options."""

    def __post_init__(self) -> None:
        if self.start and (self.options or self.kind != ModelSettings.kind):
            raise InputError("[model] start names a model that has its own kind and options: leave others out")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Backpropagation. None stands for the paper's value for the kind of model."""

    loss: str = "signal_approximation"
    batch_size: int = 32
    learning_rate: float | None = None
    gradient_clip: float | None = None
    """Largest gradient norm; 0 for no clipping."""
    beta2: float = 0.999
    """Adam's memory of squared gradients; a smaller one forgets faster."""
    schedule: str = "constant"
    """The learning rate over the epochs: "constant" (the paper), or "cosine", falling to zero at `max_epochs`."""
    max_epochs: int = 400
    patience: int = 50
    seed: int = 2016
    precision: str = "32-true"
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InputError(f"[training] loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        if self.schedule not in SCHEDULES:
            raise InputError(f"[training] schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")
        if not 0 < self.beta2 < 1:
            raise InputError(f"[training] beta2 must lie between 0 and 1, got {self.beta2}")
        _positive(self, "training", "batch_size", "max_epochs", "patience", "devices", "nodes")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what a training run does."""

    data: DataSettings
    dictionary: DictionarySettings = field(default_factory=DictionarySettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    @classmethod
    def from_tables(cls, tables: dict[str, Any], name: str) -> Self:
        """Make a recipe from nested tables; `name` is told in errors."""
        sections = {"data": DataSettings, "dictionary": DictionarySettings, "training": TrainingSettings}
        for section in tables:
            if section not in (*sections, "model"):
                raise InputError(f"{name}: unknown section [{section}]; known: data, dictionary, model, training")
        try:
            parts: dict[str, Any] = {s: _section(t, tables.get(s, {}), s) for s, t in sections.items()}
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        model = dict(tables.get("model", {}))
        kind, start = model.pop("kind", ModelSettings.kind), model.pop("start", None)
        try:
            return cls(model=ModelSettings(kind=kind, options=model, start=start), **parts)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a recipe; relative paths in it start from its folder."""
        path = Path(path)
        try:
            tables = tomllib.loads(path.read_text())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not a TOML file: {error}") from None
        recipe = cls.from_tables(tables, str(path))
        given = {key: value for key in _PATHS if (value := getattr(recipe.data, key))}
        absolute: dict[str, Any] = {key: _resolve(value, path) for key, value in given.items()}
        start = recipe.model.start
        if start and (path.parent / os.path.expandvars(start)).is_dir():  # else the name of a bundled model
            start = _resolve(start, path)
        return replace(recipe, data=replace(recipe.data, **absolute), model=replace(recipe.model, start=start))

    def to_toml(self) -> str:
        """The recipe as a TOML file with every setting, None left out."""
        model = {"start": self.model.start} if self.model.start else {"kind": self.model.kind, **self.model.options}
        tables = {
            "data": asdict(self.data),
            "dictionary": asdict(self.dictionary),
            "model": model,
            "training": asdict(self.training),
        }
        lines = []
        for section, table in tables.items():
            lines.append(f"[{section}]")
            # JSON's strings, numbers and booleans are TOML's
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None]
            lines.append("")
        return "\n".join(lines)


def folders_recipe(speech: Path, noise: Path, rooms: Path | None = None, start: str | None = None) -> Recipe:
    """For a person with two folders: DR-NMF with fresh mixtures every epoch, and a step size that cannot diverge.

    With `start`, that model goes on learning from these recordings, in smaller steps.
    """
    folders = {"speech": speech, "noise": noise, "rooms": rooms}
    data = {key: str(path.resolve()) for key, path in folders.items() if path is not None}
    if start is not None:
        return Recipe(
            data=DataSettings(**data, fresh=True, varied=True),  # type: ignore[arg-type]
            model=ModelSettings(start=start),
            training=TrainingSettings(loss="snr", learning_rate=2e-3, gradient_clip=1.0),
        )
    return Recipe(
        data=DataSettings(**data, fresh=True),  # type: ignore[arg-type]
        model=ModelSettings(options={"n_layers": 5, "alpha_range": "weighted"}),
        training=TrainingSettings(learning_rate=5e-3, gradient_clip=1.0),
    )


def _resolve(value: str, recipe: Path) -> str:
    expanded = os.path.expandvars(value)
    if "$" in expanded:
        raise InputError(f"{recipe}: {value} names an environment variable that is not set; export it")
    return str((recipe.parent / expanded).resolve())


def _section(settings: type, table: dict[str, Any], section: str) -> Any:
    known = [f.name for f in fields(settings)]
    for key in table:
        if key not in known:
            raise InputError(f"[{section}] has no setting {key!r}; known: {', '.join(known)}")
    return settings(**table)


def _positive(settings: object, section: str, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or value < 1:
            raise InputError(f"[{section}] {name} must be a whole number from 1, got {value!r}")
