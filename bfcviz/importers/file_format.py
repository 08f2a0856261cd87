"""Detect the format of a file from its content, not from its name."""

import re
from collections.abc import Callable
from enum import StrEnum
from itertools import islice
from pathlib import Path

from bfcviz.errors import FileError
from bfcviz.events.storage.blocks import MAGIC
from bfcviz.formats.tensorflow import whole_windows
from bfcviz.importers.file_content import UNPACKED_TEXT, ContentPieces, read_head
from bfcviz.importers.protobuf_wire import LENGTH, VARINT, Field, Wire


class Format(StrEnum):
    """A format that bfcviz reads; the value is its name in `Origin.format` and `bfcviz info`."""

    FOLDER = "bfcviz-folder"
    PARQUET = "bfcviz-parquet"
    BLOCKS = "bfcviz-blocks"
    XPLANE = "xplane"
    TENSORFLOW_LOG = "tensorflow-log"
    MEMORY_DUMP = "tensorflow-memory-dump"
    TORCH_SNAPSHOT = "torch-snapshot"
    PPROF = "jax-pprof"
    CHROME_TRACE = "chrome-trace"
    RMM_LOG = "rmm-csv"
    VMA = "vma-json"


READABLE = (
    "bfcviz reads its own traces (folder, .bfc or Parquet), profiles of TensorFlow and XLA (xplane.pb), logs of "
    "TensorFlow, XLA and JAX with BFC allocator lines, TensorFlow's memory dumps, PyTorch snapshots (pickle), RMM logs "
    "(CSV), JAX memory profiles (pprof), Chrome traces of PyTorch, and VMA dumps (JSON); all also gzip"
)
_TEXT_BYTES = bytes([*range(9, 14), 27, *range(32, 256)])
_TRACE_FILES = ("events.bin", "origin.json", "labels.jsonl")
_PROFILES_IN_FOLDER = tuple(f"{way}*.xplane.pb*" for way in ("", "*/", "plugins/profile/*/"))


def detect_format(path: Path) -> Format:
    """The format of a file or folder.

    Raises:
        FileError: it does not exist, cannot be read, is empty, or has an unknown format.
    """
    try:
        is_folder = path.is_dir()
    except OSError as error:  # the name is too long, or a parent folder has no permission
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from None
    if is_folder:
        return _format_of_folder(path)
    head = read_head(path)
    if not head:
        raise FileError(path, "", "the file is empty")
    for format_, matches in _BY_CONTENT.items():
        if matches(head):
            return format_
    # A failure comes late in a log.
    if (_is_text(head) or _is_utf_16(head)) and _is_tensorflow_log(path):
        return Format.TENSORFLOW_LOG
    what = "a text file" if _is_text(head) else "of an unknown format"
    raise FileError(path, "", f"this is {what}; {READABLE}")


def is_plain_text(path: Path) -> bool:
    """Whether this is a text, of no format that its beginning tells.

    Raises:
        FileError: it does not exist or cannot be read.
    """
    if path.is_dir():
        return False
    head = read_head(path)
    told = any(matches(head) for form, matches in _BY_CONTENT.items() if form is not Format.TENSORFLOW_LOG)
    return bool(head) and not told and (_is_text(head) or _is_utf_16(head))


def _format_of_folder(path: Path) -> Format:
    try:
        if any((path / name).is_file() for name in _TRACE_FILES):
            return Format.FOLDER
        if whole_windows(path):
            return Format.XPLANE
        inside = [found for pattern in _PROFILES_IN_FOLDER for found in sorted(path.glob(pattern))[:1]]
    except OSError as error:
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from None
    advice = f"; open the profile in it: {inside[0]}" if inside else f"; {READABLE}"
    raise FileError(path, "", f"this folder holds no trace{advice}")


def _is_pickle(head: bytes) -> bool:
    """Whether the format is a pickle.

    Protocol 2 or later begins with PROTO and the version; earlier ones with a list or dict, put into the memo.
    """
    later = len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5
    return later or re.match(rb"\([dl]p[01]\n|[}\]]q[\0\1]", head) is not None


def _is_snapshot(head: bytes) -> bool:
    """Whether the format is a PyTorch snapshot: a pickle, or a snapshot as JSON."""
    if _is_pickle(head):
        return True
    text = _json_text(head) or ""
    return '"device_traces"' in text or ('"total_size"' in text and '"blocks"' in text)


def _is_xspace(head: bytes) -> bool:
    """Whether the format is XSpace, by the first field; if it is a plane, by the first fields of that."""
    first, inside = _first_message(head)
    if first is None or _is_name_field(head, first):
        return False
    # 1 planes, 2 errors, 3 warnings, 4 hostnames. A pprof profile begins in the same way, but field 1 holds numbers.
    return first.wire == LENGTH and first.number <= 4 and all(_is_of_plane(field) for field in inside)


