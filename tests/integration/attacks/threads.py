"""Attack: threads allocate and free while the sub-allocator refuses, raises and lies; the books must balance."""

import contextlib
import random
import sys
import threading

from heaps import MIB, assert_model_agrees, new_heap
from threads import in_threads

from bfcviz.allocator.sub_allocators import PythonSubAllocator
from bfcviz.errors import OutOfMemory, SubAllocatorError
from bfcviz.events.log import EventLog

THREADS, ROUNDS = 4, 300
SIZES = (1, 300, 5000, 70_000, MIB)
REFUSED = (OutOfMemory, SubAllocatorError, ConnectionError, MemoryError, KeyError)
"""What a request may raise over an `Unreliable` sub-allocator."""
START = 1 << 40


class Unreliable(PythonSubAllocator):
    """Grants memory at most of the time, and keeps book of what it granted."""

    def __init__(self, rng, share):
        super().__init__(supports_coalescing=rng.random() < 0.5)
        self.rng, self.share, self.top, self.granted = rng, share, START, {}
        self.lock = threading.Lock()

    def allocate(self, alignment, num_bytes):
        with self.lock:
            threading.Event().wait(self.rng.choice((0, 0, 0.0002)))
            if self.rng.random() < self.share:
                return self.fail(num_bytes)
            gap = 0 if self.supports_coalescing and self.rng.random() < 0.7 else MIB
            address = self.top + gap + -(self.top + gap) % alignment
            self.top = address + num_bytes
            self.granted[address] = num_bytes
            return address, num_bytes

    def fail(self, num_bytes):
        way = self.rng.randrange(6)
        if way < 3:
            raise (ConnectionError, MemoryError, KeyError)[way]
        return (None, (0, num_bytes), (1, num_bytes))[way - 3]  # the last breaks the promise to align

    def free(self, address, num_bytes):
        with self.lock:
            if address == 1:
                return
            while num_bytes:  # regions that were joined come back as one
                size = self.granted.pop(address)
                address, num_bytes = address + size, num_bytes - size
            if self.rng.random() < self.share:
                raise ConnectionError("while memory was taken back")


def case(_number, rng, _folder):
    source = Unreliable(random.Random(rng.random()), rng.choice((0.05, 0.3, 0.8)))
    heap = new_heap(
        rng.choice((4, 16)) * MIB, source, log=EventLog(1 << 16), allow_growth=rng.random() < 0.9,
        garbage_collection=rng.random() < 0.5, timestamps=rng.random() < 0.2,
    )  # fmt: skip
    seeds, live, errors, served = [rng.random() for _ in range(THREADS)], {}, [], [0] * THREADS

    def work(number):
        own, mine = random.Random(seeds[number]), []
        try:
            for _ in range(ROUNDS):
                if mine and own.random() < 0.5:
                    address = mine.pop(own.randrange(len(mine)))
                    del live[address]
                    heap.free(address)
                    continue
                size = own.choice(SIZES) + own.randrange(100)
                try:
                    address = heap.allocate(size, label=f"thread {number}")
                except REFUSED:
                    continue
                assert live.setdefault(address, size) == size, "one address was given to two threads"
                mine.append(address)
                served[number] += 1
        except BaseException as error:  # noqa: BLE001  raised again below
            errors.append(error)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    in_threads(work, THREADS)
    sys.setswitchinterval(switch)
    if errors:
        raise errors[0]
    balance(heap, source, live, sum(served))
    return "balanced"


def balance(heap, source, live, served):
    """The heap, its events, its sub-allocator and its users agree to the byte, now and once it is closed."""
    assert_model_agrees(heap)
    assert heap.stats().num_allocs == served
    keeps_books(heap, source, live)
    close(heap, source)


def keeps_books(heap, source, live):
    """The heap has what its users hold, within what its sub-allocator granted."""
    heap.check_invariants()
    chunks = heap.memory_map()
    used = chunks[chunks["in_use"]]
    assert dict(zip(used["address"].tolist(), used["requested_size"].tolist(), strict=True)) == live
    stats = heap.stats()
    assert stats.requested_bytes_in_use == sum(live.values())
    assert stats.pool_bytes == sum(source.granted.values())


def close(heap, source):
    """Close a heap; all its memory goes back."""
    source.share = 0
    with contextlib.suppress(ConnectionError, MemoryError, KeyError):  # one that no request has raised yet
        heap.close()
    assert not source.granted
