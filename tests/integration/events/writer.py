"""A process that runs a heap and records it until it is killed: `writer.py FOLDER`.

After the first request it waits for a line on its standard input, so that its follower has not much to catch up with.
Each request of n bytes has the label "n", with details, so a reader can check the label of every event.
"""

import sys
import time
from itertools import count

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Pool
from bfcviz.units import GiB

LIVE = 100


def main():
    recording = Recording(sys.argv[1], [Pool("heap", GiB)])
    heap = BFCAllocator(SimulatedSubAllocator(), GiB, log=recording.log, labels=recording.labels)
    live = []
    for number in count(1):
        size = number * 37 % 1_000_003
        live.append(heap.allocate(size, label=recording.labels.intern(str(size), request=str(number))))
        if number == 1:
            print("begun", flush=True)
            sys.stdin.readline()
        if len(live) > LIVE:
            heap.free(live.pop(number * 7919 % LIVE))
        if number % 500 == 0:
            time.sleep(0.005)  # the follower checks each event in plain Python


if __name__ == "__main__":
    main()
