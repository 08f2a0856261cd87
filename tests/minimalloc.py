"""MiniMalloc's hard instances as requests."""

from functools import cache

import numpy as np
from shared import ROOT

from bfcviz.events.label_table import Labels
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream

INSTANCES = "ABCDEFGHIJK"
CAPACITY = 1 << 20
"""Each instance is known to fit into so many bytes."""


@cache
def instance(name):
    """The requests of one instance; at one time, frees come first."""
    path = ROOT / "tests" / "data" / "minimalloc" / f"{name}.{CAPACITY}.csv"
    number, start, stop, size = np.loadtxt(path, np.int64, delimiter=",", skiprows=1, unpack=True)
    rows = np.zeros(2 * len(size), STREAM_ROW)
    rows["kind"] = np.repeat([ALLOCATE, FREE], len(size))
    rows["block"] = np.tile(np.argsort(np.argsort(number)), 2)
    rows["time"] = np.concatenate((start, stop))
    rows["size"][: len(size)] = size
    return RequestStream(rows[np.lexsort((rows["kind"] == ALLOCATE, rows["time"]))], Labels(), name)
