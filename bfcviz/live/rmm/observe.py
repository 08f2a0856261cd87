"""observe_rmm: RMM keeps its own resources; record the requests to them, by callbacks or by RMM's log."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Captured
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.observed_heap import ObservedHeap, devices_in_order, log_and_labels
from bfcviz.live.rmm.log_lines import UNIT
from bfcviz.live.rmm.observe_by_callback import RmmCallbacks
from bfcviz.live.rmm.observe_by_log import RmmLogs
from bfcviz.live.rmm.rmm_api import HIDDEN, Rmm

EVERY_S = 0.1
"""Seconds between two readings of the log."""


class ObservationMechanism(Protocol):
    """Records the requests to a resource by a resource of its own around it."""

    @property
    def description(self) -> str:
        """How it records, as the second half of a sentence about RMM."""

    @property
    def problem(self) -> str:
        """What is not recorded and why, as a sentence without a full stop; empty: nothing is missing."""

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the first device that had one; None: no failure."""

    def around(self, device: int, upstream: Any, heap: ObservedHeap) -> Any:
        """Make the resource that takes the place of `upstream`; a heap receives its requests."""

    def begin(self) -> None:
        """Record from now on: all resources are in their places."""

    def settle(self) -> None:
        """Record what is deferred."""

    def end(self, error: BaseException | None) -> None:
        """Record no more; the devices have their own resources again. `error` ends the `with`."""


class RmmObserved(HeapProvider):
    """What `observe_rmm` returns; observes devices within a `with`.

    The memory of a device is asked for with the device current, which creates a context there (some 400 MiB). So it
    observes only the devices that were given, or else those that the process uses already.

    Attributes:
        way: `observe`.
        mechanism: records the requests.
    """

    way = "observe"
    title = "RMM"

    def __init__(
        self,
        rmm: Rmm,
        mechanism: ObservationMechanism,
        make: Callable[[int], ObservedHeap],
        devices: Iterable[int] | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._rmm = rmm
        self._make = make
        self._devices = None if devices is None else list(devices)
        self._unused: list[int] = []
        self._heaps: dict[int, ObservedHeap] = {}
        self._before: dict[int, Any] = {}
        self._placed: dict[int, Any] = {}

    @property
    def description(self) -> str:
        """The way, and what it means."""
        text = (
            f"RMM is observed: its resources stay, and {self.mechanism.description}. What RMM's pools allocate from "
            "CUDA is not recorded, so regions are the addresses seen in use"
        )
        if self._unused:
            text += (
                f". Device {', '.join(map(str, self._unused))} was not in use and is not observed: give devices to "
                "observe it from the start"
            )
        if words := "; ".join(filter(None, (heap.inconsistencies.words() for heap in self.heaps))):
            text += f". {words}"
        if problem := self.mechanism.problem:
            text += f". {problem}"
        return text

    @property
    def heaps(self) -> list[ObservedHeap]:
        """A heap for each device. The current device writes to the log that was given."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the first device that had one; None: no failure."""
        return self.mechanism.out_of_memory

    def settle(self) -> None:
        """Record what is deferred: the log is read now."""
        self.mechanism.settle()

    def _start(self) -> None:
        try:
            for device in self._choose():
                self._before[device] = before = self._rmm.mr.get_per_device_resource(device)
                heap = self._heaps.get(device) or self._heaps.setdefault(device, self._make(device))
                self._placed[device] = self.mechanism.around(device, before, heap)
            for device, placed in self._placed.items():
                self._rmm.mr.set_per_device_resource(device, placed)
            self.mechanism.begin()
        except BaseException as error:
            self._put_back()
            self.mechanism.end(error)
            raise

    def _stop(self, error: BaseException | None) -> None:
        self._put_back()
        self.mechanism.end(error)

    def _choose(self) -> list[int]:
        """Devices to observe, the current one first."""
        current = self._rmm.device()
        found = devices_in_order(self._devices, self._rmm.devices, current)
        if self._devices is None:
            self._unused = [each for each in found if each != current and not self._rmm.has_context(each)]
        return [each for each in found if each not in self._unused]

    def _put_back(self) -> None:
        """Restore each device's resource, unless other code has changed it since."""
        for device, placed in self._placed.items():
            if self._rmm.mr.get_per_device_resource(device) is placed:
                self._rmm.mr.set_per_device_resource(device, self._before[device])
        self._before.clear()
        self._placed.clear()


def observe_rmm(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    mechanism: Literal["callback", "log"] = "callback",
    capture: Captured = None,
    every_s: float | None = None,
    devices: Iterable[int] | None = None,
) -> RmmObserved:
    """Record the requests to RMM's own resources within a `with`, by a resource around them.

    `callback`: RMM calls Python for each request (CallbackMemoryResource), which records it at once, with its line of
    code; that takes Python's lock, and about 15 us for an allocation and its free. `log`: RMM writes a log
    (LoggingResourceAdaptor), which a thread reads; that costs about 2 us, and nothing has a name. Memory allocated
    before is unknown; if it is freed, that is counted, and `description` says so.

    Args:
        log: receives the events of the current device; a recording includes its labels. Other devices get rings in
            memory.
        labels: interns the names of `labels.label`.
        mechanism: `callback` or `log`; see above.
        capture: `nothing`, `label`, `stack` or `Stacks` with options; default: the stack, or the label if uncompiled.
            A log has none.
        every_s: seconds between two readings of the log; default: 0.1.
        devices: numbers of the devices to observe, such as `[rank]`; a context is created on each of them. Default: the
            devices in use when the `with` begins.

    Raises:
        LiveError: RMM is not installed or sees no GPU, `capture` is none of these, or a stack where bfcviz is not
            compiled; on entering: it is observed already.
        InvalidRequest: the mechanism is unknown, the time is out of range, or an option of the other mechanism is
            given; on entering: there is no such device.
    """
    _check(mechanism, capture, every_s)
    rmm = Rmm("observed")
    first: EventLog | None
    first, table = log_and_labels(log, labels)

    def make(device: int) -> ObservedHeap:
        nonlocal first
        given, first = first, None
        return ObservedHeap(given, table, name=f"rmm:{device}", limit=rmm.total_memory(device), unit=UNIT)

    if mechanism == "log":
        return RmmObserved(rmm, RmmLogs(rmm, EVERY_S if every_s is None else every_s), make, devices)
    return RmmObserved(rmm, RmmCallbacks(rmm, Capture(table, capture, hide=HIDDEN)), make, devices)


def _check(mechanism: str, capture: Captured, every_s: float | None) -> None:
    if mechanism not in ("callback", "log"):
        raise InvalidRequest(f"mechanism={mechanism!r} was given to observe RMM; give 'callback' or 'log'")
    if mechanism == "callback" and every_s is not None:
        raise InvalidRequest(
            f"every_s={every_s} was given, and callbacks record each request at once: remove it, or give "
            "mechanism='log', which is read at intervals"
        )
    if mechanism == "log" and capture not in (None, "nothing"):
        raise LiveError(
            f"capture={capture!r} was given, and RMM's log names no caller: remove it, or give mechanism='callback'"
        )
    if every_s is not None and not 0 < every_s < 1 << 31:
        raise InvalidRequest(f"every_s={every_s} was given; give a time above 0, in seconds")
