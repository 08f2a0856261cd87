"""observe_rmm: RMM keeps its own resources; read the log of its logging adaptor as it grows."""

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bfcviz.errors import InvalidRequest, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.observed_heap import ObservedHeap, devices_in_order, log_and_labels
from bfcviz.live.common.polling import Polling
from bfcviz.live.rmm.log_file import LogFile
from bfcviz.live.rmm.log_lines import UNIT
from bfcviz.live.rmm.rmm_api import Rmm


class RmmObserved(HeapProvider):
    """What `observe_rmm` returns; observes devices within a `with`.

    An adaptor is made with its device current, which creates a context there (some 400 MiB). So it observes only the
    devices that were given, or else those that the process uses already.

    Attributes:
        way: `observe`.
        files: the log file of each device.
    """

    way = "observe"
    title = "RMM"

    def __init__(
        self,
        rmm: Rmm,
        make: Callable[[int], ObservedHeap],
        every_s: float,
        devices: Iterable[int] | None = None,
    ) -> None:
        self.files: dict[int, LogFile] = {}
        self._devices = None if devices is None else list(devices)
        self._unused: list[int] = []
        self._rmm = rmm
        self._make = make
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._before: dict[int, Any] = {}
        self._adaptors: dict[int, Any] = {}
        self._polling = Polling(self._read, every_s, "bfcviz-rmm")

    @property
    def description(self) -> str:
        """The way, and what it means."""
        text = (
            "RMM is observed: its resources stay, and a log of every request is read at intervals. It does not contain "
            "what RMM's pools allocate from CUDA, so regions are the addresses seen in use"
        )
        if self._unused:
            text += (
                f". Device {', '.join(map(str, self._unused))} was not in use and is not observed: give devices to "
                "observe it from the start"
            )
        if words := "; ".join(
            filter(None, (log.heap.inconsistencies.words() for log in self.files.values()))
        ):
            text += f". {words}"
        if self._polling.error is not None:
            text += f". It ended early: {self._polling.error}"
        return text

    @property
    def heaps(self) -> list[ObservedHeap]:
        """A heap for each device. The current device writes to the log that was given."""
        return [log.heap for log in self.files.values()]

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the first device that had one; None: no failure."""
        return next((log.out_of_memory for log in self.files.values() if log.out_of_memory is not None), None)

    def settle(self) -> None:
        """Read the logs now."""
        self._polling.now()

    def _start(self) -> None:
        chosen = self._choose()
        self._folder = tempfile.TemporaryDirectory(prefix="bfcviz-rmm-")
        try:
            for device in chosen:
                self._begin(device, Path(self._folder.name))
        except BaseException:
            self._put_back()
            self._forget()
            raise
        self._polling.start()

    def _stop(self, error: BaseException | None) -> None:
        self._polling.stop()
        self._put_back()
        try:
            self._polling.last(error)
        finally:
            self._forget()

    def _choose(self) -> list[int]:
        """Devices to observe, the current one first."""
        current = self._rmm.device()
        found = devices_in_order(self._devices, self._rmm.devices, current)
        if self._devices is None:
            self._unused = [each for each in found if each != current and not self._rmm.has_context(each)]
        return [each for each in found if each not in self._unused]

    def _put_back(self) -> None:
        """Restore each device's resource, unless other code has changed it since."""
        for device, before in self._before.items():
            if self._rmm.mr.get_per_device_resource(device) is self._adaptors[device]:
                self._rmm.mr.set_per_device_resource(device, before)

    def _forget(self) -> None:
        """Drop the adaptors and delete their logs."""
        self._before.clear()
        self._adaptors.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def _begin(self, device: int, folder: Path) -> None:
        before = self._rmm.mr.get_per_device_resource(device)
        with self._rmm.on(device):
            adaptor = self._rmm.mr.LoggingResourceAdaptor(before, str(folder / "rmm.csv"))
        heap = self.files[device].heap if device in self.files else self._make(device)
        path = Path(adaptor.get_file_name())
        self.files[device] = LogFile(path, heap, _now_of(heap) - _time_of_day_ns())
        self._before[device], self._adaptors[device] = before, adaptor
        self._rmm.mr.set_per_device_resource(device, adaptor)

    def _read(self) -> None:
        for device, adaptor in self._adaptors.items():
            adaptor.flush()
            self.files[device].read()


def observe_rmm(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.1,
    devices: Iterable[int] | None = None,
) -> RmmObserved:
    """Record the requests to RMM's own resources within a `with`, by a logging adaptor around them.

    A thread reads the log every `every_s` seconds. Memory allocated before is unknown; if it is freed, that is counted,
    and `description` says so.

    Args:
        log: receives the events of the current device; a recording includes its labels. Further devices get rings in
            memory.
        labels: the table of labels; RMM's log names no caller.
        every_s: seconds between two readings.
        devices: numbers of the devices to observe; each gets a CUDA context. Default: the current one and those that
            this process uses already.

    Raises:
        LiveError: RMM is not installed or sees no GPU; on entering: it is observed already.
        InvalidRequest: the time is out of range; on entering: there is no such device.
    """
    if not 0 < every_s < 1 << 31:
        raise InvalidRequest(f"every_s={every_s} was given; give a time above 0, in seconds")
    rmm = Rmm("observed")
    first: EventLog | None
    first, table = log_and_labels(log, labels)

    def make(device: int) -> ObservedHeap:
        nonlocal first
        given, first = first, None
        return ObservedHeap(given, table, name=f"rmm:{device}", limit=rmm.total_memory(device), unit=UNIT)

    return RmmObserved(rmm, make, every_s, devices)


def _now_of(heap: ObservedHeap) -> int:
    """The heap's clock now, in nanoseconds."""
    heap.mark("RMM is observed from here")
    heap.settle()
    return int(heap.log.copy(heap.log.head - 1, heap.log.head)["time"][0])


def _time_of_day_ns() -> int:
    now = time.time_ns()
    local = time.localtime(now // 1_000_000_000)
    return ((local.tm_hour * 60 + local.tm_min) * 60 + local.tm_sec) * 1_000_000_000 + now % 1_000_000_000
