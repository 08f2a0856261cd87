"""Small request streams for tests."""

import numpy as np

from bfcviz.events.labels import Labels
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, STREAM_ROW, RequestStream

MiB = 1 << 20


def stream_of(*requests, limit=None):
    """A stream of ("a", size in MiB) or ("a", size, label), -number: the free of a block, and "mark": a mark.

    The event of each request is its index plus 10.
    """
    labels, rows, made = Labels(), np.zeros(len(requests), STREAM_ROW), 0
    for at, request in enumerate(requests):
        row = rows[at]
        row["event"], row["time"] = at + 10, at
        if isinstance(request, tuple):
            row["kind"], row["block"], row["size"] = ALLOCATE, made, request[1] * MiB
            row["label"] = labels.intern(request[2]) if len(request) > 2 else 0
            made += 1
        elif isinstance(request, str):
            row["kind"], row["label"] = MARK, labels.intern(request)
        else:
            row["kind"], row["block"] = FREE, -request
    return RequestStream(rows, labels, "test", limit)


def holes():
    """First fit and best fit need 6 MiB for 5 MiB: the hole of 1 MiB is too small for the last block."""
    return stream_of(("a", 1), ("a", 2, "kept"), -0, ("a", 3, "last"))
