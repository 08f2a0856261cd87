"""What the compiled modules do in C (native.pxd), in plain Python: the same names, the same results.

Used when bfcviz runs uncompiled. Nothing here is for callers outside bfcviz.
"""
# ruff: noqa: D103  the comments stand in native.pxd

import ctypes
import gc
import mmap
import operator
import os
import threading
import time
from itertools import count
from typing import Any

import numpy as np

from bfcviz import _interrupts


class Event(ctypes.Structure):
    """One event record; the fields of `bfcviz.events.schema.EVENT`."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("seq",)),
        ("time", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("address", "size", "requested")),
        *((name, ctypes.c_uint32) for name in ("chunk", "other", "label")),
        *((name, ctypes.c_uint16) for name in ("thread", "stream", "region", "by")),
        ("kind", ctypes.c_uint8),
        ("bin", ctypes.c_int8),
        ("flags", ctypes.c_uint8),
        ("pool", ctypes.c_uint8),
    )
    seq: int
    time: int
    address: int
    size: int
    requested: int
    chunk: int
    other: int
    label: int
    thread: int
    stream: int
    region: int
    by: int
    kind: int
    bin: int
    flags: int
    pool: int


class Clock:
    """Nanoseconds since it was made."""

    def __init__(self) -> None:
        self.origin_ns = time.monotonic_ns()


Window = Any
"""Consecutive event records: a ctypes array here, a C pointer when compiled."""


# The numbers of schema.Kind, and of its Flag
EXTEND, SPLIT, ALLOCATE, FREE, MERGE, RELEASE, OOM, MARK = range(1, 9)
GREW, PADDING, HELD = 1, 2, 4

MIN_CHUNK = 256
NUM_BINS = 21
ROWS = 56
TREES = 32 * ROWS
MAX_REGIONS = 65_535
FIRST_REGION = 2 << 20
MAX_REQUEST = 1 << 62
HALF_SPACE = 1 << 63

# Heap.allocate: numbers below any address that say why there is none
FAILED_MEMORY, FAILED_SIZE, FAILED_ALIGNMENT, FAILED_BOOKS, FAILED_GRANT, FAILED_CLOSED = range(1, 7)
# Heap.free
FREE_DOUBLE, FREE_INTERIOR, FREE_FOREIGN, FREE_BOOKS = range(1, 5)

NONE = 0xFFFFFFFF
"""No chunk."""

LOW_32 = 0xFFFFFFFF

RECORD = 64
"""Bytes of an event."""


def is_compiled() -> bool:
    return False


def clock_new() -> Clock:
    return Clock()


def clock_delete(clock: Clock) -> None:
    """Python's collector does it."""


def clock_anchor(clock: Clock) -> None:
    """Python's clock needs no calibration."""


def clock_read(clock: Clock) -> int:
    return time.monotonic_ns() - clock.origin_ns


_numbers = count(1)
_thread = threading.local()


def thread_number() -> int:
    if not hasattr(_thread, "number"):
        _thread.number = next(_numbers)
    number: int = _thread.number
    return number


def mutex_new() -> threading.Lock:
    return threading.Lock()


def mutex_delete(mutex: threading.Lock) -> None:
    """Python's collector does it."""


def mutex_lock(mutex: threading.Lock) -> None:
    _interrupts.hold()
    mutex.acquire()


def mutex_unlock(mutex: threading.Lock) -> None:
    mutex.release()
    _interrupts.let_go()


class SpinLock:
    """A lock during which no garbage is collected: finalizers may want the same lock, and would wait for ever."""

    collecting = threading.RLock()
    holders = 0
    resumes = False

    def __init__(self) -> None:
        self.lock = threading.Lock()


def spinlock_new() -> SpinLock:
    return SpinLock()


def spinlock_delete(lock: SpinLock) -> None:
    """Python's collector does it."""


def spin_lock(lock: SpinLock) -> None:
    _interrupts.hold()
    with SpinLock.collecting:
        if SpinLock.holders == 0:
            SpinLock.resumes = gc.isenabled()
        SpinLock.holders += 1
        gc.disable()
    lock.lock.acquire()


def spin_unlock(lock: SpinLock) -> None:
    lock.lock.release()
    with SpinLock.collecting:
        SpinLock.holders -= 1
        if SpinLock.holders == 0 and SpinLock.resumes:
            gc.enable()
    _interrupts.let_go()


def new_window(num_bytes: int) -> Window:
    return (Event * (num_bytes // ctypes.sizeof(Event)))()


def buffer_of(window: Window, num_bytes: int) -> Any:  # noqa: ARG001  C needs the size
    return window


def no_window() -> Window:
    return None


def is_no_window(window: Window) -> bool:
    return window is None


def record_at(window: Window, index: int) -> Event:
    record: Event = window[index]
    return record


def prefetch(window: Window, index: int) -> None:
    """Only a processor can."""


def publish_kind(record: Event, kind: int) -> None:
    record.kind = kind


_errors = threading.local()


def map_window(fd: int, offset: int, num_bytes: int) -> Window:
    try:
        os.posix_fallocate(fd, offset, num_bytes)
        buffer = mmap.mmap(fd, num_bytes, offset=offset)
    except OSError as error:
        _errors.last = error.errno
        return None
    return (Event * (num_bytes // ctypes.sizeof(Event))).from_buffer(buffer)


def unmap_window(window: Window, num_bytes: int) -> None:
    """The mapping goes with its last reference."""


def close_file(fd: int) -> None:
    os.close(fd)


def last_error() -> int:
    return getattr(_errors, "last", 0)


def low_bit(x: int) -> int:
    return (x & -x).bit_length() - 1


def high_bit(x: int) -> int:
    return x.bit_length() - 1


def bit_32(n: int) -> int:
    return 1 << n


bit_64 = bit_32


def above(n: int) -> int:
    """A mask of the bits above bit n."""
    return -1 << (n + 1)


def bin_of(size: int) -> int:
    """The bin a free chunk of `size` bytes belongs in, 0..20."""
    return min((size | MIN_CHUNK).bit_length() - 9, NUM_BINS - 1)


def check_signals() -> None:
    """Python does, all the time."""


def to_u64(x: Any) -> int:
    """An integer as it is; 2^64 - 1, which no size or address is, for one that does not fit 64 bits."""
    number = operator.index(x)
    return number if 0 <= number < 1 << 64 else (1 << 64) - 1


def wrap_64(x: int) -> int:
    """What 64-bit unsigned arithmetic makes of x."""
    return x & 0xFFFFFFFFFFFFFFFF


def scramble(x: int) -> int:
    """A number below 2^32 that looks random: Fibonacci hashing."""
    return (x * 2654435769) & LOW_32


def spread(x: int, shift: int) -> int:
    """The top 64 - shift bits of x times the golden ratio: a slot in a hash table."""
    return ((x * 11400714819323198485) & 0xFFFFFFFFFFFFFFFF) >> shift


def nine_tenths(x: int) -> int:
    """X * 0.9 in single precision, truncated: TensorFlow's back-off."""
    return int(np.float32(x) * np.float32(0.9))
