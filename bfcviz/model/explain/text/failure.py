"""A failed request in words: one paragraph for an event, one line for a list, and a report."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from bfcviz.model.explain.failure.diagnosis import Diagnosis, RunWithPins, Verdict
from bfcviz.model.explain.failure.pins import Pin
from bfcviz.model.explain.text.failure_numbers import (
    recorded_rows,
    region_row,
    size_rows,
    waste_row,
)
from bfcviz.model.explain.text.short_names import counted, cut, short_address
from bfcviz.units import format_bytes

_PINS_SHOWN: Final = 8


def failure_sentences(found: Diagnosis, name: Callable[[int], str]) -> str:
    """What was requested, what was free, and why that was not enough, as one paragraph.

    Args:
        found: the diagnosis.
        name: gives the text of a label.
    """
    limit = "" if found.bytes_limit is None else f" of a limit of {format_bytes(found.bytes_limit)}"
    free = (
        f"{format_bytes(found.free_bytes)} free, largest free chunk {format_bytes(found.largest_free_chunk)}"
    )
    known = found.knows("free_bytes", "largest_free_chunk", "pool_bytes")
    numbers = f": {free}, pool {format_bytes(found.pool_bytes)}{limit}" if known else ""
    beside = _beside(found, name) if found.verdict is Verdict.FRAGMENTATION else ""
    return f"{_subject(found)} {_asked(found)}{numbers}. {_VERDICTS[found.verdict](found)}{beside}"


def verdict_sentence(found: Diagnosis) -> str:
    """Why the request failed, with the numbers."""
    return _VERDICTS[found.verdict](found)


def failure_line(found: Diagnosis) -> str:
    """The request and its verdict in one line."""
    verdict = found.verdict.replace("_", " ")
    size = format_bytes(found.requested) if found.requested else "unknown size"
    if not found.recorded.has_heap:
        return f"{size}: {verdict}; the chunks of that moment are not in the file"
    if not found.knows("free_bytes", "largest_free_chunk"):
        return f"{size}: {verdict}; the file does not say what was free"
    return (
        f"{size}: {verdict}; {format_bytes(found.free_bytes)} free, largest free chunk "
        f"{format_bytes(found.largest_free_chunk)}"
    )


def failure_lines(found: Diagnosis) -> list[str]:
    """The report: the verdict, the sizes, the best runs with what pins them, and advice."""
    verdict = found.verdict.replace("_", " ")
    if not found.requested and found.event is None:
        return [f"{found.pool_name} at step {found.step:,}: no request failed.", *size_rows(found)]
    return [
        f"{_subject(found)} {_asked(found)} in {found.pool_name} at step {found.step:,}: {verdict}.",
        f"  {_VERDICTS[found.verdict](found)}",
        *recorded_rows(found),
        *size_rows(found),
        *waste_row(found),
        *region_row(found),
        *(line for number, run in enumerate(found.useful_runs, 1) for line in _run(number, run)),
        *(["What would help" if found.event is not None else "To know more"] if found.advice else []),
        *(f"  - {advice.text}" for advice in found.advice),
    ]


_QUESTIONS: Final = {Verdict.NO_FAILURE: "would fit", Verdict.UNKNOWN: "may fit or not"}


def _subject(found: Diagnosis) -> str:
    return cut(found.label) if found.label else "An unnamed request"


def _asked(found: Diagnosis) -> str:
    about = "" if found.recorded.is_exact else "about "
    if found.event is None:
        verb = _QUESTIONS.get(found.verdict, "would not fit")
        return f"of {format_bytes(found.requested)} {verb}"
    if not found.requested:
        return "failed to allocate; the file does not say how many bytes"
    return f"failed to allocate {about}{format_bytes(found.requested)}"


# -- verdicts ------------------------------------------------------------------------------------------------


def _above_limit(found: Diagnosis) -> str:
    return f"The request (rounded up to {found.rounded} bytes) is larger than the limit: it can never fit."


def _unknown(found: Diagnosis) -> str:
    if not found.recorded.has_heap:
        return "The file has the request, but not the chunks of that moment."
    if not found.knows("largest_free_chunk"):
        return "The file does not say what was free at that moment."
    return (
        "The largest free chunk is large enough. The events do not show why it was not taken: a timestamp, an "
        "alignment, a stream or a separate pool for small requests can exclude a free chunk."
    )


def _refused(found: Diagnosis) -> str:
    room = format_bytes(found.room or 0)
    free = found.recorded.device_free
    driver = "" if free is None else f"; the driver had {format_bytes(free)} free"
    inside = (
        f"{format_bytes(found.rounded - found.free_bytes)} more must be free in the pool"
        if found.free_bytes < found.rounded
        else "enough is free in the pool, but not in one chunk"
    )
    return f"The limit leaves {room} for a new region, but the sub-allocator granted none{driver}; {inside}."


def _capacity(found: Diagnosis) -> str:
    missing = format_bytes(found.rounded - found.free_bytes)
    return f"The pool is full: {missing} more must be free; {_growth(found)}."


def _regions_split(found: Diagnosis) -> str:
    regions = found.regions
    if regions.largest < found.rounded:
        why = f"even the largest, of {format_bytes(regions.largest)}, is too small when it is empty"
    else:
        why = "the wholly free ones together could hold it as one region"
    return (
        f"Growth split the pool into {regions.count:,} regions: {why}. {len(regions.wholly_free):,} of them are wholly "
        f"free, {format_bytes(regions.free_bytes)} in all; {_growth(found)}."
    )


def _fragmentation(found: Diagnosis) -> str:
    missing = format_bytes(found.rounded - found.largest_free_chunk)
    pieces = f" in {found.free_chunks:,} chunks" if found.free_chunks > 1 else ""
    return (
        f"The free memory is fragmented: enough is free{pieces}, but the largest chunk is {missing} too small; "
        f"{_growth(found)}."
    )


def _no_failure(found: Diagnosis) -> str:
    if found.largest_free_chunk >= found.rounded:
        return f"The largest free chunk, {format_bytes(found.largest_free_chunk)}, is large enough."
    return (
        f"No free chunk is large enough, but the limit leaves {format_bytes(found.room or 0)} for a new region, if the "
        "sub-allocator grants it."
    )


_VERDICTS: Final[Mapping[Verdict, Callable[[Diagnosis], str]]] = {
    Verdict.ABOVE_LIMIT: _above_limit,
    Verdict.UNKNOWN: _unknown,
    Verdict.REFUSED: _refused,
    Verdict.CAPACITY: _capacity,
    Verdict.REGIONS: _regions_split,
    Verdict.FRAGMENTATION: _fragmentation,
    Verdict.NO_FAILURE: _no_failure,
}


def _growth(found: Diagnosis) -> str:
    """Why the pool did not grow."""
    free = found.recorded.device_free
    if found.room is None and free is not None:
        return f"the driver had {format_bytes(free)} free for a new region"
    if found.room is None:
        return (
            "the sub-allocator granted no new region" if found.event is not None else "its limit is not known"
        )
    if found.room == 0:
        return "the limit leaves no room for a new region"
    return f"the limit leaves only {format_bytes(found.room)} for a new region"


# -- the chunks in the way -----------------------------------------------------------------------------------


def _beside(found: Diagnosis, name: Callable[[int], str]) -> str:
    """The chunks on both sides of the largest free chunk."""
    hole = found.hole
    if hole.before is None and hole.after is None:
        return " The largest free chunk fills its region."
    sides = [_neighbour(hole.before, name, "start"), _neighbour(hole.after, name, "end")]
    return f" The largest free chunk lies between {sides[0]} and {sides[1]}."


def _neighbour(chunk: np.void | None, name: Callable[[int], str], edge: str) -> str:
    if chunk is None:
        return f"the region's {edge}"
    owner = name(int(chunk["label"])) if chunk["in_use"] else "free, not merged yet"
    return f"chunk {short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))}, {owner})"


def _run(number: int, run: RunWithPins) -> list[str]:
    where = f"{run.address:#x}, region {run.region}"
    if not run.pins:
        return [f"Place {number}: {format_bytes(run.size)} at {where}: free chunks that have not merged."]
    chunks = counted(run.chunks_in_use, "chunk")
    shown = sorted(run.pins, key=lambda pin: (-pin.size, pin.address))[:_PINS_SHOWN]
    left = run.chunks_in_use - len(shown)
    return [
        f"Place {number}: {format_bytes(run.size)} at {where}, pinned by {format_bytes(run.bytes_in_use)} in {chunks}",
        *(f"  {_pin(pin)}" for pin in shown),
        *([f"  and {left:,} smaller ones"] if left else []),
    ]


def _pin(pin: Pin) -> str:
    parts = [f"{pin.address:#x}  {format_bytes(pin.size):>10}  {cut(pin.label) if pin.label else 'no name'}"]
    if pin.age is not None:
        seconds = "" if pin.age_s is None else f" ({pin.age_s:.3g} s)"
        parts.append(f"allocated {pin.age:,} events before{seconds}")
    if pin.freed is not None:
        parts.append(f"freed at event {pin.freed:,}")
    stack = pin.details.get("stack", "").strip().splitlines()
    return ", ".join([*parts, *stack[:1]])
