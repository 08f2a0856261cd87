"""What an event did, in words: a sentence, a few words for a list, and one line for a header."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bfcviz.analysis.diagnosis import failure_sentences
from bfcviz.analysis.search import operation_of
from bfcviz.analysis.short_names import path_end, short_address, short_name
from bfcviz.analysis.why import diagnose
from bfcviz.events.labels import Labels
from bfcviz.events.mark_values import mark_value, value_text
from bfcviz.events.origin import holds_only_states
from bfcviz.events.schema import Events, Flag, Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model.model import Model
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# One event with its context: the state before it, and the events after it.

_REACH: Final = 64
"""How many following events are read: those of one operation are consecutive but for other pools' events."""


@dataclass(frozen=True)
class EventContext:
    """The event with index `event`; `model` is of its pool and may stand at any step."""

    trace: Trace
    event: int
    record: np.void
    model: Model

    def number(self, field: str) -> int:
        """A field of the event as a Python integer."""
        return int(self.record[field])

    def chunk(self, handle: int, event: int | None = None) -> np.void:
        """The row (CHUNK_ROW) of the chunk with this handle, just before the event (or before another one)."""
        with self.model.visiting(self.event if event is None else event):
            # Not `chunks()`: it sorts, and it would drop the sorted chunks that the model keeps.
            rows = self.model.table.chunk_rows()
        row: np.void = rows[np.flatnonzero(rows["handle"] == handle)[0]]
        return row

    def pool_bytes(self) -> int:
        """Bytes of the pool just before the event."""
        with self.model.visiting(self.event):
            return self.model.table.pool_bytes

    def following(self) -> Events:
        """The next events of this pool, without marks."""
        first = self.event + 1
        events = self.trace.read(first, min(len(self.trace), first + _REACH))
        mine: Events = events[(events["pool"] == self.record["pool"]) & (events["kind"] != Kind.MARK)]
        return mine

    def name(self, label: int) -> str:
        """The name of a label, cut to 80 characters; `an unnamed request` for label 0."""
        return short_name(self.trace, label)


# ------------------------------------------------------------------------------
# A sentence about any event: what happened, to which memory, for which label, and what stays free.


def explain(trace: Trace, event: int, model: Model | None = None) -> str:
    """Explain one event in a sentence or two.

    A SPLIT, an ALLOCATE and a FREE are explained with the other events of the same operation. Where the file has no
    history, the events that build its state are not explained as if they had happened.

    Args:
        trace: the events.
        event: its index (its `seq`), 0..len(trace) - 1.
        model: a model of this trace and pool to use; it returns to its step.

    Raises:
        TraceError: the trace has no such event, or it or those before it contradict each other.
    """
    record = trace.read(event, event + 1)[0]
    pool = int(record["pool"])
    if model is None or model.trace is not trace or model.pool != pool:
        model = Model(trace, pool)
    with model.visiting(event + 1):  # raises where the event contradicts the state before it
        pass
    kind = Kind(int(record["kind"]))
    words = _STATE if kind in _STATE and holds_only_states(trace.origin.details) else _EXPLAIN
    return words[kind](EventContext(trace, event, record, model))


def _event_chunk_place(chunk: np.void) -> str:
    return f"{short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))})"


def _explain_extend(context: EventContext) -> str:
    size, slot = context.number("size"), context.number("region")
    where = short_address(context.number("address"))
    if context.number("flags") & Flag.GREW:
        what = f"extended region {slot} by {format_bytes(size)} at {where}"
    else:
        what = f"granted region {slot}, {format_bytes(size)} at {where}"
    requested = context.number("requested")
    reason = f" for a request of {format_bytes(requested)}" if requested else ""
    before = context.pool_bytes()
    return f"The sub-allocator {what}{reason}: the pool grew {_pool_change_words(context, before, before + size)}."


def _explain_release(context: EventContext) -> str:
    size, before = context.number("size"), context.pool_bytes()
    where = f"{format_bytes(size)} at {short_address(context.number('address'))}"
    return (
        f"The heap released free region {context.number('region')}, {where}, to the sub-allocator: the pool shrank "
        f"{_pool_change_words(context, before, before - size)}."
    )


def _pool_change_words(context: EventContext, before: int, after: int) -> str:
    limit = context.trace.origin.pools[context.number("pool")].limit
    of_limit = "" if limit is None else f" of a limit of {format_bytes(limit)}"
    return f"from {format_bytes(before)} to {format_bytes(after)}{of_limit}"


def _explain_split(context: EventContext) -> str:
    parent = context.chunk(context.number("chunk"))
    size = context.number("size")
    rest, front = format_bytes(size), format_bytes(int(parent["size"]) - size)
    padding = bool(context.number("flags") & Flag.PADDING)
    operation = operation_of(context.trace, context.event)
    name = None if operation is None else context.name(int(operation.end["label"]))
    if not padding:
        stays = "stay in the chunk" if name is None else f"for {name}"
        result = f"{front} {stays}, {rest} stay free in bin {bin_of(size)}"
    elif operation is None:
        result = f"{front} of alignment padding stay free at its start, {rest} follow"
    else:
        taken = int(operation.end["size"])
        part = rest if taken == size else f"{format_bytes(taken)} of the next {rest}"
        result = f"{front} of alignment padding stay free at its start, {part} for {name}"
    return f"Chunk {_event_chunk_place(parent)} was split: {result}."


