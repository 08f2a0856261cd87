"""What frameworks call in C, as compiled objects: one for each framework that is served, and for its stacks.

The C functions are in the headers of this folder (`numpy_functions.h` ...), declared in the .pxd file of the same name.
They have no Python version: uncompiled, these classes can be imported and not made, except for `UninterruptedCall`.
"""

import ctypes
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from bfcviz import _interrupts

if TYPE_CHECKING:
    from bfcviz.allocator.bfc_allocator import BFCAllocator
    from bfcviz.live import (  # type: ignore[attr-defined]  # C: .pxd files
        cupy_functions,
        numpy_functions,
        stack_walk,
        torch_functions,
    )


# ------------------------------------------------------------------------------
# Walker: gives each Python stack a number; a callback names each new stack.


DEEPEST = 1024
"""The most frames of a stack that are walked."""

WALK_ON = (1 << 32) - 1
"""An answer of `name_stack`: ask again with more frames, if the stack has more."""

_FUNCTIONS = ("PyFrame_GetBack", "PyFrame_GetLasti")  # public, but not in every header


class Walker:
    """Walks the stack of the calling thread in a C callback; for a known stack that is the whole cost.

    Args:
        name_stack: takes a stack's innermost frame, the number of the current label and how many frames were compared;
            returns the number of both; 0: there is none now, ask again at the next allocation; or WALK_ON, but not
            where the stack ends there or DEEPEST frames were compared.
        depth: frames to compare, from the innermost; more after each WALK_ON.
        most: stacks to distinguish; further ones get their label alone.
    """

    def __init__(self, name_stack: Callable[[FrameType, int, int], int], depth: int, most: int) -> None:
        self.name_stack = name_stack
        api = tuple(
            ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _FUNCTIONS
        )
        self.walk = stack_walk.new(api, name_stack, depth, most)

    def __dealloc__(self) -> None:
        stack_walk.delete(self.walk)

    def number(self, label: int) -> int:
        """By the C callback: the number of this stack and a label; the label's own number if the stack has none."""
        return stack_walk.number(self.walk, label)

    def hook(self) -> tuple[int, int]:
        """Context and C function `uint32_t (*)(void *, uint32_t label)`, valid as long as this object."""
        return stack_walk.hook(self.walk)

    @property
    def stacks(self) -> int:
        """How many stacks of allocations the C callback distinguished."""
        return self.walk.count

    @property
    def missed(self) -> int:
        """The C callback's allocations without a stack: without the GIL, during an error, or beyond the most stacks."""
        return self.walk.missed


# ------------------------------------------------------------------------------
# NumpyHandler: the memory handler (NEP 49) that NumPy calls; it lives as long as any of its arrays.


class FailedRequest(NamedTuple):
    """NumPy's last request that its handler in C answered with NULL, and the heap just after; sizes in bytes."""

    number: int
    requested: int
    pool: int
    in_use: int
    largest_free_chunk: int


class NumpyHandler:
    """The C functions that NumPy calls: they pass its requests to a heap, and its frees to the owner of the memory.

    Closed until `is_open` is set.

    Args:
        allocator: kept alive, with its memory, by every capsule and so by every array.
        plain: address of NumPy's own handler, for what is not served.
        small: smaller requests, in bytes, go to NumPy itself.
        labels: number of the label table (`labels_and_marks.use`); 0: no labels.
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
        """The capsule of the C callbacks that are NumPy's handler, for PyDataMem_SetHandler."""
        return numpy_functions.capsule(self.gate, self)

    @property
    def is_open(self) -> bool:
        """Whether the C callbacks serve NumPy's new requests; frees always are."""
        return bool(self.gate.is_open)

    @is_open.setter
    def is_open(self, wanted: bool) -> None:
        self.gate.is_open = wanted

    def settle(self) -> None:
        """Carry out the frees that NumPy's C callbacks deferred, if there are any."""
        numpy_functions.settle(self.gate)

    @property
    def passed(self) -> int:
        """Requests to the C callbacks that NumPy itself served: small ones, those of a forked process, and `unfit`."""
        return self.gate.passed

    @property
    def unfit(self) -> int:
        """Of the requests that the C callbacks passed on, those of at most 256 bytes for which the heap had no room."""
        return self.gate.unfit

    def failure(self) -> FailedRequest | None:
        """NumPy's last request that failed in a C callback; None: none has failed."""
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


