"""UninterruptedCall: a signal before or in a call from C++ is handled after it; the call is made, and completes."""

import ctypes
import operator
import signal
import sys
from functools import partial

import pytest
from interrupts import until_ctrl_c
from processes import needs_compiled

from bfcviz.live import c_callbacks
from bfcviz.live.c_callbacks import UninterruptedCall


def test_ctrl_c_in_the_call_comes_after_it():
    done = []

    def work(number):
        signal.raise_signal(signal.SIGINT)
        done.append(number)

    until_ctrl_c(lambda: UninterruptedCall(work)(21))
    assert done == [21]


@needs_compiled
def test_ctrl_c_in_cpp_before_the_call_comes_after_it():
    done = []
    kill = partial(ctypes.PyDLL(None)["raise"], int(signal.SIGINT))  # no Python runs from here to the call
    both = (kill, partial(UninterruptedCall(done.append), 21))
    until_ctrl_c(lambda: list(map(operator.call, both)))
    assert done == [21]


def test_while_python_exits_and_modules_are_empty_the_call_is_made(monkeypatch):
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    call = UninterruptedCall(lambda number: 2 * number)
    for name in ("_interrupts", "_block", "sys"):
        monkeypatch.setattr(c_callbacks, name, None)
    assert call(21) == 42


def test_it_returns_and_raises_what_the_function_does():
    assert UninterruptedCall(lambda number: 2 * number)(21) == 42
    with pytest.raises(MemoryError, match="full"):
        UninterruptedCall(lambda: (_ for _ in ()).throw(MemoryError("full")))()
