"""`bfcviz.watch_workers`: watch the memory of every worker of a Dask cluster.

::

    w = bfcviz.watch_workers(client, numpy=True)   # or cupy="serve", torch=True, rmm=True ...
    client.gather(client.map(work, parts))
    w.dashboard        # all workers, the worst first; a click opens one
    w.traces["0"]      # the trace of one worker, as any other
    w.stop()
"""

import atexit
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from bfcviz import notebook
from bfcviz._context_manager import Closing
from bfcviz.errors import FileError, LiveError
from bfcviz.events.storage.drain import FolderDrain
from bfcviz.events.storage.files import PRIVATE_FOLDER
from bfcviz.events.storage.folder import claim_subfolder
from bfcviz.events.storage.recording import CopyPosition, RecordingCopy
from bfcviz.events.trace import Trace
from bfcviz.frameworks import Asked, request_of
from bfcviz.model.trace_index import IndexBuilder
from bfcviz.periodic import Periodic
from bfcviz.units import parse_bytes
from bfcviz.watching.dask_worker import AllocatorPlugin, WorkerOrder, WorkerReport, end, machine_id, report
from bfcviz.watching.watch_session import Capture
from bfcviz.watching.workers_dashboard import WorkersDashboard, WorkerTraces

if TYPE_CHECKING:
    from distributed import Client


# ------------------------------------------------------------------------------
# WorkerCollector: asks the workers of a Dask cluster what is new, and keeps a copy of each recording that is elsewhere.
#
# One call through the scheduler asks all workers, about twice a second. Workers on the client's machine write into
# the client's folder, and are asked only for their state. From any other worker at most 131,072 events (8 MiB) come
# with one call, and the next call follows at once while more wait.
#
# Limits: all events of other machines pass the scheduler, 64 bytes each; a worker that does not answer delays the
# others on other machines; a worker that dies there loses the events of its last half second.

PERIOD_S: Final = 0.5
_PATIENCE_S: Final = 10.0
_MOST_MISSED: Final = 2  # calls in a row without an answer after which a worker counts as lost


class WorkerCollector:
    """Fetches the recordings from the Dask workers of `client` until `stop`.

    Args:
        client: of the cluster; not asynchronous.
        plugin: registered by `start`, for the workers of now and later.
        folder: receives the copies.
    """

    def __init__(self, client: Any, plugin: AllocatorPlugin, folder: Path) -> None:
        self.problems: dict[str, str] = {}  # name of a worker -> why it is not watched
        self.left_out: dict[str, list[str]] = {}  # name of a worker -> its heaps that are not recorded
        self.copies: dict[str, RecordingCopy] = {}  # the copies by the tokens of their recordings
        self.error: Exception | None = None  # why it ended, if it was not stopped
        self._client = client
        self._plugin = plugin
        self._folder = folder
        self._missed: dict[str, int] = {}
        self._stopped = False
        self._periodic = Periodic(self._next, "bfcviz-workers", failed=self._fail)

    @property
    def running(self) -> bool:
        """Whether it fetches from the Dask workers."""
        return self._periodic.running

    def start(self) -> int:
        """Register the plugin and fetch for the first time; returns how many workers are watched.

        Raises:
            Exception: an error of the cluster.
        """
        self._client.register_plugin(self._plugin, name=self._plugin.name)
        watched = self.fetch()[0]
        self._periodic.start(PERIOD_S)
        return watched

    def stop(self) -> None:
        """End every worker's recording, fetch the rest, remove the plugin; without the cluster, keep what there is.

        A second call does nothing.
        """
        is_idle = self._periodic.stop(_PATIENCE_S)
        was_stopped, self._stopped = self._stopped, True
        try:
            if is_idle and self.error is None and not was_stopped:
                self._client.run(end, self._plugin.name, on_error="ignore")
                while self.fetch()[1]:
                    pass
                self._client.unregister_worker_plugin(self._plugin.name)
        except Exception as error:  # noqa: BLE001  a closed cluster raises many kinds
            self.error = error
        for copy in self.copies.values():
            copy.close()

    def fetch(self) -> tuple[int, bool]:
        """Ask every Dask worker once; returns how many are watched, and whether one of them has more events."""
        positions: dict[str, CopyPosition] = {token: copy.position for token, copy in self.copies.items()}
        reports = self._client.run(report, self._plugin.name, positions, on_error="ignore")
        found: list[WorkerReport] = [each for each in reports.values() if each is not None]
        self.problems = {each.name: each.problem for each in found if each.problem}
        self.left_out = {each.name: each.left_out for each in found if each.left_out}
        has_more = False
        for each in found:
            if each.increment is not None:
                self._copy_of(each).add(each.increment)
                has_more = has_more or each.increment.has_more
        self._close_lost({each.token for each in found})
        return sum(not each.problem for each in found), has_more

    def _copy_of(self, found: WorkerReport) -> RecordingCopy:
        if found.token not in self.copies:
            self.copies[found.token] = RecordingCopy(claim_subfolder(self._folder, found.name))
        return self.copies[found.token]

    def _close_lost(self, answered: set[str]) -> None:
        for token, copy in self.copies.items():
            self._missed[token] = 0 if token in answered else self._missed.get(token, 0) + 1
            if self._missed[token] >= _MOST_MISSED:
                copy.close()

    def _next(self) -> float:
        return 0.0 if self.fetch()[1] else PERIOD_S

    def _fail(self, error: Exception) -> None:
        self.error = error
        for copy in self.copies.values():
            copy.close()


# ------------------------------------------------------------------------------
# WorkersWatch, and `watch_workers`, which makes it


