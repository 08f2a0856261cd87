"""A process that follows a recording until it ends: `follower.py FOLDER`; prints what it saw.

It stops with an error as soon as it sees an event that is not whole, or one that names a label not yet there.
"""

import sys
import time

import numpy as np

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Status, Trace


def look(trace, start):
    events = trace.read(start, len(trace))
    number = np.arange(start, len(trace))
    assert (events["size"] == number * 256).all(), "an event is not whole"
    assert (events["kind"] == Kind.ALLOCATE).all(), "an event is not whole"
    assert (events["label"] == number // 3 + 1).all(), "an event names another label"
    for label in np.unique(events["label"]).tolist():
        assert trace.labels[label] == (f"op{label}", {"stack": f"line {label - 1}"}), "a label is not there"


def main():
    trace = Trace.open(sys.argv[1])
    seen = looks = 0
    while True:
        ended = trace.origin.status is not Status.RECORDING
        look(trace, seen)
        looks += len(trace) > seen
        seen = len(trace)
        if ended:
            break
        time.sleep(0.001)
        trace.refresh()
    print(seen, looks, trace.origin.status)


if __name__ == "__main__":
    main()
