"""observe_cupy: record what CuPy's own memory pools do, through CuPy's memory hooks.

::

    with observe_cupy() as observed:                      # changes nothing
        train()
"""

from typing import Any

from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Chosen, Stacks
from bfcviz.live.cupy import api
from bfcviz.live.numpy.threads import Inheritance
from bfcviz.live.observed.heap import ObservedHeap, log_and_labels
from bfcviz.live.shared.heap_provider import HeapProvider


class CupyObserved(HeapProvider):
    """What `observe_cupy` returns: as a context manager it observes this thread, and threads begun in it.

    CuPy calls the hooks of the thread that acts, so what threads do that were there before is not seen. Nor is it told
    when a pool gives memory back to the driver: that is concluded when the driver grants the same addresses again.
    Frees of arrays from before, or from such a thread, are counted in the heaps' `inconsistencies`.

    Attributes:
        way: how CuPy is watched.
    """

    way = "observe"
    title = "CuPy"

    def __init__(self, cuda: api.Cuda, log: EventLog, capture: Capture) -> None:
        self.labels = capture.labels
        self._capture = capture
        self._cuda = cuda
        self._log: EventLog | None = log
        self._heaps: dict[int, ObservedHeap] = {}
        self._streams: dict[int, int] = {}
        self._failure: OutOfMemory | None = None
        self._is_open = False
        self._hook = _hook_class(cuda.cupy)(self)
        self._inheritance = Inheritance(lambda: self._is_open, self._observe_thread)
        self.heap(cuda.device())

    @property
    def says(self) -> str:
        """How CuPy is watched, in words."""
        seen = (
            "CuPy is observed: its own pool serves it, and what this thread, and threads begun here, do with it is "
            "recorded; threads that run already are not seen, nor what the pool gives back to the driver"
        )
        if self._cuda.has_pool():
            return seen
        return f"{seen}. But CuPy's allocator is no method of a memory pool now, and only of pools is anything told"

    @property
    def heaps(self) -> list[ObservedHeap]:
        """A heap for each device that came; more may come."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last request that failed, None if none has."""
        return self._failure

    def settle(self) -> None:
        """Wait until all that was reported is recorded."""
        for heap in self.heaps:
            heap.settle()

    def _start(self) -> None:
        self._capture.use()
        self._observe_thread()
        self._is_open = True
        self._inheritance.begin()

    def _stop(self, _error: BaseException | None) -> None:
        self._is_open = False  # in threads that go on, the hook stays, and tells nothing
        self._inheritance.end()
        self._hook.__exit__()
        self.settle()

    # -- what the hooks tell ------------------------------------------------------------------------------------

    def heap(self, device: int) -> ObservedHeap:
        """What is known of a device."""
        if device not in self._heaps:
            log, self._log = self._log, None
            limit = self._cuda.total_memory(device)
            made = ObservedHeap(log, self.labels, name=f"cupy:{device}", limit=limit)
            self._heaps.setdefault(device, made)  # another thread may have been faster
        return self._heaps[device]

    def device(self) -> int:
        """Number of the device that is current in this thread."""
        return self._cuda.device()

    def granted(self, device: int, address: int, size: int) -> None:
        """A pool got memory from the driver."""
        if self._is_open and address:
            self.heap(device).grant(address, size)

    def allocated(self, device: int, address: int, size: int, requested: int) -> None:
        """A pool served a request; address 0: it could not."""
        if not self._is_open or requested == 0:
            return
        heap, label = self.heap(device), self._capture.number()
        if address:
            heap.allocate(address, size, requested, label, self._stream(device))
        else:
            heap.oom(requested, label, self._stream(device))
            self._failure = OutOfMemory.of(requested, heap.stats(), rounded=(requested + 511) // 512 * 512)

    def freed(self, device: int, address: int) -> None:
        """A pool takes memory back."""
        if self._is_open:
            self.heap(device).free(address)

    def _stream(self, device: int) -> int:
        """The current stream's number, in the order they came; 0 the default one."""
        handle = int(self._cuda.stream_handle(device))
        return self._streams.setdefault(handle, len(self._streams) + 1) & 0xFFFF if handle else 0

    def _observe_thread(self) -> None:
        try:
            self._hook.__enter__()
        except KeyError as error:
            raise LiveError(
                f"CuPy has a memory hook named {self._hook.name!r} in this thread already"
            ) from error


def _hook_class(cupy: Any) -> Any:
    """A MemoryHook, whose base only CuPy has. It is told of a free before the pool can hand the memory out again.

    A pool allocates on the current device, but CuPy 14 tells hooks another: the one that was current when the pools of
    all devices were made. Of a free it tells the device of the memory.
    """

    class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "bfcviz"

        def __init__(self, told: CupyObserved) -> None:
            self.told = told

        def alloc_postprocess(self, *, mem_size: int, mem_ptr: int, **_: Any) -> None:
            self.told.granted(self.told.device(), mem_ptr, mem_size)

        def malloc_postprocess(self, *, size: int, mem_size: int, mem_ptr: int, **_: Any) -> None:
            self.told.allocated(self.told.device(), mem_ptr, mem_size, size)

        def free_preprocess(self, *, device_id: int, mem_ptr: int, **_: Any) -> None:
            self.told.freed(device_id, mem_ptr)

    return Hook


def observe_cupy(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    capture: Chosen | Stacks = "label",
) -> CupyObserved:
    """Record what CuPy's own memory pools do, for the length of a `with`, and change nothing; see `CupyObserved`.

    Args:
        log: where the events of the device that is current now go; a recording brings its labels along. Other devices
            have rings in memory.
        labels: where the names that `labels.label` gives are interned.
        capture: what is recorded with each allocation, as `serve_cupy` has it.

    Raises:
        MissingExtra: CuPy is not installed.
        LiveError: it has no GPU, no driver or the wrong build, or `capture` is none of these, or a stack where bfcviz
            is not compiled.
    """
    logs, table = log_and_labels(log, labels)
    return CupyObserved(api.Cuda("observed"), logs, api.capture_of(table, capture))
