"""Packages that only some features use: an extra of bfcviz installs each, and the error names it where it is missing.

The base installation has NumPy, protobuf and, before Python 3.14, zstd; `why`, `info`, `record`, `holders`, `whatif`,
`fit` and `tune` need no more.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """The schema of a table with these columns: name -> type, as pyarrow calls it, such as `int64`."""
    pa = arrow("a table")
    return pa.schema([(name, getattr(pa, kind)()) for name, kind in types.items()])
