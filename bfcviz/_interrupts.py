"""Defer signals while the uncompiled heap is locked. The compiled heap does not run handlers then: it holds no GIL.

A handler that raises (Ctrl-C does) would leave the lock locked for ever and the tables half written; a handler that
calls the heap would deadlock. Python runs handlers in the main thread. So while the main thread holds a lock,
`_defer_signal` replaces every handler; the handlers of received signals run after the lock is released. The call of a
sub-allocator is under a lock too.
"""

import _signal  # type: ignore[import-not-found]  # signal wraps each number in an enum: 10 times slower
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

NUMBERS = sorted(int(number) for number in signal.valid_signals() if number < 32)


class _Held:
    """Deferred signals of the main thread; other threads do not use it.

    Invariant: while `depth` is not 0, no handler but `_defer_signal` can run.
    """

    depth = 0
    forks = False  # whether the main thread forks
    handlers: dict[int, Callable[..., Any]] = {}  # noqa: RUF012  by signal, the handlers that `_defer_signal` replaces
    received: list[int] = []  # noqa: RUF012


def block() -> None:
    """Defer signals, until `unblock` was called as often. Raises the exception of a handler that runs before that."""
    if threading.get_ident() != threading.main_thread().ident:
        return
    _Held.depth += 1  # first: a collection in the loop may run a finalizer that calls `block` and `unblock`
    if _Held.depth > 1:
        return
    try:
        for number in NUMBERS:
            handler = _signal.getsignal(number)
            if callable(handler) and handler is not _defer_signal:
                _Held.handlers[number] = handler
                _signal.signal(number, _defer_signal)
    except BaseException:
        unblock()
        raise


def unblock() -> None:
    """Restore the handlers, and run those of signals received meanwhile. Raises their exceptions."""
    if threading.get_ident() != threading.main_thread().ident:
        return
    _Held.depth -= 1
    if _Held.depth:
        return
    # A handler may raise during this loop. The next call then restores the rest, and until then `_defer_signal` calls
    # the handlers itself.
    for number, handler in tuple(_Held.handlers.items()):
        if _signal.getsignal(number) is _defer_signal:
            _signal.signal(number, handler)
    while _Held.received:
        signal.raise_signal(_Held.received.pop())


def _defer_signal(number: int, frame: Any) -> None:
    if _Held.depth:
        if number not in _Held.received:  # pending signals are not counted
            _Held.received.append(number)
    else:
        _Held.handlers[number](number, frame)


def _note_signal_thread_at_fork() -> None:
    _Held.forks = threading.get_ident() == threading.main_thread().ident


def _after_fork_in_child() -> None:
    """Make the thread that forked the main thread of the child. Signals that another thread deferred are dropped."""
    if not _Held.forks and _Held.depth:
        _Held.received.clear()
        _Held.depth = 1
        unblock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_signal_thread_at_fork, after_in_child=_after_fork_in_child)
