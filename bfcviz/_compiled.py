"""Lets the compiled modules stand in for the plain ones, where there are any and they are wanted.

Importing a compiled module puts it in the place of the modules it is made of (see `_build.py`), so this must come
before any of those: the packages they live in import it first. With BFCVIZ_UNCOMPILED=1 the plain Python runs, slow
and steppable, with the same results.
"""

import os
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

_HOME = Path(__file__).resolve().parents[1]


class UncompiledWarning(UserWarning):
    """bfcviz runs as plain Python: it was installed without a C compiler, or its sources were not installed."""


@cache
def load(name: str) -> bool:
    """Load a compiled module, if that is possible and wanted; says once where one is missing."""
    if os.environ.get("BFCVIZ_UNCOMPILED"):
        return False
    if find_spec(name) is not None:
        import_module(name)
        return True
    _say_uncompiled()
    return False


@cache
def _say_uncompiled() -> None:
    how = "was installed without a C compiler"
    advice = "Install a compiler (apt install gcc python3-dev) and bfcviz again"
    # A compiled one may well be installed: the current folder comes first.
    if (_HOME / "pyproject.toml").is_file():
        how = f"runs from its sources in {_HOME}, where nothing is compiled"
        advice = (
            "If another is installed, go to another folder; else install a compiler (apt install gcc python3-dev) "
            "and this one: pip install -e"
        )
    warnings.warn(
        f"bfcviz {how}, as plain Python: same results, about 30 times slower. {advice}, or set BFCVIZ_UNCOMPILED=1",
        UncompiledWarning,
        stacklevel=3,
    )
