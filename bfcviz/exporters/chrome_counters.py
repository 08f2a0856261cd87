"""Write a trace as JSON for chrome://tracing and Perfetto: counters of each heap, instants and phases.

A counter is reduced to the extremes of a few thousand parts, so that the file has a few MB whatever the trace has.
"""

import json
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.marks import mark_value, phase_ends, phases_among
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.find_steps import events_of
from bfcviz.model.timelines import timeline

POINTS: Final = 3000
"""Parts of all counters of one name together; each has at most three values."""

MOST_INSTANTS: Final = 5000  # instants of one kind in one heap; evenly thinned if there are more

_COUNTERS: Final = {
    "in_use": "bytes_in_use",
    "pool": "pool_bytes",
    "free": "free_bytes",
    "largest free chunk": "largest_free_chunk",
}
_INSTANTS: Final = (Kind.OOM, Kind.EXTEND, Kind.RELEASE, Kind.MARK)


class _Range(NamedTuple):
    """The events [start, stop) of one heap of a trace, to be written for Chrome."""

    trace: Trace
    pool: int
    start: int
    stop: int

    @property
    def process(self) -> int:
        """The number of the heap's process in a file for Chrome."""
        return self.pool + 1


def write_chrome_trace(trace: Trace, start: int, stop: int, path: Path) -> list[str]:
    """Write the steps [start, stop] of a trace for Chrome and Perfetto; returns what the file does not say."""
    notes = ["single allocations and frees are left out: the counters show their totals"]
    pools = len(trace.origin.pools)
    points = max(POINTS // pools, 50)
    if stop - start > points:
        notes.append(f"the counters are reduced to the extremes of {points:,} parts of the events")
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","otherData":')
        origin = trace.origin
        about = {"source": origin.source, "status": str(origin.status), "reasons": list(origin.reasons)}
        file.write(json.dumps(about | {"steps": [start, stop]}) + ',\n"traceEvents":[')
        separator = "\n"
        for pool in range(pools):
            for entry in _chrome_heap_entries(_Range(trace, pool, start, stop), points, notes):
                file.write(separator + json.dumps(entry, separators=(",", ":")))
                separator = ",\n"
        file.write("\n]}\n")
    return notes


def _chrome_heap_entries(part: _Range, points: int, notes: list[str]) -> Iterator[dict[str, Any]]:
    name = part.trace.origin.pools[part.pool].name
    yield {"ph": "M", "name": "process_name", "pid": part.process, "args": {"name": name}}
    yield from _chrome_counter_entries(part, points)
    for kind in _INSTANTS:
        events = events_of(part.trace, [kind], part.pool, part.start, part.stop)
        if kind == Kind.MARK:
            yield from _chrome_phase_entries(part, events)
            plain = [end is None for end in phase_ends(events, part.trace.labels)]
            events = events[np.array(plain, bool)]
        every = -(-len(events) // MOST_INSTANTS)
        if every > 1:
            notes.append(f"{name}: of {len(events):,} {kind.name} instants, one in {every:,} is written")
        yield from (_chrome_instant_entry(part, event) for event in events[:: max(every, 1)])


def _chrome_counter_entries(part: _Range, points: int) -> Iterator[dict[str, Any]]:
    series = timeline(part.trace, part.pool, part.start, part.stop, points)
    for name, field in _COUNTERS.items():
        times, values = _chrome_counter_points(series, field)
        for time, value in zip(times.tolist(), values.tolist(), strict=True):
            yield {
                "ph": "C",
                "name": name,
                "pid": part.process,
                "ts": _chrome_microseconds(time),
                "args": {"bytes": value},
            }


def _chrome_counter_points(
    series: NDArray[np.void], field: str
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The points of a counter: lowest, highest and last value of each part, by time; without repetitions."""
    times = np.stack([series[f"{field}_min_time"], series[f"{field}_max_time"], series["time"]], axis=1)
    values = np.stack([series[f"{field}_{which}"] for which in ("min", "max", "last")], axis=1)
    late = series[f"{field}_min_step"] > series[f"{field}_max_step"]
    for rows in (times, values):
        rows[late, :2] = rows[late, 1::-1]
    times, values = times.reshape(-1), values.reshape(-1)
    kept = np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])
    return times[kept], values[kept]


def _chrome_instant_entry(part: _Range, event: np.void) -> dict[str, Any]:
    kind = Kind(int(event["kind"]))
    label = part.trace.labels.name(int(event["label"]))
    size, address = int(event["size"]), int(event["address"])
    facts: dict[str, Any] = {"step": int(event["seq"]) + 1}
    if kind == Kind.OOM:
        facts |= {"requested": int(event["requested"]), "free": address, "largest free chunk": size}
        facts |= {"label": label} if label else {}
    elif kind == Kind.MARK:
        value = mark_value(part.trace.labels, int(event["label"]), size)
        facts |= {"value": value if isfinite(value) else str(value)}  # JSON has no NaN
    else:
        facts |= {"bytes": size, "address": f"{address:#x}", "region": int(event["region"])}
    return {
        "ph": "i",
        "s": "p",  # a line through all tracks of the heap
        "name": (label or "mark") if kind == Kind.MARK else kind.name,
        "cat": kind.name,
        "pid": part.process,
        "tid": int(event["by"]),
        "ts": _chrome_microseconds(int(event["time"])),
        "args": facts,
    }


def _chrome_phase_entries(part: _Range, marks: Events) -> Iterator[dict[str, Any]]:
    """The phases of a trace as entries of a file for Chrome, cut at the ends of the range."""
    times = dict(zip(marks["seq"].tolist(), marks["time"].tolist(), strict=True))
    for phase in phases_among(marks, part.trace.labels):
        begins = _chrome_event_time(part, part.start) if phase.begins is None else times[phase.begins]
        ends = _chrome_event_time(part, part.stop - 1) if phase.ends is None else times[phase.ends]
        yield {
            "ph": "X",
            "name": phase.name,
            "cat": "phase",
            "pid": part.process,
            "tid": phase.thread,
            "ts": _chrome_microseconds(begins),
            "dur": _chrome_microseconds(max(ends - begins, 0)),
        }


def _chrome_event_time(part: _Range, event: int) -> int:
    return int(part.trace.read(event, event + 1)["time"][0])


def _chrome_microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1000
