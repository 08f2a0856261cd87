"""Files and folders at URLs of any protocol that fsspec knows: `s3://`, `gs://`, `memory://`, `https://`, ..."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any, Final

from bfcviz.errors import FileError
from bfcviz.events.storage.folder import EVENTS_FILE, ORIGIN_FILE
from bfcviz.extras import needed

_URL: Final = re.compile(r"(?:\w+::)*[A-Za-z][\w+.-]*://\S+")
"""Also a chain, such as `simplecache::s3://bucket/file`. A pasted message with an address in it has spaces."""


def is_url(path: object) -> bool:
    """Whether fsspec reads this."""
    return isinstance(path, str) and _URL.fullmatch(path) is not None


@contextmanager
def local_copy(url: str) -> Iterator[Path]:
    """A copy of the file or folder, which is removed after the block.

    Raises:
        FileError: it cannot be read; says why.
        MissingExtra: fsspec is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="bfcviz-url-") as folder:
        copy = Path(folder) / (PurePosixPath(url.rstrip("/")).name or "trace")
        with _reading(url) as (system, inner):
            _copy(system, inner, copy)
        yield copy


def files_at(url: str, endings: re.Pattern[str], most: int) -> list[str]:
    """The URLs of the recordings and of the files with such endings in a folder; of a pattern; or a file itself.

    Raises:
        FileError: it cannot be listed, or has more than `most` files.
        MissingExtra: fsspec is not installed.
    """
    with _reading(url) as (system, inner):
        if has_magic(inner):
            found = [str(each) for each in system.glob(inner)]
        elif system.isdir(inner):
            names = [PurePosixPath(each) for each in system.find(inner)]
            recordings = {each.parent for each in names if each.name in {ORIGIN_FILE, EVENTS_FILE}}
            files = [
                each
                for each in names
                if endings.search(each.name) and not recordings.intersection(each.parents)
            ]
            found = [*map(str, recordings), *map(str, files)]
        else:
            return [url]
        if len(found) > most:
            raise ValueError(
                f"it has more than {most:,} files; give the folder or the pattern of one job's ranks"
            )
        return [system.unstrip_protocol(each) for each in found]


@contextmanager
def _reading(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL, and its path there; errors of any file system become one of ours."""
    with needed(f"reading {url}", "fsspec", "fsspec"):
        import fsspec  # noqa: PLC0415  an extra
    try:
        yield fsspec.core.url_to_fs(url)
    except FileNotFoundError as error:
        raise FileError(url, "", "cannot be read: there is no such file or folder") from error
    except (OSError, ImportError, ValueError) as error:
        raise FileError(url, "", f"cannot be read: {error}") from error
    except Exception as error:  # each file system has errors of its own
        raise FileError(url, "", f"cannot be read: {type(error).__name__}: {error}") from error


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
