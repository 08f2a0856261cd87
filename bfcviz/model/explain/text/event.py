"""Any event in plain words: what happened, to which memory, for whom, and what is left."""

import numpy as np

from bfcviz.events.schema import Flag, Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model.explain.oom import diagnose
from bfcviz.model.explain.text.event_context import EventContext
from bfcviz.model.explain.text.oom import why
from bfcviz.model.explain.text.short_names import short_address
from bfcviz.model.state.model import Model
from bfcviz.units import format_bytes


def explain(trace: Trace, event: int, model: Model | None = None) -> str:
    """A sentence or two about one event.

    SPLIT and ALLOCATE of one allocation, FREE and its MERGEs, each tell of the whole operation.

    Args:
        trace: the events.
        event: its index (its `seq`), 0..len(trace) - 1.
        model: one of this trace and pool to look with; it is brought back to where it stands.

    Raises:
        TraceError: the trace has no such event, or it or those before it contradict each other.
    """
    record = trace.read(event, event + 1)[0]
    pool = int(record["pool"])
    if model is None or model.trace is not trace or model.pool != pool:
        model = Model(trace, pool)
    with model.visiting(event + 1):  # an event that contradicts the state it met is not explained but refused
        pass
    return _TELLERS[Kind(int(record["kind"]))](EventContext(trace, event, record, model))


def _place(chunk: np.void) -> str:
    return f"{short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))})"


def _extend(context: EventContext) -> str:
    size, slot = context.number("size"), context.number("region")
    where = short_address(context.number("address"))
    if context.number("flags") & Flag.GREW:
        what = f"lengthened region {slot} by {format_bytes(size)}, from {where}"
    else:
        what = f"granted region {slot}, {format_bytes(size)} at {where}"
    asked = context.number("requested")
    reason = f" for a request of {format_bytes(asked)}" if asked else ""
    before = context.pool_bytes()
    return f"The sub-allocator {what}{reason}: the pool grew {_from_to(context, before, before + size)}."


def _release(context: EventContext) -> str:
    size, before = context.number("size"), context.pool_bytes()
    region = f"Region {context.number('region')}, {format_bytes(size)}"
    return (
        f"{region} at {short_address(context.number('address'))}, was wholly free and went back to the "
        f"sub-allocator: the pool shrank {_from_to(context, before, before - size)}."
    )


def _from_to(context: EventContext, before: int, after: int) -> str:
    limit = context.trace.origin.pools[context.number("pool")].limit
    of_limit = "" if limit is None else f" of a limit of {format_bytes(limit)}"
    return f"from {format_bytes(before)} to {format_bytes(after)}{of_limit}"


def _split(context: EventContext) -> str:
    parent = context.chunk(context.number("chunk"))
    size = context.number("size")
    rest, front = format_bytes(size), format_bytes(int(parent["size"]) - size)
    told = f"Chunk {_place(parent)} was split: "
    if context.number("flags") & Flag.PADDING:
        padding = f"{told}{front} of alignment padding stay free at its start"
        taken = _allocation(context, context.number("other"))
        if taken is None:
            return f"{padding}, {rest} lie behind it."
        part = rest if taken["size"] == size else f"{format_bytes(int(taken['size']))} of the {rest}"
        return f"{padding}, {part} behind it handed to {context.name(int(taken['label']))}."
    taken = _allocation(context, context.number("chunk"))
    stays = "stay where it begins" if taken is None else f"handed to {context.name(int(taken['label']))}"
    return f"{told}{front} {stays}, {rest} back to bin {bin_of(size)}."


def _allocation(context: EventContext, chunk: int) -> np.void | None:
    """The ALLOCATE of this chunk that ends the operation a SPLIT is of; None where none follows."""
    for event in context.following():
        if event["chunk"] != chunk or event["kind"] not in (Kind.SPLIT, Kind.ALLOCATE):
            return None
        if event["kind"] == Kind.ALLOCATE:
            found: np.void = event
            return found
    return None


def _allocate(context: EventContext) -> str:
    size, requested = context.number("size"), context.number("requested")
    fit = "which asked for just that" if size == requested else f"which asked for {_less(requested, size)}"
    name = context.name(context.number("label"))
    return f"Chunk {_place(context.record)} was handed to {name}, {fit}; {_source(context)}."


def _less(requested: int, size: int) -> str:
    """`requested` as text, in bytes where it would read like `size`."""
    text = format_bytes(requested)
    return text if text != format_bytes(size) else f"{size - requested} bytes less"


def _source(context: EventContext) -> str:
    """What an ALLOCATE took its chunk from: the SPLITs just before it tell."""
    whole = context.number("size")
    told = []
    for event in context.preceding():
        padding = int(event["flags"]) & Flag.PADDING
        if event["kind"] != Kind.SPLIT or event["other" if padding else "chunk"] != context.record["chunk"]:
            break
        rest = int(event["size"])
        if padding:
            front = int(context.chunk(int(event["chunk"]), int(event["seq"]))["size"]) - rest
            whole += front
            told.append(f"{format_bytes(front)} of alignment padding stay free before it")
            break
        whole += rest
        told.append(f"{format_bytes(rest)} went back to bin {bin_of(rest)}")
    if not told:
        return "it is a whole free chunk, not split"
    return f"it was cut from a free chunk of {format_bytes(whole)}, " + " and ".join(told)


def _free(context: EventContext) -> str:
    size = context.number("size")
    since = context.event - ((context.event - context.number("other")) & 0xFFFFFFFF) + 1
    name = context.name(context.number("label"))
    told = f"Chunk {_place(context.record)} came back from {name}, in use since step {since}"
    if context.number("flags") & Flag.HELD:
        return f"{told}; it is free, but held back from merging until its timestamp is safe."
    grown, sides = _merged(context)
    if not sides:
        return f"{told}; it is free now, in bin {bin_of(size)}."
    neighbours = f"neighbour{'s' * (len(sides) > 1)} {' and '.join(sides)} it"
    return (
        f"{told}; it merges with its free {neighbours}: one free chunk of {format_bytes(grown)}, "
        f"in bin {bin_of(grown)}."
    )


def _merged(context: EventContext) -> tuple[int, list[str]]:
    """Size after the MERGEs of this FREE's operation, and on which sides they are."""
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
        f"Free chunk {_place(survivor)} absorbed the free chunk after it, {_place(context.record)}: one chunk "
        f"of {format_bytes(size)}, in bin {bin_of(size)}."
    )


def _oom(context: EventContext) -> str:
    label = context.number("label")
    who = f"A request by {context.name(label)}" if label else "An unnamed request"
    return why(diagnose(context.trace, context.event, context.model), who, context.name)


def _mark(context: EventContext) -> str:
    label = context.number("label")
    name = f"Mark: {context.name(label)}" if label else "An unnamed mark"
    return f"{name} ({context.number('size')})." if context.number("size") else f"{name}."


_TELLERS = {
    Kind.EXTEND: _extend,
    Kind.SPLIT: _split,
    Kind.ALLOCATE: _allocate,
    Kind.FREE: _free,
    Kind.MERGE: _merge,
    Kind.RELEASE: _release,
    Kind.OOM: _oom,
    Kind.MARK: _mark,
}
