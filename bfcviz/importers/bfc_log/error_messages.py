"""What a framework prints after a failed request: its errors, and the buffers at the peak of an XLA program."""

import re
from collections.abc import Iterator
from math import prod
from typing import Any, Final, NamedTuple

from bfcviz.events.origin import MAX_POOLS
from bfcviz.formats.tensorflow import TYPE_BYTES, round_up
from bfcviz.importers.bfc_log import grammar
from bfcviz.importers.bfc_log.dump import Dump
from bfcviz.importers.bfc_log.grammar import LogRecord, PrintedSize, print_size, printed_size

# ------------------------------------------------------------------------------
# Attach the errors that a framework raises after a failed request to the dump of that request.
#
# The same error is printed several times: by the runtime, by Python, and again in each traceback. An error without a
# dump is a failed request of its own.

_MOST: Final = 1 << 63
_LONGEST: Final = 1000  # characters of a message


class AllocationError(NamedTuple):
    """An error message about memory.

    Attributes:
        line, time, writer: of its record.
        name: of the allocator, "" where it does not say it.
        sizes: bytes of the request that the message allows; more than one where it does not say the type.
        printed: the size as printed, None where it gives a tensor.
        tensor: shape and type.
        op: the node of the graph.
        text: the message.
    """

    line: int
    time: int | None
    writer: str
    name: str
    sizes: tuple[int, ...]
    printed: PrintedSize | None
    tensor: str
    op: str
    text: str


def attach_errors(dumps: list[Dump], texts: list[tuple[int, LogRecord]]) -> list[Dump]:
    """Put what the errors say into the dumps; returns these and a `Dump` for each error without one, in order.

    There are no new ones after the first `MAX_POOLS`.

    Args:
        dumps: changed in place.
        texts: as `DumpCollector.texts`.
    """
    found: list[Dump] = []
    taken = 0
    for count, record in texts:
        found += dumps[taken:count]
        taken = count
        for error in _errors(record):
            if not _attach(found, error) and len(found) <= MAX_POOLS:
                found.append(_alone(error))
    return found + dumps[taken:]


def _attach(dumps: list[Dump], error: AllocationError) -> bool:
    """Attach an error to the last dump that it fits; returns whether it tells of a known failure."""
    fitting = [dump for dump in reversed(dumps[-_RECENT:]) if _is_of(dump, error)]
    for dump in fitting:
        if error.tensor and dump.tensor == error.tensor:
            return True
        if error.printed is not None and error.printed.is_exact and dump.exact == error.printed.value:
            return True
        exact = _exact(dump, error)
        if exact is not None or (error.printed is not None and _prints(dump, error.printed)):
            dump.exact = exact if dump.exact is None else dump.exact
            _describe(dump, error)
            return True
    # An operation can ask for more than its tensor: the message then belongs to the failure just before it.
    if error.tensor and fitting and fitting[0] is dumps[-1] and not fitting[0].tensor:
        _describe(fitting[0], error)
        return True
    return False


_RECENT: Final = 64


def _is_of(dump: Dump, error: AllocationError) -> bool:
    same_name = not (dump.name and error.name) or dump.name == error.name
    return same_name and (not (dump.writer and error.writer) or dump.writer == error.writer)


def _exact(dump: Dump, error: AllocationError) -> int | None:
    """The size that message and dump agree on; None if they do not."""
    if dump.tensor and error.tensor:
        return None
    for size in error.sizes:
        rounded = round_up(size)
        if dump.rounded not in {None, rounded, size}:
            continue
        printed = dump.requested or dump.bin_for
        if printed is None and dump.ended and not dump.failed and len(error.sizes) == 1:
            return size  # of the dump just before it, whose beginning is missing
        if printed is not None and (
            printed.means(size) or (dump.requested is None and printed.means(rounded))
        ):
            return size
    return None


def _prints(dump: Dump, printed: PrintedSize) -> bool:
    return printed.text in {size.text for size in (dump.requested, dump.bin_for) if size is not None}


