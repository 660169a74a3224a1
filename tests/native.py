"""`libdrnmf` and what stands on it, built once into build/libdrnmf; where a tool is missing, tests are skipped.

`python tests/native.py` names the missing ones; `--install` installs them.
"""

import ctypes
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from drnmf import load_model
from drnmf.use.flat import export_flat

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "libdrnmf"
MODEL = ROOT / "build" / "default.drnmf"
DEBIAN = {  # the packages that tools, or files, come from
    "cc": "gcc",
    "cmake": "cmake",
    "pkg-config": "pkgconf",
    "applyplugin": "ladspa-sdk",
    "/usr/include/ladspa.h": "ladspa-sdk",
    "lv2apply": "lilv-utils",
    "/usr/include/lv2/core/lv2.h": "lv2-dev",
    "sox": "sox",
    "pipewire": "pipewire pipewire-bin",
    "wireplumber": "wireplumber",
    "dbus-run-session": "dbus",
    "clang": "clang",
    "wasm-ld": "lld",
    "/usr/lib/wasm32-wasi/libc.a": "wasi-libc",
    "node": "nodejs",
    "npm": "npm",
    "tsc": "node-typescript",
    "chromium": "chromium",
}


def missing(*tools: str) -> list[str]:
    """Those of these tools and files that are not installed."""
    return [tool for tool in tools if shutil.which(tool) is None and not Path(tool).is_file()]


def needs(*tools: str) -> None:
    """Skip the test, with the remedy, if one of these is not installed."""
    for tool in missing(*tools):
        pytest.skip(f"{tool} is not installed; on Debian: apt-get install {DEBIAN[tool]}")


def install(*, really: bool) -> None:
    """Say what is missing and how to install it; or do so, on Debian."""
    tools = missing(*DEBIAN)
    if not tools:
        return
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    packages = sorted({package for tool in tools for package in DEBIAN[tool].split()})
    command = [*sudo, "apt-get", "install", *packages]
    print(f"Not installed: {', '.join(tools)}. Tests that need them are skipped. On Debian, or by INSTALL=1:\n")
    print(f"    {' '.join(command)}\n", flush=True)
    if really:
        subprocess.run([*sudo, "apt-get", "update", "--quiet"], timeout=600, check=True)
        subprocess.run([*command, "--yes"], timeout=1800, check=True)


def run(*command: object, **settings) -> subprocess.CompletedProcess:
    """Run a program that must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, timeout=300, check=False, **settings)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]!r} {done.stderr[-2000:]!r}"
    return done


@functools.cache
def model_file() -> Path:
    """The default as one flat file; not written again if it is the same, so that nothing is built again."""
    fresh = MODEL.with_suffix(".new")
    MODEL.parent.mkdir(exist_ok=True)
    export_flat(load_model("default"), fresh)
    if not MODEL.is_file() or MODEL.read_bytes() != fresh.read_bytes():
        fresh.replace(MODEL)
    fresh.unlink(missing_ok=True)
    return MODEL


@functools.cache
def built() -> Path:
    """The folder with the library, its example, its checks and the plugin; only what has changed is compiled."""
    if sys.platform != "linux":
        pytest.skip("the library and what stands on it are tested on Linux")
    needs("cmake", "cc")
    model = model_file()
    run("cmake", "-S", ROOT / "libdrnmf", "-B", BUILD, "-DDRNMF_CHECKS=ON", f"-DDRNMF_MODEL={model}")
    run("cmake", "--build", BUILD)
    return BUILD


@functools.cache
def library() -> ctypes.CDLL:
    """The shared library."""
    found = ctypes.CDLL(str(built() / "libdrnmf.so"))
    found.drnmf_error.restype = ctypes.c_char_p
    found.drnmf_power.restype = ctypes.c_float
    found.drnmf_model_bytes.restype = ctypes.c_size_t
    for name in ("mask", "activations", "expected", "spectrum"):
        getattr(found, f"drnmf_{name}").restype = ctypes.POINTER(ctypes.c_float)
    found.drnmf_set_strength.argtypes = found.drnmf_set_max_attenuation.argtypes = ctypes.c_void_p, ctypes.c_float
    return found


class Enhancer:
    """An instance of the library."""

    def __init__(self, rate: int = 16000, channels: int = 1, model: Path | bytes | None = None) -> None:
        self.pointer, self.channels = ctypes.c_void_p(), channels
        if isinstance(model, bytes):
            self._content = ctypes.create_string_buffer(model, len(model))
            arguments = self._content, ctypes.c_size_t(len(model)), rate, channels
            self.code = library().drnmf_open_memory(ctypes.byref(self.pointer), *arguments)
        else:
            path = None if model is None else str(model).encode()
            self.code = library().drnmf_open(ctypes.byref(self.pointer), path, rate, channels)

    def __getattr__(self, name: str):
        """A function of the library for this instance."""
        return functools.partial(getattr(library(), f"drnmf_{name}"), self.pointer)

    def __del__(self) -> None:
        if self.pointer:
            self.close()

    def error(self) -> str:
        return library().drnmf_error(self.code).decode()

    def process(self, x: np.ndarray) -> np.ndarray:
        """A block (channels, n), or (n,) of one channel."""
        block = np.array(np.atleast_2d(x).T, np.float32, order="C")  # a copy: it is worked on in place
        at = block.ctypes.data_as(ctypes.c_void_p)
        self.code = library().drnmf_process(self.pointer, at, at, ctypes.c_size_t(len(block)))
        return block.T.reshape(x.shape)

    def learn(self, noise: np.ndarray) -> bytes:
        """A model that knows a noise (channels, n), or (n,) of one channel."""
        samples = np.array(np.atleast_2d(noise).T, np.float32, order="C")
        model = ctypes.create_string_buffer(self.model_bytes())
        at = samples.ctypes.data_as(ctypes.c_void_p)
        self.code = library().drnmf_learn(self.pointer, at, ctypes.c_size_t(len(samples)), model)
        return model.raw

    def enhance(self, x: np.ndarray, blocks: Iterable[int]) -> np.ndarray:
        """All of a sound in blocks of these sizes, again and again, with the latency taken off."""
        late, parts, sizes = self.latency(), [], list(blocks)
        x = np.concatenate([x, np.zeros((*x.shape[:-1], late), x.dtype)], -1)
        while x.shape[-1]:
            n = sizes[len(parts) % len(sizes)]
            parts.append(self.process(x[..., :n]))
            x = x[..., n:]
        return np.concatenate(parts, -1)[..., late:]


if __name__ == "__main__":
    install(really="--install" in sys.argv)
