"""Join the events of the heaps of a log into one stream, in the order of its records."""

from collections.abc import Sequence

import numpy as np

from bfcviz.events.schema import Events
from bfcviz.importers.pools import by_time


def in_record_order(logs: Sequence[Events], times: Sequence[int]) -> Events:
    """One stream, with times in ns from the first record; a record never has an earlier time than one before it.

    Args:
        logs: one per heap, with the number of the record in `time`.
        times: ns of each record; 0: before the first record with a time.
    """
    events = by_time(logs)
    clock = np.maximum.accumulate(np.array(times, np.int64))
    first = clock[clock > 0][:1]
    if len(first):
        events["time"] = np.maximum(clock - first, 0)[events["time"]]
    else:
        events["time"] = 0
    return events
