"""serve_rmm: RMM's memory on instrumented heaps.

RMM serves cuDF and, where they are set up for it, CuPy (`rmm.allocators.cupy`) and PyTorch (`rmm.allocators.torch`).
The heaps hold the memory of all of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda.choice import Budget, Memory, cuda_sub_allocator
from bfcviz.errors import BfcvizError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Chosen, Stacks
from bfcviz.live.observed.heap import log_and_labels
from bfcviz.live.rmm.api import Rmm, handle_of
from bfcviz.live.rmm.stream_heaps import RmmDevice, RmmHeap
from bfcviz.live.shared.headroom import Share
from bfcviz.live.shared.heap_maker import Maker
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.live.shared.lent_heap import OPTIONS

_kept: list[Any] = []
"""What RMM holds bare pointers to, for as long as any buffer lives: for good."""


class RmmServed(HeapProvider):
    """What `serve_rmm` returns; serves all devices and threads for the length of a `with`, and can be entered again.

    Attributes:
        way: `serve`.
        labels: where names are interned.
    """

    way = "serve"
    title = "RMM"
    says: Final = (
        "RMM is served: its buffers, and those of whatever allocates through RMM, have their memory from "
        "bfcviz's heaps, one "
        "a stream; every request runs some Python"
    )

    def __init__(self, rmm: Rmm, make: Callable[[int, int], RmmHeap], capture: Capture) -> None:
        self.labels = capture.labels
        self._capture = capture
        self._rmm = rmm
        self._devices: dict[int, RmmDevice] = {}
        self._resources: dict[int, Any] = {}
        self._before: dict[int, Any] = {}
        current = rmm.device()
        for number in sorted(range(rmm.devices), key=lambda number: number != current):
            device = self._devices[number] = RmmDevice(number, rmm, partial(make, number), capture)
            self._resources[number] = rmm.mr.CallbackMemoryResource(device.allocate, device.free)
            _kept.append((device, self._resources[number]))
        self._devices[current].heap_of(0)

    @property
    def heaps(self) -> list[RmmHeap]:
        """A heap for each stream that came; more may come. The log that was given is the default stream's."""
        return [heap for device in self._devices.values() for heap in list(device.heaps.values())]

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last request that failed, on the first device where one has; None if none has."""
        return next((each.failure for each in self._devices.values() if each.failure is not None), None)

    def settle(self) -> None:
        """Carry out the frees that need not wait for other streams any more."""
        for device in self._devices.values():
            device.settle()

    def _start(self) -> None:
        self._capture.use()
        for device, resource in self._resources.items():
            self._before[device] = self._rmm.mr.get_per_device_resource(device)
            self._rmm.mr.set_per_device_resource(device, resource)

    def _stop(self, error: BaseException | None) -> None:
        for device, before in self._before.items():
            if self._rmm.mr.get_per_device_resource(device) is self._resources[device]:
                self._rmm.mr.set_per_device_resource(device, before)
        self._before.clear()
        try:
            self.settle()
        except BfcvizError:
            if error is None:
                raise


def serve_rmm(
    limit: int | str | None = None,
    *,
    fraction: float | None = None,
    headroom: int | str | None = None,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    memory: Memory = "device",
    capture: Chosen | Stacks = "label",
    options: AllocatorOptions = OPTIONS,
) -> RmmServed:
    """Let RMM's memory come from instrumented heaps, one a stream, for the length of a `with`.

    RMM calls Python for each request (CallbackMemoryResource), which NVIDIA means for finding faults, not for speed.
    Where memory runs out RMM raises MemoryError, with our numbers in its text.

    Args:
        limit: of each device's heaps together, in bytes or as text. By default all that is free when its first heap is
            made, less what TensorFlow leaves to CUDA's libraries and kernels too (see `headroom`).
        fraction: the limit as a share of all memory of the device; give at most one of the three.
        headroom: bytes, or text, to be left of what is free.
        log: where events of the default stream's heap go, on the device that is current now; a recording brings its
            labels along. Heaps of further streams have rings in memory.
        labels: where the names that `labels.label` gives are interned.
        memory: `device`, `managed`, `async` or `virtual`; see `sub_allocators.cuda`.
        capture: what is recorded with each allocation: `nothing`, `label`, `stack`, or `Stacks` that say which frames.
        options: how the heaps behave.

    Raises:
        LiveError: RMM is not there, sees no GPU or less memory than the limit; or, on entering, it is served already.
        InvalidRequest: a limit, fraction or headroom that cannot be, or several of them.
        ValueError: a limit that is no size.
    """
    share = Share.parse(limit, fraction, headroom)
    rmm = Rmm("served")
    logs, table = log_and_labels(log, labels)
    seen = Stacks(hide=("rmm", "cudf", "numpy")) if capture == "stack" else capture

    def source(device: int, stream: int, budget: Budget) -> SubAllocator:
        return cuda_sub_allocator(memory, device, handle_of(stream), budget=budget)

    def limit_of(device: int) -> int:
        return share.of(device, rmm.room(device), memory)

    make = Maker(RmmHeap, "rmm", source, limit_of, logs, table, options)
    return RmmServed(rmm, make, Capture(table, seen))
