"""Why a request failed: the numbers at that event, and the cause that follows from them."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bfcviz.errors import TraceError
from bfcviz.events.schema import MIN_CHUNK, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.state.model import Model


class Cause(StrEnum):
    """The cause of a failed request: the first of these that holds."""

    OVER_LIMIT = "over limit"  # larger than the limit itself: it can never fit
    NOT_SHOWN = "not shown"  # a free chunk is large enough; the events do not show why it was not taken
    FRAGMENTED = "fragmented"  # enough is free, but no single chunk is large enough
    FULL = "full"  # less is free than requested


@dataclass(frozen=True)
class Diagnosis:
    """One OOM event with the state around it, in bytes.

    Attributes:
        requested: the requested size.
        rounded: `requested` rounded up to a multiple of 256.
        free_bytes, largest_free_chunk: from the event.
        free_chunks: number of free chunks.
        pool_bytes: bytes of all regions.
        bytes_limit: None where the trace does not have it.
        cause: why the request failed.
        hole: the largest free chunk, of CHUNK; None where nothing is free.
        before, after: the neighbours of `hole` in its region; None at the region's ends.
    """

    requested: int
    rounded: int
    free_bytes: int
    largest_free_chunk: int
    free_chunks: int
    pool_bytes: int
    bytes_limit: int | None
    cause: Cause
    hole: np.void | None
    before: np.void | None
    after: np.void | None

    @property
    def room(self) -> int | None:
        """Bytes by which the limit allows the pool to grow; None where no limit is known."""
        return None if self.bytes_limit is None else max(0, self.bytes_limit - self.pool_bytes)


def diagnose(trace: Trace, event: int, model: Model | None = None) -> Diagnosis:
    """Find out why a request failed.

    Args:
        trace: the events.
        event: index of its OOM event.
        model: a model of this trace and pool to use; it returns to its step.

    Raises:
        TraceError: the event is not an OOM, or the trace does not have it.
    """
    record = trace.read(event, event + 1)[0]
    if record["kind"] != Kind.OOM:
        raise TraceError(f"event {event} is not an OOM: it is {Kind(int(record['kind'])).name}")
    pool = int(record["pool"])
    if model is None or model.trace is not trace or model.pool != pool:
        model = Model(trace, pool)
    requested = int(record["requested"])
    rounded = max(MIN_CHUNK, -(-requested // MIN_CHUNK) * MIN_CHUNK)
    limit = trace.origin.pools[pool].limit
    with model.visiting(event):
        hole, before, after = _largest_hole(model)
        return Diagnosis(
            requested,
            rounded,
            int(record["address"]),
            int(record["size"]),
            model.table.chunks_free,
            model.table.pool_bytes,
            limit,
            _cause(rounded, int(record["address"]), int(record["size"]), limit),
            hole,
            before,
            after,
        )


def _cause(rounded: int, free_bytes: int, largest: int, limit: int | None) -> Cause:
    if limit is not None and rounded > limit:
        return Cause.OVER_LIMIT
    if largest >= rounded:
        return Cause.NOT_SHOWN
    return Cause.FRAGMENTED if free_bytes >= rounded else Cause.FULL


def _largest_hole(model: Model) -> tuple[np.void | None, np.void | None, np.void | None]:
    """The largest free chunk (of equal ones the lowest) and its neighbours in its region."""
    chunks = model.chunks()
    if model.table.chunks_free == 0:
        return None, None, None
    at = int(np.argmax(np.where(chunks["in_use"], 0, chunks["size"])))
    hole = chunks[at]
    neighbours = [
        chunks[i] if 0 <= i < len(chunks) and chunks[i]["region"] == hole["region"] else None
        for i in (at - 1, at + 1)
    ]
    return hole, neighbours[0], neighbours[1]
