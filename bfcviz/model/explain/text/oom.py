"""A failed request in plain words."""

from collections.abc import Callable

import numpy as np

from bfcviz.model.explain.oom import Cause, Diagnosis
from bfcviz.model.explain.text.short_names import short_address
from bfcviz.units import format_bytes


def why(diagnosis: Diagnosis, who: str, name: Callable[[int], str]) -> str:
    """What was asked for, what there was, and why that was not enough.

    Args:
        diagnosis: of the OOM event.
        who: the request, as the subject of a sentence.
        name: what a label says.
    """
    d = diagnosis
    limit = "" if d.bytes_limit is None else f" of a limit of {format_bytes(d.bytes_limit)}"
    there = f"{format_bytes(d.free_bytes)} free, the largest free chunk {format_bytes(d.largest_free_chunk)}"
    return (
        f"{who} for {format_bytes(d.requested)} failed: {there}, "
        f"the pool {format_bytes(d.pool_bytes)}{limit}. {_CAUSES[d.cause](d, name)}"
    )


def _over_limit(d: Diagnosis, _: Callable[[int], str]) -> str:
    return f"The request (rounded to {d.rounded} bytes) is larger than the limit: it could never fit."


def _not_shown(_: Diagnosis, __: Callable[[int], str]) -> str:
    return (
        "That chunk is large enough, and the events do not show why it was not taken: a timestamp can hold a "
        "free chunk back, or an alignment rule it out."
    )


def _fragmented(d: Diagnosis, name: Callable[[int], str]) -> str:
    short = format_bytes(d.rounded - d.largest_free_chunk)
    pieces = f", in {d.free_chunks} pieces" if d.free_chunks > 1 else ""
    return (
        f"The free memory is fragmented: enough in total{pieces}, but its largest is {short} too short"
        f"{_walls(d, name)}; {_growth(d)}."
    )


def _full(d: Diagnosis, _: Callable[[int], str]) -> str:
    missing = format_bytes(d.rounded - d.free_bytes)
    return f"The pool is full: {missing} more would have to be free; {_growth(d)}."


def _growth(d: Diagnosis) -> str:
    """Why the pool did not simply grow."""
    if d.room is None:
        return "the sub-allocator granted no new region"
    if d.room == 0:
        return "the limit leaves no room for a new region"
    if d.room < d.rounded:
        return f"the limit leaves only {format_bytes(d.room)} for a new region"
    return f"the limit leaves {format_bytes(d.room)} for a new region, but the sub-allocator granted none"


def _walls(d: Diagnosis, name: Callable[[int], str]) -> str:
    """What pins the largest free chunk."""
    if d.before is None and d.after is None:
        return " (it fills its region)"
    sides = [_wall(d.before, name, "start"), _wall(d.after, name, "end")]
    return f" (it lies between {sides[0]} and {sides[1]})"


def _wall(chunk: np.void | None, name: Callable[[int], str], edge: str) -> str:
    if chunk is None:
        return f"the region's {edge}"
    owner = name(int(chunk["label"])) if chunk["in_use"] else "free, not merged"
    return f"chunk {short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))}, {owner})"


_CAUSES = {
    Cause.OVER_LIMIT: _over_limit,
    Cause.NOT_SHOWN: _not_shown,
    Cause.FRAGMENTED: _fragmented,
    Cause.FULL: _full,
}
