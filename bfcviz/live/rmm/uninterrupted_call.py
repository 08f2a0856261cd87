"""UninterruptedCall: a function for C++ to call, in which no signal handler raises.

Python runs the handler of a signal in the first Python code that follows. During a long C++ function, such as a join of
cuDF, that is the next callback. C++ makes a RuntimeError of a KeyboardInterrupt in it, and loses the memory; while it
frees it accepts no exception at all. The compiled module has no Python frame in which a handler could run. Uncompiled,
a handler can still run at the very start of a call.
"""

import ctypes
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable
from typing import Any

from bfcviz import _interrupts


class UninterruptedCall:
    """Calls a function while signals are deferred; what their handlers raise is raised again after the call.

    Args:
        function: it may raise, unless the caller in C++ accepts no exception.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._is_finalizing = sys.is_finalizing  # as modules lose their names when Python exits

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns or raises."""
        if self._is_finalizing():
            return self._function(*arguments)
        interrupt = _block()
        try:
            return self._function(*arguments)
        finally:
            try:
                _interrupts.unblock()
            except BaseException as error:  # noqa: BLE001  of a handler
                interrupt = type(error)
            if interrupt is not None:
                _raise_later(interrupt)


def _block() -> type[BaseException] | None:
    """Begin an uninterrupted call: defer signals; returns the class of what a handler raised that had to run first."""
    interrupt: type[BaseException] | None = None
    while True:
        try:
            _interrupts.block()
        except BaseException as error:  # noqa: BLE001  of a handler
            interrupt = type(error)
        else:
            return interrupt


def _raise_later(kind: type[BaseException]) -> None:
    """Raise after an uninterrupted call, in this thread: another thread needs Python's lock to do that."""
    here = ctypes.c_ulong(threading.get_ident())
    start_new_thread(ctypes.pythonapi.PyThreadState_SetAsyncExc, (here, ctypes.py_object(kind)))
