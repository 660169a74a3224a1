"""The part of the package that is compiled; everything else is in pyproject.toml."""

import shutil
import sys
from glob import glob

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

WINDOWS = sys.platform == "win32"

STEPS = Extension(
    "drnmf.engines._steps",
    ["src/drnmf/engines/csrc/steps.c"],
    depends=sorted(glob("src/drnmf/engines/csrc/*.h")),
    extra_compile_args=["-O3", "-g0", "-fno-math-errno", "-Wno-psabi"],
    extra_link_args=["-static"] if WINDOWS else [],  # or it would look for GCC's own libraries where it is used
    optional=True,  # without a compiler the install goes on, and PyTorch does what this would do faster
)


class OneForEveryPython(bdist_wheel):
    """A wheel says that it fits all versions of Python: what is compiled is plain C, and is loaded by ctypes."""

    def finalize_options(self) -> None:
        """Both the file and the wheel get a name without a version."""
        self.py_limited_api = "cp311"
        STEPS.py_limited_api = True
        super().finalize_options()


# GCC's vectors and choice of instructions are not known to Microsoft's compiler.
OPTIONS = {"build_ext": {"compiler": "mingw32"}} if WINDOWS and shutil.which("gcc") else {}

setup(ext_modules=[STEPS], cmdclass={"bdist_wheel": OneForEveryPython}, options=OPTIONS)