class WorkersWatch(Closing):
    """What `watch_workers` returns; it watches until `stop`, or the end of its `with`.

    Attributes:
        folder: has a subfolder with the recording of each worker, named after it. `bfcviz.open` reads them.
        collector: fetches from the workers; its `problems` say which are not watched, and why.
    """

    def __init__(self, folder: Path, collector: WorkerCollector, marker: Path) -> None:
        self.folder = folder
        self.collector = collector
        self._marker = marker
        self._drain = FolderDrain(folder, IndexBuilder)
        self._found = WorkerTraces(folder)
        self._dashboard: WorkersDashboard | None = None

    @property
    def traces(self) -> dict[str, Trace]:
        """The trace of each Dask worker so far, by its name, as long as its recording is now; ended ones stay."""
        self._found.refresh()
        for each in self._found.workers:
            each.trace.refresh()
        return {each.name: each.trace for each in self._found.workers}

    @property
    def dashboard(self) -> WorkersDashboard:
        """The view of all Dask workers; made on first use."""
        if self._dashboard is None or self._dashboard.closed:
            self._dashboard = WorkersDashboard(self.folder)
        return self._dashboard

    @property
    def says(self) -> str:
        """Which Dask workers are watched, as text."""
        self._found.refresh()
        names = [each.name for each in self._found.workers]
        sentences = [
            f"{len(names)} recordings: {', '.join(names)}" if names else "No worker has recorded yet"
        ]
        sentences += [f"Worker {name} is not watched: {why}" for name, why in self.collector.problems.items()]
        lost = self.collector.left_out.items()
        sentences += [f"Worker {name}: without {', '.join(heaps)}" for name, heaps in lost]
        if self.collector.error is not None:
            sentences.append(f"The cluster does not answer: {self.collector.error}")
        return ". ".join(sentences) + "."

    def stop(self) -> None:
        """End every recording. The workers' frameworks use their own allocators again, and the traces are complete."""
        self.collector.stop()
        self._drain.end()
        for client, watch in list(_running.items()):
            if watch is self:  # it refers to the client, which would live as long as Python
                del _running[client]
        self._marker.unlink(missing_ok=True)
        if self._dashboard is not None:
            self._dashboard.refresh()

    def close(self) -> None:
        """End the recording of every worker, as `stop`."""
        self.stop()

    def __repr__(self) -> str:
        return f"<WorkersWatch: {self.says}>"


def watch_workers(  # noqa: PLR0913  the options
    client: "Client",
    *,
    limit: int | str | None = None,
    capture: Capture | None = None,
    path: str | os.PathLike[str] | None = None,
    dashboard: bool = True,
    fetch: bool = False,
    **framework: Asked,
) -> WorkersWatch:
    """Watch one framework in every worker of a Dask cluster, those that join later included.

    It begins at once. A second call for the same client ends the first. Tasks that run already are not watched with
    NumPy. A worker that dies or restarts keeps its recording, which then is marked as ended; the process that
    replaces it gets a new one.

    Args:
        client: of the cluster, as `dask.distributed.Client()` makes it; bfcviz must be installed in its workers.
        limit: how large a heap that serves may grow in each worker, in bytes or as text.
        capture: what is recorded with each allocation; see `bfcviz.watch`.
        path: a new folder for the recordings, one subfolder a worker; by default a temporary one, which is removed
            when Python exits.
        dashboard: in a notebook: display the view under the cell.
        fetch: also fetch from workers on this machine through the scheduler; by default they write into the folder.
        framework: `numpy`, `cupy`, `torch`, `rmm` or `jax`, as in `bfcviz.watch`; by default the one that it chooses
            on the worker's machine. One trace a worker: of its first device or stream.

    Raises:
        MissingExtra: Dask is not installed; the import raises it.
        LiveError: no worker can be watched; the message has the reason of the first. Or the client is asynchronous.
        FileError: the folder is not empty.
    """
    if client.asynchronous:
        raise LiveError("this client is asynchronous; give one made by Client(...) outside of async code")
    asked = checked_order(framework)
    most = None if limit is None else parse_bytes(limit, "limit")
    folder = _new_folder(path)
    if (earlier := _running.pop(client, None)) is not None:
        earlier.stop()
    order = WorkerOrder(asked, most, capture, str(folder), None if fetch else machine_id())
    _running[client] = found = _begin_workers_watch(client, order)
    if dashboard and notebook.has_kernel():
        notebook.show(found.dashboard)
    return found


def _begin_workers_watch(client: "Client", order: WorkerOrder) -> WorkersWatch:
    """Register the plugin and fetch from the workers of now; raises LiveError if none of them can be watched."""
    folder = Path(order.folder)
    marker = folder / order.token
    marker.touch()
    found = WorkersWatch(folder, WorkerCollector(client, AllocatorPlugin(order), folder), marker)
    try:
        watched = found.collector.start()
    except BaseException:
        found.stop()
        raise
    if not watched and found.collector.problems:
        found.stop()
        name, why = next(iter(found.collector.problems.items()))
        raise LiveError(f"no worker can be watched; worker {name}: {why}")
    return found


_running: Final["WeakKeyDictionary[Any, WorkersWatch]"] = WeakKeyDictionary()


def _new_folder(path: str | os.PathLike[str] | None) -> Path:
    """An empty folder for the workers' recordings; without a path it is removed at the exit of Python."""
    if path is None:
        folder = Path(tempfile.mkdtemp(prefix="bfcviz-workers-"))
        atexit.register(rmtree, folder, ignore_errors=True)
        return folder
    folder = Path(path).absolute()
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise FileError(folder, "", f"cannot hold recordings: {error.strerror}") from error
    if not is_empty:
        raise FileError(folder, "", "is not empty; give each watch a new folder")
    return folder


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
