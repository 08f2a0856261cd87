"""Small request streams for tests."""

import random

import numpy as np
from hypothesis import strategies as st

from bfcviz.events.label_table import Labels
from bfcviz.events.marks import BEGINS, ENDS
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, STREAM_ROW, RequestStream

MiB = 1 << 20
LIMIT = 64 * MiB


def stream_of(*requests, limit=None):
    """A stream of ("a", size in MiB) or ("a", size, label), -number: the free of a block, and "mark": a mark.

    A mark "NAME begins" or "NAME ends" is of a phase.

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
            name, _, side = request.rpartition(" ")
            details = {side: name} if side in {BEGINS, ENDS} else {}
            row["kind"], row["label"] = MARK, labels.intern(request, **details)
        else:
            row["kind"], row["block"] = FREE, -request
    return RequestStream(rows, labels, "test", limit)


def holes():
    """First fit and best fit need 6 MiB for 5 MiB: the hole of 1 MiB is too small for the last block."""
    return stream_of(("a", 1), ("a", 2, "kept"), -0, ("a", 3, "last"))


def numbered_stream(requests, source="test"):
    """A stream of (kind, block, size); each block has the label `block N`, each mark `step`."""
    labels, rows = Labels(), []
    for at, (kind, block, size) in enumerate(requests):
        label = labels.intern("step" if kind == MARK else f"block {block}")
        rows.append((kind, block, size, at, label, 0, 0, at))
    return RequestStream(np.array(rows, STREAM_ROW), labels, source)


def random_stream(length, seed):
    """Requests and frees in any order: of a byte up to half of `LIMIT`."""
    draw, live, requests, made = random.Random(seed), [], [], 0
    for _ in range(length):
        if live and draw.random() < 0.5:
            requests.append((FREE, live.pop(draw.randrange(len(live))), 0))
        else:
            requests.append((ALLOCATE, made, draw.choice([1, 300, 5_000, 70_000, 3 * MiB, 30 * MiB])))
            live.append(made)
            made += 1
    return numbered_stream(requests)


def streams():
    return st.builds(random_stream, st.integers(0, 60), st.integers(0, 1 << 32))
