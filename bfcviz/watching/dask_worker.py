"""The part of `watch_workers` in each worker: its recording, and the Dask plugin that begins and ends it."""

import os
import platform
import secrets
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, NamedTuple

from bfcviz.extras import needed

with needed("watch_workers", "Dask", "dask"):
    from distributed import Worker
    from distributed.diagnostics.plugin import WorkerPlugin

from bfcviz import frameworks
from bfcviz.events.storage.folder import claim_subfolder
from bfcviz.events.storage.recording import CopyPosition, Increment, Recording, read_increment
from bfcviz.frameworks import Asked, title_of
from bfcviz.live import heap_provider
from bfcviz.live.heap_provider import HeapProvider
from bfcviz.watching.watch_session import Capture, open_source, start_source, watch_plan

# ------------------------------------------------------------------------------
# WorkerRecording: the part of `watch_workers` that runs in each worker; it knows nothing of Dask.
#
# A worker on the client's machine records straight into the client's folder. Any other worker records into a folder
# of its own, from which the client fetches what is new.

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MARKER: Final = ".watched-by-"


@dataclass(frozen=True)
class WorkerOrder:
    """What a Dask client orders each worker to record."""

    # one framework -> its argument, as in `bfcviz.watch`; empty: the default of the worker's machine
    asked: Mapping[str, Asked]
    limit: int | None  # bytes; of a heap that serves
    capture: Capture | None  # what is recorded with each allocation
    folder: str  # the client's folder of recordings
    machine: str | None  # the client's machine; None: fetch from every worker
    # a file of this name marks the folder, so that a worker does not take another folder for it
    token: str = field(default_factory=lambda: _MARKER + secrets.token_hex(8))


def machine_id() -> str:
    """A name of the machine of a Dask worker, or of its client, since it was started."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{platform.node()} {boot}"


class WorkerRecording:
    """The recording of this Dask worker, from now until `end`.

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
        requests = watch_plan(order.asked, order.limit, order.capture).requests
        request = heap_provider.complete_provider_request(requests[0])
        self.is_shared = order.machine == machine_id() and (Path(order.folder) / order.token).exists()
        self.folder = claim_subfolder(Path(order.folder if self.is_shared else own_folder), name)
        process = {"process": os.getpid(), "started_ns": time.time_ns()}
        worker = {"worker": name, "host": platform.node(), **process}
        details = {**frameworks.details_of(request), **worker}
        self._title = title_of(request)
        with ExitStack() as discard, ExitStack() as undo:
            discard.callback(_remove_empty_worker_folder, self.folder)
            recording = Recording(self.folder, [heap_provider.provider_pool(request)], details=details)
            undo.callback(recording.close)
            discard.callback(recording.discard)
            self._log = recording.log
            self.source: HeapProvider = open_source(request, recording)
            start_source(self.source, self._title, undo)
            undo.callback(self.source.settle)
            discard.pop_all()
            self._undo = undo.pop_all()

    @property
    def left_out(self) -> list[str]:
        """The heaps of a Dask worker that are not recorded: those after the first 256."""
        return self.source.left_out(self._log)

    def end(self) -> None:
        """End serving or observing the Dask worker, and mark the recording as complete. A second call does nothing."""
        self._undo.close()


def _remove_empty_worker_folder(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


# ------------------------------------------------------------------------------
# The Dask side of a worker: a `WorkerPlugin` that begins and ends the recording, and the functions that clients call.
#
# NumPy is served per context (`contextvars`). Dask (distributed 2026.8) runs a task in a copy of the context in
# which the worker's state machine started it, and calls `transition` in that context just before: there the plugin
# makes it a served one.

ABANDONED_S: Final = 300.0
"""Seconds without a call of the client after which a worker ends its recording: a killed client cannot end it."""


class AllocatorPlugin(WorkerPlugin):
    """Watches the framework in a Dask worker from the plugin's `setup` to its `teardown`.

    An error does not stop the worker: it works unwatched, and the client is told.
    """

    def __init__(self, order: WorkerOrder) -> None:
        self.name = f"bfcviz{order.token}"  # of the plugin; it is registered under this name
        self.recording: WorkerRecording | None = None  # None: it has not begun, or could not
        self.problem = ""  # why it could not
        self.called = 0.0  # when the client called last, by the monotonic clock
        self._order = order
        self._own_folder = ""

    def setup(self, worker: Worker) -> None:
        """Begin to watch the Dask worker."""
        self.called = time.monotonic()
        try:
            self._own_folder = tempfile.mkdtemp(prefix="bfcviz-", dir=worker.local_directory)
            self.recording = WorkerRecording(self._order, str(worker.name), self._own_folder)
        except Exception as error:  # noqa: BLE001  Dask would close the worker
            self.problem = f"{type(error).__name__}: {error}"

    def transition(self, key: object, start: str, finish: str, **_: Any) -> None:
        """A Dask task changes its state: let one that starts run in a watched context."""
        del key, start
        if finish != "executing" or self.recording is None:
            return
        if time.monotonic() - self.called > ABANDONED_S:
            self.recording.end()
        self.recording.source.watch_here()

    def end(self) -> None:
        """End the Dask worker's recording; what was recorded stays until `teardown`."""
        if self.recording is not None:
            self.recording.end()

    def teardown(self, worker: Worker) -> None:
        """End the Dask worker's recording, and remove what the client has fetched."""
        del worker
        try:
            self.end()
        finally:
            with suppress(OSError):
                rmtree(self._own_folder)


class WorkerReport(NamedTuple):
    """What a Dask worker tells its client."""

    token: str  # of its recording; "": there is none
    name: str  # of the worker
    problem: str  # why there is none
    left_out: list[str]  # heaps that are not recorded
    increment: Increment | None  # what is new, if the client fetches it


def report(
    plugin: str, positions: Mapping[str, CopyPosition], dask_worker: Worker | None = None
) -> WorkerReport | None:
    """Called in each Dask worker by the client: its state, and what is new in its recording; None: it has no plugin.

    Args:
        plugin: the name of the plugin.
        positions: how much the client has, by the tokens of recordings.
        dask_worker: given by Dask.
    """
    found = _worker_allocator_plugin(plugin, dask_worker)
    if found is None:
        return None
    found.called = time.monotonic()
    name, recording = str(dask_worker and dask_worker.name), found.recording
    if recording is None:
        return WorkerReport("", name, found.problem, [], None)
    increment = None
    if not recording.is_shared:
        position = positions.get(recording.token, CopyPosition())
        increment = read_increment(recording.folder, position, free=True)
    return WorkerReport(recording.token, name, "", recording.left_out, increment)


def end(plugin: str, dask_worker: Worker | None = None) -> None:
    """Called in each Dask worker by the client: end its recording."""
    found = _worker_allocator_plugin(plugin, dask_worker)
    if found is not None:
        found.end()


def _worker_allocator_plugin(name: str, worker: Worker | None) -> AllocatorPlugin | None:
    found = None if worker is None else worker.plugins.get(name)
    return found if isinstance(found, AllocatorPlugin) else None
