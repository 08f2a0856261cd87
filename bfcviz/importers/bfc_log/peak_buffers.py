"""The buffers at the peak of an XLA program, which XLA and JAX print after a failed request (`BufferAssignment`)."""

import re
from typing import Any, Final

_BEGIN: Final = "BufferAssignment OOM Debugging."

_ROW: Final = re.compile(
    r"(parameter|constant|maybe_live_out|preallocated temp|total) (allocation|fragmentation):[ \t]{1,40}(\S{1,40})"
)

_BUFFER: Final = re.compile(r"\bBuffer \d{1,9}:")

_FIELD: Final = re.compile(
    r"(Size|XLA Label|Entry Parameter Subshape|Shape|op_name|source_file|source_line)[:=][ \t]{0,4}"
    r"(\"[^\"\n\r]{0,1000}\"|[^\n\r]{1,1000})"
)

_NAMES: Final = {"Size": "size", "XLA Label": "label", "Shape": "shape", "Entry Parameter Subshape": "shape"}

_MOST_TABLES, _MOST_BUFFERS, _LONGEST_NAME = 16, 200, 1 << 20


def peak_buffer_tables(text: str) -> list[dict[str, Any]]:
    """The tables of peak buffers in the text of a log, without repetitions, as JSON values.

    Each has `stats`, sizes as printed by their name, and `buffers`, a list of mappings: `size`, `op_name`,
    `source_file`, `source_line`, `label` and `shape`, as far as they are printed.
    """
    tables: list[dict[str, Any]] = []
    begin = text.find(_BEGIN)
    while begin >= 0 and len(tables) < _MOST_TABLES:
        end = text.find(_BEGIN, begin + 1)
        table = _peak_buffer_table(
            text[begin : min(end, begin + _LONGEST_NAME) if end >= 0 else begin + _LONGEST_NAME]
        )
        if table not in tables:
            tables.append(table)
        begin = end
    return tables


def _peak_buffer_table(text: str) -> dict[str, Any]:
    """One table of peak buffers, from its text."""
    stats_text, _, buffers_text = text.partition("Peak buffers:")
    stats = {f"{what} {kind}": size for what, kind, size in _ROW.findall(stats_text)}
    starts = [found.end() for found in _BUFFER.finditer(buffers_text)][:_MOST_BUFFERS]
    stops = [*starts[1:], len(buffers_text)]
    return {
        "stats": stats,
        "buffers": [
            _peak_buffer_fields(buffers_text[start:stop]) for start, stop in zip(starts, stops, strict=False)
        ],
    }


def _peak_buffer_fields(text: str) -> dict[str, str]:
    """The fields of one peak buffer, from its text."""
    fields = _FIELD.findall(text.partition("=====")[0])
    return {_NAMES.get(name, name): value.strip().strip('"').split('" ')[0] for name, value in fields}
