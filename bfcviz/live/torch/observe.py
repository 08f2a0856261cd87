"""observe_torch: PyTorch's own caching allocator, observed through the history that it keeps."""

import time
from collections.abc import Iterable
from typing import Any

from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin_details import TORCH_OBSERVED
from bfcviz.events.storage.recording import Recording
from bfcviz.formats.torch import UNIT
from bfcviz.live.capture.stacks import Chosen
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.observed_heap import ObservedHeap, devices_in_order, log_and_labels
from bfcviz.live.common.polling import Polling
from bfcviz.live.torch import torch_api
from bfcviz.live.torch.history import DeviceHistory


class TorchObserved(HeapProvider):
    """What `observe_torch` returns; observes devices within a `with`.

    If other code records a history already, that is read as it is, and continues after the end.

    Attributes:
        way: `observe`.
        devices: the history of each device.
    """

    way = "observe"
    title = "PyTorch"
    is_shared = True

    def __init__(
        self,
        log: EventLog,
        labels: Labels,
        every_s: float,
        max_entries: int,
        capture: Chosen,
        devices: Iterable[int] | None = None,
    ) -> None:
        self.devices: list[DeviceHistory] = []
        self._log: EventLog | None = log
        self._labels = labels
        self._max_entries = max_entries
        self._capture = capture
        self._named = None if devices is None else list(devices)
        self._memory: Any = None
        self._is_ours = False
        self._polling = Polling(self._read, every_s, "bfcviz-torch")

    @property
    def description(self) -> str:
        """The way, and what it means."""
        lost = sum(device.lost for device in self.devices)
        text = (
            "PyTorch is observed: it keeps its own allocator, whose history is read at intervals; splits and merges "
            "are derived from its blocks"
        )
        if lost:
            text += (
                f". {lost} times entries were overwritten before they were read; the state after them was used "
                "instead: give more max_entries, or a shorter every_s"
            )
        if unmapped := sum(device.unmapped for device in self.devices):
            text += f". {unmapped} bytes that expandable segments released are still drawn, as free"
        if self._polling.error is not None:
            text += f". It ended early: {self._polling.error}"
        return text

    @property
    def heaps(self) -> list[ObservedHeap]:
        """A heap for each device. The current device writes to the log that was given."""
        return [device.heap for device in self.devices]

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the last device that had one; None: no failure."""
        found = [device.out_of_memory for device in self.devices if device.out_of_memory is not None]
        return found[-1] if found else None

    def settle(self) -> None:
        """Read the history now."""
        self._polling.now()

    def _start(self) -> None:
        torch = torch_api.torch_with_cuda("observed")
        torch_api.refuse_async(torch, "observed", "")
        torch.cuda.init()  # without it, PyTorch reads a history that does not exist yet
        self._memory = torch.cuda.memory
        if not hasattr(self._memory, "_snapshot") or torch_api.backend(torch) == "pluggable":
            raise LiveError(
                f"PyTorch {torch.__version__} cannot be observed: its allocator has no history, because it was "
                "replaced or is older than 2.1"
            )
        self._is_ours = not torch_api.keeps_history(torch)
        if self._capture == "stack" or not self._is_ours:
            torch_api.import_symbolizer()
        if self._is_ours:
            context = "alloc" if self._capture == "stack" else None
            self._memory._record_memory_history(  # noqa: SLF001
                "all", context=context, stacks="python", max_entries=self._max_entries
            )
        try:
            if not self.devices:
                self._begin(torch)
            self._polling.now()
        except BaseException:
            self._end_history()
            raise
        self._polling.start()

    def _stop(self, error: BaseException | None) -> None:
        self._polling.stop()
        try:
            self._polling.last(error, times=2)  # the second reading finds the state that came with the first
        finally:
            self._end_history()

    def _end_history(self) -> None:
        """Stop the history, unless other code had started it."""
        if self._is_ours:
            self._memory._record_memory_history(None)  # noqa: SLF001

    def _begin(self, torch: Any) -> None:
        """Make a heap for each device, the current one first, and measure the offset of PyTorch's clock."""
        chosen = devices_in_order(self._named, torch.cuda.device_count(), torch.cuda.current_device())
        for device in chosen:
            log, self._log = self._log, None
            limit = total = torch_api.total_memory(torch, device)
            name = f"torch cuda:{device}"
            heap = ObservedHeap(log, self._labels, name=name, limit=limit, unit=UNIT, device_total=total)
            now = time.time_ns()
            heap.mark(TORCH_OBSERVED)
            heap.settle()
            marked = int(heap.log.copy(heap.log.head - 1, heap.log.head)["time"][0])
            named = self._capture != "nothing"
            self.devices.append(DeviceHistory(heap, device, marked - now, named=named))

    def _read(self) -> None:
        found = self._memory._snapshot()  # noqa: SLF001
        traces = found["device_traces"]
        for device in self.devices:
            segments = [segment for segment in found["segments"] if segment["device"] == device.number]
            trace = traces[device.number] if device.number < len(traces) else []
            device.read(trace, segments, found.get("allocator_settings") or {})


def observe_torch(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.2,
    max_entries: int = 100_000,
    capture: Chosen = "stack",
    devices: Iterable[int] | None = None,
) -> TorchObserved:
    """Record PyTorch's own caching allocator within a `with`, through the history that it keeps; changes nothing.

    A thread reads the history every `every_s` seconds. Between two readings PyTorch keeps the newest `max_entries`
    events of a device. If events are overwritten before they are read, the state that comes with every reading replaces
    them, and `description` says so. A reading copies the whole history, so its cost grows with the history: for a busy
    process give fewer entries and read more often.

    Args:
        log: receives the events of the first device; a recording includes its labels. Default, and for further devices:
            a ring in memory.
        labels: interns operation names and stacks.
        every_s: seconds between two readings.
        max_entries: events of each device that PyTorch keeps.
        capture: `stack`: PyTorch keeps Python's stack with every allocation, which also names it; `label`: the names
            are the metadata of torch.cuda.memory, if the program sets it; `nothing`: no names.
        devices: numbers of the devices to observe, such as `[rank]` with DistributedDataParallel. Default: all. No CUDA
            context is created on them.

    Raises:
        InvalidRequest: times or numbers that cannot be; on entering: a device that is not there.
        LiveError: `capture` is none of these; on entering: PyTorch is not there, sees no GPU, or tells no history.
    """
    if not 0 < every_s < 1 << 31 or max_entries < 1:
        raise InvalidRequest(
            f"every_s={every_s} and max_entries={max_entries} were given; give a time and a number above 0"
        )
    log, labels = log_and_labels(log, labels)
    if capture not in ("nothing", "label", "stack"):
        raise LiveError(f"capture={capture!r} was given; choose nothing, label or stack")
    return TorchObserved(log, labels, every_s, max_entries, capture, devices)
