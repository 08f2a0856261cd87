"""What a thread is busy with: a label that each of its allocations carries, at the cost of one C variable's read."""

from contextlib import ContextDecorator
from threading import local
from types import TracebackType
from typing import ClassVar, Self
from weakref import WeakKeyDictionary, ref

from bfcviz.errors import LiveError
from bfcviz.events.labels import Labels
from bfcviz.live.numpy import handler
from bfcviz.live.shared.compiled import IS_COMPILED


class _Thread(local):
    def __init__(self) -> None:
        self.names: list[str] = []


class _Tables:
    """The tables of the heaps being served, numbered; names go into the last one."""

    numbers: ClassVar[WeakKeyDictionary[Labels, int]] = WeakKeyDictionary()
    count = 0
    current: ref[Labels] | None = None


_thread = _Thread()


class label(ContextDecorator):  # noqa: N801  used as a word: `with label("encoder/layer3"):`
    """Labels what this thread allocates, in a `with` or as a decorator; inside another one, the inner counts.

    It belongs to the thread: an asyncio task that waits inside lets it fall on others. Does nothing where no heap
    is served.

    Raises:
        LiveError: the name is no text.
    """

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)

    def __enter__(self) -> Self:
        names = _thread.names
        depth = len(names)
        try:
            names.append(self.name)
            _apply()
        except BaseException:  # Ctrl-C: without an `__exit__` to come the name would stay for good
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
    """The name of a label or mark; raises LiveError where it is no text, for in a heap it would fail each time."""
    if not isinstance(name, str):
        raise LiveError(
            f"{name!r} was given as a name for what the program does; give text, such as 'layer 3'"
        )
    return name


def use(labels: Labels) -> int:
    """Intern names in this table from now on, also those in force in this thread; returns the table's number."""
    if labels not in _Tables.numbers:
        _Tables.count += 1
        _Tables.numbers[labels] = _Tables.count
    _Tables.current = ref(labels)
    _apply()
    return _Tables.numbers[labels]


def number_in(labels: Labels) -> int:
    """The number of this thread's label in a table, 0 where it has none; for heaps that are served in Python."""
    return labels.intern(_thread.names[-1]) if _thread.names else 0


def _apply() -> None:
    table = None if _Tables.current is None else _Tables.current()
    if table is None:
        return
    number = table.intern(_thread.names[-1]) if _thread.names else 0
    if IS_COMPILED:  # else no framework is served, and nothing reads it in C
        handler.set_label(_Tables.numbers[table] << 32 | number)
