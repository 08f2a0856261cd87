"""Heaps of known chunks, as importers build them from a file."""

import numpy as np

from bfcviz.events.label_table import Labels
from bfcviz.events.origin import STATE_ONLY, Origin, Pool, RecordedFailure, Status, end_missing
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import (
    HEAP_CHUNK,
    HeapRegion,
    events_of_state,
    failed_request,
    one_after_another,
)

MIB = 1 << 20
BASE = 0x7F0000000000


def state(
    regions,
    asked=None,
    limit=None,
    *,
    options=None,
    framework="tensorflow",
    names=True,
    facts=None,
    version="",
    reasons=("made",),
    lacks_end=False,
    streams=(),
    private=(),
    **recorded,
):
    """A trace of one moment: each region a list of MiB, positive in use, negative free; sizes as (size, requested).

    Args:
        asked: MiB of the failed request; None: no failure.
        limit: MiB.
        lacks_end: whether the file was not written to its end.
        streams, private: of each region, its stream and its private pool; missing ones: 0 and none.
        recorded: fields of the RecordedFailure.
    """
    labels, rows, places, address = Labels(), [], [], BASE
    for number, pieces in enumerate(regions):
        stream = streams[number] if number < len(streams) else 0
        owner = {"private_pool": private[number]} if number < len(private) and private[number] else {}
        first = address
        for piece in pieces:
            size, requested = (piece, piece) if isinstance(piece, int | float) else piece
            label = labels.intern(f"op{len(rows)}", **owner) if names else 0
            rows.append(
                (
                    address,
                    int(abs(size) * MIB),
                    int(abs(requested) * MIB),
                    label,
                    stream if size > 0 else 0,
                    size > 0,
                )
            )
            address += int(abs(size) * MIB)
        places.append(HeapRegion(first, address - first))
        address += MIB
    chunks = np.array(rows, HEAP_CHUNK)
    events = events_of_state(chunks, places)
    details = {"history": STATE_ONLY, "framework": framework, "framework_version": version}
    details |= end_missing(reasons if lacks_end else None)
    if facts is not None:
        details["facts"] = [facts]
    if asked is not None:
        free = chunks["size"][~chunks["in_use"]]
        oom = failed_request(
            int(asked * MIB), int(free.sum()), int(free.max(initial=0)), labels.intern("asker")
        )
        oom["seq"] = len(events)
        details["failures"] = [RecordedFailure(len(events), **recorded).to_json()]
        events = np.concatenate([events, oom])
    pool = Pool("GPU_0_bfc", None if limit is None else int(limit * MIB), options or {})
    return Trace.from_events(
        events, labels, Origin("tensorflow-log", "a.log", Status.DEGRADED, reasons, (pool,), details)
    )


def save_job(folder):
    """Three ranks in a new folder: 1 and 2 fail alike; 0 holds one more chunk."""
    folder.mkdir()
    state([[3, 1, 4]], limit=11).save(folder / "rank0.parquet")
    for rank in (1, 2):
        state([[-2, 3, -3, 1, -2]], 5, 11).save(folder / f"rank{rank}.parquet")
    return folder


def two_states():
    """The state of a full heap, then that of a fragmented one, each with its failed request."""
    first, second = state([[10]], asked=1, limit=10), state([[4, -4, 4, -4]], asked=6, limit=16)
    events = one_after_another([first.read(0, len(first)).copy(), second.read(0, len(second)).copy()])
    details = first.origin.details | {"failures": []}
    origin = first.origin.__class__(
        "tensorflow-log",
        "two.log",
        pools=(Pool("a", 10 << 20), Pool("b", 16 << 20)),
        details=details,
    )
    return Trace.from_events(events, first.labels, origin), len(first)


# ------------------------------------------------------------------------------
# Checks of sentences by their facts: numbers, names and verdicts, in order.


def has_facts(text, *facts):
    """Whether `text` contains every fact, in this order."""
    at = 0
    for fact in facts:
        found = text.find(fact, at)
        assert found >= 0, f"{fact!r} is not in {text[at:]!r}"
        at = found + len(fact)
    return True
