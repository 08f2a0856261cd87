"""Parse XSpace, the message in an `xplane.pb`: its planes, their names and their lines (threads).

Field numbers: xla/tsl/profiler/protobuf/xplane.proto. Lines are parsed in pieces, and everything is counted (see
`Limits`), so the parser needs memory for one piece beside the bytes of the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bfcviz.errors import FileError
from bfcviz.importers.file_limits import EVENTS, MAX_EVENT_BYTES, MAX_NAME_BYTES, PARTS
from bfcviz.importers.protobuf_wire import LENGTH, Field, Wire
from bfcviz.importers.tensorflow.protobuf_messages import parse_protobuf_message, protobuf_message_text

_PLANES = 1

_NAME, _LINES, _EVENT_METADATA, _STAT_METADATA = 2, 3, 4, 5

_LINE_EVENTS = 4  # in a line

_PIECE = 1 << 20
"""Bytes of events that are parsed at once; each needs at most 40 bytes of memory."""

_MAX_HEADER = 3 * MAX_NAME_BYTES
"""Bytes of a line without its events: a number, a time and two names."""


class LinePiece(NamedTuple):
    """Some events of a line of an XSpace, as XEvent messages, and where their bytes begin in the file, for errors."""

    start: int
    events: Sequence[Any]


class Line:
    """A complete line of a plane of an XSpace: one thread. Its events are parsed during iteration, their stats are not.

    Attributes:
        what: it is, for errors.

    Raises:
        FileError: its bytes are corrupt, or the file holds too many events.
    """

    def __init__(self, wire: Wire, span: Field, what: str) -> None:
        self._wire = wire
        self.what = what
        header, self._ranges = self._walk(span)
        line = parse_protobuf_message(wire, "XLine", header, span.start, what)
        self.id: int = line.id
        self.name: bytes = line.display_name or line.name
        self.timestamp_ns: int = line.timestamp_ns

    def pieces(self) -> Iterator[LinePiece]:
        """The events of a line in file order, about 1 MiB of them at a time.

        Raises:
            FileError: an event is corrupt.
        """
        for start, stop in self._ranges:
            line = parse_protobuf_message(self._wire, "XLine", self._wire.data[start:stop], start, self.what)
            yield LinePiece(start, line.events)

    def _walk(self, span: Field) -> tuple[bytes, list[tuple[int, int]]]:
        """The bytes of a line that are not events, and the ranges of events. A message may be cut between fields."""
        header, ranges = bytearray(), []
        at = span.start
        while at < span.stop:
            start = at
            at, count = self._wire.run(_LINE_EVENTS, at, span.stop, _PIECE)
            if not count:
                field = self._field(at, span.stop)
                at, count = field.stop, 1
            self._wire.limits.count(EVENTS, count, self.what)
            if self._wire.data[start] == _LINE_EVENTS << 3 | LENGTH:
                ranges.append((start, at))
            else:
                header += self._wire.data[start:at]
            if at - start > _PIECE + MAX_EVENT_BYTES or len(header) > _MAX_HEADER:
                raise self._wire.corrupt(start, f"{self.what} has an event or a name of {at - start} bytes")
        return bytes(header), ranges

    def _field(self, at: int, stop: int) -> Field:
        try:
            return self._wire.field(at, stop)
        except FileError:
            raise self._wire.corrupt(at, f"{self.what} cannot be decoded") from None


@dataclass
class Plane:
    """One plane of an XSpace, a source of events; its metadata map the numbers in its events to names, as bytes.

    `protobuf_message_text` decodes a name.
    """

    wire: Wire
    name: str = ""
    event_names: dict[int, bytes] = field(default_factory=dict)
    stat_names: dict[int, bytes] = field(default_factory=dict)
    spans: list[Field] = field(default_factory=list)

    def lines(self) -> Iterator[Line]:
        """The complete lines of a plane of an XSpace.

        Raises:
            FileError: a line's bytes are corrupt, or the file holds too many events.
        """
        for span in self.spans:
            yield Line(self.wire, span, f"a line of plane {self.name!r}")


class XSpace(NamedTuple):
    """The planes of an XSpace in file order; `cut` says what is missing at its end, None if nothing is."""

    planes: list[Plane]
    cut: str | None


def read_space(wire: Wire) -> XSpace:
    """Parse the XSpace of a profile; of a truncated plane, the part before the cut.

    Raises:
        FileError: the bytes are not an XSpace; says where.
    """
    planes = []
    cut = None
    for found in wire.fields(0, len(wire.data)):
        wire.limits.count(PARTS, 1)
        what = ""
        if found.number == _PLANES and found.wire == LENGTH:
            planes.append(_plane_message(wire, found))
            what = f" of plane {planes[-1].name!r}"
        if found.missing:
            lost = f"{found.missing} or more bytes{what} are missing"
            cut = f"the profile is cut off at byte {len(wire.data)}: {lost}"
    return XSpace(planes, cut)


def _plane_message(wire: Wire, found: Field) -> Plane:
    plane = Plane(wire)
    for part in wire.fields(found.start, found.stop):
        wire.limits.count(PARTS, 1, f"plane {plane.name!r}")
        if part.missing or part.wire != LENGTH:
            continue
        if part.number == _NAME:
            plane.name = protobuf_message_text(
                wire.data[part.start : min(part.stop, part.start + MAX_NAME_BYTES)]
            )
        elif part.number == _LINES:
            plane.spans.append(part)
        elif part.number in (_EVENT_METADATA, _STAT_METADATA):
            raw = wire.data[part.start : part.stop]
            entry = parse_protobuf_message(
                wire, "Entry", raw, part.start, f"the metadata of plane {plane.name!r}"
            )
            names = plane.event_names if part.number == _EVENT_METADATA else plane.stat_names
            names[entry.key] = entry.value.name
    return plane
