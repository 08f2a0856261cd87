"""Handler: what NumPy holds in place of its own memory functions, for as long as any array came from them."""

from typing import TYPE_CHECKING, NamedTuple

from bfcviz.live.capture.stack_walker import Walker

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator
    from bfcviz.live.numpy import numpy_functions  # type: ignore[attr-defined]  # C: gate.pxd


class Failure(NamedTuple):
    """The last request answered with NULL, and the heap just after it; all but `number` in bytes."""

    number: int
    requested: int
    pool: int
    in_use: int
    largest_free_chunk: int


class Handler:
    """Passes NumPy's requests to a heap, and its frees to whose the memory is. Closed, until `is_open` is set.

    Args:
        allocator: kept alive, with its memory, by every capsule and so by every array.
        plain: address of NumPy's own handler, for what is not served.
        small: requests of fewer bytes are left to NumPy itself.
        labels: number of the table its labels are in (`labels.use`), 0 where none are wanted.
        walker: turns a label into that of label and stack, None where no stacks are wanted.
    """

    def __init__(
        self, allocator: "BFCAllocator", plain: int, small: int, labels: int, walker: Walker | None = None
    ) -> None:
        self.allocator = allocator
        self.walker = walker
        self.gate = numpy_functions.new(allocator, plain, small, labels, walker)

    def __dealloc__(self) -> None:
        numpy_functions.delete(self.gate)

    def capsule(self) -> object:
        """A capsule for PyDataMem_SetHandler."""
        return numpy_functions.capsule(self.gate, self)

    @property
    def is_open(self) -> bool:
        """Whether new requests are served; frees are at all times."""
        return bool(self.gate.is_open)

    @is_open.setter
    def is_open(self, wanted: bool) -> None:
        self.gate.is_open = wanted

    def settle(self) -> None:
        """Carry out frees that were put off, if there are any."""
        numpy_functions.settle(self.gate)

    @property
    def passed(self) -> int:
        """Requests left to NumPy itself while this was open: the small ones, and a forked process's."""
        return self.gate.passed

    def failure(self) -> Failure | None:
        """The last request that failed, None while none has."""
        last = Failure(*numpy_functions.failure(self.gate))
        return last if last.number > 0 else None


def set_label(value: int) -> None:
    """Label this thread's allocations from now on: number of the table * 2^32 + number of the label."""
    numpy_functions.set_label(value)
