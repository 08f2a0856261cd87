"""Sections of a file of blocks: packed, written and unpacked."""

from shared import write_anew

from bfcviz.events.storage import blocks
from bfcviz.events.storage.block_codec import MOST_EVENTS, EventCodec
from bfcviz.events.storage.files import OpenFile


def describe(events):
    """Something that says which block it is of."""
    return b"index of %d" % events["seq"][0], b"state at %d" % events["seq"][0] if events["seq"][0] else b""


def packed(events, size=MOST_EVENTS):
    codec = EventCodec()
    parts = [events[start : start + size] for start in range(0, len(events), size)]
    return [blocks.event_section(codec, part, b"index", b"keyframe") for part in parts]


def written(tmp_path, sections):
    path = tmp_path / "events"
    write_anew(path, b"".join(sections))
    return OpenFile(path)


def unpacked(file, found, codec=None):
    payload = file.read_at(found.payload_at, found.payload_bytes)
    return blocks.decoded(codec or EventCodec(), found, payload)
