"""A process that records, forks a child that outlives it, and kills itself: `forker.py FOLDER`."""

import os
import signal
import sys
import time

from bfcviz.events.recording import Recording


def main():
    recording = Recording(sys.argv[1])
    recording.labels.intern("before")
    child = os.fork()
    if child == 0:
        recording.labels.intern("of the child")
        recording.close()
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    time.sleep(0.3)
    recording.labels.intern("of the parent")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
