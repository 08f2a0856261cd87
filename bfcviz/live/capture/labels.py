"""Labels: the name of a thread's current work, carried by each of its allocations; costs one read of a C variable."""

from contextlib import ContextDecorator
from threading import local
from types import TracebackType
from typing import ClassVar, Self
from weakref import WeakKeyDictionary, ref

from bfcviz.errors import LiveError
from bfcviz.events.labels import Labels
from bfcviz.live.common.require_compiled import IS_COMPILED
from bfcviz.live.numpy import handler


class _ThreadLabels(local):
    def __init__(self) -> None:
        self.names: list[str] = []


class _Tables:
    """The label tables of the served heaps, numbered; new names go into the last one."""

    numbers: ClassVar[WeakKeyDictionary[Labels, int]] = WeakKeyDictionary()
    count = 0
    current: ref[Labels] | None = None


_thread = _ThreadLabels()


class label(ContextDecorator):  # noqa: N801  used as a word: `with label("encoder/layer3"):`
    """Label the allocations of this thread, in a `with` or as a decorator. The innermost label counts.

    It belongs to the thread: while an asyncio task waits inside, the label also applies to other tasks of the thread.
    Does nothing if no heap is served.

    Raises:
        LiveError: the name is not text.
    """

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)

    def __enter__(self) -> Self:
        names = _thread.names
        depth = len(names)
        try:
            names.append(self.name)
            _apply()
        except BaseException:  # Ctrl-C: there is no `__exit__` then, and the name would stay forever
            del names[depth:]
            _apply()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _thread.names.pop()
        _apply()


def checked_name(name: str) -> str:
    """Check the name of a label or mark; raises LiveError if it is not text: it would fail at each allocation."""
    if not isinstance(name, str):
        raise LiveError(f"{name!r} was given as the name of a label or mark; give text, such as 'layer 3'")
    return name


def use(labels: Labels) -> int:
    """Intern names in this table from now on, also this thread's current label; returns the table's number."""
    if labels not in _Tables.numbers:
        _Tables.count += 1
        _Tables.numbers[labels] = _Tables.count
    _Tables.current = ref(labels)
    _apply()
    return _Tables.numbers[labels]


def number_in(labels: Labels) -> int:
    """The number of this thread's label in a table; 0: it has none. For heaps that are served in Python."""
    return labels.intern(_thread.names[-1]) if _thread.names else 0


def _apply() -> None:
    table = None if _Tables.current is None else _Tables.current()
    if table is None:
        return
    number = table.intern(_thread.names[-1]) if _thread.names else 0
    if IS_COMPILED:  # uncompiled, no C function reads it
        handler.set_label(_Tables.numbers[table] << 32 | number)
