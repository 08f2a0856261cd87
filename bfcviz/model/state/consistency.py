"""What is wrong with an event, in words: the code `reduce` found, the record, and the chunks it names."""

import numpy as np

from bfcviz.events.schema import Kind
from bfcviz.model.state import array_access

_STATES = {array_access.CHUNK_FREE: "free", array_access.CHUNK_IN_USE: "in use"}

_TEXTS = {
    array_access.WRONG_STEP: "it says it is event {seq}: events are missing, repeated or out of order",
    array_access.WRONG_POOL: "it is of pool {pool}, which the trace does not have",
    array_access.UNKNOWN_KIND: "{kind_number} is no kind of event",
    array_access.ABSENT: "there is no such chunk: {chunk}; {other}",
    array_access.NOT_FREE: "a chunk it needs free is in use: {chunk}; {other}",
    array_access.NOT_IN_USE: "the chunk is not in use: {chunk}",
    array_access.OTHER_REGION: "it names region {region}, but {chunk}; {other}",
    array_access.OTHER_PLACE: "it says {size} bytes at {address:#x}, but {chunk}; {other}",
    array_access.OTHER_OWNER: (
        "it says {requested} bytes requested, label {label}, thread {thread}, stream {stream}, allocated by an "
        "event whose low 32 bits are {other_number}, but {chunk}"
    ),
    array_access.SHORT: "{requested} bytes were requested, more than the chunk's {size}",
    array_access.EMPTY: "its size is 0 bytes",
    array_access.TOO_LARGE: "{size} bytes at {address:#x} are too many: {chunk}",
    array_access.HANDLE_TAKEN: "the new chunk's handle is taken: {chunk}; {other}",
    array_access.HANDLE_TOO_HIGH: "the new chunk's handle is higher than there can be chunks at this step",
    array_access.NOT_NEIGHBOURS: "the chunks are not neighbours: {chunk}; {other}",
    array_access.SLOT_TAKEN: "region {region} exists already",
    array_access.SLOT_EMPTY: "region {region} does not exist",
    array_access.OVERLAP: "{size} bytes at {address:#x} overlap another region",
    array_access.NOT_AT_END: "it grows region {region} at {address:#x}, which is not the region's end",
}


def text(code: int, record: np.void, event: int, chunk: np.void | None, other: np.void | None) -> str:
    """One sentence that names the event, its kind and what contradicts what.

    Args:
        code: a contradiction code of `raw`.
        record: the event, of `EVENT`.
        event: its index; the table stands at the step before it, of the same number.
        chunk: the row of the record's `chunk`, of CHUNK_ROW; None where the table has no such row.
        other: the row of its `other`.
    """
    fields = {name: record[name].item() for name in record.dtype.names or ()}
    second = fields["kind"] in (Kind.SPLIT, Kind.MERGE)
    described = _TEXTS[code].format(
        **(
            fields
            | {
                "kind_number": fields["kind"],
                "other_number": fields["other"],
                "chunk": _chunk(fields["chunk"], chunk),
                "other": _chunk(fields["other"], other) if second else "",
            }
        )
    )
    return (
        f"event {event} ({_kind(fields['kind'])} of chunk {fields['chunk']}): {described.removesuffix('; ')}"
    )


def _kind(number: int) -> str:
    return Kind(number).name if number in set(Kind) else f"kind {number}"


def _chunk(handle: int, row: np.void | None) -> str:
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
