"""RmmLogs: record RMM's requests by its logging adaptor, whose log a thread reads as it grows."""

import tempfile
import time
from pathlib import Path
from typing import Any

from bfcviz.errors import OutOfMemory
from bfcviz.events.origin_details import RMM_OBSERVED
from bfcviz.live.common.observed_heap import ObservedHeap
from bfcviz.live.common.polling import Polling
from bfcviz.live.rmm.log_file import LogFile
from bfcviz.live.rmm.rmm_api import Rmm


class RmmLogs:
    """Observes RMM through one log file for each device, in a temporary folder. The log names no caller.

    Args:
        rmm: RMM.
        every_s: seconds between two readings.

    Attributes:
        files: the log file of each device.
    """

    description = "a log of every request is read at intervals; it names no caller, mechanism='callback' does"

    def __init__(self, rmm: Rmm, every_s: float) -> None:
        self.files: dict[int, LogFile] = {}
        self._rmm = rmm
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._adaptors: dict[int, Any] = {}
        self._polling = Polling(self._read, every_s, "bfcviz-rmm")

    @property
    def problem(self) -> str:
        """Why it ended early, and how many lines could not be parsed; empty: nothing is missing."""
        found = []
        if unreadable := sum(file.unreadable for file in self.files.values()):
            found.append(f"Lines of the log that could not be parsed: {unreadable}")
        if self._polling.error is not None:
            found.append(f"It ended early: {self._polling.error}")
        return ". ".join(found)

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the first device that had one; None: no failure."""
        return next(
            (file.out_of_memory for file in self.files.values() if file.out_of_memory is not None), None
        )

    def around(self, device: int, upstream: Any, heap: ObservedHeap) -> Any:
        """Make a logging adaptor around a device's resource. It must be made with the device current."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="bfcviz-rmm-")
        with self._rmm.on(device):
            adaptor = self._rmm.mr.LoggingResourceAdaptor(upstream, str(Path(self._folder.name) / "rmm.csv"))
        path = Path(adaptor.get_file_name())
        self.files[device] = LogFile(path, heap, _now_of(heap) - _time_of_day_ns())
        self._adaptors[device] = adaptor
        return adaptor

    def begin(self) -> None:
        """Read the logs at intervals from now on."""
        self._polling.start()

    def settle(self) -> None:
        """Read the logs now."""
        self._polling.now()

    def end(self, error: BaseException | None) -> None:
        """Read the logs to their ends and delete them."""
        self._polling.stop()
        try:
            self._polling.last(error)
        finally:
            self._adaptors.clear()
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def _read(self) -> None:
        for device, adaptor in self._adaptors.items():
            adaptor.flush()
            self.files[device].read()


def _now_of(heap: ObservedHeap) -> int:
    """The heap's clock now, in nanoseconds."""
    heap.mark(RMM_OBSERVED)
    heap.settle()
    return int(heap.log.copy(heap.log.head - 1, heap.log.head)["time"][0])


def _time_of_day_ns() -> int:
    now = time.time_ns()
    local = time.localtime(now // 1_000_000_000)
    return ((local.tm_hour * 60 + local.tm_min) * 60 + local.tm_sec) * 1_000_000_000 + now % 1_000_000_000
