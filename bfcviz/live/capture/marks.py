"""Marks of the program's own, in the trace of every heap that is watched: steps, and phases that begin and end."""

import os
from contextlib import ContextDecorator
from itertools import count
from threading import local
from types import TracebackType
from typing import Any, Protocol, Self

from bfcviz.live.capture.labels import checked_name, label


class Marked(Protocol):
    """A source, of which `heaps` are heaps with `labels` and `mark(label, value)`."""

    @property
    def heaps(self) -> list[Any]:
        """The heaps there are now."""


_sources: tuple[Marked, ...] = ()
_numbers = count(1)


class _Thread(local):
    def __init__(self) -> None:
        self.numbers: list[int] = []


_thread = _Thread()


def begin(source: Marked) -> None:
    """Marks go into this source's heaps too, from now on."""
    global _sources  # noqa: PLW0603  replaced as a whole: other threads are at it
    end(source)
    _sources = (*_sources, source)


def end(source: Marked) -> None:
    """Marks go there no longer."""
    global _sources  # noqa: PLW0603
    _sources = tuple(each for each in _sources if each is not source)


def mark(name: str, value: int = 0) -> None:
    """Put a mark into the trace of every heap that is watched now; does nothing where none is.

    ::

        bfcviz.mark("step", 3)

    Args:
        name: one of few: each is kept for ever. What counts up is better given as the value.
        value: any number from 0 to 2^64 - 1.

    Raises:
        LiveError: the name is no text.
        InvalidRequest: there is no such value.
    """
    checked_name(name)
    if _sources:
        _put(name, value)


class phase(ContextDecorator):  # noqa: N801  used as a word: `with phase("forward"):`
    """A phase of the program, in a `with` or as a decorator: marks where it begins and ends, and labels what is inside.

    The two marks have the same value, one of this phase alone, and so find each other. As with `label`, which names
    what this thread allocates in the meantime, the inner of two counts. Where nothing is watched it is hardly anything.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._label = label(name)

    def __enter__(self) -> Self:
        number = next(_numbers) if _sources else 0
        _thread.numbers.append(number)
        if number:
            _put(f"{self.name} begins", number, begins=self.name)
        self._label.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._label.__exit__(kind, error, trace)
        if number := _thread.numbers.pop():
            _put(f"{self.name} ends", number, ends=self.name)


def _put(name: str, value: int, **details: str) -> None:
    for source in _sources:
        for heap in source.heaps:
            heap.mark(heap.labels.intern(name, **details), value)


def _forget_parents() -> None:
    """In a forked process: those heaps are the parent's."""
    global _sources  # noqa: PLW0603
    _sources = ()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
