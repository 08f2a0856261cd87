"""Request streams of numbered requests, with labels."""

import numpy as np

from bfcviz.events.labels import Labels
from bfcviz.whatif.requests import MARK, STREAM_ROW, RequestStream

MiB = 1 << 20


def stream_of(requests, source="test"):
    """A stream of (kind, block, size); each block has the label `block N`, each mark `step`."""
    rows, labels = np.zeros(len(requests), STREAM_ROW), Labels()
    for at, (kind, block, size) in enumerate(requests):
        label = labels.intern("step" if kind == MARK else f"block {block}")
        rows[at] = (kind, block, size, at, label, 0, 0, at)
    return RequestStream(rows, labels, source)
