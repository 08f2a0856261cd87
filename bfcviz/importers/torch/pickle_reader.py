"""PickleReader: reads a pickle of plain values without running anything in it.

Values are None, numbers, texts, bytes, lists, dicts with text keys, tuples and sets. Every other opcode is refused,
with its position. Nothing recurses, and memory is bounded by the size of the file.
"""

import pickletools
import struct
from codecs import escape_decode
from typing import Any, Final

from bfcviz.errors import FileError
from bfcviz.importers.torch import pickle_opcodes as ops
from bfcviz.importers.torch.allocation_history import MISSING, SPENT, TRACE_ENTRY, FrameStack, HistoryRows

# ------------------------------------------------------------------------------
# PickleBytes: reads numbers, texts and lines from the bytes of a pickle.


class EndOfPickle(Exception):
    """The data ends before the pickle does."""


class PickleBytes:
    """The bytes of a pickle, and a position in them.

    Args:
        path: of the file, for errors.
        data: all of it.
    """

    def __init__(self, path: object, data: bytes) -> None:
        self._path = path
        self._data = data
        self._bytes = data
        self._at = 0
        self._stop = len(data)

    def _number(self, size: int) -> int:
        """The next `size` bytes of a pickle as a number without a sign."""
        if size > self._stop - self._at:
            raise EndOfPickle
        number = 0
        for place in range(self._at + size - 1, self._at - 1, -1):
            number = (number << 8) | self._bytes[place]
        self._at += size
        return number

    def _slice(self, length: int) -> bytes:
        if length > self._stop - self._at:
            self._slice_length(length)
            raise EndOfPickle
        start = self._at
        self._at += length
        return self._data[start : start + length]

    def _slice_length(self, length: int) -> None:
        """The length of a slice of a pickle: beyond the end it is cut off; beyond all files it is damaged."""
        if length >> 40:
            raise self._damage(f"announces {length:,} bytes")

    def _line(self, longest: int) -> bytes:
        end = self._data.find(b"\n", self._at, self._at + longest + 1)
        if end < 0:
            if self._stop - self._at <= longest:
                raise EndOfPickle
            raise self._damage(f"holds a number of more than {longest} digits")
        start, self._at = self._at, end + 1
        return self._data[start:end]

    def _damage(self, reason: str, back: int = 0) -> FileError:
        return FileError(self._path, f"byte {self._at - back:,}", reason)