# ------------------------------------------------------------------------------
# What CuPy calls: CupyHook, its allocator while it is served; and HookReports, its memory hook while it is observed.
#
# CupyHook passes each request to the heap of the current stream::
#
#     cupy.empty -> serve -> CuPy's CFunctionAllocator -> malloc (C, cupy_functions.h) -> heap of (device, stream)
#                      `-> stream_heaps.recover: no memory                 `-> stream_heaps.add_heap: a new stream
#     last reference dropped -> free (C) -> the heap the memory came from
#                                  `-> stream_heaps.defer: freed under another stream than its own
#
# All of it runs in C, except for `serve` and the calls of `stream_heaps` (`CupyStreamHeaps`).
#
# CuPy calls each memory hook four times for an array, and spends a third of the time of `cupy.empty` on that. So these
# four are C functions, which write to the ledger of an observed heap; the rest is Python.


class CupyHook:
    """The C functions that CuPy calls while it is served from heaps.

    This and the heaps live for as long as CuPy has any of their memory.

    Args:
        stream_heaps: called on rare paths; see `CupyStreamHeaps`.
        stream_of: address of the C function `intptr_t (int device)` that returns CuPy's current stream.
        labels: number of the label table (`labels_and_marks.use`).
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
        """Let the C callbacks serve a stream of CuPy's from a heap."""
        cupy_functions.add(self.gate, allocator, device, stream)

    def move(self, device: int, old: int, stream: int) -> None:
        """In the C callbacks: let CuPy's heap of a destroyed stream serve another stream."""
        cupy_functions.move(self.gate, device, old, stream)

    def stream(self, device: int) -> int:
        """For C callbacks: the handle of CuPy's current stream; 0: the legacy default one; negative: this thread's."""
        return int(cupy_functions.stream(self.gate, device))

    def give_back(self, pointer: int, device: int, _stream: int) -> None:
        """Free memory of any of CuPy's heaps, by C code."""
        cupy_functions.give_back(self.gate, pointer, device)

    def count(self, _noted: int, held: int) -> None:
        """Tell the C callbacks how many of CuPy's frees wait; at 0 a request does not check for them."""
        self.gate.held = held

    def return_regions(self, *, late: bool) -> None:
        """Set whether the C callback of a late free, after the `with`, returns regions that are wholly free then."""
        self.gate.late = late

    @property
    def out(self) -> int:
        """Chunks that CuPy has from the C callbacks."""
        return int(self.gate.out)

    @property
    def inside(self) -> int:
        """C callbacks of CuPy that are running, in all threads."""
        return int(self.gate.inside)

    def end(self) -> None:
        """Python exits: make no more Python calls for CuPy, and free nothing."""
        self.is_open = False
        cupy_functions.end(self.gate)


class HookReports:
    """The C functions that CuPy's memory hooks call: they report to the ledgers of observed heaps.

    Calls of the object that observes, on rare paths: `allocated(device, address, size, requested, pooled)`,
    `freed(device, address)`, `settle_heaps()`, and after some allocations `look()`.

    Args:
        stream_of: address of the C function `intptr_t (int device)` that returns CuPy's current stream.
        device_of: address of the C function `int (int)` that returns the current device; its argument is 0.
            0: there is one device.
        labels: number of the label table (`labels_and_marks.use`).
        walker: records Python stacks; None: no stacks.
    """

    def __init__(self, stream_of: int, device_of: int, labels: int, walker: Any = None) -> None:
        self.watch = cupy_functions.watch(stream_of, device_of, labels, walker)

    def methods(self) -> dict[str, Any]:
        """The methods of CuPy's memory hook that are C callbacks, by name."""
        methods: dict[str, Any] = cupy_functions.methods(self.watch)
        return methods

    def open(self, observed: Any) -> None:
        """Let the C callbacks of CuPy's hooks report to the heaps of `observed`, and keep it; None: report nothing."""
        cupy_functions.watch_open(self.watch, observed)

    def add(self, device: int, reports: object) -> None:
        """Let C callbacks report CuPy's allocations of a device to `ObservedHeap.reports`."""
        cupy_functions.watch_add(self.watch, device, reports)

    def number(self, stream: int, number: int) -> None:
        """For the C callbacks: give a stream of CuPy's its number, in order: 1, 2, ..."""
        cupy_functions.watch_stream(self.watch, stream, number)

    def grants(self, by: int) -> None:
        """Change the C callbacks' count of allocations that get memory from the driver now: Python reports these."""
        cupy_functions.watch_grants(self.watch, by)


# ------------------------------------------------------------------------------
# StreamTable: finds the heap behind PyTorch's allocator functions, one per stream of each device.
#
# ::
#
#     alloc(size, device, stream) -> the heap of (device, stream)                no Python runs
#                                  `-> a spare heap of the device, if the stream is new
#                                       `-> no spare left: call Python (`DeferredFrees.add_heap`)
#     free(address, device, stream) -> the heap that has it, also of an ended service
#                                  `-> whose service ended: wake the thread in `late_frees`
#
# Each stream has its own heap, so memory of one stream never goes to another. Freed memory is reused in its own stream,
# in that stream's order.


