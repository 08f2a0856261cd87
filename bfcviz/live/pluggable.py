"""The functions PyTorch calls for its memory, through ctypes: slow, for where nothing is compiled. In C: pluggable.pxd.

The names are pluggable.pxd's, where more is told. PyTorch may call at any time, so all of it stays with the process.
"""
# ruff: noqa: D103  the comments stand in pluggable.pxd

import ctypes
from dataclasses import dataclass
from itertools import count as counter
from threading import Lock
from typing import TYPE_CHECKING, Any

from bfcviz import _forks, native
from bfcviz.errors import AllocatorError, InvalidFree
from bfcviz.live import gate

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator

_POINTER = ctypes.c_void_p
_ALLOC = ctypes.CFUNCTYPE(_POINTER, ctypes.c_ssize_t, ctypes.c_int, _POINTER)
_FREE = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_size_t, ctypes.c_int, _POINTER)
_RECORD = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)


@dataclass(eq=False)
class _Lane:
    allocator: "BFCAllocator"
    device: int
    service: int
    labels: int
    taken: bool = False
    stream: int = 0
    failures: int = 0
    failure: tuple[int, ...] = (0, 0, 0, 0)

    def serve(self, size: int) -> int | None:
        known = gate.label()
        try:
            return self.allocator.allocate(
                size, 1, known & native.LOW_32 if known >> 32 == self.labels else 0
            )
        except (MemoryError, AllocatorError):
            return None

    def fail(self, size: int) -> None:
        totals = self.allocator.stats()
        self.failure = (size, totals.pool_bytes, totals.bytes_in_use, totals.largest_free_chunk)
        self.failures = next(_failures)


class _State:
    lanes: tuple[_Lane, ...] = ()
    taking = _forks.keep(Lock())
    service = 0
    keeper: Any = None
    noted = held = 0


_failures = counter(1)


def _take(device: int, stream: int) -> _Lane | None:
    with _State.taking:
        mine = [lane for lane in _State.lanes if (lane.service, lane.device) == (_State.service, device)]
        for lane in mine:
            if lane.taken and lane.stream == stream:
                return lane
        for lane in reversed(mine):  # the oldest
            if not lane.taken:
                lane.taken, lane.stream = True, stream
                return lane
    return None


def _alloc(size: int, device: int, stream: int | None) -> int | None:
    queue = stream or 0
    if size <= 0 or _State.service == 0:
        return None
    if _State.held:
        _State.keeper.let_go(0, device, queue)
    lane = _take(device, queue)
    if lane is None and _State.keeper.more(0, device, queue):
        lane = _take(device, queue)
    if lane is None:
        return None
    address = lane.serve(size)
    if address is None and _State.keeper.recover(0, device, queue):
        address = lane.serve(size)
    if address is None:
        lane.fail(size)
    return address


def give_back(pointer: int, device: int, stream: int) -> None:
    there = [lane for lane in _State.lanes if lane.device == device]
    for lane in sorted(there, key=lambda lane: lane.stream != stream):
        try:
            lane.allocator.free(pointer)
        except InvalidFree:
            continue
        return


def _free(pointer: int | None, _size: int, device: int, stream: int | None) -> None:
    if pointer is not None and not (_State.noted and _State.keeper.hold(pointer, device, stream or 0)):
        give_back(pointer, device, stream or 0)


def _record(pointer: int | None, stream: int | None) -> None:
    if pointer is not None:
        _State.keeper.note(pointer, -1, stream or 0)


_FUNCTIONS = (_ALLOC(_alloc), _FREE(_free), _RECORD(_record))
_new_reference = ctypes.pythonapi.Py_IncRef
_new_reference.argtypes = [ctypes.py_object]
_new_reference.restype = None


def functions() -> tuple[int, ...]:
    for function in _FUNCTIONS:
        _new_reference(function)
    return tuple(ctypes.cast(function, _POINTER).value or 0 for function in _FUNCTIONS)


def add(allocator: "BFCAllocator", device: int, service: int, labels: int) -> None:
    _new_reference(allocator)  # never given back: memory may be freed after this module is gone
    with _State.taking:
        _State.lanes = (_Lane(allocator, device, service, labels), *_State.lanes)


def lanes_of(service: int) -> list[tuple[Any, ...]]:
    return [
        (lane.allocator, lane.device, lane.taken, lane.stream, lane.failures, lane.failure)
        for lane in _State.lanes
        if lane.service == service
    ]


def thrower(_parts: tuple[int, ...]) -> int:
    return 0


def serve(service: int, _thrower: int, keeper: object) -> None:
    _State.keeper, _State.service = keeper, service


def count(noted: int, held: int) -> None:
    _State.noted, _State.held = noted, held


def end() -> None:
    """A callback of ctypes always takes Python's lock."""


def is_compiled() -> bool:
    return False
