"""Request streams of numbered requests, with labels."""

import random

import numpy as np
from hypothesis import strategies as st

from bfcviz.events.labels import Labels
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, STREAM_ROW, RequestStream

MiB = 1 << 20
LIMIT = 64 * MiB


def stream_of(requests, source="test"):
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
    return stream_of(requests)


def streams():
    return st.builds(random_stream, st.integers(0, 60), st.integers(0, 1 << 32))
