"""Read the memory events of a Chrome trace that PyTorch's profiler (Kineto) wrote.

Segments of the caching allocator are not in the trace, so regions are runs of addresses that were in use, as
`RecordedHistory` derives them. `kineto_events` finds the events, which come in any order.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.origin_details import RecordedFailure
from bfcviz.events.schema import Events, Kind
from bfcviz.events.storage.json_stream import JsonCut, JsonStream
from bfcviz.events.trace import Trace
from bfcviz.importers.collected.kineto_events import KinetoEvents, KinetoHeap
from bfcviz.importers.collected.report_rows import Reports
from bfcviz.importers.file_content import ContentPieces
from bfcviz.importers.file_format import Format
from bfcviz.importers.limits import UNPACKED_JSON, Limits
from bfcviz.importers.pools import by_time
from bfcviz.importers.recorded_history import RecordedHistory
from bfcviz.units import format_bytes

_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 19: "mtia", 20: "privateuseone"}
_EARLIER: Final = "allocated before the trace"
_HELP: Final = (
    "this Chrome trace holds no memory events; record them with torch.profiler.profile(profile_memory=True)"
)
_DERIVED: Final = (
    "a Chrome trace holds allocations and frees only: regions are runs of addresses that were in use, and splits and "
    "merges are derived"
)
_UNKNOWN_OF_A_POOL: Final = (
    *("requested_bytes_in_use", "regions", "chunks_free", "largest_free_chunk", "external_fragmentation"),
)


def read_chrome_trace(path: Path) -> Trace:
    """The trace of the memory events: a pool for each device of each process.

    Raises:
        FileError: the file cannot be read, is no JSON, or holds no memory events.
    """
    pieces = ContentPieces(path, UNPACKED_JSON)
    found = KinetoEvents(Limits.of(path))
    stream = JsonStream(pieces)
    missing = []
    try:
        for item in stream.items("traceEvents"):
            found.add(item)
    except JsonCut:
        missing.append(f"the trace is cut off at {stream.place}")
    except FileError:
        raise
    except ValueError as error:
        raise FileError(path, stream.place, f"corrupt Chrome trace: {error}") from None
    if pieces.cut is not None:
        missing.insert(0, pieces.cut)
    if not found.heaps:
        raise FileError(path, "", "; ".join([_HELP, *missing, *found.reasons()]))
    return _trace(path, found, missing)


@dataclass
class _RebuiltHeap:
    """The events of one heap, and what is to be said of it."""

    events: Events
    problems: list[str] = field(default_factory=list)
    facts: dict[str, int | None] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)


def _trace(path: Path, found: KinetoEvents, missing: list[str]) -> Trace:
    labels = Labels()
    tables = {key: rows.table() for key, rows in found.heaps.items()}
    start = min(int(table["time"].min()) for table in tables.values())
    rebuilt = {key: _rebuild(table, start, labels) for key, table in tables.items()}
    events = by_time([heap.events for heap in rebuilt.values()])
    names = _pool_names(list(rebuilt))
    problems = [
        f"{name}: {problem}"
        for name, heap in zip(names, rebuilt.values(), strict=True)
        for problem in heap.problems
    ]
    failed = np.flatnonzero(events["kind"] == Kind.OOM).tolist()
    origin = Origin(
        format=Format.CHROME_TRACE.value,
        source=path.name,
        status=Status.DEGRADED,
        reasons=(*missing, *found.reasons(), *problems, _DERIVED),
        pools=tuple(map(Pool, names)),
        details={
            "framework": "torch",
            "facts": [heap.facts for heap in rebuilt.values()],
            "totals": [heap.totals for heap in rebuilt.values()],
            "failures": [RecordedFailure(event).to_json() for event in failed],
            "threads": {str(number): name for name, number in found.threads.items() if number},
        },
    )
    return Trace.from_events(events, labels, origin)


def _rebuild(table: Reports, start: int, labels: Labels) -> _RebuiltHeap:
    """Replay one heap in the order of the times; they count from `start`."""
    reports = table[np.argsort(table["time"], kind="stable")]
    earlier = _allocated_earlier(reports)
    history = RecordedHistory()
    ledger = history.ledger
    history.at(0)
    label = labels.intern(_EARLIER) if earlier else 0
    for address, size in earlier.items():
        ledger.allocate(address, size, size, label)
    for time, kind, address, size, thread, *_ in reports.tolist():
        history.at(time - start, thread)
        if kind == Kind.OOM:
            ledger.oom(size)
        elif kind == Kind.FREE:
            ledger.free(address)
        else:
            ledger.allocate(address, size, size)
    heap = _RebuiltHeap(history.events())
    if earlier:
        amount = format_bytes(sum(earlier.values()))
        heap.problems.append(
            f"{len(earlier):,} allocations of {amount} were made before the trace; their frees tell where they were"
        )
    if words := history.inconsistencies.words():
        heap.problems.append(words)
    _compare(heap, reports, sum(earlier.values()))
    kinds = reports["kind"]
    for name, kind in (("allocations", Kind.ALLOCATE), ("frees", Kind.FREE), ("failures", Kind.OOM)):
        heap.totals[name] = int((kinds == kind).sum())
    return heap


def _allocated_earlier(reports: Reports) -> dict[int, int]:
    """Address -> size of the memory that the trace frees, but does not allocate before."""
    seen: set[int] = set()
    earlier: dict[int, int] = {}
    for kind, address, size in reports[["kind", "address", "size"]].tolist():
        if kind == Kind.OOM or address in seen:
            continue
        seen.add(address)
        if kind == Kind.FREE:
            earlier[address] = size
    return earlier


def _compare(heap: _RebuiltHeap, reports: Reports, earlier: int) -> None:
    """Compare the bytes in use with those that the trace states after each event; take its totals as facts."""
    has_total = (reports["in_use"] >= 0) & (reports["kind"] != Kind.OOM)
    stated = reports[has_total]
    if len(stated):
        computed = np.cumsum(_signed(reports)) + np.int64(min(earlier, 1 << 62))
        differences = stated["in_use"] - computed[has_total]
        never_freed = int(differences[0])
        differing = int((differences != never_freed).sum())
        if never_freed > 0:
            heap.problems.append(
                f"{format_bytes(never_freed)} were allocated before the trace and not freed in it: they are not shown"
            )
        if differing or never_freed < 0:
            heap.problems.append(
                f"{max(differing, 1):,} of {len(stated):,} events state other bytes in use than allocations and frees "
                "give: the trace is not complete"
            )
        heap.facts = {
            "bytes_in_use": int(stated["in_use"][-1]),
            "peak_bytes_in_use": int(stated["in_use"].max()),
        }
    reserved = reports["pool_bytes"][reports["pool_bytes"] > 0]
    if len(reserved) and len(stated):  # the caching allocator rounds sizes, and holds more than was seen
        heap.facts |= dict.fromkeys(_UNKNOWN_OF_A_POOL) | {"pool_bytes": int(reserved[-1])}
        heap.facts["free_bytes"] = max(0, int(reserved[-1]) - int(stated["in_use"][-1]))


def _signed(reports: Reports) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = reports["size"].astype(np.int64)
    sizes[reports["kind"] == Kind.FREE] *= -1
    sizes[reports["kind"] == Kind.OOM] = 0
    return sizes


def _pool_names(heaps: list[KinetoHeap]) -> list[str]:
    """`cuda:0`; with the process where there are several."""
    several = len({process for process, *_ in heaps}) > 1
    names = []
    for process, device, number in heaps:
        kind = (
            _DEVICE_TYPES.get(device, f"device type {device}") if isinstance(device, int) else device.lower()
        )
        name = kind if number < 0 else f"{kind}:{number}"
        names.append(f"{name} (process {process})" if several else name)
    return names
