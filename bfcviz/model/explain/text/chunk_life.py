"""Sentences about the life of a chunk."""

from typing import Final

import numpy as np

from bfcviz.events.origin_details import holds_only_states
from bfcviz.events.schema import Flag, Kind, bin_of
from bfcviz.model.explain.chunk_life import Life
from bfcviz.model.explain.operation import operation_of
from bfcviz.model.explain.text.short_names import short_name
from bfcviz.units import format_bytes

_UNITS: Final = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def life_words(life: Life) -> list[str]:
    """A few short sentences, one a line; the first one is the place of the chunk."""
    if holds_only_states(life.trace.origin.details):
        return [_place(life), _held(life), "The file holds one state and no history: its age is not known."]
    if life.began is not None and life.began["kind"] == Kind.ALLOCATE:
        return [_place(life), _allocated(life, life.began), source_words(life), *_freed(life, life.began)]
    return [_place(life), _free(life), next_words(life)]


def _place(life: Life) -> str:
    state = f"size of bin {bin_of(life.size)}" if life.in_use else f"bin {bin_of(life.size)}"
    return f"{life.address:#x}, {format_bytes(life.size)}, region {life.region}, {state}."


def _held(life: Life) -> str:
    """Who holds a chunk of a state."""
    if not life.in_use or life.began is None:
        return "Free." if not life.in_use else "In use."
    return f"In use by {_name(life, life.began)}."


def _allocated(life: Life, event: np.void) -> str:
    requested, size = int(event["requested"]), int(event["size"])
    waste = f", {format_bytes(size - requested)} wasted" if size > requested else ""
    stream = f", stream {event['stream']}" if event["stream"] else ""
    name = _name(life, event) if event["label"] else "An unnamed request"
    return (
        f"{name} allocated {format_bytes(requested)} at step {int(event['seq']) + 1:,} (thread {event['thread']}"
        f"{stream}, id {event['other']}){waste}."
    )


def source_words(life: Life) -> str:
    """Where the chunk of an allocation came from."""
    padded = any(int(event["flags"]) & Flag.PADDING for event in life.splits)
    rest = sum(int(event["size"]) for event in life.splits if not int(event["flags"]) & Flag.PADDING)
    whole = format_bytes(life.size + rest)
    source = f"Split from a free chunk of {whole}" if rest else "Took a whole free chunk"
    source += ", behind alignment padding" if padded else ""
    granted = sum(int(event["size"]) for event in life.extends)
    return f"{source}; the pool grew by {format_bytes(granted)} for it." if granted else f"{source}."


def _freed(life: Life, began: np.void) -> list[str]:
    sentences = []
    if life.step <= began["seq"]:
        sentences.append("Not allocated yet at this step.")
    elif life.in_use:
        sentences.append(f"In use for {span_words(life, began, None)} so far.")
    if life.ended is None:
        return [*sentences, end_words(life, "freed")]
    freed = f"Freed at step {int(life.ended['seq']) + 1:,}, after {span_words(life, began, life.ended)}"
    return [*sentences, f"{freed}; {merge_words(life, life.ended)}."]


def merge_words(life: Life, freed: np.void) -> str:
    """What its FREE merged the chunk of an allocation with."""
    if int(freed["flags"]) & Flag.HELD:
        return "it cannot merge until its timestamp is safe"
    if not life.merges:
        return "no neighbour was free, so it did not merge"
    sides = [
        f"the free chunk after it ({format_bytes(int(event['size']))})"
        if event["chunk"] == life.handle
        else "the free chunk before it"
        for event in life.merges
    ]
    return f"merged with {' and '.join(sides)}, now in bin {life.merges[-1]['bin']}"


def _free(life: Life) -> str:
    began = life.began
    if began is None:
        return "Free; no change was found in the events before this step."
    return f"Free and unchanged since step {int(began['seq']) + 1:,}: {beginning_words(life, began)}."


def beginning_words(life: Life, event: np.void) -> str:
    """The event that left the free chunk as it is."""
    first = event["chunk"] == life.handle
    padding = bool(int(event["flags"]) & Flag.PADDING)
    reasons = {
        Kind.EXTEND: "the sub-allocator granted it",
        Kind.FREE: f"{_name(life, event)} freed it",
        Kind.MERGE: f"it merged with the free chunk after it ({format_bytes(int(event['size']))})",
        Kind.SPLIT: "split off as alignment padding" if first and padding else "left over from a split",
    }
    return reasons[Kind(int(event["kind"]))]


def next_words(life: Life) -> str:
    """The first event that changes a free chunk."""
    event = life.ended
    if event is None:
        return end_words(life, "used or changed")
    at, kind = f"at step {int(event['seq']) + 1:,}", event["kind"]
    if kind == Kind.ALLOCATE:
        return f"Allocated whole by {_name(life, event)} {at}."
    if kind == Kind.SPLIT:
        operation = operation_of(life.trace, int(event["seq"]))
        return f"Split {at}" + ("." if operation is None else f" for {_name(life, operation.end)}.")
    if kind == Kind.RELEASE:
        return f"Released to the sub-allocator with its region {at}."
    if event["other"] == life.handle:
        return f"Merged {at} into the free chunk before it."
    return f"Merged {at} with the free chunk after it ({format_bytes(int(event['size']))})."


def end_words(life: Life, what: str) -> str:
    """That it has no end; `what` is the end, such as `freed`."""
    if life.looked_to == len(life.trace):
        return f"Not {what} by the end of the trace."
    return f"Not {what} up to step {life.looked_to:,}; later events were not searched."


def span_words(life: Life, began: np.void, ended: np.void | None) -> str:
    """How long an allocation is in use: until it is freed, or until this step."""
    last = life.trace.read(life.step - 1, life.step)[0] if ended is None else ended
    steps, elapsed = int(last["seq"] - began["seq"]), int(last["time"] - began["time"])
    text = "1 step" if steps == 1 else f"{steps:,} steps"
    for scale, unit in _UNITS:
        if elapsed >= scale:
            return f"{text} ({elapsed / scale:.1f} {unit})"
    return text


def _name(life: Life, event: np.void) -> str:
    return short_name(life.trace, int(event["label"]))
