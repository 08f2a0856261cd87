"""PprofProfile: the samples of a pprof profile (profile.proto), with their stacks and labels as text.

::

    Profile { 1 sample_type { 1 type 2 unit } 2 sample { 1 location_id 2 value 3 label { 1 key 2 str 3 num } }
              4 location { 1 id 4 line { 1 function_id 2 line } } 5 function { 1 id 2 name 4 filename }
              6 string_table }

Texts are indexes of the string table, which comes late: so samples are read after the rest.
"""

from collections.abc import Iterator
from typing import NamedTuple

from bfcviz.code_places import CodePlace
from bfcviz.importers.limits import MAX_NAME_BYTES, PARTS, TEXT, Limits
from bfcviz.importers.protobuf_wire import LENGTH, Field, Wire

_READ = _SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6


class PprofSample(NamedTuple):
    """One sample; frames from the innermost out, values in the order of the sample types."""

    frames: tuple[CodePlace, ...]
    values: list[int]
    labels: dict[str, str]


class PprofProfile:
    """Reads a profile.

    Args:
        wire: its bytes.

    Attributes:
        types: type and unit of each value, such as `("space", "bytes")`.
        cut: why the end is missing; None if it is not.

    Raises:
        FileError: it is corrupt, or holds more than the limits allow.
    """

    def __init__(self, wire: Wire) -> None:
        self.cut: str | None = None
        self._wire = wire
        self._limits: Limits = wire.limits
        self._parts: dict[int, list[Field]] = {number: [] for number in _READ}
        for field in wire.fields(0, len(wire.data)):
            if field.missing:  # only the last one
                self.cut = f"the profile is cut off at byte {len(wire.data)}"
                break
            self._limits.count(PARTS, 1)
            if field.number in self._parts and field.wire == LENGTH:
                self._parts[field.number].append(field)
        self._texts = [self._text(field) for field in self._parts[_STRING]]
        self.types = [self._type(field) for field in self._parts[_SAMPLE_TYPE]]
        self._functions = dict(map(self._function, self._parts[_FUNCTION]))
        self._frames = dict(map(self._location, self._parts[_LOCATION]))

    def samples(self) -> Iterator[PprofSample]:
        """All samples, in the order of the file."""
        stacks: dict[tuple[int, ...], tuple[CodePlace, ...]] = {}
        for field in self._parts[_SAMPLE]:
            numbers, labels = self._read(field, inner=3)
            places = tuple(numbers.get(1, ()))
            if places not in stacks:
                stacks[places] = self._stack(places)
            yield PprofSample(stacks[places], numbers.get(2, []), dict(map(self._label, labels)))

    def _stack(self, places: tuple[int, ...]) -> tuple[CodePlace, ...]:
        """The frames of these locations; samples of a small file may name the same long frames without end."""
        frames = [frame for place in places for frame in self._frames.get(place, ())]
        self._limits.count(TEXT, sum(len(frame.function) + len(frame.file) + 8 for frame in frames))
        return tuple(frames)

    def _read(self, message: Field, inner: int = 0) -> tuple[dict[int, list[int]], list[Field]]:
        """The numbers in a message by field number, and its messages, which are fields `inner`."""
        numbers: dict[int, list[int]] = {}
        messages: list[Field] = []
        for field in self._wire.fields(message.start, message.stop):
            self._limits.count(PARTS, 1)
            if field.number == inner and field.wire == LENGTH:
                messages.append(field)
                continue
            values = self._wire.numbers(field)
            self._limits.count(PARTS, len(values))
            numbers.setdefault(field.number, []).extend(values)
        return numbers, messages

    def _text(self, field: Field) -> str:
        length = min(field.stop - field.start, MAX_NAME_BYTES)
        return self._wire.data[field.start : field.start + length].decode("utf-8", "replace")

    def _named(self, numbers: dict[int, list[int]], field: int) -> str:
        """The text whose index is in a field; empty without one."""
        index = numbers.get(field, [0])[-1]
        return self._texts[index] if index < len(self._texts) else ""

    def _type(self, field: Field) -> tuple[str, str]:
        numbers, _ = self._read(field)
        return self._named(numbers, 1), self._named(numbers, 2)

    def _function(self, field: Field) -> tuple[int, tuple[str, str]]:
        numbers, _ = self._read(field)
        return numbers.get(1, [0])[-1], (self._named(numbers, 2), self._named(numbers, 4))

    def _location(self, field: Field) -> tuple[int, list[CodePlace]]:
        """Number and frames; more than one where functions are inlined."""
        numbers, lines = self._read(field, inner=4)
        frames = []
        for each in lines:
            line, _ = self._read(each)
            function = self._functions.get(line.get(1, [0])[-1], ("", ""))
            frames.append(CodePlace(*function, line.get(2, [0])[-1]))
        return numbers.get(1, [0])[-1], frames

    def _label(self, field: Field) -> tuple[str, str]:
        numbers, _ = self._read(field)
        return self._named(numbers, 1), self._named(numbers, 2) or str(numbers.get(3, [""])[-1])
