"""The part of the package that is compiled; everything else is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

STEPS = Extension(
    "drnmf.engines._steps",
    ["src/drnmf/engines/csrc/steps.c"],
    depends=sorted(glob("src/drnmf/engines/csrc/*.h")),
    extra_compile_args=["-O3", "-g0", "-fno-math-errno", "-Wno-psabi"],
    optional=True,  # without a compiler the install goes on, and PyTorch does what this would do faster
)

setup(ext_modules=[STEPS])
