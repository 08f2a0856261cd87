"""The first failure of a policy as a sentence: when, what was asked, what was free, and why the pool could not grow."""

from typing import Any, Final

from bfcviz.events.origin_details import BEGIN_MARKS
from bfcviz.terminal import printable
from bfcviz.units import format_bytes

_LONGEST: Final = 72  # characters of the label of a failed request

MOST_COUNT: Final = 1 << 32
"""A greater value of a mark is no count: TensorFlow makes up the step ids of its profiles."""


def failure_text(row: dict[str, Any]) -> str:
    """The failure of a row of `Comparison.to_arrow`."""
    label = printable(row["failed_label"] or "an allocation without label")
    label = label if len(label) <= _LONGEST else f"...{label[3 - _LONGEST :]}"
    event = f" (event {row['failed_event']:,})" if row["failed_event"] >= 0 else ""
    asked = format_bytes(row["failed_size"])
    return (
        f"out of memory at request {row['failed_request']:,}{event}{_moment(row)}: {asked} asked for {label}; "
        f"{_free(row)}; {_growth(row)}"
    )


def _moment(row: dict[str, Any]) -> str:
    """The last mark before the failure."""
    name, value = row["failed_after_mark"], row["failed_after_mark_value"]
    if name is None or name in BEGIN_MARKS:
        return ""
    shown = printable(name) or "no name"
    counted = f" {value:,}" if value and value < MOST_COUNT else ""
    return f", after mark {row['marks_before_failure']:,} of the trace ({shown}{counted})"


def _free(row: dict[str, Any]) -> str:
    """What is free in the pool."""
    largest = row["failure_largest_free_bytes"]
    chunk = "" if largest is None else f", at most {format_bytes(largest)} in one chunk"
    return f"free in the pool: {format_bytes(row['failure_free_bytes'])}{chunk}"


def _growth(row: dict[str, Any]) -> str:
    """What the limit leaves, and why no new region could serve the request."""
    room, asked = row["failure_room_bytes"], row["failed_size"]
    if row["role"] == "as recorded":
        return "a new region was refused, as in the trace"
    if room is None:
        return "no address is left for a new region"
    if room == 0:
        return "the pool has the whole limit, so it cannot grow"
    left = f"not yet taken below the limit: {format_bytes(room)}"
    if room >= asked:
        return f"{left}, less than the region that these rules ask for: they round its size up"
    return f"{left}, {format_bytes(asked - room)} too little for a new region"
