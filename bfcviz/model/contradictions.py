"""What is wrong with an event, as a sentence: the code that `PoolState` found, the record and its chunks."""

import numpy as np

from bfcviz.events.schema import Kind
from bfcviz.model import array_access

_STATES = {array_access.CHUNK_FREE: "free", array_access.CHUNK_IN_USE: "in use"}

_TEXTS = {
    array_access.WRONG_STEP: "its number is {seq}: events are missing, repeated or out of order",
    array_access.WRONG_POOL: "its pool is {pool}, which the trace does not have",
    array_access.UNKNOWN_KIND: "{kind_number} is not a kind of event",
    array_access.ABSENT: "its chunk does not exist: {chunk}; {other}",
    array_access.NOT_FREE: "its chunk must be free and is in use: {chunk}; {other}",
    array_access.NOT_IN_USE: "the chunk is not in use: {chunk}",
    array_access.OTHER_REGION: "its region is {region}, but {chunk}; {other}",
    array_access.OTHER_PLACE: "it has {size} bytes at {address:#x}, but {chunk}; {other}",
    array_access.OTHER_OWNER: (
        "it has {requested} bytes requested, label {label}, thread {thread}, stream {stream}, allocated by an "
        "event whose low 32 bits are {other_number}, but {chunk}"
    ),
    array_access.SHORT: "{requested} bytes were requested, more than the chunk's {size}",
    array_access.EMPTY: "its size is 0 bytes",
    array_access.TOO_LARGE: "{size} bytes at {address:#x} are too large: {chunk}",
    array_access.HANDLE_TAKEN: "the new chunk's handle is taken: {chunk}; {other}",
    array_access.HANDLE_TOO_HIGH: "the new chunk's handle is higher than the number of chunks possible at this step",
    array_access.NOT_NEIGHBOURS: "the chunks are not neighbours: {chunk}; {other}",
    array_access.SLOT_TAKEN: "region {region} exists already",
    array_access.SLOT_EMPTY: "region {region} does not exist",
    array_access.OVERLAP: "{size} bytes at {address:#x} overlap another region",
    array_access.NOT_AT_END: "it extends region {region} at {address:#x}, which is not the region's end",
}


def text(code: int, record: np.void, event: int, chunk: np.void | None, other: np.void | None) -> str:
    """One sentence that names the event, its kind and the contradiction.

    Args:
        code: a contradiction code of `array_access`.
        record: the event, of `EVENT`.
        event: its index; the state is at the step before it, which has the same number.
        chunk: the CHUNK_ROW of the record's `chunk`; None where no such row exists.
        other: the row of its `other`.
    """
    fields = {name: record[name].item() for name in record.dtype.names or ()}
    second = fields["kind"] in (Kind.SPLIT, Kind.MERGE)
    words = {
        "kind_number": fields["kind"],
        "other_number": fields["other"],
        "chunk": _contradiction_chunk_text(fields["chunk"], chunk),
        "other": _contradiction_chunk_text(fields["other"], other) if second else "",
    }
    described = _TEXTS[code].format(**{**fields, **words})
    kind = Kind(fields["kind"]).name if fields["kind"] in set(Kind) else f"kind {fields['kind']}"
    return f"event {event} ({kind} of chunk {fields['chunk']}): {described.removesuffix('; ')}"


def _contradiction_chunk_text(handle: int, row: np.void | None) -> str:
    if row is None or row["state"] == array_access.NOTHING:
        return f"chunk {handle} does not exist"
    words = (
        f"chunk {handle} is {_STATES[int(row['state'])]}, {row['size']} bytes at {row['address']:#x} "
        f"of region {row['region']}"
    )
    if row["state"] == array_access.CHUNK_IN_USE:
        words += (
            f", {row['requested']} requested, label {row['label']}, thread {row['thread']}, "
            f"stream {row['stream']}, allocated by event {row['born']}"
        )
    return words
