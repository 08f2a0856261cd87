"""Work in a forked process."""

import os
import signal

LIMIT_S = 150


def child_ends_well(work, limit_s=LIMIT_S):
    """Fork, run `work` in the child, and wait for it; returns whether it raised nothing and did not hang.

    The child ends at once: it runs no atexit function, and nothing of the code that called this.
    """
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(limit_s)  # ends a hang
        try:
            work()
            status = 0
        except BaseException as error:  # noqa: BLE001  the parent judges it
            print("in the child:", repr(error), flush=True)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