def _is_of_plane(field: Field) -> bool:
    """Whether a field is of a plane: 1 id, 2 name, 3 lines, 4 and 5 metadata, 6 stats; higher: of later versions."""
    return field.number > 6 or field.wire == (VARINT if field.number == 1 else LENGTH) or field.number == 0


def _is_pprof(head: bytes) -> bool:
    """Whether the format is pprof: field 1 is a `sample_type`, with fields 1 (type) and 2 (unit) that are numbers."""
    first, inside = _first_message(head)
    return first is not None and first.number == 1 and bool(inside) and all(f.wire == VARINT for f in inside)


def _is_memory_dump(head: bytes) -> bool:
    """Whether the format is a memory dump: field 1 names an allocator, and field 2 (bins) or 3 (chunks) follows."""
    first, _ = _first_message(head)
    if first is None or not _is_name_field(head, first) or first.missing:
        return False
    try:
        after = next(Wire("", head).fields(first.stop, len(head)), None)
    except FileError:
        return False
    return after is None or (after.wire == LENGTH and 2 <= after.number <= 5)


def _is_name_field(head: bytes, field: Field) -> bool:
    payload = head[field.start : field.stop]
    is_text = bool(payload) and all(32 <= byte < 127 for byte in payload)
    return field.number == 1 and field.wire == LENGTH and is_text


def _first_message(head: bytes) -> tuple[Field | None, list[Field]]:
    """The first field of a file in Protocol Buffers format, and the first 8 fields in it; (None, []) for other data."""
    if _is_text(head):
        return None, []
    wire = Wire("", head)
    try:
        first = next(wire.fields(0, len(head)))
        if first.number != 1 or _is_name_field(head, first):
            return first, []
        return first, list(islice(wire.fields(first.start, first.stop), 8))
    except FileError:
        return None, []


def _is_text(head: bytes) -> bool:
    """Whether the format is text: it has no control characters except white space and ESC.

    The field tags of a profile are control characters.
    """
    return not head.translate(None, _TEXT_BYTES)


def _is_vma(head: bytes) -> bool:
    text = _json_text(head)
    return text is not None and any(
        key in text for key in ('"DefaultPools"', '"Suballocations"', '"BlockCount"')
    )


def _is_chrome_trace(head: bytes) -> bool:
    text = _json_text(head)
    return text is not None and ('"traceEvents"' in text or ('"ph"' in text and '"ts"' in text))


def _json_text(head: bytes) -> str | None:
    """The beginning of a file in JSON format; None for other data."""
    text = head[: len(head) // 2 * 2].decode(json_encoding(head), "replace")
    return text if text.lstrip()[:1] in ("{", "[") else None


def json_encoding(data: bytes) -> str:
    """The encoding of a file that has JSON format: UTF-8, or (from Windows) UTF-16 with or without a mark."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if b"\0" in data[:2]:  # the first character of JSON is ASCII
        return "utf-16-be" if data[:1] == b"\0" else "utf-16-le"
    return "utf-8-sig"


def _is_rmm_log(head: bytes) -> bool:
    """Whether the format is RMM's log: one of the first lines is a header of `logging_resource_adaptor`."""
    lines = head[:4096].splitlines()[:20]
    return any(
        re.match(rb"\s*((Thread,)?Time,Action,|Event Type,Device ID,Address,)", line) is not None
        for line in lines
    )


def _is_tensorflow_log(path: Path) -> bool:
    """Whether the format is TensorFlow's log: a line of the allocator is anywhere in a text, also of one long line."""
    tail = b""
    for piece in ContentPieces(path, UNPACKED_TEXT):
        text = tail + piece
        if _TENSORFLOW_LINE.search(text.replace(b"\0", b"")) is not None:  # zeros: of PowerShell
            return True
        tail = text[-_LONGEST_LINE:]
    return False


_LONGEST_LINE = 200
"""Characters that `_TENSORFLOW_LINE` needs."""


def _is_utf_16(head: bytes) -> bool:
    return head[:2] in {b"\xff\xfe", b"\xfe\xff"}


_TENSORFLOW_LINE = re.compile(
    rb"bfc_allocator\.cc:\d+\]|BFC Arena ran out of memory|__LOG_MEMORY__|ran out of memory trying to allocate|"
    rb"Out of memory (while )?trying to allocate \d|OOM when allocating tensor with shape"
)

_BY_CONTENT: dict[Format, Callable[[bytes], bool]] = {
    Format.PARQUET: lambda head: head.startswith(b"PAR1"),
    Format.BLOCKS: lambda head: head.startswith(MAGIC),
    Format.TORCH_SNAPSHOT: _is_snapshot,
    Format.MEMORY_DUMP: _is_memory_dump,
    Format.PPROF: _is_pprof,
    Format.XPLANE: _is_xspace,
    Format.VMA: _is_vma,
    Format.CHROME_TRACE: _is_chrome_trace,
    Format.RMM_LOG: _is_rmm_log,
    Format.TENSORFLOW_LOG: lambda head: _TENSORFLOW_LINE.search(head) is not None,
}
