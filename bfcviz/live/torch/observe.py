"""observe_torch: PyTorch's own caching allocator, observed through the history that it keeps."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, cast

from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import TORCH_OBSERVED
from bfcviz.events.storage.recording import Recording
from bfcviz.formats.torch import UNIT
from bfcviz.live.heap_provider import HeapProvider
from bfcviz.live.observed_heap import ObservedHeap, Polling, devices_in_order, log_and_labels
from bfcviz.live.stacks import Chosen
from bfcviz.live.torch import torch_api
from bfcviz.live.torch.history import DeviceHistory, Recorder

MOST_TIME: Final = 0.02
"""Of the program's time, for readings."""

_LOST: Final = (
    "entries of PyTorch's history were missed: they were overwritten, or to read them would have cost the program too "
    "much of its time (most_time, max_entries); the state after them was used instead, so what came and went meanwhile "
    "is not recorded"
)


class TorchObserved(HeapProvider):
    """What `observe_torch` returns; observes devices within a `with`.

    All of a process read one history. A history of other code is read as it is: never changed, cleared or ended.

    Attributes:
        way: `observe`.
        devices: the history of each device.
        max_entries: of each device, that PyTorch keeps.
        wants_stacks: whether it keeps Python's stacks.
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
        most_time: float = MOST_TIME,
        lost: Callable[[str], object] | None = None,
    ) -> None:
        self.devices: list[DeviceHistory] = []
        self.max_entries = max_entries
        self.wants_stacks = capture == "stack"
        self._log: EventLog | None = log
        self._labels = labels
        self._capture = capture
        self._named = None if devices is None else list(devices)
        self._most_time = most_time
        self._recorder: Recorder | None = None
        self._is_theirs = False
        self._lost = lost
        self._polling = Polling(self._read_if_due, every_s, "bfcviz-torch")

    @property
    def description(self) -> str:
        """The way, and what it means."""
        text = (
            "PyTorch is observed: it keeps its own allocator, whose history is read at intervals; splits and merges "
            "are derived from its blocks"
        )
        if self._is_theirs or (self._recorder is not None and self.is_active and not self._recorder.is_ours):
            text += (
                ". The history was turned on by other code: bfcviz reads it and does not change, clear or end it, so "
                "its length, its stacks and the cost of a reading are those of that code"
            )
        if lost := sum(device.lost for device in self.devices):
            text += (
                f". {lost} times entries were missed: they were overwritten, or to read them would have cost the "
                f"program more than {100 * self._most_time:.3g} % of its time; the state after them was used "
                "instead: give a larger most_time, or more max_entries"
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
        """Read the history now, whatever it costs."""
        if self._recorder is not None and self.is_active:
            self._recorder.read()
            self._tell_losses()

    def _start(self) -> None:
        torch = torch_api.torch_with_cuda("observed")
        torch_api.refuse_async(torch, "observed", "")
        torch_api.refuse_uncached("observed", "")
        torch.cuda.init()  # without it, PyTorch reads a history that does not exist yet
        if not hasattr(torch.cuda.memory, "_snapshot") or torch_api.backend(torch) == "pluggable":
            raise LiveError(
                f"PyTorch {torch.__version__} cannot be observed: its allocator has no history, because it was "
                "replaced or is older than 2.1"
            )
        if not self.devices:
            self._begin(torch)
        self._recorder = Recorder.of(torch)
        self._recorder.join(self)
        self._polling.start()

    def _stop(self, error: BaseException | None) -> None:
        recorder = cast("Recorder", self._recorder)
        self._polling.stop()
        try:
            self._polling.last(error, recorder.read)
        finally:
            self._is_theirs = not recorder.is_ours
            recorder.leave(self)
            self._tell_losses()

    def _read_if_due(self) -> None:
        cast("Recorder", self._recorder).read_if_due(self._most_time)
        self._tell_losses()

    def _tell_losses(self) -> None:
        """Say once, in the recording, that events are missing."""
        if self._lost is not None and any(device.lost for device in self.devices):
            self._lost(_LOST)
            self._lost = None

    def _begin(self, torch: Any) -> None:
        """Make a heap for each device, the current one first, and measure the offset of PyTorch's clock."""
        chosen = devices_in_order(self._named, torch.cuda.device_count(), torch.cuda.current_device())
        for device in chosen:
            log, self._log = self._log, None
            limit, total = torch_api.allowed_memory(torch, device), torch_api.total_memory(torch, device)
            name = f"torch cuda:{device}"
            heap = ObservedHeap(log, self._labels, name=name, limit=limit, unit=UNIT, device_total=total)
            now = time.time_ns()
            heap.mark(TORCH_OBSERVED)
            heap.settle()
            marked = int(heap.log.copy(heap.log.head - 1, heap.log.head)["time"][0])
            named = self._capture != "nothing"
            allowed = partial(torch_api.allowed_memory, torch, device)
            self.devices.append(DeviceHistory(heap, device, marked - now, named=named, limit=allowed))


def observe_torch(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.2,
    max_entries: int = 100_000,
    capture: Chosen = "stack",
    devices: Iterable[int] | None = None,
    most_time: float = MOST_TIME,
) -> TorchObserved:
    """Record PyTorch's own caching allocator within a `with`, through the history that it keeps; changes nothing.

    A thread reads the new entries of the history every `every_s` seconds, if that costs the program at most `most_time`
    of its time: an entry costs some 10 us, so 2 % are 1,000 allocations a second. For a busier program the state of all
    blocks is read every few seconds, and the entries before it are missed, but for those of a failed request and for
    the newest `max_entries` at the end; `description` says so.

    Args:
        log: receives the events of the first device; a recording includes its labels. Default, and for further devices:
            a ring in memory.
        labels: interns operation names and stacks.
        every_s: seconds between two readings.
        max_entries: events of each device that PyTorch keeps between two readings.
        capture: `stack`: PyTorch keeps Python's stack with every allocation, which also names it; `label`: the names
            are the metadata of torch.cuda.memory, if the program sets it; `nothing`: no names.
        devices: numbers of the devices to observe, such as `[rank]` with DistributedDataParallel. Default: all. No CUDA
            context is created on them.
        most_time: the most of the program's time that readings may take, above 0, up to 1: to miss nothing of a busy
            program give more.

    Raises:
        InvalidRequest: times or numbers that cannot be; on entering: a device that is not there.
        LiveError: `capture` is none of these; on entering: PyTorch is not there, sees no GPU, or tells no history.
    """
    if not 0 < every_s < 1 << 31 or max_entries < 1:
        raise InvalidRequest(
            f"every_s={every_s} and max_entries={max_entries} were given; give a time and a number above 0"
        )
    if not 0 < most_time <= 1:
        raise InvalidRequest(
            f"most_time={most_time} was given; give a share of the program's time, such as 0.02"
        )
    lost = log.add_reason if isinstance(log, Recording) else None
    log, labels = log_and_labels(log, labels)
    if capture not in ("nothing", "label", "stack"):
        raise LiveError(f"capture={capture!r} was given; choose nothing, label or stack")
    return TorchObserved(log, labels, every_s, max_entries, capture, devices, most_time, lost)
