"""Requests that failed in the trace itself: which they are, what they change, and the stream without them.

A job that fails dies, or goes on without the memory: it tries a smaller workspace, or catches the error. A trace does
not say which. So these requests are served like all others, and a note says what the job needs without them.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bfcviz.units import format_bytes
from bfcviz.whatif.requests import ALLOCATE, FREE, RequestStream


def are_failed(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Whether each row is a request that failed in the trace, or its free, which comes at once; bool[n].

    Args:
        rows: of `STREAM_ROW`, shape (n,).
    """
    event: NDArray[np.int64] = rows["event"]
    freed_at_once = np.zeros(len(rows), bool)
    freed_at_once[:-1] = (
        (rows["kind"][:-1] == ALLOCATE)
        & (rows["kind"][1:] == FREE)
        & (event[:-1] == event[1:])
        & (event[:-1] >= 0)
    )
    failed = freed_at_once.copy()
    failed[1:] |= freed_at_once[:-1]
    return failed


def without_failed(stream: RequestStream) -> RequestStream:
    """The same stream without the requests that failed in its trace."""
    failed = are_failed(stream.rows)
    if not failed.any():
        return stream
    rows = stream.rows[~failed]
    made: NDArray[np.int64] = stream.rows["block"][(stream.rows["kind"] == ALLOCATE) & ~failed]
    number = np.zeros(stream.blocks, np.int64)
    number[made] = np.arange(len(made))
    blocks: NDArray[np.int64] = rows["block"]
    rows["block"] = number[blocks]
    regions = stream.regions.copy()
    place = np.maximum(np.cumsum(~failed) - 1, 0)
    at: NDArray[np.int64] = np.minimum(regions["request"], len(place) - 1)
    regions["request"] = place[at]
    left_out = f"requests that failed in the trace, left out: {_count(failed):,}"
    notes = (*(note for note in stream.notes if note != failed_note(stream)), left_out)
    return replace(stream, rows=rows, regions=regions, notes=notes)


def failed_note(stream: RequestStream) -> str:
    """What requests that failed in the trace change; empty without any."""
    failed = are_failed(stream.rows)
    if not failed.any():
        return ""
    most = int(replace(stream, rows=stream.rows[~failed]).live_bytes.max(initial=0))
    return (
        f"requests that failed in the trace: {_count(failed):,}; served like all others, and freed at once. Without "
        f"them at most {format_bytes(most)} are requested at once (`without_failed`, `--without-failed`)"
    )


def _count(failed: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(failed)) // 2
