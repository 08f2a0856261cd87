"""StreamTable: finds the heap behind PyTorch's allocator functions, one per stream of each device.

::

    alloc(size, device, stream) -> the heap of (device, stream)                no Python runs
                                 `-> a spare heap of the device, if the stream is new
                                      `-> no spare left: call Python (`DeferredFrees.add_heap`)
    free(address, device, stream) -> the heap that has it, also of an ended service
                                 `-> whose service ended: wake the thread in `late_frees`

Each stream has its own heap, so memory of one stream never goes to another. Freed memory is reused in its own stream,
in that stream's order.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator
    from bfcviz.live.torch import torch_functions  # type: ignore[attr-defined]  # C: torch_functions.pxd


class StreamHeap(NamedTuple):
    """A heap in the table of PyTorch's streams.

    Attributes:
        allocator: the heap.
        device: number of its device.
        stream: CUDA handle of its stream.
        failure: its last failed request: number (0: none), then requested, pool, in use, largest free, in bytes.
    """

    allocator: "BFCAllocator"
    device: int
    stream: int
    failure: tuple[int, int, int, int, int]


class StreamTable:
    """The heaps of one service, by stream. Tensors may outlive it: a heap stays until it is removed.

    Args:
        service: its number, from 1; one service at a time serves new requests.
        labels: number of the table its labels are in (`labels.use`).
    """

    def __init__(self, service: int, labels: int) -> None:
        self.service = service
        self.labels = labels

    def functions(self) -> tuple[int, int, int]:
        """Addresses of three C functions, the same for all services.

        `void *alloc(ssize_t size, int device, void *stream)`, `void free(void *, size_t, int device, void *stream)`,
        and `void record_stream(void *, void *stream)`.
        """
        return torch_functions.functions()

    def add(self, allocator: "BFCAllocator", device: int) -> None:
        """Add a spare heap for the next new stream of the device."""
        torch_functions.add(allocator, device, self.service, self.labels)

    def remove(self, allocator: "BFCAllocator") -> bool:
        """Forget a heap whose service ended, if PyTorch has no memory of it; returns whether it did."""
        return bool(torch_functions.remove(allocator))

    def late_frees(self) -> Iterator[None]:
        """Wait for frees of memory of ended services, of all tables; for one thread, which acts on each.

        The freeing thread waits until the next step of the iteration, for at most 0.3 s.
        """
        number = torch_functions.tidy_begin()
        try:
            yield
            while True:
                number = torch_functions.tidy_wait(number)
                yield
        finally:
            torch_functions.tidy_end()

    def thrower(self, parts: tuple[int, ...]) -> int:
        """Address of a C function that throws PyTorch's own error.

        Args:
            parts: addresses of the symbols it calls, in the order of `torch_api.OWN_ERROR`.
        """
        return torch_functions.thrower(parts)

    def serve(self, thrower: int, deferred: Any) -> None:
        """Serve new requests from now on.

        Args:
            thrower: address of a `void (*)(const char *)` that throws a C++ exception when memory runs out; 0: the
                request returns NULL.
            deferred: the Python object that the C functions call on rare paths (`DeferredFrees`).
        """
        torch_functions.serve(self.service, thrower, deferred)

    def stop(self, deferred: Any) -> None:
        """Serve no new requests; frees still reach the heaps."""
        torch_functions.serve(0, 0, deferred)

    def in_use(self) -> list[StreamHeap]:
        """The heaps that a stream uses, in the order they were added."""
        rows = torch_functions.heaps_of(self.service)
        return [StreamHeap(row[0], row[1], row[3], (row[4], *row[5])) for row in reversed(rows) if row[2]]

    def give_back(self, pointer: int, device: int, stream: int) -> None:
        """Free memory of any of the heaps."""
        torch_functions.give_back(pointer, device, stream)

    def count(self, noted: int, held: int) -> None:
        """Set how many addresses other streams read, and how many frees wait for them: at 0 and 0 no Python runs."""
        torch_functions.count(noted, held)

    def end(self) -> None:
        """Python exits: no other thread runs Python in the C functions from now on; that would abort the process.

        A replaced allocator throws C++ exceptions: there, requests of other threads wait for the end of the process.
        Elsewhere they fail. Memory that they free and that other streams may read stays in use.
        """
        torch_functions.end()