def _explain_allocate(context: EventContext) -> str:
    size, requested = context.number("size"), context.number("requested")
    label = context.number("label")
    name = context.name(label) if label else "An unnamed request"
    waste = f", {format_bytes(size - requested)} wasted" if size > requested else ""
    return f"{name} allocated {format_bytes(requested)}: {_allocation_source_words(context)}{waste}."


def _allocation_source_words(context: EventContext) -> str:
    """The free chunk that an ALLOCATE took, whole or split."""
    whole, left = context.number("size"), []
    operation = operation_of(context.trace, context.event)
    for event in () if operation is None else operation.splits:
        rest = int(event["size"])
        if int(event["flags"]) & Flag.PADDING:
            padding = int(context.chunk(int(event["chunk"]), int(event["seq"]))["size"]) - rest
            whole += padding
            left.append(f"{format_bytes(padding)} of alignment padding stay free before it")
        else:
            whole += rest
            left.append(f"{format_bytes(rest)} stay free in bin {bin_of(rest)}")
    if not left:
        return f"took the whole free chunk {_event_chunk_place(context.record)}"
    return f"took {_event_chunk_place(context.record)} from a free chunk of {format_bytes(whole)}, {', '.join(left)}"


def _explain_free(context: EventContext) -> str:
    size = context.number("size")
    since = context.event - ((context.event - context.number("other")) & 0xFFFFFFFF) + 1
    name = context.name(context.number("label"))
    freed = f"Chunk {_event_chunk_place(context.record)} of {name}, in use since step {since}, was freed"
    if context.number("flags") & Flag.HELD:
        return f"{freed}: it cannot merge until its timestamp is safe."
    merged_size, sides = _size_after_merges(context)
    if not sides:
        return f"{freed}: it stays free in bin {bin_of(size)}."
    neighbours = f"chunk{'s' * (len(sides) > 1)} {' and '.join(sides)} it"
    return (
        f"{freed}: it merged with the free {neighbours} into a free chunk of {format_bytes(merged_size)} in bin "
        f"{bin_of(merged_size)}."
    )


def _size_after_merges(context: EventContext) -> tuple[int, list[str]]:
    """The size after the MERGEs that follow this FREE, and the sides on which the neighbours lay."""
    size, chunk = context.number("size"), context.number("chunk")
    sides = []
    for event in context.following():
        if event["kind"] != Kind.MERGE or chunk not in (event["chunk"], event["other"]):
            break
        if event["other"] == chunk:
            size += int(context.chunk(int(event["chunk"]), int(event["seq"]))["size"])
            chunk = int(event["chunk"])
            sides.append("before")
        else:
            size += int(event["size"])
            sides.append("after")
    return size, sides


def _explain_merge(context: EventContext) -> str:
    survivor = context.chunk(context.number("chunk"))
    size = int(survivor["size"]) + context.number("size")
    return (
        f"Free chunk {_event_chunk_place(survivor)} merged with the free chunk after it, "
        f"{_event_chunk_place(context.record)}, into a free chunk of {format_bytes(size)} in bin {bin_of(size)}."
    )


def _explain_oom(context: EventContext) -> str:
    found = diagnose(context.trace, context.event, context.model, runs=0)
    return failure_sentences(found, context.name)


def _explain_mark(context: EventContext) -> str:
    label = context.number("label")
    name = f"Mark: {context.name(label)}" if label else "An unnamed mark"
    value = value_text(mark_value(context.trace.labels, label, context.number("size")))
    return f"{name} ({value})." if value else f"{name}."


def _explain_state_region(context: EventContext) -> str:
    return f"The state has region {context.number('region')}, {_event_chunk_place(context.record)}{_BUILDS}"


def _explain_state_border(context: EventContext) -> str:
    parent = context.chunk(context.number("chunk"))
    border = int(parent["address"]) + int(parent["size"]) - context.number("size")
    return f"In the state, a chunk ends and another begins at {short_address(border)}{_BUILDS}"


def _explain_state_chunk(context: EventContext) -> str:
    label = context.number("label")
    owner = f" of {context.name(label)}" if label else ""
    return f"The state has chunk {_event_chunk_place(context.record)}{owner} in use{_BUILDS}"


_BUILDS = (
    ". The events up to this step only build the state; the file does not say in which order it came about."
)
_STATE = {
    Kind.EXTEND: _explain_state_region,
    Kind.SPLIT: _explain_state_border,
    Kind.ALLOCATE: _explain_state_chunk,
}

_EXPLAIN = {
    Kind.EXTEND: _explain_extend,
    Kind.SPLIT: _explain_split,
    Kind.ALLOCATE: _explain_allocate,
    Kind.FREE: _explain_free,
    Kind.MERGE: _explain_merge,
    Kind.RELEASE: _explain_release,
    Kind.OOM: _explain_oom,
    Kind.MARK: _explain_mark,
}


