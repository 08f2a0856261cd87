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
from bfcviz.importers.torch.allocation_history import TRACE_ENTRY, TraceRows
from bfcviz.importers.torch.pickle_bytes import EndOfPickle
from bfcviz.importers.torch.pickle_stack import DICT, LIST, SET, OpenContainer, PickleStack

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

    def __init__(self, path: object, data: bytes, rows: TraceRows) -> None:
        super().__init__(path, data, rows)
        self.cut: str | None = None

    def read(self) -> Any:
        """The value; of a file that is cut off, the outermost container with what is whole in it.

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
        """Carry out all opcodes; False: the file is cut off before the last."""
        try:
            while self._carry_out(self._number(1)):
                pass
        except EndOfPickle:
            self.cut = f"the file is cut off at byte {self._stop:,}"
            return False
        return True

    def _carry_out(self, op: int) -> bool:
        """Carry out one opcode; False: it is the last."""
        if op == ops.BINGET:
            self._get(self._number(1))
        elif op == ops.LONG_BINGET:
            self._get(self._number(4))
        elif op == ops.MEMOIZE:
            self._put(len(self._memo))
        elif op == ops.MARK:
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
            length = self._number(1 if op == ops.LONG1 else 4)
            if length > _LONGEST_INT:
                raise self._damage(f"holds a number of {length:,} bytes; the limit is {_LONGEST_INT}")
            self._stack.append(int.from_bytes(self._slice(length), "little", signed=True))
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

    def _read_printed(self, op: int, text: bytes) -> None:
        """A number of protocol 0."""
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
        """What is whole of a dict that is cut off; an empty one, if the outermost value is something else."""
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
        """Whether the value of a key, at a place of the stack, is a container of which more was to come."""
        after = place + 1
        return self._is_open(place) and (
            after >= len(self._stack) or after in self._marks or self._is_open(after)
        )

    def _is_whole(self, place: int) -> bool:
        """Whether nothing more is to come for the item of a list at a place of the stack, because another follows."""
        after = place + 1
        return not self._is_open(place) or (after < len(self._stack) and after not in self._marks)

    def _is_open(self, place: int) -> bool:
        if type(self._stack[place]) is not OpenContainer:
            return False
        made: OpenContainer = self._stack[place]
        return not made.is_closed

    def _whole_items(self, place: int) -> list[Any]:
        """The whole items of a list that is cut off."""
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
