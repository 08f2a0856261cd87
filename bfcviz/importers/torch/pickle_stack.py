"""PickleStack: the values of a pickle that is being read: its stack, its marks and its memo.

::

    stack   { | "segments" [...] "device_traces" [ | ...          | : marks
            ^ an OpenContainer: still grows, nothing can refer to it
    memo    what later GETs repeat: shared, never copied

A container is closed when its last batch has come, or when something refers to it; then it cannot change any more, so
no value can hold itself. `TraceRows` sees each list and dict when it closes, and may return something smaller in its
place: a trace of a million entries never exists as dicts.
"""

from typing import Any, Final

from bfcviz.importers.torch.allocation_history import MISSING, SPENT, TRACE_ENTRY, TraceRows
from bfcviz.importers.torch.pickle_bytes import PickleBytes

BATCH: Final = 1000
"""Items that Python's pickler adds at once; a smaller batch is the last of its container."""

LIST, DICT, SET = 0, 1, 2
_DEEPEST: Final = 64  # marks at the same time; snapshots have 6
_BYTES_PER_VALUE: Final = (
    8  # of the file; a value needs up to some hundred bytes of memory, real ones 16 of the file
)
_FLOOR: Final = 1 << 17
_LARGEST_SET: Final = 1000  # snapshots have none; the hashes of chosen numbers could all be equal


class OpenContainer:
    """A list, dict or set on the stack that still grows.

    Attributes:
        items: of a dict, keys and values in turn.
        slot: its number in the memo, or -1.
        entries, first_row: number of trace entries in a list, and the row of the first.
        value: what it became when it was closed.
    """

    def __init__(self, form: int) -> None:
        self.form = form
        self.slot = -1
        self.is_closed = False
        self.entries = 0
        self.first_row = 0
        self.items: list[Any] = []
        self.value: Any = None


