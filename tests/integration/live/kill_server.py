"""Forks processes that are recorded, and kills each at a random moment: `kill_server.py FOLDER COUNT`.

Each child goes through what `bfcviz record` starts in a process, once NumPy is there, and then allocates and frees
arrays as `operations` tells. After each allocation it writes its number into memory that the parent shares; the
parent prints, for each child, the last number it found there. One warm Python serves all: begun anew, each would
take a second.
"""

import ctypes
import mmap
import os
import random
import signal
import sys
import time
from itertools import count

import numpy as np

from bfcviz.live import recorded_process as record
from bfcviz.live.labels_and_marks import label

LIVE = 50
LONGEST_S = 0.1


class Shared(ctypes.Structure):
    """Each written by one instruction, so that a kill does not leave half of it."""

    _fields_ = (("done", ctypes.c_int64), ("begun", ctypes.c_int64))


def operations():
    """What a child does: a size is allocated, a negative one freed; for ever."""
    held = []
    for number in count(1):
        size = 1 + number * 7919 % 50_021
        yield size
        held.append(size)
        if len(held) > LIVE:
            yield -held.pop(number * 31 % LIVE)


def work(folder, told, shared):
    """A child's whole life."""
    order = {"folder": folder, "way": "serve", "options": {"limit": 1 << 30}, "told": told}
    assert record.begin(order, "numpy")
    arrays = {}
    done = 0
    shared.begun = 1
    for size in operations():
        if size < 0:
            arrays[-size].pop()
            continue
        with label(f"{size} bytes"):
            arrays.setdefault(size, []).append(np.empty(size, np.uint8))
        done += 1
        shared.done = done


def main():
    folder, times = sys.argv[1], int(sys.argv[2])
    random.seed(int(sys.argv[3]))
    for number in range(times):
        shared = Shared.from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
        child = os.fork()
        if child == 0:
            try:
                work(f"{folder}/{number}", folder, shared)
            finally:
                os._exit(1)
        while not shared.begun:
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
        time.sleep(random.uniform(0, 1) ** 3 * LONGEST_S)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(shared.done, flush=True)


if __name__ == "__main__":
    main()
