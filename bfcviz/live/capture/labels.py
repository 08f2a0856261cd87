"""Labels: the name of the current work, carried by each of its allocations; costs a few reads of C variables."""

from contextlib import AbstractContextManager, ContextDecorator
from contextvars import ContextVar, copy_context
from functools import cache, wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self
from weakref import WeakKeyDictionary, ref

from bfcviz.errors import LiveError
from bfcviz.events.labels import Labels
from bfcviz.live.common.require_compiled import IS_COMPILED
from bfcviz.live.numpy import handler


class _Tables:
    """The label tables of the served heaps, numbered; new names go into the last one."""

    numbers: ClassVar[WeakKeyDictionary[Labels, int]] = WeakKeyDictionary()
    count = 0
    current: ref[Labels] | None = None


class _Work(NamedTuple):
    """What a context is busy with.

    Attributes:
        number: of the table * 2^32 + of the label in it; 0: there is no table. C code reads it (thread_label.h).
        name: of the label.
        outer: what is around it; None: nothing.
    """

    number: int
    name: str
    outer: "_Work | None"

    def without(self, name: str) -> "_Work | None":
        """The same without its innermost work of this name: a generator may end after a work that began later."""
        if self.name == name:
            return self.outer
        return self._replace(outer=None if self.outer is None else self.outer.without(name))


_current: ContextVar[_Work | None] = ContextVar("bfcviz work", default=None)


class Scope(AbstractContextManager[Any], ContextDecorator):
    """A `with` that is a decorator as well, of coroutine functions too."""

    def __call__(self, function: Any) -> Any:
        """The function, run in this `with`."""
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
            _set(_Work(0, self.name, outer))
        except BaseException:  # Ctrl-C: there is no `__exit__` then, and the name would stay forever
            _set(outer)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        work = _current.get()
        _set(None if work is None else work.without(self.name))


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
    _set(_current.get())
    return _Tables.numbers[labels]


def number_in(labels: Labels) -> int:
    """The number of this context's label in a table; 0: it has none. For heaps that are served in Python."""
    work = _current.get()
    return 0 if work is None else labels.intern(work.name)


def _set(work: _Work | None) -> None:
    """Set the work of this context, with its number in the table that is current now."""
    table = None if _Tables.current is None else _Tables.current()
    number = 0
    if work is not None and table is not None:
        number = _Tables.numbers[table] << 32 | table.intern(work.name)
        work = work._replace(number=number)
    _current.set(work)
    if IS_COMPILED:  # uncompiled, no C function reads it
        handler.set_label(number)


@cache
def prepare() -> bool:
    """Let C code read the labels; returns whether it sees changes of the context without reading the variable.

    It does where the same word of the thread's state points to each of two contexts, and the word after it counted that
    one was left and the other entered.
    """
    if not IS_COMPILED:
        return False
    first, second = copy_context(), copy_context()
    at, version = first.run(handler.label_words, first)
    is_found = at > 0 and second.run(handler.label_words, second) == (at, version + 2)
    handler.begin_labels(_current, at if is_found else 0)
    return is_found
