"""NumpyHandler: the memory handler (NEP 49) that NumPy calls; it lives as long as any of its arrays."""

from typing import TYPE_CHECKING, NamedTuple

from bfcviz.live.stack_walker import Walker

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator
    from bfcviz.live.numpy import numpy_functions  # type: ignore[attr-defined]  # C: numpy_functions.pxd


class FailedRequest(NamedTuple):
    """NumPy's last request that its handler answered with NULL, and the heap just after; all but `number` in bytes."""

    number: int
    requested: int
    pool: int
    in_use: int
    largest_free_chunk: int


class NumpyHandler:
    """Passes NumPy's requests to a heap, and its frees to the owner of the memory. Closed until `is_open` is set.

    Args:
        allocator: kept alive, with its memory, by every capsule and so by every array.
        plain: address of NumPy's own handler, for what is not served.
        small: smaller requests, in bytes, go to NumPy itself.
        labels: number of the label table (`labels.use`); 0: no labels.
        walker: turns a label into a label with a stack; None: no stacks.
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
        """Whether new requests are served; frees always are."""
        return bool(self.gate.is_open)

    @is_open.setter
    def is_open(self, wanted: bool) -> None:
        self.gate.is_open = wanted

    def settle(self) -> None:
        """Carry out the deferred frees, if there are any."""
        numpy_functions.settle(self.gate)

    @property
    def passed(self) -> int:
        """Requests that NumPy itself served while this was open: small ones, those of a forked process, and `unfit`."""
        return self.gate.passed

    @property
    def unfit(self) -> int:
        """Of these, requests of at most 256 bytes for which the heap had no room."""
        return self.gate.unfit

    def failure(self) -> FailedRequest | None:
        """The last request that failed; None: none has failed."""
        last = FailedRequest(*numpy_functions.failure(self.gate))
        return last if last.number > 0 else None


def label_words(context: object) -> tuple[int, int]:
    """For NumPy's handler, in a context: the word of the thread's state that points to it, and the next; 0, 0: none."""
    at, version = numpy_functions.label_words(context)
    return at, version


def begin_labels(variable: object, context_at: int) -> None:
    """Let NumPy's handler read labels from a ContextVar: its value is None, or a tuple that begins with a label.

    `context_at` is the word that `label_words` found; 0: unknown, then it is read at each allocation.
    """
    numpy_functions.begin_labels(variable, context_at)


def set_label(value: int) -> None:
    """Tell NumPy's handler the label of this context: number of the label table * 2^32 + number of the label."""
    numpy_functions.set_label(value)
