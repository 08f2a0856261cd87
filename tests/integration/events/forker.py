"""A process that records, forks a child that outlives it, and kills itself: `forker.py FOLDER`."""

import os
import signal
import sys
import time

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.events.storage.recording import Recording


def main():
    recording = Recording(sys.argv[1])
    heap = BFCAllocator(SimulatedSubAllocator(), 1 << 20, log=recording.log, labels=recording.labels)
    heap.allocate(256, label="before")
    child = os.fork()
    if child == 0:
        heap.allocate(512, label="of the child")
        recording.close()
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    time.sleep(0.3)
    heap.allocate(1024, label="of the parent")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
