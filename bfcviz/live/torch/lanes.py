"""Lanes: the heaps behind PyTorch's allocator functions, one for each stream of each device.

::

    alloc(size, device, stream) -> the lane of (device, stream) -> its heap       no Python runs
                                 `-> a spare lane of the device, if the stream is new
                                      `-> none left: Python is asked for more

Memory in use on one stream never goes to another, for each has its own heap: what is freed there is used again there,
in the stream's own order.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator
    from bfcviz.live.torch import torch_functions  # type: ignore[attr-defined]  # C: pluggable.pxd


class Lane(NamedTuple):
    """A heap in use; `failure` is its last: number (0: none), then requested, pool, in use, largest free, in bytes."""

    allocator: "BFCAllocator"
    device: int
    stream: int
    failure: tuple[int, int, int, int, int]


class Lanes:
    """The lanes of one service; they stay with the process, for memory of theirs may be freed at any time.

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
        """A spare lane, for the next stream of the device that comes."""
        torch_functions.add(allocator, device, self.service, self.labels)

    def thrower(self, parts: tuple[int, ...]) -> int:
        """Address of a C function that throws PyTorch's own error.

        Args:
            parts: addresses of what that takes, in the order of `torch_api.OWN_ERROR`.
        """
        return torch_functions.thrower(parts)

    def serve(self, thrower: int, keeper: Any) -> None:
        """Serve new requests from here on.

        Args:
            thrower: address of a `void (*)(const char *)` that throws a C++ exception where memory runs out; 0: the
                request is answered with NULL.
            keeper: what is asked on rare paths; see `keeper.Keeper`.
        """
        torch_functions.serve(self.service, thrower, keeper)

    def stop(self, keeper: Any) -> None:
        """Serve nothing new; what is freed still comes back."""
        torch_functions.serve(0, 0, keeper)

    def in_use(self) -> list[Lane]:
        """Those that a stream has taken, in the order they were added."""
        rows = torch_functions.lanes_of(self.service)
        return [Lane(row[0], row[1], row[3], (row[4], *row[5])) for row in reversed(rows) if row[2]]

    def give_back(self, pointer: int, device: int, stream: int) -> None:
        """Free memory of any lane."""
        torch_functions.give_back(pointer, device, stream)

    def count(self, noted: int, held: int) -> None:
        """How many addresses further streams read, and how many frees wait for them: at 0 and 0 no Python runs."""
        torch_functions.count(noted, held)

    def end(self) -> None:
        """Python ends: no other thread runs Python in the functions from here on, as that would abort the process.

        Where a C++ exception is thrown, for a replaced allocator, requests of other threads wait for the end of the
        process; else they are refused. What they free and other streams may read stays in use.
        """
        torch_functions.end()
