"""A training run's recipe: read from TOML, checked, and written back with every setting as it was used.

Its sections are those of `sections`:

    [data]            where speech and noise come from          DataSettings
    [data.endless]    mixtures without end, made while training EndlessSettings
    [dictionary]      steps 1 and 2: sparse NMF                 DictionarySettings
    [model]           step 3: the model's kind and options      ModelSettings
    [training]        step 4: backpropagation                   TrainingSettings
    [training.loss]   a weighted sum, instead of a name         LossWeights

Paths in a file are relative to that file and may name environment variables ($NAME).
"""

import json
import logging
import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel

from drnmf.errors import InputError, shown
from drnmf.files import read_plain
from drnmf.models.folders import bundled_models
from drnmf.training.initial import check_size
from drnmf.training.losses import SHORTEST
from drnmf.training.sections import (
    DataSettings,
    DictionarySettings,
    EndlessSettings,
    LossWeights,
    ModelSettings,
    TrainingSettings,
)
from drnmf.training.settings import CHECKED

log = logging.getLogger("drnmf")

MOST_BYTES, LONGEST_LINE = 2**16, 2000  # of a recipe: nested keys cost a reader of TOML the square of their number
_PLACES = ("train", "validation", "speech", "noise", "rooms", "noisy", "clean", "chime2")


class Recipe(BaseModel):
    """Everything that decides what a training run does."""

    model_config = CHECKED

    data: DataSettings
    dictionary: DictionarySettings = DictionarySettings()
    model: ModelSettings
    training: TrainingSettings = TrainingSettings()

    def __init__(self, **sections: Any) -> None:
        super().__init__(**sections)
        if self.model.start is None:
            check_size(self.model.kind, self.model.options, 2 * self.dictionary.rank_per_source)
        training = self.training
        if self.data.endless:
            if training.devices * training.nodes > 1 or training.precision != "32-true":
                raise InputError("[data.endless] needs devices = 1, nodes = 1 and precision = '32-true'")
            if self.data.max_frames < SHORTEST:
                raise InputError(f"[data.endless] needs max_frames = {SHORTEST} or more: a second")
        else:
            for name in ("recurrent_rate", "warmup_steps", "average", "average_share"):
                if getattr(training, name) != TrainingSettings.model_fields[name].default:
                    raise InputError(f"[training] {name} needs [data.endless]")
            if training.objective:
                raise InputError("[training.loss] objective needs [data.endless]")

    @classmethod
    def from_tables(cls, tables: dict[str, Any], name: str) -> Self:
        """Make a recipe from nested tables; errors begin with `name`."""
        for section, table in tables.items():
            if section not in cls.model_fields:
                known = ", ".join(cls.model_fields)
                raise InputError(f"{name}: unknown section [{shown(section)[1:-1]}]; known: {known}")
            if not isinstance(table, dict):
                raise InputError(f"{name}: [{section}] must be a section, got {shown(table)}")
        data, dictionary, model, training = (dict(tables.get(section, {})) for section in cls.model_fields)
        own = {key: model.pop(key) for key in ("kind", "start") if key in model}
        try:
            if isinstance(data.get("endless"), dict):
                data["endless"] = EndlessSettings(**data["endless"])
            if isinstance(training.get("loss"), dict):
                training["loss"] = LossWeights(**training["loss"])
            return cls(
                data=DataSettings(**data),
                dictionary=DictionarySettings(**dictionary),
                model=ModelSettings(**own, options=model),
                training=TrainingSettings(**training),
            )
        except InputError as error:
            raise InputError(f"{name}: {error}") from None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a recipe; relative paths in it start from its folder."""
        path = Path(path)
        recipe = cls.from_tables(read_tables(path), str(path))
        data = recipe.data
        places = {key: _resolved(value, path, f"[data] {key}") for key in _PLACES if (value := getattr(data, key))}
        start = recipe.model.start
        if start and start not in bundled_models():
            start = _resolved(start, path, "[model] start")
            if not os.path.isdir(start) and not (start.endswith(".toml") and os.path.isfile(start)):
                names = ", ".join(bundled_models())
                raise InputError(
                    f"{path}: [model] start = {shown(recipe.model.start)}: no such folder or recipe; bundled: {names}"
                )
        return recipe.replace(data=places, model={"start": start})

    def replace(self, **changes: dict[str, Any]) -> Self:
        """This recipe with some settings of some sections changed, and checked again."""
        changed = {section: getattr(self, section).replace(**new) for section, new in changes.items()}
        return type(self)(**{**dict(self), **changed})

    def to_toml(self) -> str:
        """The recipe as a TOML file with every setting, None left out."""
        model = {"start": self.model.start} if self.model.start else {"kind": self.model.kind, **self.model.options}
        tables = {**self.model_dump(), "model": model}
        for section, table in list(tables.items()):
            inner = [key for key, value in table.items() if isinstance(value, dict)]
            tables |= {f"{section}.{key}": table.pop(key) for key in inner}
        lines = []
        for section, table in tables.items():
            lines.append(f"[{section}]")
            # JSON's strings, numbers, booleans and lists are TOML's
            given = {key: json.dumps(value, ensure_ascii=False) for key, value in table.items() if value is not None}
            lines += [f"{key} = {value}" for key, value in given.items()]
            lines.append("")
        return "\n".join(lines)


def read_tables(path: Path) -> dict[str, Any]:
    """A file's nested tables, not checked."""
    content = read_plain(path, MOST_BYTES)
    if max(map(len, content.splitlines()), default=0) > LONGEST_LINE:
        raise InputError(f"{path}: has a line of more than {LONGEST_LINE} bytes, as no recipe needs")
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from None


def folders_recipe(speech: Path, noise: Path, rooms: Path | None = None, start: str | None = None) -> Recipe:
    """The recipe for two folders of recordings: the package's default or, with `start`, to train that model further."""
    name = "default" if start is None else "continue"
    tables = tomllib.loads((resources.files("drnmf.training") / f"{name}.toml").read_text("utf-8"))
    folders = {"speech": speech, "noise": noise, "rooms": rooms}
    tables["data"] |= {key: str(path.resolve()) for key, path in folders.items() if path is not None}
    if start is not None:
        tables["model"] = {"start": start}
    log.info("training by the recipe drnmf/training/%s.toml", name)
    return Recipe.from_tables(tables, f"{name}.toml")


def _resolved(value: str, recipe: Path, key: str) -> str:
    expanded = os.path.expandvars(value)
    if "$" in expanded:
        raise InputError(f"{recipe}: {key} = {shown(value)} names an environment variable that is not set; export it")
    try:
        return str((recipe.parent / expanded).resolve())
    except ValueError as error:
        raise InputError(f"{recipe}: {key} = {shown(value)} is not a path ({error})") from None
