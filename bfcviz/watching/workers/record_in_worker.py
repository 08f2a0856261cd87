"""WorkerRecording: the part of `watch_workers` that runs in each worker; it knows nothing of Dask.

A worker on the client's machine records straight into the client's folder. Any other worker records into a folder of
its own, from which the client fetches what is new.
"""

import os
import platform
import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bfcviz.errors import LiveError
from bfcviz.events.storage.recording import Recording
from bfcviz.events.storage.recording_set import claim_subfolder
from bfcviz.live import providers
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.watching.chosen_frameworks import (
    Asked,
    Capture,
    open_source,
    plan,
    request_of,
    start_source,
    title_of,
)

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MARKER: Final = ".watched-by-"


@dataclass(frozen=True)
class WorkerOrder:
    """What each worker is to do.

    Attributes:
        asked: one framework -> its argument, as in `bfcviz.watch`; empty: the default of the worker's machine.
        limit: bytes; of a heap that serves.
        capture: what is recorded with each allocation.
        folder: the client's folder of recordings.
        machine: the client's machine; None: fetch from every worker.
        token: a file of this name marks the folder, so that a worker does not take another folder for it.
    """

    asked: Mapping[str, Asked]
    limit: int | None
    capture: Capture | None
    folder: str
    machine: str | None
    token: str = field(default_factory=lambda: _MARKER + secrets.token_hex(8))


def machine_id() -> str:
    """A name of this machine since it was started."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{platform.node()} {boot}"


class WorkerRecording:
    """The recording of this process, from now until `end`.

    Args:
        order: what to do.
        name: of the worker.
        own_folder: where a worker on another machine records.

    Attributes:
        token: a name of this recording, different for each process.
        source: serves or observes the framework.
        folder: of the recording.
        is_shared: whether the folder is in the client's folder.

    Raises:
        LiveError: the framework cannot be watched here.
        FileError: the folder cannot be written.
    """

    def __init__(self, order: WorkerOrder, name: str, own_folder: str | os.PathLike[str]) -> None:
        self.token = secrets.token_hex(8)
        requests = plan(order.asked, order.limit, order.capture).requests
        request = providers.complete(requests[0])
        self.is_shared = _is_here(order)
        self.folder = claim_subfolder(Path(order.folder if self.is_shared else own_folder), name)
        details = {"framework": request.framework, **providers.details_of(request), **_of_this_process(name)}
        self._title = title_of(request)
        with ExitStack() as discard, ExitStack() as undo:
            discard.callback(_remove_empty, self.folder)
            recording = Recording(self.folder, [providers.pool_of(request)], details=details)
            undo.callback(recording.close)
            discard.callback(recording.discard)
            self.source: HeapProvider = open_source(request, recording)
            start_source(self.source, self._title, undo)
            undo.callback(self.source.settle)
            discard.pop_all()
            self._undo = undo.pop_all()

    @property
    def left_out(self) -> list[str]:
        """The heaps that are not recorded: those of further streams and devices."""
        return self.source.names[1:]

    def end(self) -> None:
        """End serving or observing, and mark the recording as complete. A second call does nothing."""
        self._undo.close()


def checked_order(asked: Mapping[str, Asked]) -> Mapping[str, Asked]:
    """The frameworks to watch in each worker: one, or none for the default.

    Raises:
        LiveError: there are several, one is unknown or has an unknown option, or has its own log.
    """
    named = {name: value for name, value in asked.items() if value not in (None, False)}
    if len(named) > 1:
        raise LiveError(
            f"{' and '.join(sorted(named))} were asked for; each worker has one trace: give one framework, or call "
            "watch_workers once for each with its own client"
        )
    for value in named.values():
        if isinstance(value, Mapping) and value.keys() & {"log", "labels"}:
            raise LiveError("each worker records to a log of its own: remove log and labels from the options")
    for name, value in named.items():
        request_of(name, value)
    return dict(asked)


def _is_here(order: WorkerOrder) -> bool:
    return order.machine == machine_id() and (Path(order.folder) / order.token).exists()


def _of_this_process(name: str) -> dict[str, Any]:
    return {"worker": name, "host": platform.node(), "process": os.getpid(), "started_ns": time.time_ns()}


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
