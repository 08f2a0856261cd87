"""Forks find the locks of this package free: the child has no thread that could release them.

Before a fork the locks are taken, so that what they guard is whole, and released after it on both sides. A lock that
another thread keeps for too long is made anew in the child. The compiled heap's own locks are not among these
(bfcviz/c/lock_list.h).
"""

import os
import threading
import time
from typing import Any, Final, TypeVar
from weakref import ref

PATIENCE: Final = 1.0
"""Seconds that a fork waits for locks."""

FIRST, ADAPTER, LABELS, HEAP = range(4)
"""Ranks: the order in which a thread takes locks, and so does a fork."""


_L = TypeVar("_L")

_kept: dict[ref[Any], int] = {}


class _Taken(threading.local):
    """The locks that this thread took for its fork: two threads may fork at once."""

    def __init__(self) -> None:
        self.locks: list[Any] = []


_taken = _Taken()


def keep(lock: _L, rank: int = ADAPTER) -> _L:
    """Let forks take this lock, as long as it lives; returns it.

    It is one of `threading`, or has their `acquire(blocking, timeout)`, `release` and `_at_fork_reinit`.
    """
    _kept[ref(lock, lambda gone: _kept.pop(gone, None))] = rank
    return lock


def _living() -> list[Any]:
    """By rank. A copy: other threads make locks meanwhile."""
    ranked = sorted(_kept.copy().items(), key=lambda item: item[1])
    return [lock for each, _ in ranked if (lock := each()) is not None]


def _take() -> None:
    deadline = time.monotonic() + PATIENCE
    for lock in _living():
        taken = lock.acquire(True, max(0.0, deadline - time.monotonic()))  # noqa: FBT003
        _taken.locks.extend([lock] * taken)


def _release() -> None:
    while _taken.locks:
        _taken.locks.pop().release()


def _free_in_child() -> None:
    taken = {id(lock) for lock in _taken.locks}
    _release()
    for lock in _living():
        if id(lock) not in taken:
            lock._at_fork_reinit()  # noqa: SLF001  the standard library's own way


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take, after_in_parent=_release, after_in_child=_free_in_child)
