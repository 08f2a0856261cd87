"""XSpace, the message inside an `xplane.pb`: its planes, their names and their lines (threads).

Field numbers: xla/tsl/profiler/protobuf/xplane.proto. Only the fields an importer can use are declared, text
as bytes: profilers do write text that is no UTF-8, and a strict reader would lose the file over one name.
Lines are parsed one at a time, so that the memory needed is that of one line beside the file's bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from bfcviz.importers.wire import LENGTH, Field, Wire

_PLANES = 1
_NAME, _LINES, _EVENT_METADATA, _STAT_METADATA = 2, 3, 4, 5

_KINDS = {
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
}
# message -> field -> (number, type); a type that is a message is repeated where the name is plural, and
# `value:` or `data:` before a name puts the field in that oneof.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "XStat": {
        "metadata_id": (1, "int64"),
        "value:double_value": (2, "double"),
        "value:uint64_value": (3, "uint64"),
        "value:int64_value": (4, "int64"),
        "value:str_value": (5, "bytes"),
        "value:bytes_value": (6, "bytes"),
        "value:ref_value": (7, "uint64"),
    },
    "XEvent": {
        "metadata_id": (1, "int64"),
        "data:offset_ps": (2, "int64"),
        "data:num_occurrences": (5, "int64"),
        "stats": (4, "XStat"),
    },
    "XLine": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "timestamp_ns": (3, "int64"),
        "events": (4, "XEvent"),
        "display_name": (11, "bytes"),
    },
    # XEventMetadata and XStatMetadata begin alike; a map is an entry of key and value on the wire.
    "Metadata": {"id": (1, "int64"), "name": (2, "bytes")},
    "Entry": {"key": (1, "int64"), "value": (2, "Metadata")},
}


@cache
def _message_class(name: str) -> Any:
    """The class google.protobuf makes for a message of `_MESSAGES`, in a pool of our own."""
    file = descriptor_pb2.FileDescriptorProto(name="bfcviz/xplane.proto", package="bfcviz", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for key, (number, kind) in fields.items():
            oneof, _, field_name = key.rpartition(":")
            entry = described.field.add(name=field_name, number=number)
            entry.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
            if kind in _KINDS:
                entry.type = _KINDS[kind]
            else:
                entry.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                entry.type_name = f".bfcviz.{kind}"
                if field_name.endswith("s"):
                    entry.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
            if oneof:
                if not described.oneof_decl:
                    described.oneof_decl.add(name=oneof)
                entry.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bfcviz.{name}"))


@dataclass
class Plane:
    """One source of events; its metadata say what the numbers in its events mean."""

    wire: Wire
    name: str = ""
    event_names: dict[int, str] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    spans: list[Field] = field(default_factory=list)

    def lines(self) -> Iterator[Any]:
        """Its complete lines, as XLine messages.

        Raises:
            FileError: a line's bytes are corrupt.
        """
        for span in self.spans:
            yield _parse(self.wire, "XLine", span, f"a line of plane {self.name!r}")


class Space(NamedTuple):
    """A profile's planes in file order; `cut` says what is missing at its end, None when nothing is."""

    planes: list[Plane]
    cut: str | None


def read_space(wire: Wire) -> Space:
    """What the profile holds; of a plane that is cut off, what comes before the cut.

    Raises:
        FileError: the bytes are no XSpace, with the place.
    """
    planes = []
    cut = None
    for found in wire.fields(0, len(wire.data)):
        what = ""
        if found.number == _PLANES and found.wire == LENGTH:
            planes.append(_plane(wire, found))
            what = f" of plane {planes[-1].name!r}"
        if found.missing:
            lost = f"{found.missing} or more bytes{what} are missing"
            cut = f"the profile is cut off at byte {len(wire.data)}: {lost}"
    return Space(planes, cut)


def _plane(wire: Wire, found: Field) -> Plane:
    plane = Plane(wire)
    for part in wire.fields(found.start, found.stop):
        if part.missing or part.wire != LENGTH:
            continue
        if part.number == _NAME:
            plane.name = as_text(wire.data[part.start : part.stop])
        elif part.number == _LINES:
            plane.spans.append(part)
        elif part.number in (_EVENT_METADATA, _STAT_METADATA):
            entry = _parse(wire, "Entry", part, f"the metadata of plane {plane.name!r}")
            names = plane.event_names if part.number == _EVENT_METADATA else plane.stat_names
            names[entry.key] = as_text(entry.value.name)
    return plane


def _parse(wire: Wire, message: str, span: Field, what: str) -> Any:
    try:
        return _message_class(message).FromString(wire.data[span.start : span.stop])
    except DecodeError:
        raise wire.corrupt(span.start, f"{what} cannot be decoded") from None


def as_text(raw: bytes) -> str:
    """Text of a profile, with a replacement mark for every byte that is no UTF-8."""
    return raw.decode("utf-8", "replace")
