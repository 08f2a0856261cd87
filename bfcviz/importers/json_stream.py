"""JsonStream: the values of one array in a large JSON text, one at a time."""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

# The standard parser would make an object of every value of the file at once. Here one value of the array is an
# object at a time, and of the text only a window is in memory.

MAX_ITEM: Final = 1 << 26
"""Characters of one value."""

_WINDOW: Final = 1 << 20
_LONGEST_WORD: Final = 16
_GOES_ON: Final = re.compile(r"[.eE+\-]*\Z")
"""After a number: more digits may follow in the next piece."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")


class JsonCut(Exception):
    """The JSON text ends inside a value; the values before it are complete."""


class JsonStream:
    """Reads the top level of a JSON text in UTF-8: an array, or an object with arrays; invalid bytes are replaced."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._text = ""
        self._at = 0
        self._before = 0  # characters before the window
        self._is_whole = False

    @property
    def place(self) -> str:
        """Where the reader of the JSON text is, for errors."""
        return f"character {self._before + self._at}"

    def items(self, key: str) -> Iterator[Any]:
        """The values of the array of a JSON text; if it is an object, those of the arrays under `key`.

        NaN and Infinity, which are not JSON but do occur, become None.

        Raises:
            JsonCut: the text ends too early.
            ValueError: it is not JSON, is nested too deeply, or one value is too long.
        """
        if (first := self._next_mark()) == "[":
            yield from self._array()
        elif first != "{":
            raise ValueError("is not an array or an object")
        else:
            yield from self._object(key)
        if self._peek():
            raise ValueError("is followed by more text")

    def _object(self, key: str) -> Iterator[Any]:
        if self._peek() == "}":
            self._next_mark()
            return
        while True:
            name = self._value()
            if not isinstance(name, str) or self._next_mark() != ":":
                raise ValueError("a key is missing")
            if name == key and self._peek() == "[":
                self._next_mark()
                yield from self._array()
            else:
                self._value()
            if not self._goes_on("}"):
                return

    def _array(self) -> Iterator[Any]:
        if self._peek() == "]":
            self._next_mark()
            return
        while True:
            yield self._value()
            if not self._goes_on("]"):
                return

    def _goes_on(self, end: str) -> bool:
        mark = self._next_mark()
        if mark not in (",", end):
            raise ValueError(f"a comma or {end} is missing")
        return mark == ","

    def _value(self) -> Any:
        """The next value of the JSON text; makes the window longer until it is complete."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # Only a fault at the end of the window, or a text without an end, can be mended by what follows.
                if error.pos < len(self._text) - _LONGEST_WORD and not error.msg.startswith("Unterminated"):
                    raise ValueError(f"is not JSON ({error.msg})") from None
                self._longer()
                continue
            except RecursionError:
                raise ValueError("is nested too deeply") from None
            if not isinstance(value, int | float) or _GOES_ON.match(self._text, end) is None:
                self._at = end
                return value
            self._longer()

    def _next_mark(self) -> str:
        mark = self._peek()
        if not mark:
            raise JsonCut
        self._at += 1
        return mark

    def _peek(self) -> str:
        """The next character of the JSON text that is no space; empty at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if self._is_whole:
                return ""
            self._longer()

    def _longer(self) -> None:
        """Add a piece of the JSON text to the window, as long as what is left: so a long value takes linear time."""
        if self._is_whole:
            raise JsonCut
        if len(self._text) - self._at > MAX_ITEM:
            raise ValueError(f"a value has more than {MAX_ITEM:,} characters")
        left = self._text[self._at :]
        parts, length, wanted = [left], 0, max(_WINDOW, len(left))
        while length < wanted and not self._is_whole:
            piece = next(self._pieces, None)
            self._is_whole = piece is None
            parts.append(self._decode(piece or b"", self._is_whole))
            length += len(parts[-1])
        self._before += self._at
        self._text, self._at = "".join(parts), 0


_DECODER: Final = json.JSONDecoder(parse_constant=lambda _: None, strict=False)