# ------------------------------------------------------------------------------
# What an event did, in a few words from its record alone: one cell of a list. `event` explains it in full.

Fields = Mapping[str, Any]
"""The fields of an event by name, as Python numbers."""


def short_words(event: Fields, labels: Labels) -> str:
    """A few words, such as `from bin 5` for an ALLOCATE; sizes and addresses have cells of their own."""
    if event["kind"] == Kind.MARK:
        value = value_text(mark_value(labels, event["label"], event["size"]))
        return value and f"value {value}"
    return _DESCRIBE[Kind(event["kind"])](event)


def used_for(event: Fields) -> int:
    """How many steps the chunk of a FREE was in use."""
    return int(event["seq"] - event["other"]) & 0xFFFFFFFF


def _short_extend(event: Fields) -> str:
    grew = event["flags"] & Flag.GREW
    return f"region {event['region']} extended" if grew else f"new region {event['region']}"


def _short_split(event: Fields) -> str:
    if event["flags"] & Flag.PADDING:
        return "padding split off"
    return f"split off, into bin {event['bin']}"


def _short_allocate(event: Fields) -> str:
    waste = max(event["size"] - event["requested"], 0)
    return f"from bin {event['bin']}" + (f", {format_bytes(waste)} wasted" if waste else "")


def _short_free(event: Fields) -> str:
    steps = used_for(event)
    text = f"in use for {steps:,} step{'s' * (steps != 1)}"
    return f"{text}, merge deferred" if event["flags"] & Flag.HELD else text


def _short_merge(event: Fields) -> str:
    return f"merged, now in bin {event['bin']}"


def _short_release(event: Fields) -> str:
    return f"region {event['region']} released"


def _short_oom(event: Fields) -> str:
    return f"free {format_bytes(event['address'])}, largest {format_bytes(event['size'])}"


_DESCRIBE: Final[dict[Kind, Callable[[Fields], str]]] = {
    Kind.EXTEND: _short_extend,
    Kind.SPLIT: _short_split,
    Kind.ALLOCATE: _short_allocate,
    Kind.FREE: _short_free,
    Kind.MERGE: _short_merge,
    Kind.RELEASE: _short_release,
    Kind.OOM: _short_oom,
}


# ------------------------------------------------------------------------------
# What led to a step, in one short line from the event's record: what happened, to which label, how many bytes.

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


def _event_label_name(trace: Trace, record: Record) -> str:
    return path_end(trace.labels.name(int(record["label"])), _LONGEST) or "an unnamed request"


def _event_size_text(record: Record) -> str:
    return format_bytes(int(record["size"]))


def _extend_line(_: Trace, record: Record) -> str:
    what = "grew" if int(record["flags"]) & Flag.GREW else "was added"
    return f"region {int(record['region'])} {what}: the pool grew by {_event_size_text(record)}"


def _release_line(_: Trace, record: Record) -> str:
    return f"region {int(record['region'])} released: the pool shrank by {_event_size_text(record)}"


def _split_line(trace: Trace, record: Record) -> str:
    operation = operation_of(trace, int(record["seq"]))
    whom = "" if operation is None else f" for {_event_label_name(trace, operation.end)}"
    if int(record["flags"]) & Flag.PADDING:
        return f"free chunk split{whom}: alignment padding stays free"
    return f"free chunk split{whom}: {_event_size_text(record)} stay free"


def _allocate_line(trace: Trace, record: Record) -> str:
    wasted = max(int(record["size"]) - int(record["requested"]), 0)
    waste = f", {format_bytes(wasted)} wasted" if wasted else ""
    return f"{_event_label_name(trace, record)} allocated {format_bytes(int(record['requested']))}{waste}"


def _free_line(trace: Trace, record: Record) -> str:
    steps = used_for({name: int(record[name]) for name in ("seq", "other")})
    after = f"{steps:,} step{'s' * (steps != 1)}"
    return f"{_event_label_name(trace, record)} freed {_event_size_text(record)} after {after}"


def _merge_line(_: Trace, record: Record) -> str:
    return f"free chunk merged with the {_event_size_text(record)} after it"


def _oom_line(trace: Trace, record: Record) -> str:
    return f"{_event_label_name(trace, record)} failed to allocate {format_bytes(int(record['requested']))}"


def _mark_line(trace: Trace, record: Record) -> str:
    value = value_text(mark_value(trace.labels, int(record["label"]), int(record["size"])))
    name = _event_label_name(trace, record) if record["label"] else "without a name"
    return f"mark {name} ({value})" if value else f"mark {name}"


_LINES: Final[dict[Kind, Callable[[Trace, Record], str]]] = {
    Kind.EXTEND: _extend_line,
    Kind.SPLIT: _split_line,
    Kind.ALLOCATE: _allocate_line,
    Kind.FREE: _free_line,
    Kind.MERGE: _merge_line,
    Kind.RELEASE: _release_line,
    Kind.OOM: _oom_line,
    Kind.MARK: _mark_line,
}
