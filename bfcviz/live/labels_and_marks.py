"""Labels and marks: the name of a thread's current work, and the program's steps and phases in each trace."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from contextvars import ContextVar, copy_context
from functools import cache, wraps
from inspect import iscoroutinefunction
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Protocol, Self
from weakref import WeakKeyDictionary, ref

from bfcviz.errors import LiveError
from bfcviz.events.label_table import Labels
from bfcviz.events.marks import packed_value
from bfcviz.live import c_callbacks
from bfcviz.live.served_heap import IS_COMPILED

# ------------------------------------------------------------------------------
# Labels: the name of the current work, carried by each of its allocations; costs a few reads of C variables.


class _Tables:
    """The label tables of the served heaps, numbered; new names go into the last one."""

    numbers: ClassVar[WeakKeyDictionary[Labels, int]] = WeakKeyDictionary()
    count = 0
    current: ref[Labels] | None = None


class _Work(NamedTuple):
    """What a context is busy with: its label, and the labels around it."""

    number: int  # of the table * 2^32 + of the label in it; 0: there is no table. C code reads it (thread_label.h).
    name: str  # of the label
    outer: "_Work | None"  # what is around it; None: nothing

    def without(self, name: str) -> "_Work | None":
        """The same labels without the innermost of this name: a generator may end after a work that began later."""
        if self.name == name:
            return self.outer
        return self._replace(outer=None if self.outer is None else self.outer.without(name))


_current: ContextVar[_Work | None] = ContextVar("bfcviz work", default=None)


class Scope(AbstractContextManager[Any], ContextDecorator):
    """What `label` and `phase` have in common: a `with` that is a decorator as well, of coroutine functions too."""

    def __call__(self, function: Any) -> Any:
        """The function, run with this label or in this phase."""
        if not iscoroutinefunction(function):
            return super().__call__(function)

        @wraps(function)
        async def inside(*arguments: Any, **named: Any) -> Any:
            with self:
                return await function(*arguments, **named)

        return inside


class label(Scope):  # noqa: N801  used as a word: `with label("encoder/layer3"):`
    """Label the allocations of this context, in a `with` or as a decorator. The innermost label counts.

    It belongs to the context (`contextvars`): an asyncio task keeps its label across `await`, and tasks started inside
    begin with it; a new thread begins without. Does nothing if no heap is served. PyTorch requests memory without
    Python's lock: its allocations after an `await` have no label, unless the task was the last to set one.

    Raises:
        LiveError: the name is not text.
    """

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)

    def __enter__(self) -> Self:
        outer = _current.get()
        try:
            _set_current_work(_Work(0, self.name, outer))
        except BaseException:  # Ctrl-C: there is no `__exit__` then, and the name would stay forever
            _set_current_work(outer)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        work = _current.get()
        _set_current_work(None if work is None else work.without(self.name))


def checked_name(name: str) -> str:
    """Check the name of a label or mark; raises LiveError if it is not text: it would fail at each allocation."""
    if not isinstance(name, str):
        raise LiveError(f"{name!r} was given as the name of a label or mark; give text, such as 'layer 3'")
    return name


def use(labels: Labels) -> int:
    """Intern names in this table from now on, also this context's label; returns the table's number."""
    prepare()
    if labels not in _Tables.numbers:
        _Tables.count += 1
        _Tables.numbers[labels] = _Tables.count
    _Tables.current = ref(labels)
    _set_current_work(_current.get())
    return _Tables.numbers[labels]


def number_in(labels: Labels) -> int:
    """The number of this context's label in a table; 0: it has none. For heaps that are served in Python."""
    work = _current.get()
    return 0 if work is None else labels.intern(work.name)


def _set_current_work(work: _Work | None) -> None:
    """Set the work of this context, with its number in the table that is current now."""
    table = None if _Tables.current is None else _Tables.current()
    number = 0
    if work is not None and table is not None:
        number = _Tables.numbers[table] << 32 | table.intern(work.name)
        work = work._replace(number=number)
    _current.set(work)
    if IS_COMPILED:  # uncompiled, no C function reads it
        c_callbacks.set_label(number)