# ------------------------------------------------------------------------------
# PickleStack: the values of a pickle that is being read: its stack, its marks and its memo.
#
# ::
#
#     stack   { | "segments" [...] "device_traces" [ | ...          | : marks
#             ^ an OpenContainer: still grows, nothing can refer to it
#     memo    what later GETs repeat: shared, never copied
#
# A container is closed when its last batch has come, or when something refers to it; then it cannot change any more,
# so no value can hold itself. `HistoryRows` sees each list and dict when it closes, and may return something
# smaller in its place: a trace of a million entries never exists as dicts.

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
    """A list, dict or set on the stack of a pickle that still grows.

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
    """The values read from a pickle so far.

    Args:
        path: of the file, for errors.
        data: all of it.
        rows: receives each list and dict when it closes.
    """

    def __init__(self, path: object, data: bytes, rows: HistoryRows) -> None:
        super().__init__(path, data)
        self._rows = rows
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._texts: dict[str, str] = {}
        self._repeats: dict[bytes, FrameStack] = {}  # what a list of these references to the memo became
        self._values = 0
        self._most_values = max(_FLOOR, len(data) // _BYTES_PER_VALUE)

    def _add_text(self, text: str) -> None:
        """Add a text from a pickle; equal texts are one object."""
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
        """The opcodes LIST, DICT, FROZENSET of a pickle: the items came before."""
        start = self._unmark()
        made = OpenContainer(form)
        self._count_value()
        self._stack.insert(start, made)
        self._add(made, start + 1, form)

    def _fill(self, form: int) -> None:
        """The opcodes APPENDS, SETITEMS, ADDITEMS of a pickle: add all that lies above the mark."""
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

    def _empty_list(self) -> OpenContainer | None:
        """The list on top of the stack of a pickle, if it is new."""
        value = self._stack[len(self._stack) - 1] if self._stack else None
        if type(value) is not OpenContainer:
            return None
        made: OpenContainer = value
        is_new = made.form == LIST and not (made.is_closed or made.items or made.entries)
        return made if is_new else None

    def _container_at(self, place: int) -> OpenContainer:
        if place < 0 or type(self._stack[place]) is not OpenContainer:
            raise self._damage("adds to a value that is no container, or is complete")
        found: OpenContainer = self._stack[place]
        return found

    def _add(self, made: OpenContainer, start: int, form: int) -> None:
        """Move the values from `start` on from the stack of a pickle into a container."""
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
        """The value of a container in a pickle, which cannot change from now on."""
        if made.is_closed:
            return made.value
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
        made.items = []
        return self._close_as(made, value)

    def _close_as(self, made: OpenContainer, value: Any) -> Any:
        made.is_closed = True
        made.value = value
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
        """The values of a pickle for a set: few, and nothing nested, because hashing recurses."""
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
        if self._repeats and self._memo[number] is not MISSING:
            self._repeats = {}  # the same references mean something else from now on
        self._memo[number] = value

    def _count_value(self) -> None:
        self._values += 1
        if self._values > self._most_values:
            raise self._damage(f"holds more than {self._most_values:,} values, the limit for its size")


# ------------------------------------------------------------------------------
# PickleReader: reads a pickle of plain values without running anything in it.

_LONGEST_INT: Final = 16  # bytes
_LONGEST_LINE: Final = 64  # of a number
_PARTLY: Final = "device_traces"  # the only list that is of use without its end
_TWO_32: Final = 1 << 32


class PickleReader(PickleStack):
    """Reads one pickle.

    Args:
        path: of the file, for errors.
        data: all of it.
        rows: receives each list and dict when it closes.

    Attributes:
        cut: why the end is missing; None: nothing is missing.
    """

    def __init__(self, path: object, data: bytes, rows: HistoryRows) -> None:
        super().__init__(path, data, rows)
        self.cut: str | None = None

    def read(self) -> Any:
        """The value of a pickle; if it is cut off, the outermost container with what is whole in it.

        Raises:
            FileError: the data is no pickle, holds more than plain values, or more values than its size allows.
        """
        try:
            return self._whole() if self._carry_out_all() else self._unfinished()
        except (ValueError, ArithmeticError, MemoryError) as error:
            if isinstance(error, FileError):
                raise
            raise self._damage(str(error) or type(error).__name__) from None

    def _carry_out_all(self) -> bool:
        """Carry out all opcodes of a pickle; False: the file is cut off before the last."""
        try:
            while self._carry_out(self._number(1)):
                pass
        except EndOfPickle:
            self.cut = f"the file is cut off at byte {self._stop:,}"
            return False
        return True

    def _carry_out(self, op: int) -> bool:
        """Carry out one opcode of a pickle; False: it is the last."""
        if op == ops.BINGET:
            self._get(self._number(1))
        elif op == ops.LONG_BINGET:
            self._get(self._number(4))
        elif op == ops.MEMOIZE:
            self._put(len(self._memo))
        elif op == ops.MARK:
            if not self._repeat():
                self._mark()
        elif op == ops.SETITEMS:
            self._fill(DICT)
        elif op == ops.APPENDS:
            self._fill(LIST)
        elif op == ops.STOP:
            return False
        elif not (self._read_number(op) or self._read_text(op) or self._build(op) or self._remember(op)):
            raise self._refused(op)
        return True

    def _repeat(self) -> bool:
        """After a mark: fill a list that gets nothing but references to the memo; False: what follows is no such list.

        Most of a snapshot are lists of frames, a few hundred different ones: each is read once, and then known by its
        bytes.
        """
        made = self._empty_list()
        end = self._end_of_references() if made is not None else 0
        if made is None or not end or len(self._marks) >= _DEEPEST:
            return False
        run = self._data[self._at : end]
        known = self._repeats.get(run)
        if known is not None:
            self._at = end
            self._stack[len(self._stack) - 1] = self._close_as(made, known)
            return True
        self._mark()
        while self._at < end:
            self._carry_out(self._number(1))
        value = self._stack[len(self._stack) - 1]
        if type(value) is FrameStack:
            self._repeats[run] = value
        return True

    def _end_of_references(self) -> int:
        """Where the references to the memo from here on, fewer than a batch, and their APPENDS end; 0: they do not."""
        at, count = self._at, 0
        while at < self._stop and count < BATCH:
            op = self._bytes[at]
            if op == ops.BINGET:
                at += 2
            elif op == ops.LONG_BINGET:
                at += 5
            else:
                return at + 1 if op == ops.APPENDS else 0
            count += 1
        return 0

    # -- values of one opcode -------------------------------------------------------------------------------------

    def _read_number(self, op: int) -> bool:
        if op == ops.BININT1:
            self._stack.append(self._number(1))
        elif op == ops.BININT2:
            self._stack.append(self._number(2))
        elif op == ops.BININT:
            number = self._number(4)
            self._stack.append(number - _TWO_32 if number >> 31 else number)
        elif op == ops.LONG1 or op == ops.LONG4:
            self._read_long(self._number(1 if op == ops.LONG1 else 4))
        elif op == ops.NONE:
            self._stack.append(None)
        elif op == ops.NEWTRUE or op == ops.NEWFALSE:
            self._stack.append(op == ops.NEWTRUE)
        elif op == ops.BINFLOAT:
            self._count_value()
            self._stack.append(struct.unpack(">d", self._slice(8))[0])
        elif op == ops.INT or op == ops.LONG or op == ops.FLOAT:
            self._read_printed(op, self._line(_LONGEST_LINE))
        else:
            return False
        return True

    def _read_long(self, length: int) -> None:
        """A number of so many bytes in a pickle."""
        if length > _LONGEST_INT:
            raise self._damage(f"holds a number of {length:,} bytes; the limit is {_LONGEST_INT}")
        last = self._at + length - 1
        if 0 < length <= 8 and last < self._stop and self._bytes[last] < 128:  # as addresses and times
            self._stack.append(self._number(length))
        else:
            self._stack.append(int.from_bytes(self._slice(length), "little", signed=True))

    def _read_printed(self, op: int, text: bytes) -> None:
        """A number of a pickle of protocol 0."""
        if op == ops.FLOAT:
            self._count_value()
            self._stack.append(float(text))
        elif op == ops.INT and text in (b"00", b"01"):
            self._stack.append(text == b"01")
        else:
            self._stack.append(int(text.removesuffix(b"L")))

    def _read_text(self, op: int) -> bool:
        if op == ops.SHORT_BINUNICODE or op == ops.SHORT_BINSTRING:
            self._add_text(str(self._slice(self._number(1)), "utf-8", "replace"))
        elif op == ops.BINUNICODE or op == ops.BINSTRING:
            self._add_text(str(self._slice(self._number(4)), "utf-8", "replace"))
        elif op == ops.BINUNICODE8:
            self._add_text(str(self._slice(self._number(8)), "utf-8", "replace"))
        elif op == ops.UNICODE:
            self._add_text(str(self._line(self._stop), "raw-unicode-escape", "replace"))
        elif op == ops.STRING:
            quoted = self._line(self._stop)
            for quote in (b"'", b'"'):
                if len(quoted) > 1 and quoted.startswith(quote) and quoted.endswith(quote):
                    break
            else:
                raise self._damage("holds a text without quotes")
            text = quoted.removeprefix(quote).removesuffix(quote)
            self._add_text(str(escape_decode(text)[0], "utf-8", "replace"))
        elif op == ops.SHORT_BINBYTES or op == ops.BINBYTES or op == ops.BINBYTES8:
            self._count_value()
            size = 1 if op == ops.SHORT_BINBYTES else 4 if op == ops.BINBYTES else 8
            self._stack.append(self._slice(self._number(size)))
        else:
            return False
        return True

    # -- containers and memo --------------------------------------------------------------------------------------

    def _build(self, op: int) -> bool:
        if op == ops.EMPTY_DICT:
            self._open(DICT)
        elif op == ops.EMPTY_LIST:
            self._open(LIST)
        elif op == ops.APPEND:
            self._add_one(LIST, 1)
        elif op == ops.SETITEM:
            self._add_one(DICT, 2)
        elif op == ops.LIST or op == ops.DICT:
            self._open_filled(LIST if op == ops.LIST else DICT)
        elif op == ops.EMPTY_SET:
            self._open(SET)
        elif op == ops.FROZENSET:
            self._open_filled(SET)
        elif op == ops.ADDITEMS:
            self._fill(SET)
        else:
            return self._build_tuple(op)
        return True

    def _build_tuple(self, op: int) -> bool:
        if op == ops.EMPTY_TUPLE:
            self._stack.append(())
        elif op == ops.TUPLE1 or op == ops.TUPLE2 or op == ops.TUPLE3:
            self._tuple(len(self._stack) - (op - ops.TUPLE1 + 1))
        elif op == ops.TUPLE:
            self._tuple(self._unmark())
        else:
            return False
        return True

    def _remember(self, op: int) -> bool:
        if op == ops.BINPUT:
            self._put(self._number(1))
        elif op == ops.LONG_BINPUT:
            self._put(self._number(4))
        elif op == ops.PUT or op == ops.GET:
            number = int(self._line(18))
            if number < 0:
                raise self._damage(f"refers to value {number}")
            if op == ops.PUT:
                self._put(number)
            else:
                self._get(number)
        elif op == ops.FRAME:
            self._slice_length(self._number(8))
        elif op == ops.PROTO:
            if (version := self._number(1)) > 5:
                raise self._damage(f"is of protocol {version}; bfcviz reads 0 to 5")
        else:
            return False
        return True

    # -- ends -----------------------------------------------------------------------------------------------------

    def _whole(self) -> Any:
        """The one value of a pickle with its end."""
        if len(self._stack) != 1 or self._marks:
            raise self._damage("the pickle ends with values left over")
        return self._closed(self._stack[0])

    def _unfinished(self) -> Any:
        """What is whole of a dict of a pickle that is cut off; an empty one, if the outermost is no dict."""
        stack = self._stack
        if not stack or type(stack[0]) is not OpenContainer:
            return stack[0] if stack and not self._marks else {}
        made = stack[0]
        if made.form != DICT or made.is_closed:
            return made.value if made.is_closed else {}
        self._check_keys(made.items)
        whole: dict[str, Any] = dict(zip(made.items[::2], made.items[1::2], strict=True))
        place = 1
        while place + 1 < len(stack) and type(stack[place]) is str:
            key = stack[place]
            if self._grows(place + 1):
                if key == _PARTLY:
                    whole[key] = self._whole_items(place + 1)
                break
            whole[key] = self._closed(stack[place + 1])
            place += 2
        return whole

    def _grows(self, place: int) -> bool:
        """Whether the value of a key, at a place of a pickle's stack, is a container of which more was to come."""
        after = place + 1
        return self._is_open(place) and (
            after >= len(self._stack) or after in self._marks or self._is_open(after)
        )

    def _is_whole(self, place: int) -> bool:
        """Whether nothing more is to come for an item of a list on a pickle's stack, because another follows."""
        after = place + 1
        return not self._is_open(place) or (after < len(self._stack) and after not in self._marks)

    def _is_open(self, place: int) -> bool:
        if type(self._stack[place]) is not OpenContainer:
            return False
        made: OpenContainer = self._stack[place]
        return not made.is_closed

    def _whole_items(self, place: int) -> list[Any]:
        """The whole items of a list of a pickle that is cut off."""
        made = self._stack[place]
        items = list(made.items) if made.form == LIST else []
        place += 1
        if place in self._marks:
            while place < len(self._stack) and self._is_whole(place):
                items.append(self._closed(self._stack[place]))
                place += 1
        return [item for item in items if item is not TRACE_ENTRY]

    def _refused(self, op: int) -> FileError:
        known = pickletools.code2op.get(chr(op))  # type: ignore[attr-defined]
        if known is None:
            return self._damage(f"byte {op:#04x} is no instruction of a pickle", 1)
        return self._damage(
            f"holds {known.name}, an instruction that can build other objects than plain values or run code; "
            "PyTorch's snapshots have none, so nothing of this file was read",
            1,
        )
