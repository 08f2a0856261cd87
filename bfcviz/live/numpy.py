"""serve_numpy: NumPy's arrays on an instrumented heap of host memory.

An array keeps the handler that allocated it alive, and with it the heap and its memory: after the `with`, in other
threads, until Python exits. Addresses tell which memory belongs to the heap; all other memory goes to NumPy.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.errors import InvalidRequest, OutOfMemory, OutOfMemoryTotals
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live import memory_limits
from bfcviz.live.c_callbacks import NumpyHandler
from bfcviz.live.heap_provider import HeapProvider, ThreadStartHook
from bfcviz.live.served_heap import OPTIONS, ServedHeap, require_compiled
from bfcviz.live.stack_capture import Capture, Captured
from bfcviz.units import format_bytes, parse_bytes

# ------------------------------------------------------------------------------
# NumPy's C functions for memory handlers (NEP 49), called through its exported table: needs no headers.

# Indices in the table, fixed by NumPy's ABI since 1.22: numpy/_core/code_generators/numpy_api.py
_SET_HANDLER, _GET_HANDLER, _DEFAULT_HANDLER = 304, 305, 306


@cache
def _numpy_api_table() -> Any:
    """NumPy's own C functions, which serve_numpy calls to change what serves new arrays."""
    umath = import_module("numpy._core._multiarray_umath")
    pointer = capsule_pointer(umath._ARRAY_API, None)  # noqa: SLF001  what C extensions read
    return ctypes.cast(pointer, ctypes.POINTER(ctypes.c_void_p))


def capsule_pointer(capsule: object, name: bytes | None) -> int:
    """The C pointer in a capsule of NumPy's of this name."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(capsule, name))


def set_handler(capsule: object) -> object:
    """Set NumPy's memory handler, which serves this context's new arrays; returns the capsule of the previous one."""
    function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_numpy_api_table()[_SET_HANDLER])
    return function(capsule)


def get_handler() -> object:
    """The capsule of NumPy's memory handler, which serves this context's new arrays."""
    return ctypes.PYFUNCTYPE(ctypes.py_object)(_numpy_api_table()[_GET_HANDLER])()


def default_handler() -> object:
    """The capsule of NumPy's initial memory handler, which serves arrays outside of serve_numpy and never ends."""
    return ctypes.cast(_numpy_api_table()[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object)).contents.value


def address_of(capsule: object) -> int:
    """The address of the C struct of a memory handler of NumPy's."""
    return capsule_pointer(capsule, b"mem_handler")


# ------------------------------------------------------------------------------
# serve_numpy: NumPy's arrays on an instrumented heap of host memory.


class NumpyHeap(ServedHeap):
    """The heap behind NumPy's arrays."""

    users = "NumPy arrays"
    advice = "leave serve_numpy's `with` and drop them first; without arrays the heap closes automatically"


