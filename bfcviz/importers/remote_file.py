"""Files and folders at URLs of any protocol that fsspec knows: `s3://`, `gs://`, `memory://`, `https://`, ..."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any, Final

from bfcviz.errors import FileError
from bfcviz.events.storage.folder import EVENTS_FILE, ORIGIN_FILE
from bfcviz.extras import needed
from bfcviz.units import format_bytes

_URL: Final = re.compile(r"(?:\w+::)*[A-Za-z][\w+.-]*://\S+")
"""Also a chain, such as `simplecache::s3://bucket/file`. It has no spaces: a pasted message has."""
_USER: Final = re.compile(r"//[^/@\s]+@")
_CHAINED: Final = re.compile(r"::(?=(?:\w+::)*[A-Za-z][\w+.-]*://)")
_HTTP: Final = re.compile(r"https?://", re.IGNORECASE)
_QUERY: Final = re.compile(r"[?#].*")
_SIGNED: Final = re.compile(r"\?[^?]*=.*")
"""Of other protocols: a path may have a `?` or a `#` of its own, a query has values."""


def is_url(path: object) -> bool:
    """Whether a path is a URL, which fsspec reads."""
    return isinstance(path, str) and _URL.fullmatch(path) is not None


@contextmanager
def local_copy(url: str) -> Iterator[Path]:
    """A copy of the file or folder at a URL on this machine, which is removed after the block.

    Raises:
        FileError: it cannot be read; says why.
        MissingExtra: fsspec is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="bfcviz-url-") as folder:
        copy = Path(folder) / _file_name(url)
        with _remote_file_system(url) as (system, inner):
            _copy_remote(system, inner, copy)
        yield copy


def files_at(url: str, endings: re.Pattern[str], most: int) -> list[str]:
    """The URLs of the recordings and of the files with such endings in a folder; of a pattern; or a file itself.

    Raises:
        FileError: it cannot be listed, or has more than `most` files.
        MissingExtra: fsspec is not installed.
    """
    with _remote_file_system(url) as (system, inner):
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


def without_secrets(url: str) -> str:
    """A URL as it may be shown: without a user, a password and queries, which may be signatures."""
    parts = _CHAINED.split(url)
    return "::".join(
        (_QUERY if _HTTP.match(part) else _SIGNED).sub("", _USER.sub("//...@", part)) for part in parts
    )


def _file_name(url: str) -> str:
    """A name for the local copy of a URL, with its suffix: of a chain, the file inside the container."""
    inner = next(part for part in without_secrets(url).split("::") if "://" in part)
    name = PurePosixPath(inner.rstrip("/")).name
    return "trace" if name in {"", ".", ".."} else name[-100:]


@contextmanager
def _remote_file_system(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL, and its path there; errors of any file system become one of ours."""
    shown = without_secrets(url)
    with needed(f"reading {shown}", "fsspec", "fsspec"):
        import fsspec  # noqa: PLC0415  an extra
    try:
        yield fsspec.core.url_to_fs(url)
    except FileNotFoundError:
        raise FileError(shown, "", "cannot be read: there is no such file or folder") from None
    except Exception as error:  # noqa: BLE001  each file system has errors of its own, with the URL in their text
        why = str(error).replace(url, shown)
        for secret in (
            *_USER.findall(url),
            *(each for part in _CHAINED.split(url) for each in _QUERY.findall(part)),
        ):
            if hidden := secret.strip("/?#"):
                why = why.replace(hidden, "...")
        kind = "" if isinstance(error, (OSError, ImportError, ValueError)) else f"{type(error).__name__}: "
        raise FileError(shown, "", f"cannot be read: {kind}{why}") from None


def _copy_remote(system: Any, inner: str, copy: Path) -> None:
    """Copy a remote file or folder to this machine."""
    if system.isdir(inner):
        files = system.find(inner, detail=True)
        _needs_room(sum(each.get("size") or 0 for each in files.values()), copy)
        for found in files:
            relative = PurePosixPath(found).relative_to(PurePosixPath(inner))
            if ".." in relative.parts or relative.is_absolute():
                raise ValueError(f"it holds the path {str(relative)!r}, which leads out of it")
            part = copy / relative
            part.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(found, str(part))
    else:
        _needs_room(system.info(inner).get("size") or 0, copy)
        system.get_file(inner, str(copy))


def _needs_room(num_bytes: int, copy: Path) -> None:
    """Refuse to copy a remote file that the disk has no room for; a size that its file system does not know is 0."""
    folder = copy.parent
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise ValueError(
            f"it has {format_bytes(num_bytes)}, and {folder.parent}, where a copy is made, has {format_bytes(free)} "
            "free; set TMPDIR to a folder with more room"
        )
