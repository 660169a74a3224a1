"""Code of one's own, which a model's folder or a recipe names by its import path, "module:name".

Importing a module runs it, so a file alone is not enough: the environment variable DRNMF_OWN lists the modules that its
user trusts, separated by commas. A variable reaches all processes that a command starts.
"""

import os
import sys
from importlib import import_module
from typing import Any

from drnmf.errors import InputError, shown

VARIABLE = "DRNMF_OWN"


def is_own(name: object) -> bool:
    """Whether a name is an import path, not that of something in the package."""
    return isinstance(name, str) and ":" in name


def own(path: str) -> Any:
    """What an import path names, if its module is among those that are trusted."""
    module, _, name = path.partition(":")
    if module not in os.environ.get(VARIABLE, "").split(","):
        remedy = f"if you trust that module, set the environment variable {VARIABLE}={shown(module)[1:-1]}"
        raise InputError(f"{shown(path)} is not part of drnmf and is not run unasked; {remedy}")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where one's own module usually lies; a script would find it there, too
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{shown(path)} cannot be imported: {error}") from None
