"""Collector: asks the workers of a Dask cluster what is new, and keeps a copy of each recording that is elsewhere.

One call through the scheduler asks all workers, about twice a second. Workers on the client's machine write into the
client's folder, and are asked only for their state. From any other worker at most 131,072 events (8 MiB) come with one
call, and the next call follows at once while more wait.

Limits: all events of other machines pass the scheduler, 64 bytes each; a worker that does not answer delays the others
on other machines; a worker that dies there loses the events of its last half second.
"""

from pathlib import Path
from typing import Any, Final

from bfcviz.events.storage.recording_copy import CopyPosition, RecordingCopy
from bfcviz.events.storage.recording_set import claim_subfolder
from bfcviz.periodic import Periodic
from bfcviz.watching.workers.dask_plugin import AllocatorPlugin, WorkerReport, end, report

PERIOD_S: Final = 0.5
_PATIENCE_S: Final = 10.0
_MOST_MISSED: Final = 2
"""Calls in a row without an answer after which a worker counts as lost."""


class Collector:
    """Fetches from the workers of `client` until `stop`.

    Args:
        client: of the cluster; not asynchronous.
        plugin: registered by `start`, for the workers of now and later.
        folder: receives the copies.

    Attributes:
        problems: name of a worker -> why it is not watched.
        left_out: name of a worker -> its heaps that are not recorded.
        copies: the copies by the tokens of their recordings.
        error: why it ended, if it was not stopped.
    """

    def __init__(self, client: Any, plugin: AllocatorPlugin, folder: Path) -> None:
        self.problems: dict[str, str] = {}
        self.left_out: dict[str, list[str]] = {}
        self.copies: dict[str, RecordingCopy] = {}
        self.error: Exception | None = None
        self._client = client
        self._plugin = plugin
        self._folder = folder
        self._missed: dict[str, int] = {}
        self._stopped = False
        self._periodic = Periodic(self._next, "bfcviz-workers", failed=self._fail)

    @property
    def running(self) -> bool:
        """Whether it fetches."""
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
        """End every recording, fetch the rest, and remove the plugin; without the cluster, keep what was fetched.

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
        """Ask every worker once; returns how many are watched, and whether one of them has more events."""
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
