"""The life of a chunk in plain words."""

from typing import Final

import numpy as np

from bfcviz.events.schema import Flag, Kind, bin_of
from bfcviz.model.explain.chunk_life import Life
from bfcviz.model.explain.operation import operation_of
from bfcviz.model.explain.text.short_names import short_name
from bfcviz.units import format_bytes

_UNITS: Final = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def life_words(life: Life) -> list[str]:
    """A few short sentences, each for a line of its own; the first says where the chunk lies."""
    if life.began is not None and life.began["kind"] == Kind.ALLOCATE:
        return [_place(life), _allocated(life, life.began), _source(life), *_freed(life, life.began)]
    return [_place(life), _free(life), _next(life)]


def _place(life: Life) -> str:
    state = f"by its size of bin {bin_of(life.size)}" if life.in_use else f"bin {bin_of(life.size)}"
    return f"{life.address:#x}, {format_bytes(life.size)}, region {life.region}, {state}."


def _allocated(life: Life, event: np.void) -> str:
    asked, size = int(event["requested"]), int(event["size"])
    got = "and got just that" if asked == size else f"and got {_bytes(size, asked)}"
    stream = f", stream {event['stream']}" if event["stream"] else ""
    return (
        f"Handed at step {int(event['seq']) + 1:,} to {_name(life, event)} (thread {event['thread']}{stream}, "
        f"id {event['other']}), which asked for {format_bytes(asked)} {got}."
    )


def _bytes(size: int, asked: int) -> str:
    return format_bytes(size) if format_bytes(size) != format_bytes(asked) else f"{size - asked} B more"


def _source(life: Life) -> str:
    padded = any(int(event["flags"]) & Flag.PADDING for event in life.splits)
    rest = sum(int(event["size"]) for event in life.splits if not int(event["flags"]) & Flag.PADDING)
    whole = format_bytes(life.size + rest)
    told = f"It was cut from a free chunk of {whole}" if rest else "It was a whole free chunk"
    told += ", behind alignment padding" if padded else ""
    granted = sum(int(event["size"]) for event in life.extends)
    return f"{told}; the pool grew by {format_bytes(granted)} for it." if granted else f"{told}."


def _freed(life: Life, began: np.void) -> list[str]:
    told = []
    if life.step <= began["seq"]:
        told.append("At this step it is not handed out yet.")
    elif life.in_use:
        told.append(f"In use for {_span(life, began, None)} so far.")
    if life.ended is None:
        return [*told, _not_ended(life, "freed")]
    freed = f"Freed at step {int(life.ended['seq']) + 1:,}, after {_span(life, began, life.ended)}"
    return [*told, f"{freed}; {_merged(life, life.ended)}."]


def _merged(life: Life, freed: np.void) -> str:
    if int(freed["flags"]) & Flag.HELD:
        return "held back from merging until its timestamp is safe"
    if not life.merges:
        return "no neighbour was free to merge with"
    sides = [
        f"the free chunk after it ({format_bytes(int(event['size']))})"
        if event["chunk"] == life.handle
        else "the free chunk before it"
        for event in life.merges
    ]
    return f"it merged with {' and '.join(sides)}, into bin {life.merges[-1]['bin']}"


def _free(life: Life) -> str:
    began = life.began
    if began is None:
        return "Free, and unchanged for longer than was looked back."
    return f"Free and unchanged since step {int(began['seq']) + 1:,}: {_beginning(life, began)}."


def _beginning(life: Life, event: np.void) -> str:
    """What made a free chunk what it is."""
    first = event["chunk"] == life.handle
    padding = bool(int(event["flags"]) & Flag.PADDING)
    told = {
        Kind.EXTEND: "the sub-allocator granted it",
        Kind.FREE: f"{_name(life, event)} gave it back",
        Kind.MERGE: f"it grew by the free chunk after it ({format_bytes(int(event['size']))})",
        Kind.SPLIT: "alignment padding, split off" if first and padding else "left over from a split",
    }
    return told[Kind(int(event["kind"]))]


def _next(life: Life) -> str:
    """What happens to a free chunk first."""
    event = life.ended
    if event is None:
        return _not_ended(life, "used or changed")
    at, kind = f"at step {int(event['seq']) + 1:,}", event["kind"]
    if kind == Kind.ALLOCATE:
        return f"Handed whole to {_name(life, event)} {at}."
    if kind == Kind.SPLIT:
        operation = operation_of(life.trace, int(event["seq"]))
        return f"Split {at}" + ("." if operation is None else f" for {_name(life, operation.end)}.")
    if kind == Kind.RELEASE:
        return f"Goes back to the sub-allocator with its region {at}."
    if event["other"] == life.handle:
        return f"Merges {at} into the free chunk before it."
    return f"Merges {at} with the free chunk after it ({format_bytes(int(event['size']))})."


def _not_ended(life: Life, what: str) -> str:
    if life.looked_to == len(life.trace):
        return f"Not {what} by the end of the trace."
    return f"Not {what} up to step {life.looked_to:,}; further was not looked."


def _span(life: Life, began: np.void, ended: np.void | None) -> str:
    """How long an allocation lived, or has lived so far."""
    last = life.trace.read(life.step - 1, life.step)[0] if ended is None else ended
    steps, elapsed = int(last["seq"] - began["seq"]), int(last["time"] - began["time"])
    told = "1 step" if steps == 1 else f"{steps:,} steps"
    for scale, unit in _UNITS:
        if elapsed >= scale:
            return f"{told} ({elapsed / scale:.1f} {unit})"
    return told


def _name(life: Life, event: np.void) -> str:
    return short_name(life.trace, int(event["label"]))