class StreamHeap(NamedTuple):
    """A heap in the table of PyTorch's streams that C code reads.

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
    """The C functions that PyTorch calls while it is served, and their table of heaps by stream.

    Tensors may outlive a service: a heap stays until it is removed.

    Args:
        service: its number, from 1; one service at a time serves new requests.
        labels: number of the table its labels are in (`labels_and_marks.use`).
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
        """Give the C callbacks a spare heap of PyTorch's for the next new stream of the device."""
        torch_functions.add(allocator, device, self.service, self.labels)

    def remove(self, allocator: "BFCAllocator") -> bool:
        """Let the C callbacks forget a heap whose service ended, if PyTorch has no memory of it; whether they did."""
        return bool(torch_functions.remove(allocator))

    def late_frees(self) -> Iterator[None]:
        """Wait for PyTorch's frees of memory of ended services, of all tables; for one thread, which acts on each.

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
        """Let the C callbacks serve PyTorch's new requests from now on.

        Args:
            thrower: address of a `void (*)(const char *)` that throws a C++ exception when memory runs out; 0: the
                request returns NULL.
            deferred: the Python object that the C functions call on rare paths (`DeferredFrees`).
        """
        torch_functions.serve(self.service, thrower, deferred)

    def stop(self, deferred: Any) -> None:
        """Let the C callbacks serve no new requests of PyTorch; frees still reach the heaps."""
        torch_functions.serve(0, 0, deferred)

    def in_use(self) -> list[StreamHeap]:
        """The heaps of the C callbacks that a stream of PyTorch's uses, in the order they were added."""
        rows = torch_functions.heaps_of(self.service)
        return [StreamHeap(row[0], row[1], row[3], (row[4], *row[5])) for row in reversed(rows) if row[2]]

    def give_back(self, pointer: int, device: int, stream: int) -> None:
        """Free memory of any of PyTorch's heaps, by C code."""
        torch_functions.give_back(pointer, device, stream)

    def count(self, noted: int, held: int) -> None:
        """Tell the C callbacks how many addresses other streams read and how many frees wait; 0, 0: no Python runs."""
        torch_functions.count(noted, held)

    def end(self) -> None:
        """Python exits: no other thread runs Python in the C functions from now on; that would abort the process.

        A replaced allocator throws C++ exceptions: there, requests of other threads wait for the end of the process.
        Elsewhere they fail. Memory that they free and that other streams may read stays in use.
        """
        torch_functions.end()


# ------------------------------------------------------------------------------
# UninterruptedCall: a function for C++ to call, in which no signal handler raises.
#
# Python runs the handler of a signal in the first Python code that follows. During a long C++ function, such as a join
# of cuDF, that is the next callback. C++ makes a RuntimeError of a KeyboardInterrupt in it, and loses the memory; while
# it frees it accepts no exception at all. The compiled module has no Python frame in which a handler could run.
# Uncompiled, a handler can still run at the very start of a call.


class UninterruptedCall:
    """Calls a function for C code while signals are deferred; what their handlers raise is raised again after the call.

    Args:
        function: it may raise, unless the caller in C++ accepts no exception.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._is_finalizing = sys.is_finalizing  # as modules lose their names when Python exits

    def __call__(self, *arguments: Any) -> Any:
        """What the function that C code calls returns or raises."""
        if self._is_finalizing():
            return self._function(*arguments)
        interrupt = _block()
        try:
            return self._function(*arguments)
        finally:
            try:
                _interrupts.unblock()
            except BaseException as error:  # noqa: BLE001  of a handler
                interrupt = type(error)
            if interrupt is not None:
                _raise_later(interrupt)


def _block() -> type[BaseException] | None:
    """Begin an uninterrupted call: defer signals; returns the class of what a handler raised that had to run first."""
    interrupt: type[BaseException] | None = None
    while True:
        try:
            _interrupts.block()
        except BaseException as error:  # noqa: BLE001  of a handler
            interrupt = type(error)
        else:
            return interrupt


def _raise_later(kind: type[BaseException]) -> None:
    """Raise after an uninterrupted call, in this thread: another thread needs Python's lock to do that."""
    here = ctypes.c_ulong(threading.get_ident())
    start_new_thread(ctypes.pythonapi.PyThreadState_SetAsyncExc, (here, ctypes.py_object(kind)))
