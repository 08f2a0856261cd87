"""Reads a snapshot that was saved as JSON into the same rows and values as one that was pickled."""

from pathlib import Path
from typing import Any, Final

from bfcviz.errors import FileError
from bfcviz.events.storage.files import loads
from bfcviz.importers.file_format import json_encoding
from bfcviz.importers.torch.allocation_history import CodeFrame, TraceRange, TraceRows, is_entry

_MOST_VALUES: Final = 1 << 26
_DEEPEST: Final = 16  # lists and objects in each other; snapshots have 6


def read_json(path: Path, data: bytes, rows: TraceRows) -> Any:
    """The value that a JSON snapshot holds; its entries become rows, its frames stacks.

    Raises:
        FileError: it is damaged, cut off, or too large.
    """
    try:
        value = loads(data.decode(json_encoding(data)), _MOST_VALUES)
        return _converted(value, rows, _DEEPEST)
    except UnicodeDecodeError as error:
        raise FileError(path, f"byte {error.start}", "corrupt snapshot: not text") from None
    except ValueError as error:
        raise FileError(path, "", f"corrupt snapshot: {error}") from None


def _converted(value: Any, rows: TraceRows, depth: int) -> Any:
    """What `PickleReader` makes of the same value: an entry is a row, a list of entries a range, of frames a stack."""
    if depth == 0:
        raise ValueError("is nested too deeply")
    if isinstance(value, dict):
        made = {key: _converted(each, rows, depth - 1) for key, each in value.items()}
        return rows.of_dict([part for item in made.items() for part in item])
    if not isinstance(value, list):
        return value
    first = rows.count
    made_list = [_converted(each, rows, depth - 1) for each in value]
    if not made_list or not is_entry(made_list[0]):
        return _plain(rows.of_list(made_list))
    if not all(map(is_entry, made_list)):
        raise ValueError("mixes trace entries with other values in one list")
    return TraceRange(first, rows.count)


def _plain(value: Any) -> Any:
    """Entries belong into traces, frames into stacks."""
    if isinstance(value, list) and any(is_entry(each) or isinstance(each, CodeFrame) for each in value):
        raise ValueError("mixes entries or frames with other values in one list")
    return value