@cache
def prepare() -> bool:
    """Let C code read the labels; returns whether it sees changes of the context without reading the variable.

    It does where the same word of the thread's state points to each of two contexts, and the word after it counted that
    one was left and the other entered.
    """
    if not IS_COMPILED:
        return False
    first, second = copy_context(), copy_context()
    at, version = first.run(c_callbacks.label_words, first)
    is_found = at > 0 and second.run(c_callbacks.label_words, second) == (at, version + 2)
    c_callbacks.begin_labels(_current, at if is_found else 0)
    return is_found


# ------------------------------------------------------------------------------
# Marks of the program in the trace of every watched heap: steps, and the begin and end of phases.


class Marked(Protocol):
    """A provider whose `heaps` have `labels` and `mark(label, value)`."""

    @property
    def heaps(self) -> list[Any]:
        """The heaps so far that marks go into."""


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


def is_watched() -> bool:
    """Whether a mark goes into a heap."""
    return bool(_sources)


def mark(name: str, value: float = 0) -> None:
    """Write a mark into the trace of every watched heap; does nothing if none is watched.

    ::

        bfcviz.mark("step", 3)
        bfcviz.mark("loss", 0.5)
        bfcviz.mark("queue", len(queue))

    Args:
        name: use few different names: each is kept forever. Give a counter as the value.
        value: a whole number from 0 to 2^64 - 1, or a floating-point number. With `step`, `iteration`, `batch` or
            `epoch` in the name a whole number counts: it is the number of a step. Others are measured: the figure
            `mark_values` draws a line through those of each name, of whole numbers where a name has at least two marks
            and one that is not 0.

    Raises:
        LiveError: the name is not text.
        InvalidRequest: the value is no number, or out of range.
    """
    checked_name(name)
    if _sources:
        put_mark(_sources, name, value)


class phase(Scope):  # noqa: N801  used as a word: `with phase("forward"):`
    """A phase of the program, in a `with` or as a decorator: marks its begin and end, and labels its allocations.

    Both marks have the same value, unique to this phase, which pairs them. As with `label`, the innermost phase labels
    the allocations of this context. If nothing is watched it costs almost nothing. As a plain decorator, `@phase`, it
    has the name of the function. With `label_it=False` the allocations keep their names.
    """

    def __new__(cls, name: Any, **_: Any) -> Any:
        """A phase; of a function: that function, in a phase of its name."""
        return cls(name.__qualname__)(name) if callable(name) else super().__new__(cls)

    def __init__(self, name: str, *, label_it: bool = True) -> None:
        self.name = name
        self._label: AbstractContextManager[Any] = label(name) if label_it else nullcontext()

    def __enter__(self) -> Self:
        number = next(_numbers) if _sources else 0
        _open.set((*_open.get(), (self.name, number)))
        if number:
            put_mark(_sources, f"{self.name} begins", number, begins=self.name)
        self._label.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._label.__exit__(kind, error, trace)
        if number := self._end():
            put_mark(_sources, f"{self.name} ends", number, ends=self.name)

    def _end(self) -> int:
        """Remove the innermost open phase of this name; returns its number, 0 if it was begun in another context."""
        phases = _open.get()
        for at in reversed(range(len(phases))):
            if phases[at][0] == self.name:
                _open.set(phases[:at] + phases[at + 1 :])
                return phases[at][1]
        return 0


def put_mark(sources: Iterable[Marked], name: str, value: float, **details: str) -> None:
    """Write a mark into the trace of every heap of these; `details` are those of its label.

    Raises:
        InvalidRequest: the value is no number, or out of range.
    """
    size, kind = packed_value(value)
    for source in sources:
        for heap in source.heaps:
            heap.mark(heap.labels.intern(name, **{**details, **kind}), size)


def _forget_parents() -> None:
    """In a forked process: marks go into no heap any more, because the heaps belong to the parent."""
    global _sources  # noqa: PLW0603
    _sources = ()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
