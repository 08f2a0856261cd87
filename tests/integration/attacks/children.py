"""Child processes of an attack: forked, followed through shared memory, and ended after a time limit."""

import ctypes
import faulthandler
import mmap
import os
import signal
import sys
import time
import traceback
from pathlib import Path

LIMIT = 10  # seconds that a child may take


class Shared(ctypes.Structure):
    """Written by one instruction each, so that a kill leaves no half of it."""

    _fields_ = (("done", ctypes.c_int64), ("begun", ctypes.c_int64), ("sent", ctypes.c_int64))


def shared_memory():
    return Shared.from_buffer(mmap.mmap(-1, mmap.PAGESIZE))


def start(work):
    """Run `work` in a forked process, which exits with 0, or with 1 where it raised; returns the process's number."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        faulthandler.register(signal.SIGALRM, chain=True)  # says where it stands
        signal.alarm(LIMIT)  # ends it whatever it waits for
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        status = 0
    except KeyboardInterrupt:
        status = 130
    except BaseException:  # noqa: BLE001  the parent judges it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def wait_for(pid, is_so):
    """Wait until `is_so()`; False where the process ended before."""
    while not is_so():
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return is_so()
        time.sleep(0.0002)
    return True


def ended(pid):
    """Its exit status, below 0 that of the signal that ended it, once it ended."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def expect(status, *allowed):
    """Raise where a child ended otherwise, with what it wrote to stderr."""
    if status not in allowed:
        how = {-signal.SIGALRM: f"hung: it took more than {LIMIT} s"}.get(
            status, f"ended with status {status}"
        )
        said = Path("/proc/self/fd/2").read_text(errors="replace")[-2000:]
        raise AssertionError(f"the child {how}\n{said}")
