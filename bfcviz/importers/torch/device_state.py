"""The state of one device in a snapshot: its chunks, and what it holds in PyTorch's words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bfcviz.events.schema import Events
from bfcviz.importers.heap_state import HEAP_CHUNK, HeapChunks, HeapRegion, events_of_state
from bfcviz.importers.torch.snapshot_content import STATES
from bfcviz.live.torch.segments_and_blocks import block_sizes

Segment = Mapping[str, Any]


def totals_of(segments: Sequence[Segment], entries: int) -> dict[str, int]:
    """Sums over the blocks, by PyTorch's names; sizes in bytes.

    `active` includes blocks that were freed while another stream may still use them; `allocated` does not.
    """
    blocks = [block for segment in segments for block in segment["blocks"]]
    inactive = [block["size"] for block in blocks if not STATES[block["state"]]]
    active = [block for block in blocks if STATES[block["state"]]]
    return {
        "segments": len(segments),
        "blocks": len(blocks),
        "reserved": sum(segment["total_size"] for segment in segments),
        "allocated": sum(block["size"] for block in active if block["state"] == "active_allocated"),
        "active": sum(block["size"] for block in active),
        "requested": sum(block_sizes(block)[1] for block in active),
        "inactive_blocks": len(inactive),
        "inactive_bytes": sum(inactive),
        "largest_inactive": max(inactive, default=0),
        "trace_entries": entries,
    }


def state_events(
    segments: Sequence[Segment],
    label_of: Callable[[Mapping[str, Any], Segment], int],
    stream_of: Callable[[int], int],
) -> Events:
    """Events that build exactly the blocks of a device.

    Args:
        segments: of the device, by ascending address.
        label_of: the label of a block of a segment.
        stream_of: the number of a stream.
    """
    regions = [HeapRegion(segment["address"], segment["total_size"]) for segment in segments]
    return events_of_state(_chunks(segments, label_of, stream_of), regions)


def _chunks(
    segments: Sequence[Segment],
    label_of: Callable[[Mapping[str, Any], Segment], int],
    stream_of: Callable[[int], int],
) -> HeapChunks:
    rows = []
    for segment in segments:
        at, stream = segment["address"], stream_of(segment.get("stream", 0))
        for block in segment["blocks"]:
            size, requested = block_sizes(block)
            in_use = STATES[block["state"]]
            rows.append((at, size, requested, label_of(block, segment) if in_use else 0, stream, in_use))
            at += size
    return np.array(rows, HEAP_CHUNK)
