"""A sentence about any event: what happened, to which memory, for which label, and what stays free."""

import numpy as np

from bfcviz.events.origin_details import holds_only_states
from bfcviz.events.schema import Flag, Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model.explain.failure.diagnose import diagnose
from bfcviz.model.explain.operation import operation_of
from bfcviz.model.explain.text.event_context import EventContext
from bfcviz.model.explain.text.failure import failure_sentences
from bfcviz.model.explain.text.short_names import short_address
from bfcviz.model.state.model import Model
from bfcviz.units import format_bytes


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


def _place(chunk: np.void) -> str:
    return f"{short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))})"


def _extend(context: EventContext) -> str:
    size, slot = context.number("size"), context.number("region")
    where = short_address(context.number("address"))
    if context.number("flags") & Flag.GREW:
        what = f"extended region {slot} by {format_bytes(size)} at {where}"
    else:
        what = f"granted region {slot}, {format_bytes(size)} at {where}"
    requested = context.number("requested")
    reason = f" for a request of {format_bytes(requested)}" if requested else ""
    before = context.pool_bytes()
    return f"The sub-allocator {what}{reason}: the pool grew {_from_to(context, before, before + size)}."


def _release(context: EventContext) -> str:
    size, before = context.number("size"), context.pool_bytes()
    where = f"{format_bytes(size)} at {short_address(context.number('address'))}"
    return (
        f"The heap released free region {context.number('region')}, {where}, to the sub-allocator: the pool shrank "
        f"{_from_to(context, before, before - size)}."
    )


def _from_to(context: EventContext, before: int, after: int) -> str:
    limit = context.trace.origin.pools[context.number("pool")].limit
    of_limit = "" if limit is None else f" of a limit of {format_bytes(limit)}"
    return f"from {format_bytes(before)} to {format_bytes(after)}{of_limit}"


def _split(context: EventContext) -> str:
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
    return f"Chunk {_place(parent)} was split: {result}."


def _allocate(context: EventContext) -> str:
    size, requested = context.number("size"), context.number("requested")
    label = context.number("label")
    name = context.name(label) if label else "An unnamed request"
    waste = f", {format_bytes(size - requested)} wasted" if size > requested else ""
    return f"{name} allocated {format_bytes(requested)}: {_source(context)}{waste}."


def _source(context: EventContext) -> str:
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
        return f"took the whole free chunk {_place(context.record)}"
    return f"took {_place(context.record)} from a free chunk of {format_bytes(whole)}, {', '.join(left)}"


def _free(context: EventContext) -> str:
    size = context.number("size")
    since = context.event - ((context.event - context.number("other")) & 0xFFFFFFFF) + 1
    name = context.name(context.number("label"))
    freed = f"Chunk {_place(context.record)} of {name}, in use since step {since}, was freed"
    if context.number("flags") & Flag.HELD:
        return f"{freed}: it cannot merge until its timestamp is safe."
    merged_size, sides = _merged(context)
    if not sides:
        return f"{freed}: it stays free in bin {bin_of(size)}."
    neighbours = f"chunk{'s' * (len(sides) > 1)} {' and '.join(sides)} it"
    return (
        f"{freed}: it merged with the free {neighbours} into a free chunk of {format_bytes(merged_size)} in bin "
        f"{bin_of(merged_size)}."
    )


def _merged(context: EventContext) -> tuple[int, list[str]]:
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


def _merge(context: EventContext) -> str:
    survivor = context.chunk(context.number("chunk"))
    size = int(survivor["size"]) + context.number("size")
    return (
        f"Free chunk {_place(survivor)} merged with the free chunk after it, {_place(context.record)}, into a free "
        f"chunk of {format_bytes(size)} in bin {bin_of(size)}."
    )


def _oom(context: EventContext) -> str:
    found = diagnose(context.trace, context.event, context.model, runs=0)
    return failure_sentences(found, context.name)


def _mark(context: EventContext) -> str:
    label = context.number("label")
    name = f"Mark: {context.name(label)}" if label else "An unnamed mark"
    return f"{name} ({context.number('size')})." if context.number("size") else f"{name}."


def _state_region(context: EventContext) -> str:
    return f"The state has region {context.number('region')}, {_place(context.record)}{_BUILDS}"


def _state_border(context: EventContext) -> str:
    parent = context.chunk(context.number("chunk"))
    border = int(parent["address"]) + int(parent["size"]) - context.number("size")
    return f"In the state, a chunk ends and another begins at {short_address(border)}{_BUILDS}"


def _state_chunk(context: EventContext) -> str:
    label = context.number("label")
    owner = f" of {context.name(label)}" if label else ""
    return f"The state has chunk {_place(context.record)}{owner} in use{_BUILDS}"


_BUILDS = (
    ". The events up to this step only build the state; the file does not say in which order it came about."
)
_STATE = {Kind.EXTEND: _state_region, Kind.SPLIT: _state_border, Kind.ALLOCATE: _state_chunk}

_EXPLAIN = {
    Kind.EXTEND: _extend,
    Kind.SPLIT: _split,
    Kind.ALLOCATE: _allocate,
    Kind.FREE: _free,
    Kind.MERGE: _merge,
    Kind.RELEASE: _release,
    Kind.OOM: _oom,
    Kind.MARK: _mark,
}
