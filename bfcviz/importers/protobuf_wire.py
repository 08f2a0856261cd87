"""Read the fields of a Protocol Buffers message, so that a truncated file still yields its complete fields.

google.protobuf rejects a truncated message as a whole. Reading the outer fields here finds the position of the damage,
and passes only complete sub-messages to the library.
"""

from collections.abc import Iterator
from typing import NamedTuple

from bfcviz.errors import FileError
from bfcviz.importers.file_content import Limits

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


class Field(NamedTuple):
    """One field of Protocol Buffers: its payload is `data[start:stop]`; `missing` bytes are beyond the file."""

    number: int  # 0: the file ends inside the tag itself
    wire: int
    start: int
    stop: int
    missing: int


class Wire:
    """Iterates over the fields of Protocol Buffers in the unpacked bytes of one file; `kind` is what errors call it.

    `limits`: by default those of an uncompressed file.
    """

    def __init__(
        self, path: object, data: bytes, limits: Limits | None = None, kind: str = "profile"
    ) -> None:
        self.path = path
        self.kind = kind
        self.data = data
        self.limits = Limits(path, len(data)) if limits is None else limits

    def fields(self, start: int, stop: int) -> Iterator[Field]:
        """The fields of the Protocol Buffers message at `data[start:stop]`, in order; only the last can lack bytes.

        Raises:
            FileError: the bytes are not valid fields, or a field reaches beyond its message.
        """
        at = start
        while at < stop:
            field = self.field(at, stop)
            yield field
            at = field.stop

    def run(self, number: int, at: int, stop: int, most: int) -> tuple[int, int]:
        """The end of a run of Protocol Buffers fields `number` (below 16, with a length) from `at`, and their count.

        The run ends before the first other or incomplete field, or when it has `most` bytes or more. This is much
        faster than `fields`.
        """
        data, tag, count = self.data, number << 3 | LENGTH, 0
        enough = at + most
        last = stop - 2  # where a tag and a length of two bytes can begin
        while at < last and at < enough and data[at] == tag:
            size = data[at + 1]
            if size < 0x80:
                after = at + 2 + size
            elif data[at + 2] < 0x80:
                after = at + 3 + (size & 0x7F | data[at + 2] << 7)
            else:
                size, start = self._varint(at + 1, stop)
                after = start + size
            if after > stop:
                break
            at = after
            count += 1
        return at, count

    def field(self, at: int, stop: int) -> Field:
        """The field at `at` of a Protocol Buffers message that ends at `stop`. Raises as `fields`."""
        tag, start = self._varint(at, stop)
        number, wire = tag >> 3, tag & 7
        size = 0
        if start and wire == LENGTH:
            size, start = self._varint(start, stop)
        elif start and wire == VARINT:
            _, size = self._varint(start, stop)
            size, start = size - start, start if size else 0
        elif start:
            if wire not in _FIXED:
                raise self.corrupt(at, f"wire type {wire} of field {number} does not exist")
            size = _FIXED[wire]
        if not start:
            return Field(0, wire, at, stop, 1)
        if number == 0:
            raise self.corrupt(at, "field number 0 does not exist")
        missing = max(0, start + size - stop)
        if missing and stop < len(self.data):
            raise self.corrupt(at, f"field {number} reaches {missing} bytes beyond its message")
        return Field(number, wire, start, start + size - missing, missing)

    def numbers(self, field: Field) -> list[int]:
        """The values of a Protocol Buffers field of unsigned numbers: one, or a packed list of them.

        Raises:
            FileError: it is of another type, or ends inside a number.
        """
        if field.wire not in (VARINT, LENGTH):
            raise self.corrupt(field.start, f"field {field.number} is no number")
        found, at = [], field.start
        while at < field.stop:
            value, at = self._varint(at, field.stop)
            if not at:
                raise self.corrupt(field.start, f"field {field.number} ends inside a number")
            found.append(value)
        return found

    def number(self, field: Field) -> int:
        """The value of a complete VARINT field, from 0 to 2^64 - 1; -1 is the largest. Raises as `fields`."""
        return self._varint(field.start, field.stop)[0] & (1 << 64) - 1

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        """The VARINT number at `at` and the position after it; position 0 if the file ends inside it."""
        value = 0
        for place in range(at, min(at + 10, stop)):
            byte = self.data[place]
            value |= (byte & 0x7F) << 7 * (place - at)
            if byte < 0x80:
                return value, place + 1
        if at + 10 <= stop or stop < len(self.data):
            raise self.corrupt(at, "a number without an end")
        return 0, 0

    def corrupt(self, at: int, cause: str) -> FileError:
        """The error for a corrupt file of Protocol Buffers."""
        return FileError(self.path, f"byte {at}", f"corrupt {self.kind}: {cause}")
