"""What a release needs: one version, a changelog in the usual form, workflows for what the package says it runs on."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import drnmf

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def version():
    spec = importlib.util.spec_from_file_location("version", ROOT / ".github/version.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_stands_in_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "drnmf.__version__"}
    assert "\nversion:" not in (ROOT / "CITATION.cff").read_text()
    in_npm = json.loads((ROOT / "js/package.json").read_text())["version"]  # it must stand there, too
    assert in_npm == drnmf.__version__.replace(".dev", "-dev.")


def test_a_tag_gets_its_part_of_the_changelog(version):
    changelog = "## [Unreleased]\n\n- x\n\n## [1.2.0] - 2026-12-24\n\n### Added\n\n- this\n\n## [1.1.0] - 2026-01-02\n"
    assert version.notes("v1.2.0", '__version__ = "1.2.0"\n', changelog) == "### Added\n\n- this"
    with pytest.raises(SystemExit, match=r"the tag is v1.2.0, but .* says \['1.2.0.dev0'\]"):
        version.notes("v1.2.0", '__version__ = "1.2.0.dev0"\n', changelog)
    with pytest.raises(SystemExit, match=r"no heading '## \[1.3.0\] - DATE'"):
        version.notes("v1.3.0", '__version__ = "1.3.0"\n', changelog)


def test_the_changelog_is_kept_as_usual(version):
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)) <= kinds
    if "dev" not in drnmf.__version__:
        assert version.notes(f"v{drnmf.__version__}", f'__version__ = "{drnmf.__version__}"', CHANGELOG)


def test_every_python_that_the_package_names_is_tested():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    assert re.findall(r'"(3\.\d+)"', re.search(r"^ +python: \[.*\]$", workflow, re.MULTILINE)[0]) == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_a_wheel_fits_every_python_and_holds_all_files(tmp_path):
    options = [
        "egg_info",
        "-e",
        tmp_path,
        "build",
        "-b",
        tmp_path / "b",
        "bdist_wheel",
        "-d",
        tmp_path,
        "-b",
        tmp_path / "w",
    ]
    command = [sys.executable, "setup.py", "-q", *map(str, options)]
    no_compiler = os.environ | {"CC": "false"}  # compiling takes a minute
    subprocess.run(command, cwd=ROOT, env=no_compiler, capture_output=True, timeout=300, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"drnmf-{drnmf.__version__}-cp311-abi3-")
    held = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    source = [path.relative_to(ROOT / "src") for path in (ROOT / "src/drnmf").rglob("*") if path.is_file()]
    assert {path for path in source if path.suffix not in (".pyc", ".so", ".pyd")} <= held
