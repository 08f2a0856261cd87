"""Read a dump of the Vulkan Memory Allocator or the D3D12 Memory Allocator (JSON).

Each memory type, and each custom pool, becomes a heap: a block is a region, and a suballocation a chunk. A dedicated
allocation is a region with one chunk. The dump has offsets within blocks, but no addresses of blocks: they are made up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bfcviz.errors import FileError, TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, STATE_ONLY, Origin, Pool, Status
from bfcviz.events.schema import Events
from bfcviz.events.storage.files import parse_file_json
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import HEAP_CHUNK, HeapRegion, events_of_state, one_after_another
from bfcviz.importers.file_content import LABELS, TEXT, Limits, read_content
from bfcviz.importers.file_format import Format, json_encoding

_MADE_UP: Final = "the dump holds no addresses of blocks: blocks lie at made-up addresses, one after another"
_FIRST_ADDRESS: Final = 1 << 32
_ALIGNMENT: Final = 1 << 20
_LARGEST: Final = 1 << 48
_MOST_VALUES: Final = 1 << 22
_DETAILS: Final = ("Usage", "CustomData", "Layout", "Flags")
_TOTALS: Final = ("BlockCount", "BlockBytes", "AllocationCount", "AllocationBytes", "UnusedRangeCount")

_Entry = dict[str, Any]
_Piece = tuple[int, int, int, bool]
"""Offset, size, label and whether it is in use."""


def read_vma(path: Path) -> Trace:
    """The trace in a dump, in UTF-8 or UTF-16. It holds the state of one moment.

    Raises:
        FileError: the file cannot be read, is no JSON, or holds impossible numbers.
    """
    limits = Limits.of(path)
    content = read_content(path)
    if content.cut is not None:
        raise FileError(path, "", f"{content.cut}; a dump is read as a whole")
    dump = _parsed_vma_dump(path, content.data)
    labels = Labels()
    reader = _VmaParts(path, limits, labels)
    heaps = [reader.heap(*found) for found in reader.heaps(dump)]
    if not heaps:
        raise FileError(path, "", "this dump holds no pools: neither DefaultPools nor CustomPools")
    kept = heaps[:MAX_POOLS]
    problems = list(_vma_total_differences(dump, heaps))
    if len(heaps) > len(kept):
        problems.append(f"left out: {len(heaps) - len(kept)} pools after the first {MAX_POOLS}")
    try:
        events = one_after_another([heap.events() for heap in kept])
    except TraceError as error:
        raise FileError(path, "", str(error)) from None
    origin = Origin(
        format=Format.VMA.value,
        source=path.name,
        status=Status.DEGRADED,
        reasons=(*problems, _MADE_UP),
        pools=tuple(heap.pool for heap in kept),
        details={
            "history": STATE_ONLY,
            "framework": "vulkan",
            "facts": [{"peak_bytes_in_use": None, **_driver_facts(dump, heap)} for heap in kept],
            "totals": [heap.totals for heap in kept],
        },
    )
    return Trace.from_events(events, labels, origin)


@dataclass(frozen=True)
class _VmaHeap:
    """The blocks of one memory type or custom pool of a VMA dump: the size of each, and the pieces that tile it."""

    pool: Pool
    memory_type: str
    blocks: list[tuple[int, list[_Piece]]]

    @property
    def totals(self) -> dict[str, int]:
        """What a VMA dump counts, in its words."""
        pieces = [piece for _, pieces in self.blocks for piece in pieces]
        sizes = [size for _, size, _, in_use in pieces if in_use]
        numbers = (len(self.blocks), sum(size for size, _ in self.blocks), len(sizes), sum(sizes))
        return dict(zip(_TOTALS, (*numbers, len(pieces) - len(sizes)), strict=True))

    def events(self) -> Events:
        """The events that build the state of a VMA dump."""
        regions, rows = [], []
        start = _FIRST_ADDRESS
        for size, pieces in self.blocks:
            regions.append(HeapRegion(start, size))
            rows += [(start + at, length, length, label, 0, used) for at, length, label, used in pieces]
            start += -(-size // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT  # blocks never touch
        return events_of_state(np.array(rows, HEAP_CHUNK), regions)


class _VmaParts:
    """The parts of a VMA dump; every error names the part."""

    def __init__(self, path: Path, limits: Limits, labels: Labels) -> None:
        self._path = path
        self._limits = limits
        self._labels = labels

    def heaps(self, dump: _Entry) -> Iterator[tuple[str, str, _Entry]]:
        """Name, memory type and content of each default pool and each custom pool of a VMA dump."""
        for memory_type, entry in self._entries(dump, "DefaultPools").items():
            yield memory_type[:64], memory_type, self._object(entry, memory_type)
        for memory_type, custom in self._entries(dump, "CustomPools").items():
            place = f"CustomPools, {memory_type}"
            for at, entry in enumerate(self._list(custom, place)):
                pool = self._object(entry, f"{place}, pool {at}")
                yield f"{memory_type[:64]}, pool {str(pool.get('Name', at))[:64]}", memory_type, pool
        for name, entry in self._entries(dump, "Pools").items():  # custom pools before version 3
            yield f"pool {name[:64]}", "", self._object(entry, f"Pools, {name}")
        for memory_type, entry in self._entries(dump, "DedicatedAllocations").items():  # the same
            yield f"{memory_type[:64]}, dedicated", memory_type, {"DedicatedAllocations": entry}

    def heap(self, name: str, memory_type: str, entry: _Entry) -> _VmaHeap:
        """One heap."""
        blocks = []
        for number, each in self._entries(entry, "Blocks", name).items():
            place = f"{name}, block {number}"
            block = self._object(each, place)
            size = self._size(block, "TotalBytes", place)
            suballocations = self._list(block.get("Suballocations", []), place)
            blocks.append((size, self._pieces(suballocations, size, place)))
        place = f"{name}, dedicated allocations"
        for each in self._list(entry.get("DedicatedAllocations", []), place):
            allocation = self._object(each, place)
            size = self._size(allocation, "Size", place)
            blocks.append((size, [(0, size, self._label(allocation, dedicated="yes"), True)]))
        options = {key: entry[key] for key in ("PreferredBlockSize",) if isinstance(entry.get(key), int)}
        return _VmaHeap(Pool(name, None, options), memory_type, blocks)

    def _pieces(self, suballocations: list[object], size: int, place: str) -> list[_Piece]:
        """The chunks of a block of a VMA dump: they must tile it; what a dump leaves out at any place is free."""
        pieces: list[_Piece] = []
        end = 0
        for each in suballocations:
            piece = self._object(each, place)
            at, length = self._number(piece, "Offset", place), self._size(piece, "Size", place)
            if at < end or at + length > size:
                raise self._error(
                    place, f"the suballocation at offset {at} overlaps another, or the block ends"
                )
            if at > end:
                pieces.append((end, at - end, 0, False))
            in_use = piece.get("Type") != "FREE"
            pieces.append((at, length, self._label(piece) if in_use else 0, in_use))
            end = at + length
        if end < size:
            pieces.append((end, size - end, 0, False))
        return pieces

    def _label(self, entry: _Entry, **more: str) -> int:
        """The label of a piece of a VMA dump: named by its name, or else by its type."""
        kind, name = str(entry.get("Type", "")), str(entry.get("Name", ""))
        details = {key.lower(): str(entry[key]) for key in _DETAILS if key in entry}
        details |= more | ({"type": kind} if kind and name else {})
        before = len(self._labels)
        number = self._labels.intern(name or kind, **details)
        if len(self._labels) > before:
            self._limits.count(LABELS, 1)
            self._limits.count(TEXT, len(name) + len(kind) + sum(map(len, details.values())))
        return number

    def _entries(self, entry: _Entry, key: str, place: str = "") -> _Entry:
        return self._object(entry.get(key, {}), f"{place}, {key}" if place else key)

    def _object(self, value: object, place: str) -> _Entry:
        if not isinstance(value, dict):
            raise self._error(place, "is not an object")
        return value

    def _list(self, value: object, place: str) -> list[object]:
        if not isinstance(value, list):
            raise self._error(place, "is not a list")
        return value

    def _size(self, entry: _Entry, key: str, place: str) -> int:
        if not (size := self._number(entry, key, place)):
            raise self._error(place, f"{key} is 0")
        return size

    def _number(self, entry: _Entry, key: str, place: str) -> int:
        value = entry.get(key)
        if type(value) is not int or not 0 <= value < _LARGEST:
            raise self._error(place, f"{key} is {str(value)[:40]}, not a number of bytes")
        return value

    def _error(self, place: str, cause: str) -> FileError:
        return FileError(self._path, place[:200], f"corrupt dump: {cause}")


def _parsed_vma_dump(path: Path, data: bytes) -> _Entry:
    encoding = json_encoding(data)
    try:
        dump = parse_file_json(data.decode(encoding), _MOST_VALUES)
    except UnicodeDecodeError as error:
        raise FileError(path, f"byte {error.start}", f"corrupt dump: not {encoding} text") from None
    except ValueError as error:
        raise FileError(path, "", f"corrupt dump: {error}") from None
    if not isinstance(dump, dict):
        raise FileError(path, "", "corrupt dump: is not an object")
    return dump


def _vma_total_differences(dump: _Entry, heaps: list[_VmaHeap]) -> Iterator[str]:
    """Where the totals of a VMA dump are not those of its chunks."""
    total = dump.get("Total")
    if not isinstance(total, dict):
        return
    for key in _TOTALS:
        stated, counted = total.get(key), sum(heap.totals[key] for heap in heaps)
        if stated is not None and stated != counted:
            yield f"the dump states {key} {str(stated)[:40]}, but its pools hold {counted}"


def _driver_facts(dump: _Entry, heap: _VmaHeap) -> dict[str, int]:
    """What a VMA dump says of the memory heap of a memory type: its size, and what its budget leaves."""
    memory = dump.get("MemoryInfo")
    for entry in memory.values() if isinstance(memory, dict) else ():
        types = entry.get("MemoryPools") if isinstance(entry, dict) else None
        if not isinstance(types, dict) or heap.memory_type not in types:
            continue
        budget = entry.get("Budget")
        budget = budget if isinstance(budget, dict) else {}
        numbers = entry.get("Size"), budget.get("BudgetBytes"), budget.get("UsageBytes")
        size, limit, used = (each if type(each) is int and 0 <= each < _LARGEST else None for each in numbers)
        facts = {} if size is None else {"device_total": size}
        return facts if limit is None or used is None else facts | {"device_free": max(0, limit - used)}
    return {}
