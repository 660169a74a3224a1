"""The package as a house: which room may use which, and that the tree shows them."""

import ast
import re
from pathlib import Path

import pytest

import drnmf

ROOMS = [
    *("errors", "files", "progress", "parallel"),
    *("signal", "maths", "engines", "models", "data", "training", "use", "pictures", "paper", "cli"),
]
"""In order: a room uses itself and those before it. `__init__` only hands on names, and may use all but the last."""

PACKAGE = Path(drnmf.__file__).parent
TESTS = Path(__file__).parent
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def used(path: Path) -> set[str]:
    """The rooms that a file imports from, also inside functions."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports relatively"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("drnmf.")}


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_room_uses_only_those_before_it(module):
    room = Path(module.parts[0]).stem
    allowed = ROOMS[:-1] if room in ("__init__", "metrics") else ROOMS[: ROOMS.index(room) + 1]
    assert used(PACKAGE / module) <= set(allowed)


@pytest.mark.parametrize("module", [module for module in MODULES if module.name != "files.py"], ids=str)
def test_files_are_written_by_files_alone(module):
    """Whoever writes in another way leaves half a file when interrupted; only a log, opened with "a", may grow."""
    found = re.findall(
        r"write_text|write_bytes|os\.replace|tempfile|\bopen\([^)]*[\"'][wx]", (PACKAGE / module).read_text()
    )
    assert found == []


def test_no_module_has_the_name_of_a_public_function():
    functions = {name for name in drnmf.__all__ if not isinstance(getattr(drnmf, name), type(drnmf))}
    assert {module.stem for module in MODULES} & functions == set()


def test_the_package_fits_on_half_a_screen():
    entries = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 18, sorted(entries)


def test_the_tests_have_the_same_rooms():
    def folders(root: Path) -> set[str]:
        return {path.name for path in root.iterdir() if any(path.glob("*.py"))}

    assert folders(TESTS) - {"fuzz"} == folders(PACKAGE)
