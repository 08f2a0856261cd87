"""Marks of the program in the trace of every watched heap: steps, and the begin and end of phases."""

import os
from contextvars import ContextVar
from itertools import count
from types import TracebackType
from typing import Any, Protocol, Self

from bfcviz.live.capture.labels import Scope, checked_name, label


class Marked(Protocol):
    """A provider whose `heaps` have `labels` and `mark(label, value)`."""

    @property
    def heaps(self) -> list[Any]:
        """The heaps so far."""


_sources: tuple[Marked, ...] = ()
_numbers = count(1)


_open: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("bfcviz phases", default=())
"""The phases of this context that have begun, with their numbers; 0: no marks."""


def begin(source: Marked) -> None:
    """Write marks into this provider's heaps, too, from now on."""
    global _sources  # noqa: PLW0603  replaced as a whole: other threads read it
    end(source)
    _sources = (*_sources, source)


def end(source: Marked) -> None:
    """Stop writing marks into this provider's heaps."""
    global _sources  # noqa: PLW0603
    _sources = tuple(each for each in _sources if each is not source)


def mark(name: str, value: int = 0) -> None:
    """Write a mark into the trace of every watched heap; does nothing if none is watched.

    ::

        bfcviz.mark("step", 3)

    Args:
        name: use few different names: each is kept forever. Give a counter as the value.
        value: any number from 0 to 2^64 - 1.

    Raises:
        LiveError: the name is not text.
        InvalidRequest: the value is out of range.
    """
    checked_name(name)
    if _sources:
        _put(name, value)


class phase(Scope):  # noqa: N801  used as a word: `with phase("forward"):`
    """A phase of the program, in a `with` or as a decorator: marks its begin and end, and labels its allocations.

    Both marks have the same value, unique to this phase, which pairs them. As with `label`, the innermost phase labels
    the allocations of this context. If nothing is watched it costs almost nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._label = label(name)

    def __enter__(self) -> Self:
        number = next(_numbers) if _sources else 0
        _open.set((*_open.get(), (self.name, number)))
        if number:
            _put(f"{self.name} begins", number, begins=self.name)
        self._label.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._label.__exit__(kind, error, trace)
        if number := self._end():
            _put(f"{self.name} ends", number, ends=self.name)

    def _end(self) -> int:
        """Remove the innermost open phase of this name; returns its number, 0 if it was begun in another context."""
        phases = _open.get()
        for at in reversed(range(len(phases))):
            if phases[at][0] == self.name:
                _open.set(phases[:at] + phases[at + 1 :])
                return phases[at][1]
        return 0


def _put(name: str, value: int, **details: str) -> None:
    for source in _sources:
        for heap in source.heaps:
            heap.mark(heap.labels.intern(name, **details), value)


def _forget_parents() -> None:
    """In a forked process: the heaps belong to the parent."""
    global _sources  # noqa: PLW0603
    _sources = ()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