def _describe(dump: Dump, error: AllocationError) -> None:
    dump.tensor, dump.op = dump.tensor or error.tensor, dump.op or error.op
    dump.name = dump.name or error.name
    dump.message = error.text


def _alone(error: AllocationError) -> Dump:
    dump = Dump(error.line, error.time, error.name, error.writer, has_warning=True, requested=error.printed)
    if len(error.sizes) == 1:
        dump.exact = error.sizes[0]
        dump.requested = printed_size(print_size(dump.exact))
    _describe(dump, error)
    return dump


def _errors(record: LogRecord) -> Iterator[AllocationError]:
    """The errors in one record, without those that repeat the one before."""
    last = None
    for found in _ERROR.finditer(record.message):
        line = record.line + record.message.count("\n", 0, found.start())
        rest = record.message[found.start() : found.start() + 2 * _LONGEST]
        node = grammar.NODE.search(rest)
        op = "" if node is None else node[1] or node[2]
        text = " ".join(re.split(r"[\n\r]", rest, maxsplit=1)[0].split())[:_LONGEST]
        parts = found.groupdict()
        if parts["size"]:
            printed = printed_size(parts["size"])
            if printed is None:
                continue
            sizes: tuple[int, ...] = (printed.value,) if printed.is_exact else ()
            error = AllocationError(line, record.time, record.writer, "", sizes, printed, "", op, text)
        else:
            tensor = _tensor(parts["shape"], parts["type"])
            sizes = _tensor_bytes(parts["shape"], parts["type"])
            name = parts["name"] or ""
            error = AllocationError(line, record.time, record.writer, name, sizes, None, tensor, op, text)
        key = (error.sizes, error.printed, error.tensor, error.name)
        if key != last:
            yield error
        last = key


_ERROR: Final = re.compile(rf"{grammar.OOM_TENSOR.pattern}|{grammar.OUT_OF_BYTES.pattern}")


def _tensor(shape: str, type_: str | None) -> str:
    shape = "[" + ",".join(shape.replace(",", " ").split()) + "]"
    return f"{type_} {shape}" if type_ else shape


def _tensor_bytes(shape: str, type_: str | None) -> tuple[int, ...]:
    """Bytes of a tensor of this shape; without a type those of every element size, the usual one first."""
    elements = prod(int(number[:19]) for number in shape.replace(",", " ").split())
    widths = (4, 8, 2, 1, 16) if type_ is None else (TYPE_BYTES.get(type_),)
    return tuple(elements * width for width in widths if width is not None and 0 < elements * width < _MOST)


# ------------------------------------------------------------------------------
# The buffers at the peak of an XLA program, which XLA and JAX print after a failed request (`BufferAssignment`).

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


def buffer_tables(text: str) -> list[dict[str, Any]]:
    """The tables in a text, without repetitions, as JSON values.

    Each has `stats`, sizes as printed by their name, and `buffers`, a list of mappings: `size`, `op_name`,
    `source_file`, `source_line`, `label` and `shape`, as far as they are printed.
    """
    tables: list[dict[str, Any]] = []
    begin = text.find(_BEGIN)
    while begin >= 0 and len(tables) < _MOST_TABLES:
        end = text.find(_BEGIN, begin + 1)
        table = _table(text[begin : min(end, begin + _LONGEST_NAME) if end >= 0 else begin + _LONGEST_NAME])
        if table not in tables:
            tables.append(table)
        begin = end
    return tables


def _table(text: str) -> dict[str, Any]:
    stats_text, _, buffers_text = text.partition("Peak buffers:")
    stats = {f"{what} {kind}": size for what, kind, size in _ROW.findall(stats_text)}
    starts = [found.end() for found in _BUFFER.finditer(buffers_text)][:_MOST_BUFFERS]
    stops = [*starts[1:], len(buffers_text)]
    return {
        "stats": stats,
        "buffers": [_buffer(buffers_text[start:stop]) for start, stop in zip(starts, stops, strict=False)],
    }


def _buffer(text: str) -> dict[str, str]:
    fields = _FIELD.findall(text.partition("=====")[0])
    return {_NAMES.get(name, name): value.strip().strip('"').split('" ')[0] for name, value in fields}
