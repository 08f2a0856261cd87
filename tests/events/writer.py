"""A process that records until it is killed: `writer.py FOLDER`. Event n names label n // 3 + 1.

It writes as EventLog does: into a mapped file grown ahead, all of a record first and its kind last.
"""

import mmap
import sys

import numpy as np

from bfcviz.events.recording import Recording
from bfcviz.events.schema import EVENT, Kind

GROWTH = 4096  # records


def main():
    recording = Recording(sys.argv[1])
    with recording.events_path.open("w+b") as file:
        number = 0
        while True:
            file.truncate((number + GROWTH) * EVENT.itemsize)
            window = mmap.mmap(file.fileno(), GROWTH * EVENT.itemsize, offset=number * EVENT.itemsize)
            records = np.frombuffer(window, EVENT)
            for record in records:
                record["seq"] = number
                record["time"] = number * 10
                record["size"] = number * 256
                record["label"] = recording.labels.intern(f"op{number // 3 + 1}", stack=f"line {number // 3}")
                record["kind"] = Kind.ALLOCATE
                number += 1
                if number == 1:
                    print("begun", flush=True)


if __name__ == "__main__":
    main()
