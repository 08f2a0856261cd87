"""Holders by plain sums over a naive heap, and traces with labels of every kind."""

from collections import defaultdict

import numpy as np
from heap_strategies import run

from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT
from bfcviz.events.trace import Origin, Pool, Status, Trace

NAMES = (
    "",
    "layer_1/attention/Softmax",
    "layer_1/attention",
    "layer_1",
    "jit(train)/transpose(jvp(a/b))/dot",
    "no label",
)
STACK = (
    "softmax (/x/site-packages/torch/nn.py:7)\nforward (/home/me/model.py:42)\n<module> (/home/me/train.py:9)"
)


def labels_of(names=NAMES):
    """The labels that `heap_strategies.run` numbers from 0 to 3 and more."""
    labels = Labels()
    for number, name in enumerate(names[1:], 1):
        details = {"shape": f"[{number % 2}]", "stack": STACK} if number % 2 else {}
        labels.intern(name, **details)
    return labels


def trace_of_heap(steps, labels=None):
    """The trace of a random heap with two pools."""
    events = np.array(
        [tuple(record.get(name, 0) for name in EVENT.names) for record in run(steps).records], EVENT
    )
    events["seq"] = np.arange(len(events))
    pools = (Pool("a", None, {}), Pool("b", None, {}))
    origin = Origin("bfcviz", "", Status.COMPLETE, (), pools, {})
    return Trace.from_events(events, labels or labels_of(), origin)


def plain_sums(chunks, path_of):
    """Path -> own chunks, bytes and requested bytes, and those of all paths below it."""
    sums = defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    sums[()]
    for chunk in chunks:
        path = path_of(chunk)
        for length in range(len(path) + 1):
            here = sums[path[:length]]
            for place, amount in enumerate((1, int(chunk["size"]), int(chunk["requested"]))):
                here[place] += amount if length == len(path) else 0
                here[place + 3] += amount
    return {path: tuple(values) for path, values in sums.items()}
