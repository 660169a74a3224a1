"""Format, rules and types: what `make lint` checks is part of the suite."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", ["ruff format --check .", "ruff check .", "mypy"])
def test_lint(command):
    name, *arguments = command.split()
    tool = shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)
    if tool is None:
        pytest.skip(f"{name} is not installed: pip install -e '.[dev]'")
    done = subprocess.run([tool, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_test_waits_for_ever():
    waits = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            bounded = name.endswith(".wait") and node.args
            if name.endswith(("subprocess.run", ".communicate", ".wait")) and not bounded:
                waits += [] if "timeout" in {word.arg for word in node.keywords} else [f"{path.name}:{node.lineno}"]
    assert waits == []
