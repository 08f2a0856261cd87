"""Signals wait while the plain heap is locked, as they do for the compiled one, which holds no GIL then.

A handler that raises (Ctrl-C does) would leave the lock closed for ever and the books half written, and one
that asks the heap would wait for itself. So while the main thread, which is the one that Python runs handlers in,
holds a lock, `_note` stands in for every handler; those whose signal came run once the lock is free. The call of
a sub-allocator is under a lock too.
"""

import _signal  # type: ignore[import-not-found]  # signal wraps each number in an enum: 10 times slower
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

NUMBERS = sorted(int(number) for number in signal.valid_signals() if number < 32)


class _Held:
    """What the main thread knows; no other touches it.

    Invariant: while `depth` is not 0, no handler but `_note` can run.
    """

    depth = 0
    forks = False  # whether it is the main thread that forks
    handlers: dict[int, Callable[..., Any]] = {}  # noqa: RUF012  by signal, those that `_note` stands in for
    came: list[int] = []  # noqa: RUF012


def hold() -> None:
    """Let signals wait, until `let_go` was called as often. Raises what a handler raises that ran before."""
    if threading.get_ident() != threading.main_thread().ident:
        return
    _Held.depth += 1  # first: a collection within the loop may call a finalizer that holds, and lets go
    if _Held.depth > 1:
        return
    try:
        for number in NUMBERS:
            handler = _signal.getsignal(number)
            if callable(handler) and handler is not _note:
                _Held.handlers[number] = handler
                _signal.signal(number, _note)
    except BaseException:
        let_go()
        raise


def let_go() -> None:
    """Handlers run again, first those whose signal came meanwhile. Raises what they raise."""
    if threading.get_ident() != threading.main_thread().ident:
        return
    _Held.depth -= 1
    if _Held.depth:
        return
    # A handler may raise in the midst of this. What is left is then put right by the next time, and until then
    # `_note` passes signals on.
    for number, handler in tuple(_Held.handlers.items()):
        if _signal.getsignal(number) is _note:
            _signal.signal(number, handler)
    while _Held.came:
        signal.raise_signal(_Held.came.pop())


def _note(number: int, frame: Any) -> None:
    if _Held.depth:
        if number not in _Held.came:  # signals that wait are not counted
            _Held.came.append(number)
    else:
        _Held.handlers[number](number, frame)


def _before_fork() -> None:
    _Held.forks = threading.get_ident() == threading.main_thread().ident


def _after_fork_in_child() -> None:
    """The thread that forked is the child's main thread. Signals that another thread held are dropped."""
    if not _Held.forks and _Held.depth:
        _Held.came.clear()
        _Held.depth = 1
        let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
