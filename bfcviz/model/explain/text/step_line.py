"""What led to a step, in one short line from the event's record: what happened, to which label, how many bytes."""

from collections.abc import Callable
from typing import Any, Final

from bfcviz.events.origin_details import holds_only_states
from bfcviz.events.schema import Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.explain.operation import operation_of
from bfcviz.model.explain.text.short_event import used_for
from bfcviz.model.explain.text.short_names import path_end
from bfcviz.units import format_bytes

_LONGEST: Final = 52  # characters of a label

Record = Any
"""One event, as a record of EVENT."""


def step_line(trace: Trace, step: int, pool: int) -> str:
    """The event that led to a step, such as `forward allocated 12.0 MiB, 4.0 KiB wasted`."""
    if len(trace) == 0:
        return "this trace holds no events"
    if 0 < step == trace.first:
        return "the first step that is kept"
    if step == 0:
        return "before the first event"
    record = trace.read(step - 1, step)[0]
    kind = Kind(int(record["kind"]))
    if kind is not Kind.OOM and holds_only_states(trace.origin.details):
        return "builds the state of the heap"
    text = _LINES[kind](trace, record)
    other = int(record["pool"])
    return text if other == pool else f"{text} (in {path_end(trace.origin.pools[other].name, _LONGEST)})"


def _name(trace: Trace, record: Record) -> str:
    return path_end(trace.labels.name(int(record["label"])), _LONGEST) or "an unnamed request"


def _size(record: Record) -> str:
    return format_bytes(int(record["size"]))


def _extend(_: Trace, record: Record) -> str:
    what = "grew" if int(record["flags"]) & Flag.GREW else "was added"
    return f"region {int(record['region'])} {what}: the pool grew by {_size(record)}"


def _release(_: Trace, record: Record) -> str:
    return f"region {int(record['region'])} released: the pool shrank by {_size(record)}"


def _split(trace: Trace, record: Record) -> str:
    operation = operation_of(trace, int(record["seq"]))
    whom = "" if operation is None else f" for {_name(trace, operation.end)}"
    if int(record["flags"]) & Flag.PADDING:
        return f"free chunk split{whom}: alignment padding stays free"
    return f"free chunk split{whom}: {_size(record)} stay free"


def _allocate(trace: Trace, record: Record) -> str:
    wasted = max(int(record["size"]) - int(record["requested"]), 0)
    waste = f", {format_bytes(wasted)} wasted" if wasted else ""
    return f"{_name(trace, record)} allocated {format_bytes(int(record['requested']))}{waste}"


def _free(trace: Trace, record: Record) -> str:
    steps = used_for({name: int(record[name]) for name in ("seq", "other")})
    return f"{_name(trace, record)} freed {_size(record)} after {steps:,} step{'s' * (steps != 1)}"


def _merge(_: Trace, record: Record) -> str:
    return f"free chunk merged with the {_size(record)} after it"


def _oom(trace: Trace, record: Record) -> str:
    return f"{_name(trace, record)} failed to allocate {format_bytes(int(record['requested']))}"


def _mark(trace: Trace, record: Record) -> str:
    value = f" ({int(record['size']):,})" if record["size"] else ""
    return f"mark {_name(trace, record) if record['label'] else 'without a name'}{value}"


_LINES: Final[dict[Kind, Callable[[Trace, Record], str]]] = {
    Kind.EXTEND: _extend,
    Kind.SPLIT: _split,
    Kind.ALLOCATE: _allocate,
    Kind.FREE: _free,
    Kind.MERGE: _merge,
    Kind.RELEASE: _release,
    Kind.OOM: _oom,
    Kind.MARK: _mark,
}
