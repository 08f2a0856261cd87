"""RmmCallbacks: record RMM's requests by callbacks, which pass each to RMM's own resource and name its line of code.

::

    rmm.DeviceBuffer -> CallbackMemoryResource (C++) -> Forwarder.allocate -> RMM's own resource
                                                                 `-> DeviceRequests.allocated -> ObservedHeap

Buffers outlive the `with`. C++ keeps bare pointers to the callbacks, so these live forever. The resource of RMM lives
only as long as RMM or a buffer needs it: it may be a pool, which holds the memory of a GPU.
"""

from itertools import count
from typing import Any, Final
from weakref import ref

from bfcviz.errors import OutOfMemory
from bfcviz.live.capture.stacks import Capture
from bfcviz.live.common.observed_heap import ObservedHeap
from bfcviz.live.rmm.rmm_api import Rmm, number_of
from bfcviz.live.rmm.uninterrupted_call import UninterruptedCall

_kept: Final[list[Any]] = []
"""The callbacks of all resources. C++ has bare pointers to them, and does not say when it drops the last one."""


class DeviceRequests:
    """Records the requests of one device. Nothing is raised: the program must go on, so errors are counted.

    Args:
        heap: receives the events.
        capture: what is recorded with each allocation.

    Attributes:
        forwarder: reports the requests; None: nothing is observed now.
        failure: the numbers of the last failed request; None: none failed.
        lost: number of requests that could not be recorded.
        reason: why the first of them could not.
        tells_streams: whether RMM tells the handles of streams, as it does from 25.12 on.
    """

    def __init__(self, heap: ObservedHeap, capture: Capture) -> None:
        self.heap = heap
        self.forwarder: Forwarder | None = None
        self.failure: OutOfMemory | None = None
        self.lost = 0
        self.reason = ""
        self.tells_streams = True
        self._capture = capture
        self._streams = {0: 0}
        self._next_stream = count(1)
        self._freed_outside: list[int] = []

    def open(self, forwarder: "Forwarder") -> None:
        """Record what a forwarder reports, first the frees since the last `with`."""
        while self._freed_outside:
            self.heap.free(self._freed_outside.pop())
        self.forwarder = forwarder

    def close(self) -> None:
        """Record no more."""
        self.forwarder = None
        self.heap.settle()

    def allocated(self, address: int, num_bytes: int, stream: Any) -> bool:
        """Record an allocation; returns whether it could be."""
        try:
            label = self._capture.number()
            self.heap.allocate(address, num_bytes, num_bytes, label, self._number_of(stream))
        except Exception as error:  # noqa: BLE001  for example a full disk
            self.lose(error)
            return False
        return True

    def freed(self, address: int) -> None:
        """Record a free; outside of the `with`, keep it for the next one."""
        if self.forwarder is None:
            self._freed_outside.append(address)
            return
        try:
            self.heap.free(address)
        except Exception as error:  # noqa: BLE001
            self.lose(error)

    def failed(self, num_bytes: int, stream: Any) -> None:
        """Record a request for which there was no memory."""
        try:
            self.heap.oom(num_bytes, self._capture.number(), self._number_of(stream))
            self.failure = OutOfMemory.of(num_bytes, self.heap.stats())
        except Exception as error:  # noqa: BLE001
            self.lose(error)

    def _number_of(self, stream: Any) -> int:
        """A stream's number, in order of first use; 0: the default stream. All others are 1 if RMM tells no handles."""
        self.tells_streams = hasattr(stream, "__cuda_stream__")
        if not self.tells_streams:
            return 0 if stream.is_default() else 1
        handle = number_of(stream)
        if handle not in self._streams:
            self._streams[handle] = min(next(self._next_stream), 0xFFFF)
        return self._streams[handle]

    def lose(self, error: Exception) -> None:
        """Count a request that could not be recorded."""
        self.lost += 1
        self.reason = self.reason or f"{type(error).__name__}: {error}"


