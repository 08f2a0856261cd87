"""KeyboardInterrupt at every instruction of some files, one after the other; or soon after a call."""

import dis
import sys
import time

import pytest

INTERRUPTIBLE = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
"""Instructions behind which Python runs signal handlers."""


class Interrupt:
    """Raises KeyboardInterrupt at the n-th instruction in the files, once.

    In a function with a `with`, only where a signal handler can run: nothing can guard the steps of the `with` itself.
    """

    def __init__(self, at, files, guarded):
        self.left = at
        self.files = files
        self.guarded = guarded
        self.last = {}  # frame -> its last instruction

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            before, self.last[frame] = self.last.get(frame), name
            if frame.f_code.co_name not in self.guarded or before in INTERRUPTIBLE:
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
        return self


def interrupted(at, do, *modules, guarded=()):
    """Do it, interrupted at instruction `at` of the modules; returns whether it has as many.

    `guarded` names the functions with a `with`.
    """
    before = sys.gettrace()
    sys.settrace(Interrupt(at, {module.__file__ for module in modules}, guarded))
    try:
        do()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def until_ctrl_c(do):
    """Do it, and then nothing, until a KeyboardInterrupt is raised, which another thread may do."""

    def program():
        do()
        until = time.monotonic() + 5
        while time.monotonic() < until:
            pass

    with pytest.raises(KeyboardInterrupt):
        program()
