"""Parse single Protocol Buffers messages of TensorFlow with google.protobuf.

Only the fields that an importer can use are declared. Text is declared as bytes: programs write text that is not UTF-8,
and a strict reader would reject the file for one name.
"""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from bfcviz.importers.protobuf_wire import Wire

_KINDS = {
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
}
_LABELS = {
    "": descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    "repeated": descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
}
# message -> field -> (number, type). The prefix `value:` or `data:` puts the field into that oneof.
# xla/tsl/profiler/protobuf/xplane.proto, unless noted.
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
        "stats": (4, "repeated bytes"),  # of XStat: most are equal to an earlier one, and need not be parsed
    },
    "XLine": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "timestamp_ns": (3, "int64"),
        "events": (4, "repeated XEvent"),
        "display_name": (11, "bytes"),
    },
    # XEventMetadata and XStatMetadata begin with the same fields; on the wire a map is a list of key and value entries.
    "Metadata": {"id": (1, "int64"), "name": (2, "bytes")},
    "Entry": {"key": (1, "int64"), "value": (2, "Metadata")},
    # tensorflow/core/protobuf/bfc_memory_map.proto
    "MemChunk": {
        "address": (1, "uint64"),
        "size": (2, "int64"),
        "requested_size": (3, "int64"),
        "op_name": (5, "bytes"),
        "freed_at_count": (6, "uint64"),
        "action_count": (7, "uint64"),
        "in_use": (8, "uint64"),
        "step_id": (9, "uint64"),
    },
}


@cache
def _message_class(name: str) -> Any:
    """The google.protobuf class of a message of `_MESSAGES`, in a separate descriptor pool."""
    file = descriptor_pb2.FileDescriptorProto(name="bfcviz/xplane.proto", package="bfcviz", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for key, (number, what) in fields.items():
            oneof, _, field_name = key.rpartition(":")
            repeated, _, kind = what.rpartition(" ")
            entry = described.field.add(name=field_name, number=number)
            entry.label = _LABELS[repeated]
            if kind in _KINDS:
                entry.type = _KINDS[kind]
            else:
                entry.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                entry.type_name = f".bfcviz.{kind}"
            if oneof:
                if not described.oneof_decl:
                    described.oneof_decl.add(name=oneof)
                entry.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bfcviz.{name}"))


def parse_protobuf_message(wire: Wire, message: str, raw: bytes, start: int, what: str) -> Any:
    """Parse a complete message of `_MESSAGES`; `start`, its place in the file, and `what` it is are for the error.

    Raises:
        FileError: the bytes are not such a message.
    """
    try:
        return _message_class(message).FromString(raw)
    except DecodeError:
        raise wire.corrupt(start, f"{what} cannot be decoded") from None


def protobuf_message_text(raw: bytes) -> str:
    """Decode the text in a Protocol Buffers message; bytes that are not UTF-8 become replacement characters."""
    return raw.decode("utf-8", "replace")
