"""What `pip install drnmf` brings: little, no PyTorch, and with it all that enhancing needs. `make bare` does it."""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import drnmf
from drnmf.engines import streams

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
MOST_MB = 150


def needed(requirement: Requirement, found: dict[str, metadata.Distribution]) -> None:
    """Add a package and all that it needs, without extras."""
    is_for_us = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if is_for_us and requirement.name not in found:
        found[requirement.name] = metadata.distribution(requirement.name)
        for text in found[requirement.name].requires or ():
            needed(Requirement(text), found)


def megabytes(paths) -> float:
    return sum(path.stat().st_size for path in map(Path, paths) if path.is_file()) / 1e6


def test_the_package_is_small_and_brings_no_pytorch():
    found: dict[str, metadata.Distribution] = {}
    for text in PROJECT["dependencies"]:
        needed(Requirement(text), found)
    assert not {"torch", "lightning", "matplotlib", "scipy"} & set(found)
    sizes = {name: megabytes(map(dist.locate_file, dist.files or ())) for name, dist in found.items()}
    assert sizes["numpy"] > 10  # else what is installed is not seen
    sizes["drnmf"] = megabytes(Path(drnmf.__file__).parent.rglob("*"))
    assert sum(sizes.values()) < MOST_MB, sizes


@pytest.mark.parametrize("extra", ["train", "onnx", "all", "dev"])
def test_pytorch_comes_with_what_needs_it(extra):
    extras = {name: list(map(Requirement, texts)) for name, texts in PROJECT["optional-dependencies"].items()}

    def packages(name: str) -> set[str]:
        own = {requirement.name for requirement in extras[name]}
        return own.union(*(packages(inner) for requirement in extras[name] for inner in requirement.extras))

    assert "torch" in packages(extra)


HEAVY = {"torch", "lightning", "matplotlib", "scipy", "multiprocessing"}
PROGRAMS = ["import drnmf", "import drnmf.cli", "from drnmf import Streamer; Streamer()"]


@pytest.mark.skipif(not streams.available(), reason="steps.c is not compiled here: PyTorch does the same")
@pytest.mark.parametrize("program", PROGRAMS)
def test_importing_it_does_not_import_pytorch(program):
    code = f"{program}\nimport sys; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"
