"""A table of labels as one text, for the footer of a Parquet file or a section of a .bfc file; safe to unpack."""

import base64
import zlib

from bfcviz.errors import TraceError
from bfcviz.events.labels import Labels
from bfcviz.events.storage.files import MAX_JSON_VALUES, num_values

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
        text = base64.b64encode(_deflated_labels(table, piece)).decode()
        if len(text) > MAX_LABELS_TEXT:
            raise TraceError(
                f"{len(labels)} labels pack to {len(text)} bytes; a file holds {MAX_LABELS_TEXT}"
            )
        if len(table) <= _most_label_bytes(len(text)) and values <= _most_label_values(len(text)):
            break
    return text


def _deflated_labels(table: bytes, piece: int) -> bytes:
    """Compressed, each piece independently."""
    deflate = zlib.compressobj(6)
    parts = []
    for start in range(0, len(table), piece):
        parts += [deflate.compress(table[start : start + piece]), deflate.flush(zlib.Z_FULL_FLUSH)]
    return b"".join([*parts, deflate.flush()])


def _most_label_bytes(packed: int) -> int:
    return min(MAX_UNPACKED_LABELS, max(LEAST_UNPACKED, UNPACKED_A_BYTE * packed))


def _most_label_values(packed: int) -> int:
    return max(MAX_JSON_VALUES, VALUES_A_BYTE * packed)


def unpack_labels(text: bytes) -> Labels:
    """The labels that `pack_labels` wrote.

    Raises:
        ValueError: the text is invalid, or needs more memory than a text of this length may need.
    """
    limit = _most_label_bytes(len(text))
    inflate = zlib.decompressobj()
    try:
        table = inflate.decompress(base64.b64decode(text, validate=True), limit)
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked ({error})") from error
    if not inflate.eof:
        raise ValueError(f"is incomplete, or needs more than {limit} bytes")
    return Labels.from_json(table, _most_label_values(len(text)))
