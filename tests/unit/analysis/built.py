"""Heaps of known chunks, as importers build them from a file."""

import numpy as np

from bfcviz.events.labels import Labels
from bfcviz.events.origin import STATE_ONLY, Origin, Pool, RecordedFailure, Status
from bfcviz.events.trace import Trace
from bfcviz.importers.heap_state import HEAP_CHUNK, HeapRegion, events_of_state, failed_request

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
    streams=(),
    private=(),
    **recorded,
):
    """A trace of one moment: each region a list of MiB, positive in use, negative free; sizes as (size, requested).

    Args:
        asked: MiB of the failed request; None: no failure.
        limit: MiB.
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
