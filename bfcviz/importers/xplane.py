"""TensorFlow's and XLA's profiler trace (`xplane.pb`): the MemoryAllocation and MemoryDeallocation events.

The BFC heap writes one of them for every allocation and free, as host events of the thread that acted, with
the stats named below (tsl/framework/bfc_allocator.cc, AddTraceMe). Threads are put in order by time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.labels import Labels
from bfcviz.importers.dtypes import dtype_name
from bfcviz.importers.requests import ABSENT, REQUEST, Recorded, Requests
from bfcviz.importers.xspace import Plane, Space, as_text

_EVENTS = {"MemoryAllocation": False, "MemoryDeallocation": True}  # name -> whether it is a free

_COLUMNS = {
    "id": "step",
    "addr": "address",
    "requested_bytes": "requested",
    "allocation_bytes": "size",
    "bytes_allocated": "bytes_in_use",
    "bytes_available": "bytes_available",
    "bytes_reserved": "bytes_reserved",
    "peak_bytes_in_use": "peak_bytes_in_use",
}
_ABSENT: dict[str, int | float | str] = {
    **dict.fromkeys(_COLUMNS, ABSENT),
    "fragmentation": -1.0,
    "data_type": 0,
    "allocator_name": "",
    "tf_op": "",
    "shape": "",
    "region_type": "",
}
"""The stats we read, each with the value that stands for its absence, which also tells its type."""
_PLACES = {stat: place for place, stat in enumerate(_ABSENT)}

_MAX_TIME_NS = 1 << 61  # far beyond any clock; keeps sums and differences of two times within 64 bits
_PS_PER_NS = 1000
_HALF_SPACE = 1 << 63  # processes have the lower half of all addresses; so sums of sizes fit 64 bits, too


class _Row(NamedTuple):
    """One memory event."""

    when: tuple[int, int]  # ns, and ps within that ns: a time in ps need not fit 64 bits
    plane: int
    thread: int
    free: bool
    values: list[Any]  # as `_ABSENT` lists them

    def get(self, stat: str) -> Any:
        return self.values[_PLACES[stat]]


def has_memory_events(plane: Plane) -> bool:
    """Whether the plane knows the heap's events by name (it may still hold none)."""
    return not _EVENTS.keys().isdisjoint(plane.event_names.values())


def collect(space: Space, path: object) -> Recorded:
    """All memory events of a profile, in order of time.

    Raises:
        FileError: a line is corrupt, there are no memory events, or more pools or threads than a trace holds.
    """
    threads: dict[tuple[int, int], int] = {}
    names: dict[int, str] = {}
    rows: list[_Row] = []
    for number, plane in enumerate(space.planes):
        for line in plane.lines() if has_memory_events(plane) else ():
            # Lines of one id are one thread.
            thread = threads.get((number, line.id), len(threads) + 1)
            before = len(rows)
            rows += _rows(plane, line, number, thread)
            if len(rows) > before:
                threads[number, line.id] = thread
                names[thread] = as_text(line.display_name or line.name) or f"thread {line.id}"
    if len(threads) > np.iinfo(REQUEST["thread"]).max:
        raise FileError(path, "", f"{len(threads)} threads allocated memory; a trace holds 65,535")
    left_out = Counter[str]()
    rows = _usable(rows, left_out)
    if not rows:
        raise _nothing(path, space.cut, left_out)
    rows.sort(key=lambda row: row.when)
    pools, pool_names = _pools(rows, space.planes, path)
    labels = Labels()
    requests = _table(rows, _labels(rows, labels))
    requests["pool"] = pools
    return Recorded(requests, pool_names, labels, names, dict(left_out))


def _rows(plane: Plane, line: Any, number: int, thread: int) -> Iterator[_Row]:
    """One row for every memory event of a line."""
    frees = {key: _EVENTS[name] for key, name in plane.event_names.items() if name in _EVENTS}
    places = {key: _PLACES[name] for key, name in plane.stat_names.items() if name in _PLACES}
    absent = list(_ABSENT.values())
    start = line.timestamp_ns
    if abs(start) > _MAX_TIME_NS:
        cause = f"corrupt profile: a line begins at {start} ns"
        raise FileError(plane.wire.path, f"plane {plane.name!r}", cause)
    for event in line.events:
        free = frees.get(event.metadata_id)
        if free is None:
            continue
        values = absent.copy()
        for stat in event.stats:
            place = places.get(stat.metadata_id)
            if place is not None:
                values[place] = _value(stat, plane.stat_names, absent[place])
        ns, ps = divmod(event.offset_ps, _PS_PER_NS)
        yield _Row((start + ns, ps), number, thread, free, values)


