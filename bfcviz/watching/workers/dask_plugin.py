"""The Dask side of a worker: a `WorkerPlugin` that begins and ends the recording, and the functions that clients call.

NumPy is served per context (`contextvars`). Dask (distributed 2026.8) runs a task in a copy of the context in which
the worker's state machine started it, and calls `transition` in that context just before: there the plugin makes it a
served one.
"""

import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from shutil import rmtree
from typing import Any, Final, NamedTuple

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin

from bfcviz.events.storage.recording_copy import CopyPosition, Increment, read_increment
from bfcviz.watching.workers.record_in_worker import WorkerOrder, WorkerRecording

ABANDONED_S: Final = 300.0
"""Seconds without a call of the client after which a worker ends its recording: a killed client cannot end it."""


class AllocatorPlugin(WorkerPlugin):
    """Watches the framework in a worker from the plugin's `setup` to its `teardown`.

    An error does not stop the worker: it works unwatched, and the client is told.

    Attributes:
        name: of the plugin; it is registered under this name.
        recording: None: it has not begun, or could not.
        problem: why it could not.
        called: when the client called last, by the monotonic clock.
    """

    def __init__(self, order: WorkerOrder) -> None:
        self.name = f"bfcviz{order.token}"
        self.recording: WorkerRecording | None = None
        self.problem = ""
        self.called = 0.0
        self._order = order
        self._own_folder = ""

    def setup(self, worker: Worker) -> None:
        """Begin to watch."""
        self.called = time.monotonic()
        try:
            self._own_folder = tempfile.mkdtemp(prefix="bfcviz-", dir=worker.local_directory)
            self.recording = WorkerRecording(self._order, str(worker.name), self._own_folder)
        except Exception as error:  # noqa: BLE001  Dask would close the worker
            self.problem = f"{type(error).__name__}: {error}"

    def transition(self, key: object, start: str, finish: str, **_: Any) -> None:
        """A task changes its state: let one that starts run in a watched context."""
        del key, start
        if finish != "executing" or self.recording is None:
            return
        if time.monotonic() - self.called > ABANDONED_S:
            self.recording.end()
        self.recording.source.watch_here()

    def end(self) -> None:
        """End the recording; what was recorded stays until `teardown`."""
        if self.recording is not None:
            self.recording.end()

    def teardown(self, worker: Worker) -> None:
        """End, and remove what the client has fetched."""
        del worker
        try:
            self.end()
        finally:
            with suppress(OSError):
                rmtree(self._own_folder)


class WorkerReport(NamedTuple):
    """What a worker tells its client.

    Attributes:
        token: of its recording; "": there is none.
        name: of the worker.
        problem: why there is none.
        left_out: heaps that are not recorded.
        folder: of the recording, if the client can read it; None: the client fetches it.
        increment: what is new, if the client fetches it.
    """

    token: str
    name: str
    problem: str
    left_out: list[str]
    folder: str | None
    increment: Increment | None


def report(
    plugin: str, positions: Mapping[str, CopyPosition], dask_worker: Worker | None = None
) -> WorkerReport | None:
    """Called in each worker by the client: its state, and what is new in its recording; None: it has no such plugin.

    Args:
        plugin: the name of the plugin.
        positions: how much the client has, by the tokens of recordings.
        dask_worker: given by Dask.
    """
    found = _plugin(plugin, dask_worker)
    if found is None:
        return None
    found.called = time.monotonic()
    name, recording = str(dask_worker and dask_worker.name), found.recording
    if recording is None:
        return WorkerReport("", name, found.problem, [], None, None)
    if recording.is_shared:
        return WorkerReport(recording.token, name, "", recording.left_out, str(recording.folder), None)
    increment = read_increment(recording.folder, positions.get(recording.token, CopyPosition()))
    return WorkerReport(recording.token, name, "", recording.left_out, None, increment)


def end(plugin: str, dask_worker: Worker | None = None) -> None:
    """Called in each worker by the client: end its recording."""
    found = _plugin(plugin, dask_worker)
    if found is not None:
        found.end()


def _plugin(name: str, worker: Worker | None) -> AllocatorPlugin | None:
    found = None if worker is None else worker.plugins.get(name)
    return found if isinstance(found, AllocatorPlugin) else None
