"""The functions CuPy calls for its memory, in Python: slow, for where nothing is compiled. In C: cupy_gate.pxd.

The names are cupy_gate.pxd's, where more is told. What CuPy has keeps its functions, and so heaps and memory.
"""
# ruff: noqa: D102, D103  the comments stand in cupy_gate.pxd

import ctypes
import os
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

from bfcviz import native
from bfcviz.errors import AllocatorError, InvalidFree
from bfcviz.live import gate as labels_of

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator

_numbers = count(1)
_thread = threading.local()


class Gate:
    """What the C struct of the same name is."""

    def __init__(self, owner: object, desk: Any, stream_of: int, labels: int, walker: Any) -> None:
        self.owner = owner
        self.desk = desk
        self.stream_of = ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)(stream_of)
        self.labels = labels
        self.walker = walker
        self.lanes: list[tuple[int, int, BFCAllocator]] = []
        self.process = os.getpid()
        self.held = 0
        self.out = 0
        self.ended = False
        self.inside = 0

    def find(self, device: int, stream: int) -> "BFCAllocator | None":
        found = [heap for at, lane, heap in self.lanes if (at, lane) == (device, stream)]
        return found[0] if found else None

    def owner_of(self, device: int, pointer: int) -> "tuple[int, BFCAllocator] | None":
        for at, stream, heap in self.lanes:
            try:
                if at == device and heap.requested_size(pointer):
                    return stream, heap
            except InvalidFree:
                continue
        return None

    def malloc(self, size: int, device: int) -> int:
        self.inside += 1
        try:
            return self.serve(size, device)
        finally:
            self.inside -= 1

    def serve(self, size: int, device: int) -> int:
        if self.process != os.getpid() or self.ended:
            return 0
        if self.held:
            self.desk.let_go(0, device, 0, 0)
        known = labels_of.label()
        label = known & native.LOW_32 if known >> 32 == self.labels else 0
        if self.walker is not None:
            label = self.walker.number(label)
        try:
            lane = stream(self, device)
            heap = self.find(device, lane)
            if heap is None and self.desk.more(0, device, lane, 0):
                heap = self.find(device, lane)
        except Exception:  # noqa: BLE001  the desk finds out and tells
            return 0
        if heap is None:
            return 0
        try:
            address = heap.allocate(size, 1, label)
        except (MemoryError, AllocatorError):
            return 0
        self.out += 1
        return address

    def free(self, pointer: int, device: int) -> None:
        if self.ended or self.process != os.getpid():  # at the end there may be no `os` any more
            return
        self.inside += 1
        try:
            self.take_back(pointer, device)
        finally:
            self.inside -= 1

    def take_back(self, pointer: int, device: int) -> None:
        owner = self.owner_of(device, pointer)
        if owner is None:
            return
        try:
            now = stream(self, device)
        except Exception:  # noqa: BLE001  not known: not its own, then
            now = ~owner[0]
        if now != owner[0] and self.desk.hold(pointer, device, owner[0], now):
            return
        give_back(self, pointer, device)


def new(owner: object, desk: Any, stream_of: int, labels: int, walker: Any) -> Gate:
    return Gate(owner, desk, stream_of, labels, walker)


def delete(gate: Gate) -> None:
    """It stays as long as CuPy has anything of it."""


def add(gate: Gate, allocator: "BFCAllocator", device: int, stream: int) -> None:
    gate.lanes.insert(0, (device, stream, allocator))


def move(gate: Gate, device: int, old: int, stream: int) -> None:
    gate.lanes = [
        (at, stream if (at, lane) == (device, old) else lane, heap) for at, lane, heap in gate.lanes
    ]


def functions(gate: Gate) -> tuple[Any, ...]:
    return gate.malloc, gate.free


def stream(gate: Gate, device: int) -> int:
    handle = int(gate.stream_of(device))
    if handle == 1:
        return 0
    if handle != 2:
        return handle
    if not hasattr(_thread, "number"):
        _thread.number = -next(_numbers)
    number: int = _thread.number
    return number


def give_back(gate: Gate, pointer: int, device: int) -> None:
    owner = gate.owner_of(device, pointer)
    if owner is not None:
        owner[1].free(pointer)
        gate.out -= 1


def end(gate: Gate) -> None:
    gate.ended = True


def is_compiled() -> bool:
    return False
