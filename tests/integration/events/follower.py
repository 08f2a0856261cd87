"""A process that follows a recording of `writer.py` until it ends: `follower.py FOLDER`; prints what it read.

It stops with an error as soon as it sees an event that is not whole, or one that names a label not yet there.
"""

import sys
import time

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Status, Trace


def look(trace, start):
    """Check the events from `start` on; reading them checks `seq` and `kind`, and that their labels exist."""
    events = trace.read(start, len(trace))
    assert trace.origin.status is not Status.DEGRADED, trace.origin.reasons
    named = events[(events["kind"] == Kind.ALLOCATE) | (events["kind"] == Kind.FREE)]
    for label, requested in zip(named["label"].tolist(), named["requested"].tolist(), strict=True):
        assert trace.labels.name(label) == str(requested), "an event and its label do not fit"
        assert trace.labels[label].details, "a label is not whole"


def main():
    trace = Trace.open(sys.argv[1])
    seen = looks = 0
    while True:
        ended = trace.origin.status is not Status.RECORDING
        look(trace, seen)
        if len(trace) > seen:
            looks += 1
            if looks == 1:
                print("following", flush=True)
        seen = len(trace)
        if ended:
            break
        time.sleep(0.001)
        trace.refresh()
    print(seen, looks, trace.origin.status)


if __name__ == "__main__":
    main()
