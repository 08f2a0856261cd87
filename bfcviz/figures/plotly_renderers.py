"""Plotly's renderers and widget, imported without nbformat.

Plotly imports nbformat beside them and asks only for its version. With nbformat come jsonschema and a parser of web
addresses that builds its grammar at import: as long as all other imports of an Inspector together.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

_RENDERERS: Final = "plotly.io._renderers"


class _OnFirstUse(ModuleType):
    """A module that is imported when an attribute of it is first asked for, unless it is its version."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            with suppress(metadata.PackageNotFoundError):  # a copy without metadata
                return metadata.version(self.__name__)
        elif name.startswith("__"):  # asked by the import system
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _imported_on_first_use(name: str) -> Iterator[None]:
    """An import of the module `name` inside gives one that is loaded on first use."""
    if name in sys.modules or find_spec(name) is None:
        yield
        return
    sys.modules[name] = stand_in = _OnFirstUse(name)
    try:
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]


def import_renderers() -> None:
    """Import plotly's renderers; its `show` and `FigureWidget` then use these."""
    if _RENDERERS not in sys.modules:
        with _imported_on_first_use("nbformat"):
            import_module(_RENDERERS)
