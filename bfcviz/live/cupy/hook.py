"""What CuPy calls: CupyHook, its allocator while it is served; and HookReports, its memory hook while it is observed.

CupyHook passes each request to the heap of the current stream::

    cupy.empty -> serve -> CuPy's CFunctionAllocator -> malloc (C, cupy_functions.h) -> heap of (device, stream)
                     `-> stream_heaps.recover: no memory                 `-> stream_heaps.add_heap: a new stream
    last reference dropped -> free (C) -> the heap the memory came from
                                 `-> stream_heaps.defer: freed under another stream than its own

All of it runs in C, except for `serve` and the calls of `stream_heaps` (`CupyStreamHeaps`).

CuPy calls each memory hook four times for an array, and spends a third of the time of `cupy.empty` on that. So these
four are C functions, which write to the ledger of an observed heap; the rest is Python.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator
    from bfcviz.live.cupy import cupy_functions  # type: ignore[attr-defined]  # C: cupy_functions.pxd


class CupyHook:
    """Serves CuPy from heaps. It and the heaps live for as long as CuPy has any of their memory.

    Args:
        stream_heaps: called on rare paths; see `CupyStreamHeaps`.
        stream_of: address of the C function `intptr_t (int device)` that returns CuPy's current stream.
        labels: number of the label table (`labels.use`).
        walker: records Python stacks; None: no stacks.

    Attributes:
        malloc: CuPy's allocator around `functions`.
        plain: CuPy's previous allocator, which serves while this is not open.
        is_open: whether new requests are served; frees always are.
    """

    def __init__(self, stream_heaps: Any, stream_of: int, labels: int, walker: Any = None) -> None:
        self.stream_heaps = stream_heaps
        self.walker = walker
        self.malloc: Any = None
        self.plain: Any = None
        self.is_open = False
        self.gate = cupy_functions.new(self, stream_heaps, stream_of, labels, walker)

    def __dealloc__(self) -> None:
        cupy_functions.delete(self.gate)

    def serve(self, size: Any) -> Any:
        """CuPy's allocator: a MemoryPointer. CuPy does not check whether C returned NULL, so this does."""
        if not self.is_open:
            return self.plain(size)
        pointer = self.malloc(size)
        if pointer.ptr == 0 and size > 0:
            return self.stream_heaps.recover(self, size) if self.is_open else self.plain(size)
        return pointer

    def functions(self) -> tuple[Any, ...]:
        """For CuPy's allocators: param, malloc and free in C."""
        return cupy_functions.functions(self.gate)

    def add(self, allocator: "BFCAllocator", device: int, stream: int) -> None:
        """Serve a stream of a device from a heap."""
        cupy_functions.add(self.gate, allocator, device, stream)

    def move(self, device: int, old: int, stream: int) -> None:
        """Let the heap of a destroyed stream serve another stream."""
        cupy_functions.move(self.gate, device, old, stream)

    def stream(self, device: int) -> int:
        """CuPy's current stream: its handle; 0: the legacy default stream; negative: this thread's default stream."""
        return int(cupy_functions.stream(self.gate, device))

    def give_back(self, pointer: int, device: int, _stream: int) -> None:
        """Free memory of any of its heaps."""
        cupy_functions.give_back(self.gate, pointer, device)

    def count(self, _noted: int, held: int) -> None:
        """Set how many frees wait; at 0 a request does not check for them."""
        self.gate.held = held

    def return_regions(self, *, late: bool) -> None:
        """Set whether a free, late after the `with`, returns the regions that are wholly free then."""
        self.gate.late = late

    @property
    def out(self) -> int:
        """Chunks that CuPy has."""
        return int(self.gate.out)

    @property
    def inside(self) -> int:
        """Calls of CuPy that are running, in all threads."""
        return int(self.gate.inside)

    def end(self) -> None:
        """Python exits: make no more Python calls, and free nothing."""
        self.is_open = False
        cupy_functions.end(self.gate)


class HookReports:
    """Reports what CuPy's memory hooks are told to the ledgers of observed heaps, in C.

    Calls of the object that observes, on rare paths: `allocated(device, address, size, requested, pooled)`,
    `freed(device, address)`, `settle_heaps()`, and after some allocations `look()`.

    Args:
        stream_of: address of the C function `intptr_t (int device)` that returns CuPy's current stream.
        device_of: address of the C function `int (int)` that returns the current device; its argument is 0.
            0: there is one device.
        labels: number of the label table (`labels.use`).
        walker: records Python stacks; None: no stacks.
    """

    def __init__(self, stream_of: int, device_of: int, labels: int, walker: Any = None) -> None:
        self.watch = cupy_functions.watch(stream_of, device_of, labels, walker)

    def methods(self) -> dict[str, Any]:
        """The methods of a memory hook that C answers, by name."""
        methods: dict[str, Any] = cupy_functions.methods(self.watch)
        return methods

    def open(self, observed: Any) -> None:
        """Report to the heaps of `observed` from now on, and keep it; None: report nothing."""
        cupy_functions.watch_open(self.watch, observed)

    def add(self, device: int, reports: object) -> None:
        """Report the allocations of a device to `ObservedHeap.reports`."""
        cupy_functions.watch_add(self.watch, device, reports)

    def number(self, stream: int, number: int) -> None:
        """Give a stream its number, in order: 1, 2, ..."""
        cupy_functions.watch_stream(self.watch, stream, number)

    def grants(self, by: int) -> None:
        """Change the count of allocations that are getting memory from the driver: Python reports these."""
        cupy_functions.watch_grants(self.watch, by)
