"""A copy of each trace whose import took long, so that the same file opens at once the next time.

::

    ~/.cache/bfcviz/imported/  <bytes of the file>-<key>-<digest of the copy>.bfc

The key is a digest of the content and name of the file, and of the code of bfcviz that reads it. A file is hashed
only if there is a copy of a file of its size. A copy is used only if it belongs to the user and has its digest; its
events are read at once, and each block has a checksum, so that what comes from a copy is what the import gave.
Whatever fails, the file is imported.

BFCVIZ_CACHE is `off`, or the bytes that all copies together may have: the ones that were used least recently go
first.
"""

import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

from bfcviz.errors import BfcvizError
from bfcviz.events.event_source import ArraySource
from bfcviz.events.origin import origin_from_json
from bfcviz.events.storage.blocks import BlockSource, write_blocks
from bfcviz.events.storage.files import PRIVATE_FILE, PRIVATE_FOLDER, open_regular
from bfcviz.events.trace import Trace
from bfcviz.periodic import Periodic
from bfcviz.units import parse_bytes

_MOST_BYTES: Final = "2GiB"
"""Of all copies together, where BFCVIZ_CACHE does not say it."""

_SLOW_S: Final = 2.0
"""An import that takes longer is kept."""

_MOST_EVENTS: Final = 10_000_000
"""Of a trace that is kept: a command that ends waits some seconds for its copy, and more would not be ready."""

_STALE_S: Final = 3600.0
"""A copy that is not ready after this belongs to a process that was ended."""

_SETTLED_NS: Final = 2_000_000_000
"""A file that changed later than this before its import is not kept: a second change can have the same time."""


def imported(path: Path, read: Callable[[], Trace]) -> Trace:
    """What `read` makes of a file, or the kept copy of what it made before of the same content."""
    found, folder, most = _file_state(path), _folder(), _most_bytes()
    if found is None or folder is None or not most:
        return read()
    copy = _kept(path, found, folder)
    if copy is not None:
        return copy
    changed = max(found.st_mtime_ns, found.st_ctime_ns)
    is_settled, began = time.time_ns() - changed >= _SETTLED_NS, time.perf_counter()
    trace = read()
    source = trace.source
    is_slow = time.perf_counter() - began > _SLOW_S
    if is_settled and is_slow and isinstance(source, ArraySource) and source.length <= _MOST_EVENTS:
        keep = partial(_keep, path, found, source, folder, most)
        with suppress(RuntimeError):  # there are too many threads
            Periodic(keep, "bfcviz-cache", failed=lambda _: None, at_exit=True).start()
    return trace


def _most_bytes() -> int:
    """Bytes that all copies of imports may have; 0: there are none."""
    setting = os.environ.get("BFCVIZ_CACHE") or _MOST_BYTES
    try:
        return parse_bytes(setting)
    except (ValueError, OverflowError):  # `off`
        return 0


def _folder() -> Path | None:
    """Where the copies of imports lie; None where the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return home / "bfcviz" / "imported"


def _file_state(path: Path) -> os.stat_result | None:
    """The state of an imported file that is regular; None for anything else."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _is_unchanged(path: Path, before: os.stat_result) -> bool:
    names = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    now = path.stat()
    return all(getattr(now, name) == getattr(before, name) for name in names)


def _is_ours(path: Path) -> bool:
    """Whether only this user can have written a copy of an import."""
    found = path.stat()
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)


def _digest(path: Path, *more: str) -> str:
    """The digest of the content of an imported file and further texts."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(repr(more).encode())
    return digest.hexdigest()


@cache
def _code() -> str:
    """A digest of the code of bfcviz that imports, its version included: a checkout changes without a new version."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for each in sorted(package.rglob("*")):
        if each.suffix in {".py", ".so", ".pyd"}:
            digest.update(each.read_bytes())
    return digest.hexdigest()


def _name(path: Path, found: os.stat_result) -> str:
    """How the names of the copies of an imported file begin."""
    return f"{found.st_size}-{_digest(path, path.name, _code())}-"


def _kept(path: Path, found: os.stat_result, folder: Path) -> Trace | None:
    """The trace of an imported file from its copy; None where there is none, or any doubt."""
    with suppress(BfcvizError, OSError):
        if any(folder.glob(f"{found.st_size}-*.bfc")) and _is_ours(folder):
            copies = map(_copied_trace, folder.glob(_name(path, found) + "*.bfc"))
            return next((trace for trace in copies if trace is not None), None)
    return None


def _copied_trace(copy: Path) -> Trace | None:
    """The trace in the copy of an import; None if it is damaged, or another user can have written it."""
    with suppress(BfcvizError, OSError, ValueError, MemoryError):
        if _is_ours(copy) and copy.stem.endswith(_digest(copy)):
            source = BlockSource(copy)
            events = source.read(source.first, source.length)
            with suppress(OSError):
                os.utime(copy)
            return Trace.from_events(events, source.labels, source.origin)
    return None


def _keep(path: Path, before: os.stat_result, source: ArraySource, folder: Path, most: int) -> None:
    """Write a copy of what an import gave, if the file is as `before` and a copy gives the same origin."""
    name, origin = _name(path, before), source.origin
    if not _is_unchanged(path, before) or origin_from_json(origin.to_json().encode())[0] != origin:
        return
    folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    if not _is_ours(folder):
        return
    _remove_stale(folder)
    made = folder / f"{secrets.token_hex(8)}.partial"
    try:
        made.touch(PRIVATE_FILE, exist_ok=False)
        write_blocks(source, made, None)
        made.replace(folder / f"{name}{_digest(made)}.bfc")
    finally:
        made.unlink(missing_ok=True)
    _remove_oldest(folder, most)


def _remove_stale(folder: Path) -> None:
    """Remove what processes left that were ended while they wrote a copy of an import."""
    for each in folder.glob("*.partial"):
        if time.time() - each.stat().st_mtime > _STALE_S:
            each.unlink(missing_ok=True)


def _remove_oldest(folder: Path, most: int) -> None:
    """Remove the copies of imports that were used least recently, until the rest has at most so many bytes."""
    files = [(each.stat(), each) for each in folder.iterdir() if each.suffix in {".bfc", ".partial"}]
    total = sum(found.st_size for found, _ in files)
    for found, each in sorted(files, key=lambda file: file[0].st_mtime_ns):
        if total <= most:
            return
        each.unlink(missing_ok=True)
        total -= found.st_size
