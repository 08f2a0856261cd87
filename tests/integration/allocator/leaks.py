"""A process that makes and drops heaps: `leaks.py WORK TIMES`; prints what it has kept.

Three numbers: resident KiB, open files, mappings, after TIMES rounds more than after a few to warm up.
"""

import gc
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from heaps import KIB, MIB, Scripted, new_heap

from bfcviz.allocator.replay import Operations
from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.errors import BfcvizError
from bfcviz.events.log import EventLog, Reader


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def simple(_):
    new_heap(MIB, HostSubAllocator(), log=EventLog(64)).allocate(1)


def busy(_):
    heap = new_heap(MIB, HostSubAllocator(), log=EventLog(64), allow_growth=True, timestamps=True)
    for size in range(1, 3000):
        heap.try_allocate(size % 700)
    heap.memory_map()
    heap.stats()
    heap.occupancy()
    Reader(heap.log).read()
    heap.replay(Operations([0, 1], [1, 1], [5, 0]))
    heap.check_invariants()


def failing(_):
    def broken(*_):
        raise ValueError("no memory")

    heap = new_heap(MIB, Scripted(broken), log=EventLog(64))
    for call in (lambda: heap.allocate(1), lambda: heap.free(5), lambda: heap.allocate(-1)):
        with suppress(BfcvizError, ValueError):
            call()


def recorded(folder):
    heap = new_heap(MIB, HostSubAllocator(), log=EventLog(64, folder))
    for _ in range(200):
        heap.free(heap.allocate(1))


def closed(_):
    with new_heap(MIB, HostSubAllocator(), log=EventLog(64)) as heap:
        heap.allocate(500 * KIB)


def shown():
    maps = Path("/proc/self/maps").read_text().splitlines()
    return resident(), len(list(Path("/proc/self/fd").iterdir())), len(maps)


def rounds(work, count):
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            work(folder)
    gc.collect()


def main():
    work, times = globals()[sys.argv[1]], int(sys.argv[2])
    rounds(work, times // 4 + 1)
    before = shown()
    rounds(work, times)
    print(*(after - was for after, was in zip(shown(), before, strict=True)))


if __name__ == "__main__":
    main()
