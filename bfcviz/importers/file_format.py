"""Detect the format of a file from its content, not from its name."""

from collections.abc import Callable
from enum import StrEnum
from itertools import islice
from pathlib import Path

from bfcviz.errors import FileError
from bfcviz.importers.file_content import read_head
from bfcviz.importers.tensorflow.protobuf_wire import LENGTH, VARINT, Field, Wire


class Format(StrEnum):
    """A format that bfcviz reads; the value is its name in `Origin.format` and `bfcviz info`."""

    FOLDER = "bfcviz-folder"
    PARQUET = "bfcviz-parquet"
    XPLANE = "xplane"


READABLE = (
    "bfcviz reads its own trace folders and Parquet files, "
    "and profiles of TensorFlow and XLA (xplane.pb, plain or gzip)"
)
_TRACE_FILES = ("events.bin", "origin.json", "labels.jsonl")
_PROFILES_IN_FOLDER = tuple(f"{way}*.xplane.pb*" for way in ("", "*/", "plugins/profile/*/", "window-*/**/"))


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
    what = "a text file" if _is_text(head) else "of an unknown format"
    raise FileError(path, "", f"this is {what}; {READABLE}")


def _format_of_folder(path: Path) -> Format:
    try:
        if any((path / name).is_file() for name in _TRACE_FILES):
            return Format.FOLDER
        inside = [found for pattern in _PROFILES_IN_FOLDER for found in sorted(path.glob(pattern))[:1]]
    except OSError as error:
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from None
    advice = f"; open the profile in it: {inside[0]}" if inside else f"; {READABLE}"
    raise FileError(path, "", f"this folder holds no trace{advice}")


def _is_parquet(head: bytes) -> bool:
    return head.startswith(b"PAR1")


def _is_xspace(head: bytes) -> bool:
    """Whether the first field belongs to XSpace; if it is a plane, whether its first fields are those of a plane."""
    if _is_text(head):
        return False
    wire = Wire("", head)
    try:
        first = next(wire.fields(0, len(head)))
        inside = list(islice(wire.fields(first.start, first.stop), 8)) if first.number == 1 else []
    except FileError:
        return False
    # 1 planes, 2 errors, 3 warnings, 4 hostnames. A pprof profile begins in the same way, but field 1 holds numbers.
    return first.wire == LENGTH and first.number <= 4 and all(_is_of_plane(field) for field in inside)


def _is_of_plane(field: Field) -> bool:
    """1 id, 2 name, 3 lines, 4 event_metadata, 5 stat_metadata, 6 stats; higher numbers: fields of later versions."""
    return field.number > 6 or field.wire == (VARINT if field.number == 1 else LENGTH) or field.number == 0


def _is_text(head: bytes) -> bool:
    """No control characters except white space and ESC; the field tags of a profile are control characters."""
    return not any(byte < 9 or 14 <= byte < 27 or 27 < byte < 32 for byte in head)


_BY_CONTENT: dict[Format, Callable[[bytes], bool]] = {
    Format.PARQUET: _is_parquet,
    Format.XPLANE: _is_xspace,
}