def _value(stat: Any, names: Mapping[int, str], absent: Any) -> Any:
    """The stat's value in the type of `absent`, or `absent` where it has none of that type.

    The profiler stores the text `0.5` as a double, `1` as an int64 and `conv` as a reference to a name: by
    how the text looks, not what the stat means.
    """
    which = stat.WhichOneof("value")
    if which is None:
        return absent
    value = getattr(stat, which)
    if which == "ref_value":
        value = names.get(value, "")
    elif isinstance(value, bytes):
        value = as_text(value)
    kind = type(absent)
    if type(value) is not kind:
        try:
            value = kind(value)
        except (ValueError, OverflowError):
            return absent
    return absent if kind is int and not ABSENT <= value < _HALF_SPACE else value


def _usable(rows: Sequence[_Row], left_out: Counter[str]) -> list[_Row]:
    """The rows that say enough to be replayed; the others are counted by what is wrong with them."""
    usable = []
    for row in rows:
        address, size = row.get("addr"), row.get("allocation_bytes")
        if not row.get("allocator_name") or address <= 0:
            left_out["memory events without an allocator or an address"] += 1
        elif row.get("bytes_available") == ABSENT and row.get("fragmentation") < 0:
            left_out[f"events of allocator {row.get('allocator_name')!r}, which is no BFC heap"] += 1
        elif size <= 0 or (row.get("requested_bytes") <= 0 and not row.free):
            left_out["memory events without a size"] += 1
        elif address + size > _HALF_SPACE:
            left_out["memory events of addresses that no process has"] += 1
        else:
            usable.append(row)
    return usable


def _nothing(path: object, cut: str | None, left_out: Mapping[str, int]) -> FileError:
    if cut is not None:
        return FileError(path, "", f"{cut}, and no complete plane before that has events of a BFC heap")
    without = "".join(f" ({count} {what})" for what, count in left_out.items())
    return FileError(
        path,
        "",
        f"a profile without events of a BFC heap{without}. Record it with "
        "tf.profiler.experimental.ProfilerOptions(host_tracer_level=2), "
        "on a device whose memory is a BFC pool: a GPU, or a CPU where Python was started with "
        "TF_CPU_ALLOCATOR_USE_BFC=true TF_CPU_BFC_MEM_LIMIT_IN_MB=4000",
    )


def _pools(rows: Sequence[_Row], planes: Sequence[Plane], path: object) -> tuple[list[int], tuple[str, ...]]:
    """The pool of each row, and the pools' names: the allocator's, with its plane's where hosts share it."""
    keys = [(row.plane, row.get("allocator_name")) for row in rows]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    if len(numbers) > np.iinfo(REQUEST["pool"]).max:
        raise FileError(path, "", f"{len(numbers)} allocators; a trace holds 255")
    often = Counter(name for _, name in numbers)
    names = (name if often[name] == 1 else f"{planes[plane].name} {name}" for plane, name in numbers)
    return [numbers[key] for key in keys], tuple(names)


def _table(rows: Sequence[_Row], labels: Sequence[int]) -> Requests:
    """Rows to columns."""
    table: Requests = np.zeros(len(rows), REQUEST)
    stats = dict(zip(_ABSENT, zip(*(row.values for row in rows), strict=True), strict=True))
    for stat, column in _COLUMNS.items():
        table[column] = stats[stat]
    table["fragmentation"] = stats["fragmentation"]
    table["label"] = labels
    table["thread"] = [row.thread for row in rows]
    table["free"] = [row.free for row in rows]
    ns = np.array([row.when[0] for row in rows], np.int64)
    table["time"] = ns - ns[0]
    return table


def _labels(rows: Sequence[_Row], labels: Labels) -> list[int]:
    """The label of every row; each different op with its details is interned once."""
    known: dict[tuple[Any, ...], int] = {}
    numbers = []
    places = [_PLACES[name] for name in ("tf_op", "data_type", "shape", "region_type")]
    for row in rows:
        key = tuple([row.values[place] for place in places])
        if key not in known:
            op, data_type, shape, region_type = key
            details = {"data_type": dtype_name(data_type), "shape": shape, "region_type": region_type}
            details = {name: text for name, text in details.items() if text}
            known[key] = labels.intern(op, **details) if op or details else 0
        numbers.append(known[key])
    return numbers
