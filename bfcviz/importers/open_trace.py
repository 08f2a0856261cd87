"""`open_trace`: open any file or folder that bfcviz reads as a Trace."""

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Final
from weakref import finalize

from bfcviz.errors import FileError
from bfcviz.events.storage.folder import MAIN, recordings_in
from bfcviz.events.trace import Trace
from bfcviz.importers.file_format import Format, detect_format
from bfcviz.importers.import_cache import imported
from bfcviz.importers.remote_file import is_url, local_copy
from bfcviz.units import counted, listed
from bfcviz.unwatched import unwatched


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace in a file or folder, also at a URL that fsspec reads; see `file_format` for the formats.

    Raises:
        FileError: the file cannot be read; says where in it and why.
        MissingExtra: it is a URL, and fsspec is not installed.
    """
    if is_url(path):
        return _open_remote_trace(str(path))
    path = Path(path)
    try:
        trace = imported(path, lambda: _trace_reader_of_format(_format_of(path))(path))
    except MemoryError:
        raise FileError(
            path,
            "",
            "needs more memory than is available: close other programs, or open a shorter file",
        ) from None
    trace.path = path.absolute()
    return trace


class OneOfSeveral(UserWarning):
    """A folder with the recordings of several processes was opened, and the result is of one of them."""


@unwatched()
def open_source(path: str | os.PathLike[str]) -> Trace:
    """As `open_trace`, for a path that a caller in Python gave: warns where the trace is one of several."""
    trace = open_trace(path)
    if others := others_than_opened(path):
        warnings.warn(f"{others}; bfcviz.open_all reads all", OneOfSeveral, stacklevel=3)
    return trace


def others_than_opened(path: str | os.PathLike[str]) -> str:
    """Which recording of a folder with several `open_trace` opens, and what the others are; "" where it has one."""
    folder = Path(path)
    if is_url(path) or not folder.is_dir() or len(found := recordings_in(folder)) < 2:
        return ""
    others = [str(place) for name, place in found.items() if name != MAIN]
    return (
        f"{folder} has the recordings of {len(found)} processes, and only that of the folder itself is used, of the "
        f"process that started first; give one of the others in place of it: {listed(others)}"
    )


def _format_of(path: Path) -> Format:
    """The format of a file to open; the error says what is there in place of a trace: a job's traces, or a message."""
    try:
        return detect_format(path)
    except FileError as error:
        raise (_error_of_job(path) or _error_of_message(path, error)) from None


def _error_of_job(path: Path) -> FileError | None:
    """The error of opening a folder with traces, such as those of the ranks of a job; None where it holds none."""
    from bfcviz.importers.rank_files import rank_files  # noqa: PLC0415  for an error

    try:
        files = rank_files([path]) if path.is_dir() else None
    except (FileError, OSError, ValueError):  # too many files; no path
        return None
    if files is None or not files.places:
        return None
    names, held = [str(place.file) for place in files.places], counted(len(files.places), "file")
    return FileError(
        path, "", f"holds {held} of a job, {listed(names)}: open one, or all of them by bfcviz.open_all"
    )


_MOST_SEARCHED: Final = 1 << 24
"""Bytes of a text that is searched for a message, only to name `why` in an error."""


def _error_of_message(path: Path, error: FileError) -> FileError:
    """The error of opening a path without a format; it names `why` where it is, or holds, a message of a failure."""
    from bfcviz.importers.message_reader import is_pasted, read_message_file  # noqa: PLC0415  tables, for an error

    if is_pasted(str(path)):
        return FileError(str(path), "", "there is no such file; if it is a message, `bfcviz why` reads it")
    try:
        is_short = path.is_file() and path.stat().st_size <= _MOST_SEARCHED
        stated = read_message_file(path) if is_short else None
    except (FileError, OSError):  # such as a name that is too long
        return error
    told = "states a failure and holds no heap: `bfcviz why` and `bfcviz report` tell what it says"
    return error if stated is None else FileError(path, "", told)


def _open_remote_trace(url: str) -> Trace:
    """Open the trace at a URL, in a local copy that is removed with it."""
    with ExitStack() as stack:
        copy = stack.enter_context(local_copy(url))
        try:
            trace = open_trace(copy)
        except FileError as error:
            raise FileError(url, error.place, error.cause) from None
        finalize(trace, stack.pop_all().close)
    return trace


def _trace_reader_of_format(format_: Format) -> Callable[[Path], Trace]:
    """What opens a file of a format as a trace."""
    if format_ not in _READERS:
        return Trace.open
    module, function = _READERS[format_]
    found: Callable[[Path], Trace] = getattr(import_module(module), function)
    return found


_READERS: dict[Format, tuple[str, str]] = {
    Format.XPLANE: ("bfcviz.importers.tensorflow.profile", "read_profile"),
    Format.MEMORY_DUMP: ("bfcviz.importers.tensorflow.memory_dump", "read_memory_dump"),
    Format.TENSORFLOW_LOG: ("bfcviz.importers.bfc_log.read", "read_log"),
    Format.TORCH_SNAPSHOT: ("bfcviz.importers.torch.snapshot", "read_snapshot"),
    Format.PPROF: ("bfcviz.importers.pprof", "read_profile"),
    Format.CHROME_TRACE: ("bfcviz.importers.chrome_trace", "read_chrome_trace"),
    Format.RMM_LOG: ("bfcviz.importers.rmm_log", "read_rmm_log"),
    Format.VMA: ("bfcviz.importers.vma", "read_vma"),
}
"""The module and function that read each format of other programs; imported when its first file is opened."""
