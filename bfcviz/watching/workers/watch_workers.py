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
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from bfcviz._context_manager import Closing
from bfcviz.dashboard import notebook
from bfcviz.errors import FileError, LiveError, MissingExtra
from bfcviz.events.storage.files import PRIVATE_FOLDER
from bfcviz.events.trace import Trace
from bfcviz.units import parse_bytes
from bfcviz.watching.chosen_frameworks import Asked, Capture
from bfcviz.watching.workers.record_in_worker import WorkerOrder, checked_order, machine_id
from bfcviz.watching.workers.worker_traces import WorkerTraces
from bfcviz.watching.workers.workers_dashboard import WorkersDashboard

if TYPE_CHECKING:
    from distributed import Client

    from bfcviz.watching.workers.collector import Collector


class WorkersWatch(Closing):
    """What `watch_workers` returns; it watches until `stop`, or the end of its `with`.

    Attributes:
        folder: has a subfolder with the recording of each worker, named after it. `bfcviz.open` reads them.
        collector: fetches from the workers; its `problems` say which are not watched, and why.
    """

    def __init__(self, folder: Path, collector: "Collector", marker: Path) -> None:
        self.folder = folder
        self.collector = collector
        self._marker = marker
        self._found = WorkerTraces(folder)
        self._dashboard: WorkersDashboard | None = None

    @property
    def traces(self) -> dict[str, Trace]:
        """The trace of each worker so far, by its name, as long as its recording is now; ended ones stay."""
        self._found.refresh()
        for each in self._found.workers:
            each.trace.refresh()
        return {each.name: each.trace for each in self._found.workers}

    @property
    def dashboard(self) -> WorkersDashboard:
        """The view of all workers; made on first use."""
        if self._dashboard is None or self._dashboard.closed:
            self._dashboard = WorkersDashboard(self.folder)
        return self._dashboard

    @property
    def says(self) -> str:
        """Which workers are watched, as text."""
        self._found.refresh()
        names = [each.name for each in self._found.workers]
        sentences = [
            f"{len(names)} recordings: {', '.join(names)}" if names else "No worker has recorded yet"
        ]
        sentences += [f"Worker {name} is not watched: {why}" for name, why in self.collector.problems.items()]
        sentences += [
            f"Worker {name}: without {', '.join(lost)}" for name, lost in self.collector.left_out.items()
        ]
        if self.collector.error is not None:
            sentences.append(f"The cluster does not answer: {self.collector.error}")
        return ". ".join(sentences) + "."

    def stop(self) -> None:
        """End every recording. The workers' frameworks use their own allocators again, and the traces are complete."""
        self.collector.stop()
        for client, watch in list(_running.items()):
            if watch is self:  # it refers to the client, which would live as long as Python
                del _running[client]
        self._marker.unlink(missing_ok=True)
        if self._dashboard is not None:
            self._dashboard.refresh()

    def close(self) -> None:
        """As `stop`."""
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
        MissingExtra: Dask is not installed.
        LiveError: no worker can be watched; the message has the reason of the first. Or the client is asynchronous.
        FileError: the folder is not empty.
    """
    if find_spec("distributed") is None:
        raise MissingExtra("watch_workers", "Dask", "dask")
    if client.asynchronous:
        raise LiveError("this client is asynchronous; give one made by Client(...) outside of async code")
    asked = checked_order(framework)
    most = None if limit is None else parse_bytes(limit, "limit")
    folder = _new_folder(path)
    if (earlier := _running.pop(client, None)) is not None:
        earlier.stop()
    order = WorkerOrder(asked, most, capture, str(folder), None if fetch else machine_id())
    _running[client] = found = _begin(client, order)
    if dashboard and notebook.has_kernel():
        notebook.show(found.dashboard)
    return found


def _begin(client: "Client", order: WorkerOrder) -> WorkersWatch:
    """Register the plugin and fetch from the workers of now; raises LiveError if none of them can be watched."""
    from bfcviz.watching.workers.collector import Collector  # noqa: PLC0415  an extra
    from bfcviz.watching.workers.dask_plugin import AllocatorPlugin  # noqa: PLC0415

    folder = Path(order.folder)
    marker = folder / order.token
    marker.touch()
    found = WorkersWatch(folder, Collector(client, AllocatorPlugin(order), folder), marker)
    if not found.collector.start() and found.collector.problems:
        found.stop()
        name, why = next(iter(found.collector.problems.items()))
        raise LiveError(f"no worker can be watched; worker {name}: {why}")
    return found


_running: Final["WeakKeyDictionary[Any, WorkersWatch]"] = WeakKeyDictionary()


def _new_folder(path: str | os.PathLike[str] | None) -> Path:
    """An empty folder; without a path it is removed at the exit of Python."""
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
