"""What an event did, in words: as a sentence, as a few words for a list, and as one line for a header."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bfcviz.analysis.diagnosis import failure_sentences, model_to_diagnose
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.free_chunk_search import chunk_rows_at, events_after, operation_of_event
from bfcviz.analysis.short_names import path_end, short_name
from bfcviz.events.label_table import Labels
from bfcviz.events.marks import mark_value, value_text
from bfcviz.events.origin import holds_only_states
from bfcviz.events.schema import Flag, Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model.model import Model
from bfcviz.units import counted, format_bytes, short_address

# ------------------------------------------------------------------------------
# One event with its context: the state before it, and the events after it.


@dataclass(frozen=True)
class EventContext:
    """The event to explain in words, of index `event`; `model` is of its pool and may stand at any step."""

    trace: Trace
    event: int
    record: np.void
    model: Model

    def number(self, field: str) -> int:
        """A field of the explained event as a Python integer."""
        return int(self.record[field])

    def chunk(self, handle: int, event: int | None = None) -> np.void:
        """The row (CHUNK_ROW) of a chunk by its handle, just before the explained event (or another one)."""
        rows = chunk_rows_at(self.model, self.event if event is None else event)
        row: np.void = rows[np.flatnonzero(rows["handle"] == handle)[0]]
        return row

    def pool_bytes(self) -> int:
        """Bytes of the pool just before the explained event."""
        with self.model.visiting(self.event):
            return self.model.table.pool_bytes

    def name(self, label: int) -> str:
        """The name of a label in the text of an event, cut to 80 characters; `an unnamed request` for label 0."""
        return short_name(self.trace, label)


# ------------------------------------------------------------------------------
# A sentence about any event: what happened, to which memory, for which label, and what stays free.


def explain_event(trace: Trace, event: int, model: Model | None = None) -> str:
    """Explain in a sentence or two what an event did.

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
    model = model_to_diagnose(trace, int(record["pool"]), model)
    with model.visiting(event + 1):  # raises where the event contradicts the state before it
        pass
    kind, context = Kind(int(record["kind"])), EventContext(trace, event, record, model)
    if kind in _BUILDS_STATE and holds_only_states(trace.origin.details):
        return _explain_state(context, kind)
    return _EXPLAIN[kind](context)


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
    operation = operation_of_event(context.trace, context.event)
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
    operation = operation_of_event(context.trace, context.event)
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
    since = context.event - _steps_in_use(context.record) + 1
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
    """For the text of a FREE, the size after its MERGEs, and the sides on which the neighbours lay."""
    size, chunk = context.number("size"), context.number("chunk")
    sides = []
    for event in events_after(context.trace, context.record):
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


_BUILDS_STATE = (Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE)


def _explain_state(context: EventContext, kind: Kind) -> str:
    """Explain what an event adds to the state of a file without history."""
    place = _event_chunk_place(context.record)
    if kind is Kind.EXTEND:
        what = f"The state has region {context.number('region')}, {place}"
    elif kind is Kind.SPLIT:
        parent = context.chunk(context.number("chunk"))
        border = int(parent["address"]) + int(parent["size"]) - context.number("size")
        what = f"In the state, a chunk ends and another begins at {short_address(border)}"
    else:
        label = context.number("label")
        owner = f" of {context.name(label)}" if label else ""
        what = f"The state has chunk {place}{owner} in use"
    return (
        f"{what}. The events up to this step only build the state; the file does not say in which order it came "
        "about."
    )


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
    """What an event did in a few words, such as `from bin 5` for an ALLOCATE: one cell of a list."""
    region, number, flags = event["region"], event["bin"], event["flags"]
    match Kind(event["kind"]):
        case Kind.EXTEND:
            words = f"region {region} extended" if flags & Flag.GREW else f"new region {region}"
        case Kind.SPLIT:
            words = "padding split off" if flags & Flag.PADDING else f"split off, into bin {number}"
        case Kind.ALLOCATE:
            waste = max(event["size"] - event["requested"], 0)
            words = f"from bin {number}" + (f", {format_bytes(waste)} wasted" if waste else "")
        case Kind.FREE:
            used = f"in use for {counted(_steps_in_use(event), 'step')}"
            words = f"{used}, merge deferred" if flags & Flag.HELD else used
        case Kind.MERGE:
            words = f"merged, now in bin {number}"
        case Kind.RELEASE:
            words = f"region {region} released"
        case Kind.OOM:
            words = f"free {format_bytes(event['address'])}, largest {format_bytes(event['size'])}"
        case Kind.MARK:
            value = value_text(mark_value(labels, event["label"], event["size"]))
            words = value and f"value {value}"
    return words


def _steps_in_use(freed: Any) -> int:
    """For the text of a FREE, how many steps its chunk was in use."""
    return (int(freed["seq"]) - int(freed["other"])) & 0xFFFFFFFF


# ------------------------------------------------------------------------------
# What led to a step, in one short line from the event's record: what happened, to which label, how many bytes.

_LONGEST: Final = 52  # characters of a label


def step_line(trace: Trace, step: int, pool: int) -> str:
    """What the event that led to a step did, as one line: `forward allocated 12.0 MiB, 4.0 KiB wasted`."""
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
    text = _event_line(trace, record, kind)
    other = int(record["pool"])
    return text if other == pool else f"{text} (in {path_end(trace.origin.pools[other].name, _LONGEST)})"


def _event_line(trace: Trace, record: np.void, kind: Kind) -> str:
    size, requested = int(record["size"]), int(record["requested"])
    amount = format_bytes(size)
    match kind:
        case Kind.EXTEND:
            what = "grew" if int(record["flags"]) & Flag.GREW else "was added"
            line = f"region {record['region']} {what}: the pool grew by {amount}"
        case Kind.RELEASE:
            line = f"region {record['region']} released: the pool shrank by {amount}"
        case Kind.SPLIT:
            operation = operation_of_event(trace, int(record["seq"]))
            whom = "" if operation is None else f" for {_event_label_name(trace, operation.end)}"
            is_padding = int(record["flags"]) & Flag.PADDING
            line = f"free chunk split{whom}: {'alignment padding stays' if is_padding else f'{amount} stay'} free"
        case Kind.ALLOCATE:
            waste = f", {format_bytes(size - requested)} wasted" if size > requested else ""
            line = f"{_event_label_name(trace, record)} allocated {format_bytes(requested)}{waste}"
        case Kind.FREE:
            after = counted(_steps_in_use(record), "step")
            line = f"{_event_label_name(trace, record)} freed {amount} after {after}"
        case Kind.MERGE:
            line = f"free chunk merged with the {amount} after it"
        case Kind.OOM:
            line = f"{_event_label_name(trace, record)} failed to allocate {format_bytes(requested)}"
        case Kind.MARK:
            value = value_text(mark_value(trace.labels, int(record["label"]), size))
            name = _event_label_name(trace, record) if record["label"] else "without a name"
            line = f"mark {name} ({value})" if value else f"mark {name}"
    return line


def _event_label_name(trace: Trace, record: np.void) -> str:
    return path_end(trace.labels.name(int(record["label"])), _LONGEST) or "an unnamed request"


def explain_step(model: Model) -> str:
    """Explain the event before the model's step as a sentence."""
    if len(model.trace) == 0:
        return "this trace holds no events."
    if 0 < model.step == model.trace.first:
        return "the first step that is kept: the event before it was dropped."
    if model.step == 0:
        return "before the first event: the heap has no region yet. Press forward."
    return explain_event(model.trace, model.step - 1, model)
