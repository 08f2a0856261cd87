"""`read_requests`: the requests of a trace at a path or URL."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from bfcviz.errors import FileError, MissingExtra
from bfcviz.whatif.replay import stream_of
from bfcviz.whatif.requests import RequestStream


def read_requests(path: str, pool: int | str | None = None) -> RequestStream:
    """The requests of one heap of a trace.

    Args:
        path: of a file or folder that `bfcviz.open` reads, or its URL, of any protocol that fsspec knows:
            `s3://`, `gs://`, `memory://`, `https://`, ... A URL is copied into a temporary file meanwhile.
        pool: as in `stream_of`.

    Raises:
        InvalidRequest: the trace has no such heap.
        FileError: it cannot be read; says why.
        MissingExtra: the path is a URL, and fsspec is not installed.
    """
    if not is_url(path):
        return stream_of(path, pool)
    with _local_copy(path) as copy:
        try:
            return stream_of(copy, pool)
        except FileError as error:
            raise FileError(path, error.place, error.cause) from None


def is_url(path: str) -> bool:
    """Whether fsspec reads this."""
    return "://" in path


@contextmanager
def _local_copy(url: str) -> Iterator[Path]:
    """A copy of the file or folder, which is removed after the block."""
    try:
        import fsspec  # noqa: PLC0415  an extra
    except ImportError as error:
        raise MissingExtra(f"reading {url}", "fsspec", "fsspec") from error
    with tempfile.TemporaryDirectory(prefix="bfcviz-sweep-") as folder:
        copy = Path(folder) / (PurePosixPath(url.rstrip("/")).name or "trace")
        try:
            system, inner = fsspec.core.url_to_fs(url)
            _copy(system, inner, copy)
        except (OSError, ImportError, ValueError) as error:
            raise FileError(url, "", f"cannot be read: {_reason(error)}") from error
        except Exception as error:  # each file system has errors of its own
            raise FileError(url, "", f"cannot be read: {type(error).__name__}: {error}") from error
        yield copy


def _copy(system: Any, inner: str, copy: Path) -> None:
    if system.isdir(inner):
        for found in system.find(inner):
            relative = PurePosixPath(found).relative_to(PurePosixPath(inner))
            if ".." in relative.parts or relative.is_absolute():
                raise ValueError(f"it holds the path {str(relative)!r}, which leads out of it")
            part = copy / relative
            part.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(found, str(part))
    else:
        system.get_file(inner, str(copy))


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file or folder"
    return str(error)
