"""Load the compiled modules in place of the plain ones, if they are installed and not disabled.

The import of a compiled module replaces the modules that it was built from (see `_build.py`), so it must precede the
import of those: their packages call `load` first. With BFCVIZ_UNCOMPILED=1 the plain Python modules run, slow, with the
same results, and a debugger can step through them.
"""

import inspect  # noqa: F401  before C imports it: an interrupt of that import is fatal (_build.mend)
import os
import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bfcviz import _interrupts

HOME = Path(__file__).resolve().parents[1]
"""The folder that bfcviz lies in."""


_failed: dict[str, str] = {}
"""Compiled modules that could not be loaded, and why."""


class UncompiledWarning(UserWarning):
    """bfcviz runs as plain Python: it was installed without a C compiler, or its sources were not installed."""


def load(name: str) -> bool:
    """Load a compiled module unless disabled; warns once if it is missing. Returns whether it is loaded.

    Raises:
        ImportError: an earlier attempt in this process failed.
    """
    if os.environ.get("BFCVIZ_UNCOMPILED"):
        return False
    if name in sys.modules:
        return True
    if find_spec(name) is not None:
        _import_compiled_module(name)
        return True
    _say_uncompiled()
    return False


def _import_compiled_module(name: str) -> None:
    """Import a compiled module; signals wait meanwhile. A module whose import failed cannot be imported again.

    Raises:
        ImportError: an earlier attempt in this process failed.
    """
    if name in _failed:
        raise ImportError(
            f"an earlier import of {name} failed in this process ({_failed[name]}): restart Python"
        )
    before = set(sys.modules)
    _interrupts.block()
    try:
        import_module(name)
    except BaseException as error:
        _failed[name] = f"{type(error).__name__}: {error}"
        for other in set(sys.modules) - before:  # its parts, and the modules that imported them
            if other.startswith("bfcviz."):
                del sys.modules[other]
        raise
    finally:
        _interrupts.unblock()


def why_uncompiled() -> tuple[str, str]:
    """Why this process runs plain Python (a clause), and what to do (a sentence without a full stop)."""
    if os.environ.get("BFCVIZ_UNCOMPILED"):
        return "BFCVIZ_UNCOMPILED is set", "Unset it and restart Python"
    install = "install a compiler (apt install gcc python3-dev)"
    # A compiled bfcviz may be installed too: Python searches the current folder first.
    if (HOME / "pyproject.toml").is_file():
        why = f"bfcviz runs from its sources in {HOME}, which are not compiled"
        return (
            why,
            f"If bfcviz is installed too, change the folder; else {install}, then these sources: pip install -e",
        )
    return (
        "bfcviz was installed without a C compiler",
        f"{install.capitalize()} and bfcviz again: pip install",
    )


@cache
def _say_uncompiled() -> None:
    why, advice = why_uncompiled()
    warnings.warn(
        f"{why}: it runs as plain Python, with the same results, about 30 times slower, and serves no framework. "
        f"{advice}, or set BFCVIZ_UNCOMPILED=1",
        UncompiledWarning,
        stacklevel=3,
    )
