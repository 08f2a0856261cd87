"""Write a trace as a PyTorch memory snapshot, for PyTorch's own viewer: heaps are devices, regions are segments.

The pickle has protocol 4, the highest that the viewer reads, and holds only dictionaries, lists, numbers and text.
"""

import pickle
from pathlib import Path
from typing import Any, Final

from bfcviz.events.trace import Trace
from bfcviz.exporters.torch_entries import DeviceEntries, Frames
from bfcviz.model.state.model import Model

PROTOCOL: Final = 4


def write_snapshot(trace: Trace, start: int, stop: int, path: Path) -> list[str]:
    """Write the heaps at step `stop`, and the events [start, stop) as their history; returns what is left out."""
    frames = Frames(trace.labels)
    entries = DeviceEntries(trace, frames)
    entries.add(start, stop)
    notes = entries.notes()
    segments = []
    for pool, heap in enumerate(trace.origin.pools):
        model = Model(trace, pool)
        model.seek(stop)
        found, mixed = _segments(model, frames, entries.grown[pool])
        segments += found
        limit = "" if heap.limit is None else f", its limit of {heap.limit:,} bytes"
        notes.append(f"device {pool} is the heap {heap.name}; its name{limit} and its bins are left out")
        if mixed:
            notes.append(
                f"device {pool}: {mixed:,} regions hold chunks of several streams; they get stream 0"
            )
    snapshot = {
        "segments": segments,
        "device_traces": entries.traces,
        "allocator_settings": _settings(trace),
        "external_annotations": entries.annotations,
    }
    with path.open("wb") as file:
        pickle.dump(snapshot, file, PROTOCOL)
    return notes


def _segments(model: Model, frames: Frames, grown: set[int]) -> tuple[list[dict[str, Any]], int]:
    """The regions of a heap as segments; and how many of them hold chunks of several streams."""
    found: dict[int, dict[str, Any]] = {}
    for region in model.regions():
        address = int(region["address"])
        found[int(region["slot"])] = {
            "device": model.pool,
            "address": address,
            "total_size": int(region["size"]),
            "allocated_size": 0,
            "active_size": 0,
            "requested_size": 0,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": address in grown,
            "frames": [],
            "blocks": [],
        }
    streams: dict[int, set[int]] = {slot: set() for slot in found}
    for chunk in model.chunks():
        segment, slot, in_use = found[int(chunk["region"])], int(chunk["region"]), bool(chunk["in_use"])
        size, requested = int(chunk["size"]), int(chunk["requested"])
        block: dict[str, Any] = {
            "address": int(chunk["address"]),
            "size": size,
            "requested_size": requested,
            "state": "active_allocated" if in_use else "inactive",
            "frames": frames.of(int(chunk["label"])),
        }
        if in_use:
            block |= frames.more(int(chunk["label"]))
            segment["allocated_size"] += size
            segment["active_size"] += size
            segment["requested_size"] += requested
            streams[slot].add(int(chunk["stream"]))
        segment["blocks"].append(block)
    for slot, used in streams.items():
        found[slot]["stream"] = next(iter(used)) if len(used) == 1 else 0
    return list(found.values()), sum(len(used) > 1 for used in streams.values())


def _settings(trace: Trace) -> dict[str, Any]:
    """The options of the first heap that are plain values: PyTorch has one set of settings."""
    options = trace.origin.pools[0].options
    return {name: value for name, value in options.items() if isinstance(value, bool | int | float | str)}