class PickleStack(PickleBytes):
    """The values read so far.

    Args:
        path: of the file, for errors.
        data: all of it.
        rows: receives each list and dict when it closes.
    """

    def __init__(self, path: object, data: bytes, rows: TraceRows) -> None:
        super().__init__(path, data)
        self._rows = rows
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._texts: dict[str, str] = {}
        self._values = 0
        self._most_values = max(_FLOOR, len(data) // _BYTES_PER_VALUE)

    def _add_text(self, text: str) -> None:
        """Equal texts are one object."""
        known = self._texts.get(text)
        if known is None:
            self._count_value()
            known = self._texts[text] = text
        self._stack.append(known)

    # -- containers -----------------------------------------------------------------------------------------------

    def _open(self, form: int) -> OpenContainer:
        self._count_value()
        made = OpenContainer(form)
        self._stack.append(made)
        return made

    def _open_filled(self, form: int) -> None:
        """LIST, DICT, FROZENSET: the items came before."""
        start = self._unmark()
        made = OpenContainer(form)
        self._count_value()
        self._stack.insert(start, made)
        self._add(made, start + 1, form)

    def _fill(self, form: int) -> None:
        """APPENDS, SETITEMS, ADDITEMS: add all that lies above the mark."""
        start = self._unmark()
        count = len(self._stack) - start
        made = self._container_at(start - 1)
        self._add(made, start, form)
        if count < (2 * BATCH if form == DICT else BATCH):
            self._stack[start - 1] = self._close(made)

    def _add_one(self, form: int, count: int) -> None:
        start = len(self._stack) - count
        if start - 1 < self._last_mark():
            raise self._damage("adds to a container behind a mark")
        self._add(self._container_at(start - 1), start, form)

    def _container_at(self, place: int) -> OpenContainer:
        if place < 0 or type(self._stack[place]) is not OpenContainer:
            raise self._damage("adds to a value that is no container, or is complete")
        found: OpenContainer = self._stack[place]
        return found

    def _add(self, made: OpenContainer, start: int, form: int) -> None:
        """Move the values from `start` on from the stack into a container."""
        if made.form != form or made.is_closed:
            raise self._damage("adds to a container of another kind, or to one that other values refer to")
        entries = 0
        for place in range(start, len(self._stack)):
            value = self._closed(self._stack[place])
            if value is TRACE_ENTRY and form == LIST:
                entries += 1
            else:
                made.items.append(value)
        del self._stack[start:]
        if entries:
            self._add_entries(made, entries)

    def _add_entries(self, made: OpenContainer, entries: int) -> None:
        """A list takes the newest rows."""
        first = self._rows.count - entries
        if entries != self._rows.pending or (made.entries and made.first_row + made.entries != first):
            raise self._damage("holds trace entries in an order that no snapshot has")
        if not made.entries:
            made.first_row = first
        made.entries += entries
        self._rows.pending = 0

    def _tuple(self, start: int) -> None:
        if start < self._last_mark():
            raise self._damage("takes values that are not on the stack")
        self._count_value()
        values = tuple([self._closed(value) for value in self._stack[start:]])
        self._check_no_entries(values)
        del self._stack[start:]
        self._stack.append(values)

    def _closed(self, value: Any) -> Any:
        return self._close(value) if type(value) is OpenContainer else value

    def _close(self, made: OpenContainer) -> Any:
        """The value of a container, which cannot change from now on."""
        if made.is_closed:
            return made.value
        made.is_closed = True
        if made.form == DICT:
            self._check_keys(made.items)
            value = self._rows.of_dict(made.items)
        elif made.form == SET:
            value = frozenset(self._plain(made.items))
        elif made.entries:
            self._check_no_entries(made.items)
            if made.items:
                raise self._damage("mixes trace entries with other values in one list")
            value = self._rows.of_trace(made.first_row, made.entries)
        else:
            value = self._rows.of_list(made.items)
        made.value = value
        made.items = []
        if made.slot >= 0:
            self._memo[made.slot] = SPENT if value is TRACE_ENTRY else value
        return value

    def _check_keys(self, items: list[Any]) -> None:
        if len(items) % 2:
            raise self._damage("holds a dict with a key that has no value")
        for place in range(0, len(items), 2):
            if type(items[place]) is not str:
                raise self._damage("holds a dict with a key that is not text")
            if items[place + 1] is TRACE_ENTRY:
                raise self._damage("holds a trace entry outside of a list")

    def _check_no_entries(self, values: Any) -> None:
        for value in values:
            if value is TRACE_ENTRY:
                raise self._damage("holds a trace entry outside of a list")

    def _plain(self, values: Any) -> Any:
        """The values, for a set: few, and nothing nested, because hashing recurses."""
        if len(values) > _LARGEST_SET:
            raise self._damage(f"holds a set of {len(values):,} values; the limit is {_LARGEST_SET}")
        for value in values:
            if not isinstance(value, (str, bytes, int, float, type(None))):
                raise self._damage("holds a set of other values than numbers and texts")
        return values

    # -- marks and memo -------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        if len(self._marks) >= _DEEPEST:
            raise self._damage(f"is nested deeper than {_DEEPEST} levels")
        self._marks.append(len(self._stack))

    def _unmark(self) -> int:
        if not self._marks:
            raise self._damage("ends a group that never began")
        return self._marks.pop()

    def _last_mark(self) -> int:
        return self._marks[len(self._marks) - 1] if self._marks else 0

    def _get(self, number: int) -> None:
        if number >= len(self._memo):
            raise self._damage(f"refers to value {number:,}, which does not exist")
        value = self._closed(self._memo[number])
        if value is MISSING:
            raise self._damage(f"refers to value {number:,}, which does not exist")
        if value is SPENT or value is TRACE_ENTRY:
            raise self._damage("refers to a trace entry a second time")
        self._stack.append(value)

    def _put(self, number: int) -> None:
        if not self._stack:
            raise self._damage("remembers a value that does not exist")
        if number >= self._most_values:
            raise self._damage(f"remembers more than {self._most_values:,} values, the limit for its size")
        value = self._stack[len(self._stack) - 1]
        if type(value) is OpenContainer:
            made = value
            if made.is_closed or made.slot >= 0:
                value = self._close(made)
            else:
                made.slot = number
        if value is TRACE_ENTRY:
            value = SPENT
        while len(self._memo) <= number:
            self._memo.append(MISSING)
        self._memo[number] = value

    def _count_value(self) -> None:
        self._values += 1
        if self._values > self._most_values:
            raise self._damage(f"holds more than {self._most_values:,} values, the limit for its size")
