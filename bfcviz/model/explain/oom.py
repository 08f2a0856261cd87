"""Why a request failed: the numbers of that moment, and what follows from them."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bfcviz.errors import TraceError
from bfcviz.events.schema import MIN_CHUNK, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.state.model import Model


class Cause(StrEnum):
    """What stood in the way, the first of these that holds."""

    OVER_LIMIT = "over limit"  # more than the limit itself: it could never fit
    NOT_SHOWN = "not shown"  # a free chunk is large enough, so the events do not say why it was not taken
    FRAGMENTED = "fragmented"  # enough is free, but in no one piece
    FULL = "full"  # less is free than was asked for


@dataclass(frozen=True)
class Diagnosis:
    """One OOM event with the state around it, in bytes.

    Attributes:
        requested: what was asked for.
        rounded: `requested` rounded up to a multiple of 256.
        free_bytes, largest_free_chunk: as the event says.
        free_chunks: how many pieces `free_bytes` are in.
        pool_bytes: got from the sub-allocator so far.
        bytes_limit: None where the trace does not know it.
        cause: why it failed.
        hole: the largest free chunk, of CHUNK; None where nothing is free.
        before, after: the chunks around `hole` in its region; None at the region's ends.
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
        """Bytes by which the limit let the pool grow; None where there is no known limit."""
        return None if self.bytes_limit is None else max(0, self.bytes_limit - self.pool_bytes)


def diagnose(trace: Trace, event: int, model: Model | None = None) -> Diagnosis:
    """Say why a request failed.

    Args:
        trace: the events.
        event: index of its OOM event.
        model: one of this trace and pool to look with; it is brought back to where it stands.

    Raises:
        TraceError: the event is no OOM, or the trace does not have it.
    """
    record = trace.read(event, event + 1)[0]
    if record["kind"] != Kind.OOM:
        raise TraceError(f"event {event} is no OOM but {Kind(int(record['kind'])).name}")
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
    """The largest free chunk (of equals the lowest) and its neighbours in its region."""
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
