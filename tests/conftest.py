"""Shared by all tests: where the bundled recordings and, if there is one, the home corpus lie."""

import os
from pathlib import Path

import pytest

from drnmf.parallel import use_one_thread

use_one_thread()  # everything here is small: threads would wait for each other longer than they work

AUDIO = Path(__file__).parent / "audio"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "note in tests/gpu-record.json that the kernels passed on this GPU: see CONTRIBUTING.md"
    parser.addoption("--gpu-record", metavar="COMMIT", help=text)


def pytest_configure(config: pytest.Config) -> None:
    commit = config.getoption("--gpu-record")
    if commit is not None:
        from engines import gpu_record  # here: `make bare` has no PyTorch

        config.pluginmanager.register(gpu_record.start(config, commit))


@pytest.fixture(scope="session")
def speech_dir() -> Path:
    """Five real utterances, 16 kHz mono."""
    return AUDIO / "speech"


@pytest.fixture(scope="session")
def noise_dir() -> Path:
    """Four real background recordings, 16 kHz mono, each longer than any utterance."""
    return AUDIO / "noise"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The home corpus; tests that need it are skipped where it is not."""
    folder = os.environ.get("DRNMF_CORPUS")
    if not folder:
        pytest.skip("the home corpus is not here: set DRNMF_CORPUS to its folder")
    return Path(folder)
