"""Attack: fork while other threads allocate or are in the sub-allocator; the child uses, grows and closes the heap."""

import contextlib
import sys
import threading

import numpy as np
from heaps import KIB, MIB, new_heap
from integration.attacks.children import ended, expect, start

import bfcviz
from bfcviz.allocator.sub_allocators import HostSubAllocator, PythonSubAllocator
from bfcviz.errors import BfcvizError, BrokenInvariant
from bfcviz.live.numpy import unserved

THREADS, FORKS = 3, 6
PATIENCE = 20  # seconds for the threads to end
MOST = 1 << 20  # bytes that one request asks for at most


class Slow(PythonSubAllocator):
    """Other threads run while it works, so that a fork often finds a thread within it."""

    def __init__(self):
        super().__init__()
        self.top = 1 << 40

    def allocate(self, alignment, num_bytes):
        threading.Event().wait(0.001)
        self.top += -self.top % alignment + num_bytes
        return self.top - num_bytes, num_bytes

    def free(self, address, num_bytes):
        threading.Event().wait(0.001)


def case(_number, rng, folder):
    way = rng.choice(("slow", "host", "recorded", "numpy"))
    moments = [rng.random() * 0.01 for _ in range(FORKS)]
    sizes = [rng.choice((300, 70 * KIB, MOST)) for _ in range(50)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        if way == "numpy":
            with bfcviz.serve_numpy("64MiB", capture=rng.choice(("label", "stack"))) as service:
                attack(
                    service.allocator,
                    lambda size: np.empty(size, np.uint8),
                    lambda array: None,
                    sizes,
                    moments,
                )
            return way
        recording = bfcviz.Recording(folder / "run") if way == "recorded" else None
        more = {"log": recording.log, "labels": recording.labels} if recording else {}
        source = HostSubAllocator() if way == "host" else Slow()
        heap = new_heap(8 * MIB, source, allow_growth=True, garbage_collection=True, **more)
        attack(heap, lambda size: heap.allocate(size, label=f"{size}"), heap.free, sizes, moments)
        heap.close()
        if recording:
            recording.close()
            trace = recording.trace()
            assert (str(trace.origin.status), len(trace)) == ("complete", heap.log.head)
        return way
    finally:
        sys.setswitchinterval(switch)


def attack(heap, allocate, free, sizes, moments):
    """Fork at these moments while THREADS threads work; each child must end, and the parent be unharmed."""
    stop, errors = threading.Event(), []

    def work(place):
        held = []
        while not stop.is_set():
            place += 1
            with contextlib.suppress(MemoryError):
                held.append(allocate(sizes[place % len(sizes)]))
            while len(held) > 3:
                free(held.pop(0))
        while held:
            free(held.pop())

    def guarded(place):
        try:
            work(place)
        except Exception as error:  # noqa: BLE001  asserted below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        for moment in moments:
            stop.wait(moment)
            expect(ended(start(lambda: use(heap, allocate, free, sizes))), 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE / THREADS)
    assert not any(thread.is_alive() for thread in threads), "a thread of the parent waits for ever"
    assert not errors, errors
    with unserved():  # arrays of the check are not to change what it looks at
        heap.check_invariants()
    assert heap.stats().bytes_in_use == 0


def use(heap, allocate, free, sizes):
    """A child's life. To refuse is a way to end, too."""
    try:
        addresses = [allocate(size) for size in (100, MOST, *sizes[:5])]
        heap.check_invariants()
        heap.memory_map()
        while addresses:
            free(addresses.pop())
        heap.close()
    except BrokenInvariant:
        raise
    except (BfcvizError, MemoryError):
        pass
