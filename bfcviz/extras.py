"""Packages that only some features use: an extra of bfcviz installs each, and the error names it where it is missing.

The base installation has NumPy, protobuf and, before Python 3.14, zstd; `why`, `info`, `record`, `holders`, `whatif`,
`fit` and `tune` need no more.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from bfcviz.errors import MissingExtra


@contextmanager
def needed(feature: str, packages: str, extra: str) -> Iterator[None]:
    """Import packages of an extra in the `with`.

    Args:
        feature: what needs them, as the beginning of a sentence.
        packages: their names, as people call them.
        extra: the extra that installs them.

    Raises:
        MissingExtra: one of them is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise error if isinstance(error, MissingExtra) else MissingExtra(feature, packages, extra) from error


def arrow(feature: str) -> Any:
    """The package pyarrow, which makes tables and reads Parquet files.

    Raises:
        MissingExtra: it is not installed.
    """
    with needed(feature, "pyarrow", "tables"):
        import pyarrow as pa  # noqa: PLC0415  165 MB, an extra
    return pa


def arrow_schema(types: Mapping[str, str]) -> Any:
    """By the extra pyarrow: the schema of a table with these columns: name -> type, such as `int64`."""
    pa = arrow("a table")
    return pa.schema([(name, getattr(pa, kind)()) for name, kind in types.items()])


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
def imported_on_first_use(name: str) -> Iterator[None]:
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
