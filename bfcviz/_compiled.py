"""Lets the compiled modules stand in for the plain ones, where there are any and they are wanted.

Importing a compiled module puts it in the place of the modules it is made of (see `_build.py`), so this must come
before any of those: the packages they live in import it first. With BFCVIZ_UNCOMPILED=1 the plain Python runs, slow
and steppable, with the same results.
"""

import inspect  # noqa: F401  imported here first: from C, an interrupt was fatal (_build.check_inspect)
import os
import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bfcviz import _interrupts

_HOME = Path(__file__).resolve().parents[1]


_failed: dict[str, str] = {}
"""Compiled modules whose start failed, and why."""


class UncompiledWarning(UserWarning):
    """bfcviz runs as plain Python: it was installed without a C compiler, or its sources were not installed."""


def load(name: str) -> bool:
    """Load a compiled module, if that is possible and wanted; says once where one is missing.

    Raises:
        ImportError: its start failed before in this process.
    """
    if os.environ.get("BFCVIZ_UNCOMPILED"):
        return False
    if name in sys.modules:
        return True
    if find_spec(name) is not None:
        _start(name)
        return True
    _say_uncompiled()
    return False


def _start(name: str) -> None:
    """Import a compiled module whole: signals wait meanwhile. One whose start failed cannot be started again.

    Raises:
        ImportError: its start failed before in this process.
    """
    if name in _failed:
        raise ImportError(
            f"{name} could not be started in this process ({_failed[name]}): start Python again"
        )
    before = set(sys.modules)
    _interrupts.hold()
    try:
        import_module(name)
    except BaseException as error:
        _failed[name] = f"{type(error).__name__}: {error}"
        for other in set(sys.modules) - before:  # its parts, and what has imported them
            if other.startswith("bfcviz."):
                del sys.modules[other]
        raise
    finally:
        _interrupts.let_go()


def why_uncompiled() -> tuple[str, str]:
    """Why this process runs plain Python, as a clause, and what to do about it, as a sentence without its full stop."""
    if os.environ.get("BFCVIZ_UNCOMPILED"):
        return "BFCVIZ_UNCOMPILED is set", "Unset it and start Python again"
    install = "install a compiler (apt install gcc python3-dev)"
    # A compiled one may well be installed: the current folder comes first.
    if (_HOME / "pyproject.toml").is_file():
        why = f"bfcviz runs from its sources in {_HOME}, where nothing is compiled"
        return (
            why,
            f"If another is installed, go to another folder; else {install} and this one: pip install -e",
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
