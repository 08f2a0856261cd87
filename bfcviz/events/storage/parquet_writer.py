"""Pack a trace into one Parquet file, atomically.

A row group holds 65,536 events; the first row of some groups holds in `keyframe` the state before it. Labels and origin
are in the footer of the file.

Groups of twice that size need less space (19.7 bytes per event instead of 23.5, with keyframes, for 10 million events
and 64,000 chunks), but more time for a distant step: 26 ms of computing instead of 21 in the median, 41 instead of 26
in the 90th percentile.

Measured on two cores, reading a row group of synthetic events into an EVENT array: zstd 12.7 bytes per event, 8 to 11
ms; lz4 15.3 bytes, 8 ms; snappy the same size, 7 to 16 ms; plain pages without compression 84 bytes, 9 ms; dictionaries
for all columns 20 to 40 bytes. So we use lz4, differences for counters, and byte stream split for wide numbers. DuckDB
and Polars can read all of these.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bfcviz.errors import TraceError
from bfcviz.events.event_source import BLOCK, Source
from bfcviz.events.labels import Labels
from bfcviz.events.schema import EVENT
from bfcviz.events.storage.arrow import SCHEMA, LabelNames, table_of
from bfcviz.events.storage.files import replacing
from bfcviz.events.storage.strict_json import MAX_JSON_VALUES, num_values

ORIGIN_KEY = "bfcviz.origin"
LABELS_KEY = "bfcviz.labels"
MAX_LABELS_TEXT = 60_000_000
"""Of packed labels: readers of Parquet accept footer entries of up to 100 MB."""

MAX_UNPACKED_LABELS = 1 << 29

LEAST_UNPACKED = 1 << 26
UNPACKED_A_BYTE = 250
VALUES_A_BYTE = 4
"""Limits per byte of packed labels: unpacked bytes (at least `LEAST_UNPACKED`), and names or details. The bundled runs
have up to 13 bytes and 0.75 values; stacks that differ in one of 80 frames 101 bytes, and recursions 212. Labels above
the limit are packed less tightly (`_PIECES`)."""

_PIECES = (1 << 16, 1 << 14, 1 << 12, 1 << 10)
"""Bytes of labels that are packed separately. A packed piece has 9 bytes or more, so 1 KiB suffices."""

KEYFRAME_SHARE = 4
"""A keyframe is stored when the events since the last one take this many times its bytes."""

COUNTERS = ["seq", "time"]
WIDE = ["address", "size", "requested", "chunk", "other", "label"]
NARROW = ["thread", "stream", "region", "by", "kind", "bin", "flags", "pool", "kind_name", "label_name"]

KEYFRAME = pa.field("keyframe", pa.binary())
PARQUET_SCHEMA = SCHEMA.append(KEYFRAME)

MakeKeyframes = Callable[[list[int]], Iterable[bytes]]
"""Given ascending steps, returns the state before each, one at a time."""


def pack(source: Source, path: Path, *, overwrite: bool, keyframes: MakeKeyframes | None) -> None:
    """Write the trace that `source` reads to `path`.

    Raises:
        FileError: `path` exists and `overwrite` is false, or it cannot be written; an existing file is not changed.
        TraceError: there are too many labels for one file.
    """
    with replacing(path, overwrite=overwrite) as made:
        write_parquet(source, made, keyframes)


def write_parquet(source: Source, path: Path, keyframes: MakeKeyframes | None) -> None:
    """Write the trace that `source` reads to `path`, which `pack` or another caller makes and removes.

    Raises:
        OSError: it cannot be written.
        TraceError: there are too many labels for one file.
    """
    with _writer(path) as writer:
        names = LabelNames(source.labels)
        length = source.length  # a recording in progress may grow meanwhile
        stored: list[int] = []
        for (start, stop), keyframe in zip(
            _groups(length), _keyframes(source, length, keyframes), strict=True
        ):
            table = table_of(source.read(start, stop), names, own=True)
            frames = pa.array([keyframe, *[None] * (stop - start - 1)], KEYFRAME.type)
            writer.write_table(table.append_column(KEYFRAME, frames), row_group_size=BLOCK)
            if keyframe is not None:
                stored.append(start)
        more = {"events": length, "labels": len(source.labels), "keyframes": stored}
        writer.add_key_value_metadata(
            {ORIGIN_KEY: source.origin.to_json(**more), LABELS_KEY: pack_labels(source.labels)}
        )


def _writer(path: Path) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        PARQUET_SCHEMA,
        compression="lz4",
        use_dictionary=NARROW,
        column_encoding={
            **dict.fromkeys(COUNTERS, "DELTA_BINARY_PACKED"),
            **dict.fromkeys(WIDE, "BYTE_STREAM_SPLIT"),
        },
        write_statistics=list(EVENT.names or ()),  # statistics of keyframes would copy them into the footer
        write_page_checksum=True,
    )


def _groups(length: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def _keyframes(source: Source, length: int, make: MakeKeyframes | None) -> Iterator[bytes | None]:
    """For each row group its keyframe or None; where no one makes them, those that `source` has."""
    steps = list(range(BLOCK, length, BLOCK))
    made = iter(make(steps)) if make is not None else None
    since = 0  # bytes of events after the last stored keyframe
    for start, stop in _groups(length):
        keyframe = None
        if start and made is not None:
            keyframe = next(made, None)
        elif start and (known := source.keyframe_before(start)) is not None and known[0] == start:
            keyframe = known[1]
        if keyframe is not None and len(keyframe) * KEYFRAME_SHARE > since:
            keyframe = None
        since = (0 if keyframe is not None else since) + (stop - start) * EVENT.itemsize
        yield keyframe


def pack_labels(labels: Labels) -> str:
    """The labels as text for a Parquet footer: compressed JSON in base64.

    Raises:
        TraceError: the labels do not fit in one file.
    """
    table = labels.to_json().encode()
    if len(table) > MAX_UNPACKED_LABELS:
        raise TraceError(
            f"{len(labels)} labels need {len(table)} bytes; a file holds {MAX_UNPACKED_LABELS}: record fewer or "
            "shorter stacks and names"
        )
    values = num_values(table)
    for piece in (len(table), *_PIECES):
        # Text, because Polars and others reject a footer that is not UTF-8.
        text = base64.b64encode(_deflated(table, piece)).decode()
        if len(text) > MAX_LABELS_TEXT:
            raise TraceError(
                f"{len(labels)} labels pack to {len(text)} bytes; a file holds {MAX_LABELS_TEXT}"
            )
        if len(table) <= _most_bytes(len(text)) and values <= _most_values(len(text)):
            break
    return text


def _deflated(table: bytes, piece: int) -> bytes:
    """Compressed, each piece independently."""
    deflate = zlib.compressobj(6)
    parts = []
    for start in range(0, len(table), piece):
        parts += [deflate.compress(table[start : start + piece]), deflate.flush(zlib.Z_FULL_FLUSH)]
    return b"".join([*parts, deflate.flush()])


def _most_bytes(packed: int) -> int:
    return min(MAX_UNPACKED_LABELS, max(LEAST_UNPACKED, UNPACKED_A_BYTE * packed))


def _most_values(packed: int) -> int:
    return max(MAX_JSON_VALUES, VALUES_A_BYTE * packed)


def unpack_labels(text: bytes) -> Labels:
    """The labels that `pack_labels` wrote.

    Raises:
        ValueError: the text is invalid, or needs more memory than a text of this length may need.
    """
    limit = _most_bytes(len(text))
    inflate = zlib.decompressobj()
    try:
        table = inflate.decompress(base64.b64decode(text, validate=True), limit)
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked ({error})") from error
    if not inflate.eof:
        raise ValueError(f"is incomplete, or needs more than {limit} bytes")
    return Labels.from_json(table, _most_values(len(text)))


def keyframes_of(entry: object, length: int) -> list[int]:
    """The steps of the stored keyframes, ascending, from the footer.

    Raises:
        ValueError: the entry is not a list of steps of a trace of this length.
    """
    if not isinstance(entry, list) or not all(type(step) is int and 0 <= step < length for step in entry):
        raise ValueError(f"has invalid keyframes: {json.dumps(entry)[:40]}")
    return sorted(entry)
