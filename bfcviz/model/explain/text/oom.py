"""A sentence about a failed request."""

from collections.abc import Callable

import numpy as np

from bfcviz.model.explain.oom import Cause, Diagnosis
from bfcviz.model.explain.text.short_names import short_address
from bfcviz.units import format_bytes


def why(diagnosis: Diagnosis, requester: str, name: Callable[[int], str]) -> str:
    """Say what was requested, what was free, and why that was not enough.

    Args:
        diagnosis: of the OOM event.
        requester: the label of the request, or what stands for it; begins the sentence.
        name: gives the text of a label.
    """
    d = diagnosis
    limit = "" if d.bytes_limit is None else f" of a limit of {format_bytes(d.bytes_limit)}"
    free = f"{format_bytes(d.free_bytes)} free, largest free chunk {format_bytes(d.largest_free_chunk)}"
    return (
        f"{requester} failed to allocate {format_bytes(d.requested)}: {free}, pool {format_bytes(d.pool_bytes)}"
        f"{limit}. {_CAUSES[d.cause](d, name)}"
    )


def _over_limit(d: Diagnosis, _: Callable[[int], str]) -> str:
    return f"The request (rounded up to {d.rounded} bytes) is larger than the limit: it can never fit."


def _not_shown(_: Diagnosis, __: Callable[[int], str]) -> str:
    return (
        "That chunk is large enough. The events do not show why it was not taken: a timestamp or an alignment can "
        "exclude a free chunk."
    )


def _fragmented(d: Diagnosis, name: Callable[[int], str]) -> str:
    missing = format_bytes(d.rounded - d.largest_free_chunk)
    pieces = f" in {d.free_chunks} chunks" if d.free_chunks > 1 else ""
    return (
        f"The free memory is fragmented: enough is free{pieces}, but the largest chunk is {missing} too small"
        f"{_neighbours(d, name)}; {_growth(d)}."
    )


def _full(d: Diagnosis, _: Callable[[int], str]) -> str:
    missing = format_bytes(d.rounded - d.free_bytes)
    return f"The pool is full: {missing} more must be free; {_growth(d)}."


def _growth(d: Diagnosis) -> str:
    """Why the pool did not grow."""
    if d.room is None:
        return "the sub-allocator granted no new region"
    if d.room == 0:
        return "the limit leaves no room for a new region"
    if d.room < d.rounded:
        return f"the limit leaves only {format_bytes(d.room)} for a new region"
    return f"the limit leaves {format_bytes(d.room)} for a new region, but the sub-allocator granted none"


def _neighbours(d: Diagnosis, name: Callable[[int], str]) -> str:
    """The chunks on both sides of the largest free chunk."""
    if d.before is None and d.after is None:
        return " (it fills its region)"
    sides = [_neighbour(d.before, name, "start"), _neighbour(d.after, name, "end")]
    return f" (it lies between {sides[0]} and {sides[1]})"


def _neighbour(chunk: np.void | None, name: Callable[[int], str], edge: str) -> str:
    if chunk is None:
        return f"the region's {edge}"
    owner = name(int(chunk["label"])) if chunk["in_use"] else "free, not merged yet"
    return f"chunk {short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))}, {owner})"


_CAUSES = {
    Cause.OVER_LIMIT: _over_limit,
    Cause.NOT_SHOWN: _not_shown,
    Cause.FRAGMENTED: _fragmented,
    Cause.FULL: _full,
}
