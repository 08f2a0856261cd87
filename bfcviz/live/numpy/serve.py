"""serve_numpy: NumPy's arrays live on an instrumented heap of host memory.

Arrays keep the handler that made them, and with it heap and memory, however long they live: after the `with`, in
other threads, until Python ends. Whether memory is the heap's is known by its address; what is not goes to NumPy.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.errors import InvalidRequest, OutOfMemory, PoolTotals
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Chosen, Stacks
from bfcviz.live.numpy import api
from bfcviz.live.numpy.handler import Handler
from bfcviz.live.numpy.threads import Inheritance
from bfcviz.live.shared import system_memory
from bfcviz.live.shared.compiled import require_compiled
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.live.shared.lent_heap import OPTIONS, LentHeap
from bfcviz.units import format_bytes, parse_bytes


class NumpyAllocator(LentHeap):
    """The heap behind the arrays."""

    users = "NumPy arrays"
    advice = "leave serve_numpy's `with` and drop them first; without arrays the heap closes by itself"


class Served(HeapProvider):
    """What `serve_numpy` returns. As a context manager it serves this context, and threads and tasks begun in it.

    It can be entered again, and goes on with the same heap.

    Attributes:
        allocator: the heap, with its log, labels and statistics.
        capture: what is recorded with each allocation.
        way: how NumPy is watched.
    """

    way = "serve"
    title = "NumPy"

    def __init__(self, allocator: NumpyAllocator, small: int, capture: Capture) -> None:
        self.allocator = allocator
        self.capture = capture
        plain = api.address_of(api.default_handler())
        self._handler = Handler(allocator, plain, small, capture.use(), capture.walker)
        self._capsule = self._handler.capsule()
        # Of the capsule alone: a cycle back to this object would keep the memory until garbage is collected.
        self._inheritance = Inheritance(
            partial(_is_here, self._capsule), partial(api.set_handler, self._capsule)
        )
        self._previous: object = None
        self._failures = 0

    @property
    def heaps(self) -> list[NumpyAllocator]:
        """What a `LiveDashboard` can watch: the heap."""
        return [self.allocator]

    @property
    def says(self) -> str:
        """How NumPy is watched, in words."""
        return (
            "NumPy is served: new arrays have their memory from bfcviz's own heap of at most "
            f"{format_bytes(self.allocator.limit)}, so every split, merge and extension is seen"
        )

    @property
    def left_to_numpy(self) -> int:
        """Requests that were not served though made meanwhile: smaller than `small`, or of a forked process."""
        return self._handler.passed

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers behind NumPy's last MemoryError, None if there was none; the heap may have changed since."""
        failure = self._handler.failure()
        if failure is None:
            return None
        limit = self.allocator.limit
        totals = PoolTotals(failure.pool, failure.in_use, failure.largest_free_chunk, limit)
        return OutOfMemory.of(failure.requested, totals)

    def settle(self) -> None:
        """Record frees that were put off."""
        self._handler.settle()

    def _start(self) -> None:
        self.capture.use()
        last = self._handler.failure()
        self._failures = last.number if last else 0
        self.allocator.is_serving = self._handler.is_open = True
        self._previous = api.set_handler(self._capsule)
        self._inheritance.begin()

    def _stop(self, error: BaseException | None) -> None:
        self._inheritance.end()
        if _is_here(self._capsule):
            api.set_handler(self._previous)
        self._previous = None
        self.allocator.is_serving = self._handler.is_open = False
        self.settle()
        last = self._handler.failure()
        if isinstance(error, MemoryError) and last is not None and last.number > self._failures:
            error.add_note(f"bfcviz, of the heap NumPy was served from: {self.out_of_memory}")


@contextmanager
def unserved() -> Iterator[None]:
    """NumPy's own memory in this context, and for threads begun here: for whoever watches, in the midst of it."""
    previous = api.set_handler(api.default_handler())
    try:
        yield
    finally:
        api.set_handler(previous)


def _is_here(capsule: object) -> bool:
    return api.get_handler() is capsule


def serve_numpy(
    limit: int | str | None = None,
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    small: int | str = 0,
    capture: Chosen | Stacks = "label",
    options: AllocatorOptions = OPTIONS,
) -> Served:
    """Let NumPy's new arrays have their memory from an instrumented heap, for the length of a `with`.

    ::

        with serve_numpy("512MiB", log=recording) as served:
            train()
        served.allocator.stats()

    Threads started inside by `threading`, and asyncio tasks begun inside, are served too; other processes are not.
    It needs the compiled build of bfcviz.

    Args:
        limit: of the heap, in bytes or as text; beyond it NumPy raises MemoryError. By default what
            is available now, less an eighth of the machine's memory (`system_memory.default_limit`).
        log: where events go; a recording brings its labels along. By default a ring in memory.
        labels: where the names that `labels.label` gives are interned.
        small: requests of less, in bytes or as text, are left to NumPy itself, unrecorded.
        capture: what is recorded with each allocation: `nothing`, `label`, `stack`, or `Stacks` that say which frames;
            see `bfcviz.live.capture.stacks` for what each costs.
        options: how the heap behaves.

    Raises:
        InvalidRequest: a limit or `small` that cannot be.
        ValueError: a text that is no size.
        LiveError: bfcviz is not compiled; `capture` is nothing of that; on entering: NumPy is served already.
    """
    require_compiled("Serving NumPy")
    least = parse_bytes(small, "small")
    if not 0 <= least < 1 << 62:
        raise InvalidRequest(f"small={small} was asked for; give a number of bytes from 0 to 2^62")
    if isinstance(log, Recording):
        labels = log.labels if labels is None else labels
        log = log.log
    allocator = NumpyAllocator(
        HostSubAllocator(keep_available=system_memory.reserve()),
        system_memory.default_limit() if limit is None else parse_bytes(limit, "limit"),
        options,
        name="numpy",
        log=log,
        labels=labels,
    )
    return Served(allocator, least, Capture(allocator.labels, capture))


def _forget_parent() -> None:
    """In a forked process: it is the parent that is served, the child may be by a heap of its own."""
    Served._active = ()  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_parent)