class Forwarder:
    """The callbacks of one resource: passes requests to RMM's own resource, and reports them.

    Args:
        rmm: RMM.
        device: number of the device.
        requests: receives the reports while this is its forwarder. It is not kept alive, nor the heap with its log.
    """

    def __init__(self, rmm: Rmm, device: int, requests: DeviceRequests) -> None:
        self._rmm = rmm
        self._device = device
        self._requests = ref(requests)
        self._resource: ref[Any] | None = None
        # By address: the resource and the one below, which so live as long as the memory; whether it was recorded.
        self._out: dict[int, tuple[Any, Any, bool]] = {}

    def resource(self, kind: Any, upstream: Any) -> Any:
        """Make the resource, of class `kind`, around `upstream`; call it once."""
        callbacks = (UninterruptedCall(self.allocate), UninterruptedCall(self.free))
        _kept.append(callbacks)
        made = kind(*callbacks)
        made.upstream = upstream
        self._resource = ref(made)
        return made

    def allocate(self, num_bytes: int, stream: Any) -> int:
        """Allocate from RMM's own resource; what it raises is raised."""
        resource, upstream = self._in_use()
        requests = self._open_requests()
        try:
            address = int(upstream.allocate(num_bytes, stream))
        except MemoryError:
            if requests is not None:
                requests.failed(num_bytes, stream)
            raise
        if address and num_bytes:
            is_recorded = requests is not None and requests.allocated(address, num_bytes, stream)
            self._out[address] = (resource, upstream, is_recorded)
        return address

    def free(self, address: int, num_bytes: int, stream: Any) -> None:
        """Free to RMM's own resource. It raises nothing: the calling C++ accepts no exception here."""
        try:
            found = self._out.pop(address, None)
            _, upstream, is_recorded = (*self._in_use(), False) if found is None else found
            # The heap counts an address that it does not know.
            requests = self._requests() if is_recorded else self._open_requests() if found is None else None
            if requests is not None:  # before it is free: another thread may get the address
                requests.freed(address)
            upstream.deallocate(address, num_bytes, stream)
        except Exception as error:  # noqa: BLE001
            if (requests := self._requests()) is not None:
                requests.lose(error)

    def _open_requests(self) -> DeviceRequests | None:
        """Where to report an allocation; None: nowhere."""
        requests = self._requests()
        return requests if requests is not None and requests.forwarder is self else None

    def _in_use(self) -> tuple[Any, Any]:
        """The resource and the one below. If RMM has dropped both, C++ still has a copy: then the device's own one."""
        resource = None if self._resource is None else self._resource()
        if resource is None:
            return None, self._rmm.mr.get_per_device_resource(self._device)
        return resource, resource.upstream


class RmmCallbacks:
    """Observes RMM through a callback for each request, with the line of code or label.

    Args:
        rmm: RMM.
        capture: what is recorded with each allocation.

    Attributes:
        devices: what is recorded of each device.
    """

    def __init__(self, rmm: Rmm, capture: Capture) -> None:
        self.devices: dict[int, DeviceRequests] = {}
        self._rmm = rmm
        self._capture = capture
        self._resource = _resource_class(rmm.mr)
        self._forwarders: dict[int, Forwarder] = {}

    @property
    def description(self) -> str:
        """How it records."""
        return (
            "Python records every request, which takes some microseconds; mechanism='log' takes less"
            f"{self._capture.note}"
        )

    @property
    def problem(self) -> str:
        """How many requests could not be recorded, and why; whether streams are unknown; empty: nothing is missing."""
        found, devices = [], self.devices.values()
        if reasons := [each.reason for each in devices if each.lost]:
            lost = sum(each.lost for each in devices)
            found.append(f"Requests that could not be recorded: {lost}, the first because of {reasons[0]}")
        if not all(each.tells_streams for each in devices):
            found.append("RMM tells streams apart from 25.12 on: all but the default stream are stream 1")
        return ". ".join(found)

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the first device that had one; None: no failure."""
        return next((each.failure for each in self.devices.values() if each.failure is not None), None)

    def around(self, device: int, upstream: Any, heap: ObservedHeap) -> Any:
        """Make a resource that calls Python and then `upstream`."""
        requests = self.devices.get(device) or self.devices.setdefault(
            device, DeviceRequests(heap, self._capture)
        )
        forwarder = self._forwarders[device] = Forwarder(self._rmm, device, requests)
        return forwarder.resource(self._resource, upstream)

    def begin(self) -> None:
        """Record from now on."""
        self._capture.use()
        for device, forwarder in self._forwarders.items():
            self.devices[device].open(forwarder)

    def settle(self) -> None:
        """Wait until all reports are in the logs."""
        for requests in self.devices.values():
            requests.heap.settle()

    def end(self, _error: BaseException | None) -> None:
        """Record no more; requests are still passed."""
        self._forwarders.clear()
        for requests in self.devices.values():
            requests.close()


def _resource_class(mr: Any) -> Any:
    """A subclass of RMM's resource with a Python attribute for the one below it, and weak references."""

    class Resource(mr.CallbackMemoryResource):  # type: ignore[misc]
        upstream: Any = None

    return Resource
