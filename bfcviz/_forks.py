"""Make the locks of this package free after a fork: the child has no thread that could release them.

A fork takes the locks first, so that the data they guard is consistent, and releases them afterwards in both processes.
A lock that another thread holds for too long is reset in the child. The compiled heap's own locks are handled in
bfcviz/c/lock_list.h.
"""

import os
import threading
import time
from typing import Any, Final, TypeVar
from weakref import ref

PATIENCE: Final = 1.0
"""Seconds that a fork waits for locks."""

FIRST, ADAPTER, LABELS, HEAP = range(4)
"""Ranks: the order in which threads and forks take locks."""


_L = TypeVar("_L")

_kept: dict[ref[Any], int] = {}


class _Taken(threading.local):
    """The locks that this thread took for its fork; two threads may fork at the same time."""

    def __init__(self) -> None:
        self.locks: list[Any] = []


_taken = _Taken()


def keep(lock: _L, rank: int = ADAPTER) -> _L:
    """Register a lock for forks, as long as it exists; returns it.

    It is a lock of `threading`, or has their methods `acquire(blocking, timeout)`, `release` and `_at_fork_reinit`.
    """
    _kept[ref(lock, lambda gone: _kept.pop(gone, None))] = rank
    return lock


def _locks_kept_for_forks() -> list[Any]:
    """All locks by rank. Uses a copy, because other threads may create locks meanwhile."""
    ranked = sorted(_kept.copy().items(), key=lambda item: item[1])
    return [lock for each, _ in ranked if (lock := each()) is not None]


def _take_locks_before_fork() -> None:
    deadline = time.monotonic() + PATIENCE
    for lock in _locks_kept_for_forks():
        taken = lock.acquire(True, max(0.0, deadline - time.monotonic()))  # noqa: FBT003
        _taken.locks.extend([lock] * taken)


def _release_locks_after_fork() -> None:
    while _taken.locks:
        _taken.locks.pop().release()


def _free_in_child() -> None:
    taken = {id(lock) for lock in _taken.locks}
    _release_locks_after_fork()
    for lock in _locks_kept_for_forks():
        if id(lock) not in taken:
            lock._at_fork_reinit()  # noqa: SLF001  as the standard library does


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_take_locks_before_fork,
        after_in_parent=_release_locks_after_fork,
        after_in_child=_free_in_child,
    )
