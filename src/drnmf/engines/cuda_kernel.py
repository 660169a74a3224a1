"""CUDA kernels from source, by PyTorch's own run-time compiler: nothing but PyTorch for CUDA has to be installed."""

import ctypes
import logging
import re
import sys
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

log = logging.getLogger("drnmf")

SOURCES = Path(__file__).parent / "csrc"
SHARED = 227 * 1024  # bytes of shared memory that a block can have on the GPUs these kernels are for


def available(device: torch.device) -> bool:
    """Whether kernels can be compiled for this device, and it has the shared memory and clusters of Hopper."""
    return device.type == "cuda" and not torch.version.hip and _compiles(device)


@cache
def _compiles(device: torch.device) -> bool:
    if torch.cuda.get_device_capability(device) < (9, 0):
        return False
    try:
        with torch.cuda.device(device):
            torch.cuda._compile_kernel('extern "C" __global__ void steps() {}', "steps")
    except (AttributeError, OSError, RuntimeError) as error:  # an older PyTorch, or one without its compiler
        log.warning("the fastest GPU kernels cannot be compiled here (%s); others do the same, slower", error)
        return False
    return True


class Kernel:
    """The function `steps` of a source file beside this one, compiled with `sizes` as its macros (about a second)."""

    def __init__(self, source: str, **sizes: int) -> None:
        text = _included((SOURCES / source).read_text())
        options = [f"-D{name}={int(value)}" for name, value in sizes.items()]
        self._kernel = torch.cuda._compile_kernel(text, "steps", nvcc_options=options)
        self._kernel.set_shared_memory_config(SHARED)

    def __call__(
        self, *arguments: Tensor | int, blocks: int, threads: int, shared: int, cooperative: bool = False
    ) -> None:
        """Launch on the current stream; `cooperative`: only when all blocks can run at the same time."""
        values = [ctypes.c_int(a) if isinstance(a, int) else ctypes.c_void_p(a.data_ptr()) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = torch.cuda.current_stream()._as_parameter_
        sizes = (blocks, 1, 1, threads, 1, 1, shared)
        driver = _driver()
        if cooperative:
            status = driver.cuLaunchCooperativeKernel(self._kernel.func, *sizes, stream, pointers)
        else:
            status = driver.cuLaunchKernel(self._kernel.func, *sizes, stream, pointers, None)
        if status:
            raise RuntimeError(f"CUDA refused a kernel of {blocks} blocks of {threads} threads (error {status})")


def _included(text: str) -> str:
    """A source with what it includes in its place: the compiler gets one text and looks nowhere."""
    return re.sub(r'#include "(\w+\.cuh)"', lambda found: (SOURCES / found[1]).read_text(), text)


def layer_rows(H_KTBN: Tensor) -> int:
    """Rows of N from a layer to the next one."""
    _, _, B, N = H_KTBN.shape
    layer, *frames = H_KTBN.stride()
    if [*frames, layer % N] != [B * N, N, 1, 0]:
        raise ValueError(f"the kernels need layers of contiguous frames, got strides {H_KTBN.stride()}")
    return layer // N


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
