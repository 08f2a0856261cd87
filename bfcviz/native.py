"""The C primitives of the compiled modules (bfcviz/c) in plain Python: the same names, the same results.

Used when bfcviz runs uncompiled. Not for callers outside bfcviz.
"""
# ruff: noqa: D103  the headers have the comments

import gc
import operator
import os
import threading
import time
from itertools import count
from typing import Any

import numpy as np

from bfcviz import _forks, _interrupts

MIN_CHUNK = 256
NUM_BINS = 21
ROWS = 56
TREES = 32 * ROWS
MAX_REGIONS = 65_535
KEEP_PAGES, KEEP_MOST, SECOND, LONG_AGO = 64 << 20, 1 << 30, 1_000_000_000, -(1 << 62)
IDLE_PAGES, ALL_PAGES = 1, 2
PAGES_FROM, PAGE_BLOCK, PAGE_BLOCKS, PAGE_SLICE, PAGE_LOOKS = 1 << 20, 1 << 18, 1 << 19, 16, 4096
FIRST_REGION = 2 << 20
MAX_REQUEST = 1 << 62
HALF_SPACE = 1 << 63

# Heap.allocate: reasons of a failure, numbers below any address
FAILED_MEMORY, FAILED_SIZE, FAILED_ALIGNMENT, FAILED_TABLES, FAILED_GRANT, FAILED_CLOSED = range(1, 7)
FAILED_FORKED = 7
# Heap.free: reasons of a failure
FREE_DOUBLE, FREE_INTERIOR, FREE_FOREIGN, FREE_TABLES = range(1, 5)

NONE = 0xFFFFFFFF
"""No chunk."""

LOW_32 = 0xFFFFFFFF


def is_compiled() -> bool:
    """Whether these primitives are C; here they are plain Python."""
    return False


class Clock:
    """Counts nanoseconds since its creation."""

    def __init__(self) -> None:
        self.origin_ns = time.monotonic_ns()


clock_new = Clock


def clock_delete(clock: object) -> None:
    """Do nothing: Python frees clocks and locks."""


def clock_anchor(clock: Clock) -> None:
    """Do nothing: Python's clock needs no calibration."""


def clock_at(clock: Clock, _ticks: int, last: int) -> int:
    """The time now, at least `last`: Python reads no counter."""
    return max(time.monotonic_ns() - clock.origin_ns, last)


_numbers = count(1)
_thread = threading.local()


def thread_number() -> int:
    if not hasattr(_thread, "number"):
        _thread.number = next(_numbers)
    number: int = _thread.number
    return number


def named_threads() -> int:
    """Return 1: uncompiled, every thread that allocates runs Python, and `threading` names it."""
    return 1


def thread_name(_number: int) -> bytes:
    return b""


_SPIN_FRAMES, _MUTEX_FRAMES = 60, 120


def _require_frames(count: int) -> None:
    """Before a `Mutex` or `SpinLock` is taken: raise RecursionError now if fewer than `count` calls are left."""
    if count > 0:
        _require_frames(count - 1)


class Mutex:
    """A lock that may be held for long; a fork does not wait for it, and the child gets a new one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner = 0
        _forks.keep(self, _forks.HEAP)

    def acquire(self, _blocking: bool, _timeout: float) -> bool:  # noqa: FBT001  the signature of locks
        """Return False: a fork does not wait for it."""
        return False

    def release(self) -> None:
        """Do nothing: a fork never holds it."""

    def _at_fork_reinit(self) -> None:
        if self.owner != thread_number():
            self.lock = threading.Lock()


mutex_new = Mutex
mutex_delete = clock_delete


def mutex_lock(mutex: Mutex) -> None:
    _require_frames(_MUTEX_FRAMES)
    _interrupts.block()
    mutex.lock.acquire()
    mutex.owner = thread_number()


def mutex_unlock(mutex: Mutex) -> None:
    mutex.owner = 0
    mutex.lock.release()
    _interrupts.unblock()


def mutex_wait(mutex: Mutex, patience: int) -> None:
    if mutex.owner != thread_number() and mutex.lock.acquire(timeout=patience / 1e9):
        mutex.lock.release()


_generation = 0


def generation() -> int:
    return _generation


class SpinLock:
    """A lock that suspends garbage collection: a finalizer that needs the same lock would wait for ever."""

    collecting = threading.RLock()
    holders = 0
    resumes = False

    def __init__(self) -> None:
        self.lock = _forks.keep(threading.Lock(), _forks.HEAP)


spinlock_new = SpinLock
spinlock_delete = clock_delete


def spin_lock(lock: SpinLock) -> None:
    _require_frames(_SPIN_FRAMES)
    _interrupts.block()
    with SpinLock.collecting:
        if SpinLock.holders == 0:
            SpinLock.resumes = gc.isenabled()
        SpinLock.holders += 1
        gc.disable()
    lock.lock.acquire()


def spin_lock_timed(lock: SpinLock) -> int:
    """Take a lock as `spin_lock`; returns 0 in place of a counter."""
    spin_lock(lock)
    return 0


def spin_unlock(lock: SpinLock) -> None:
    lock.lock.release()
    with SpinLock.collecting:
        SpinLock.holders -= 1
        if SpinLock.holders == 0 and SpinLock.resumes:
            gc.enable()
    _interrupts.unblock()


def release_gil() -> object:
    """Do nothing: Python releases the GIL itself."""
    return None


def take_gil(state: object) -> None:
    """Do nothing: Python takes the GIL itself."""


def _free_in_child() -> None:
    """Reset `SpinLock` in a forked child: threads that held one, or were about to, do not exist there."""
    global _generation  # noqa: PLW0603  one per process
    _generation += 1
    SpinLock.collecting = threading.RLock()
    if SpinLock.holders:
        SpinLock.holders = 0
        if SpinLock.resumes:
            gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)


def low_bit(x: int) -> int:
    return (x & -x).bit_length() - 1


def high_bit(x: int) -> int:
    """The number of the highest bit that is set, as the C primitive."""
    return x.bit_length() - 1


def bit_32(n: int) -> int:
    return 1 << n


bit_64 = bit_32


def above(n: int) -> int:
    """A mask of the bits above bit n, as the C primitive."""
    return -1 << (n + 1)


def bin_of(size: int) -> int:
    """The bin of a free chunk of `size` bytes, 0..20, as the C primitive."""
    return min((size | MIN_CHUNK).bit_length() - 9, NUM_BINS - 1)


def check_signals() -> None:
    """Do nothing: Python checks signals itself."""


def to_u64(x: Any) -> int:
    """As the C primitive: the integer itself, or 2^64 - 1 if it does not fit 64 bits: no size or address is that."""
    number = operator.index(x)
    return number if 0 <= number < 1 << 64 else (1 << 64) - 1


def wrap_64(x: int) -> int:
    """Reduce x modulo 2^64, as the C primitive and 64-bit unsigned arithmetic do."""
    return x & 0xFFFFFFFFFFFFFFFF


def scramble(x: int) -> int:
    """Hash x to a number below 2^32, as the C primitive: Fibonacci hashing."""
    return (x * 2654435769) & LOW_32


def spread(x: int, shift: int) -> int:
    """The top 64 - shift bits of x times the golden ratio, as the C primitive: a slot in a hash table."""
    return ((x * 11400714819323198485) & 0xFFFFFFFFFFFFFFFF) >> shift


def nine_tenths(x: int) -> int:
    """X * 0.9 in single precision, truncated, as the C primitive: TensorFlow's back-off."""
    return int(np.float32(x) * np.float32(0.9))