class NumpyServed(HeapProvider):
    """What `serve_numpy` returns. As a context manager it serves this context, and threads and tasks started in it.

    It can be entered again, and continues with the same heap.
    """

    way = "serve"
    title = "NumPy"

    def __init__(self, allocator: NumpyHeap, small: int, capture: Capture) -> None:
        self.allocator = allocator  # the heap, with its log, labels and statistics
        self.capture = capture  # what is recorded with each allocation
        plain = address_of(default_handler())
        self._handler = NumpyHandler(allocator, plain, small, capture.use(), capture.walker)
        self._capsule = self._handler.capsule()
        # These reference the capsule only: a cycle to this object would keep the memory until a garbage collection.
        self._thread_start = ThreadStartHook(
            partial(_is_current_handler, self._capsule), partial(set_handler, self._capsule)
        )
        self._previous: object = None
        self._failures = 0

    @property
    def heaps(self) -> list[NumpyHeap]:
        """The heap of NumPy's arrays; `LiveDashboard` can watch it."""
        return [self.allocator]

    @property
    def description(self) -> str:
        """How NumPy is served, and what that means, as a sentence."""
        text = (
            f"NumPy is served: new arrays come from bfcviz's heap of at most {format_bytes(self.allocator.limit)}; "
            "every split, merge and extension is recorded"
        )
        if unfit := self._handler.unfit:
            text += (
                f". The heap was full: NumPy itself served {unfit:,} arrays of at most 256 bytes, unrecorded"
            )
        return text

    @property
    def left_to_numpy(self) -> int:
        """NumPy's requests not served meanwhile: below `small`, of a fork, or at most 256 bytes in a full heap."""
        return self._handler.passed

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of NumPy's last MemoryError; None: there was none. The heap may have changed since."""
        failure = self._handler.failure()
        if failure is None:
            return None
        limit = self.allocator.limit
        totals = OutOfMemoryTotals(failure.pool, failure.in_use, failure.largest_free_chunk, limit)
        return OutOfMemory.of(failure.requested, totals)

    def settle(self) -> None:
        """Carry out NumPy's deferred frees."""
        self._handler.settle()

    def watch_here(self) -> None:
        """Also serve NumPy in this context, and threads and tasks started in it; until the `with` ends."""
        if self.is_active:
            set_handler(self._capsule)

    def _start(self) -> None:
        self.capture.use()
        last = self._handler.failure()
        self._failures = last.number if last else 0
        self.allocator.is_serving = self._handler.is_open = True
        self._previous = set_handler(self._capsule)
        self._thread_start.begin()

    def _stop(self, error: BaseException | None) -> None:
        self._thread_start.end()
        if _is_current_handler(self._capsule):
            set_handler(self._previous)
        self._previous = None
        self.allocator.is_serving = self._handler.is_open = False
        self.settle()
        last = self._handler.failure()
        if isinstance(error, MemoryError) and last is not None and last.number > self._failures:
            error.add_note(f"bfcviz, of the heap NumPy was served from: {self.out_of_memory}")


@contextmanager
def unserved() -> Iterator[None]:
    """Use NumPy's own memory in this context, and in threads started here: for the code that watches."""
    previous = set_handler(default_handler())
    try:
        yield
    finally:
        set_handler(previous)


def _is_current_handler(capsule: object) -> bool:
    """Whether this context's new arrays are served by this handler of NumPy's."""
    return get_handler() is capsule


def serve_numpy(
    limit: int | str | None = None,
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    small: int | str = 0,
    capture: Captured = None,
    options: AllocatorOptions = OPTIONS,
) -> NumpyServed:
    """Allocate NumPy's new arrays from an instrumented heap, within a `with`.

    ::

        with serve_numpy("512MiB", log=recording) as served:
            train()
        served.allocator.stats()

    It also serves threads started inside by `threading`, and asyncio tasks started inside; other processes it does not.
    It needs the compiled build of bfcviz.

    Args:
        limit: of the heap, in bytes or as text; beyond it NumPy raises MemoryError, but for
            arrays of at most 256 bytes, which NumPy itself then serves, unrecorded. Default: what is available now,
            less an eighth of the machine's memory (`memory_limits.default_limit`).
        log: receives the events; a recording includes its labels. Default: a ring in memory.
        labels: interns the names of `labels_and_marks.label`.
        small: NumPy itself serves smaller requests, in bytes or as text, unrecorded.
        capture: `nothing`, `label`, `stack` or `Stacks` with options; default: the stack, or the label if uncompiled.
        options: the options of the heap.

    Raises:
        InvalidRequest: the limit or `small` is out of range.
        ValueError: a text is not a size.
        LiveError: bfcviz is not compiled; `capture` is none of these; on entering: NumPy is served already.
    """
    require_compiled("Serving NumPy")
    least = parse_bytes(small, "small")
    if not 0 <= least < 1 << 62:
        raise InvalidRequest(f"small={small} was given; give a number of bytes from 0 to 2^62")
    if isinstance(log, Recording):
        labels = log.labels if labels is None else labels
        log = log.log
    allocator = NumpyHeap(
        HostSubAllocator(keep_available=memory_limits.reserve()),
        memory_limits.default_limit() if limit is None else parse_bytes(limit, "limit"),
        options,
        name="numpy",
        log=log,
        labels=labels,
    )
    return NumpyServed(allocator, least, Capture(allocator.labels, capture))


def _forget_parent() -> None:
    """In a forked process: NumPy is served in the parent only; the child may be served by a heap of its own."""
    NumpyServed._active = ()  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_parent)
