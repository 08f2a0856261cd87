"""Write a trace as a PyTorch memory snapshot, for PyTorch's own viewer: heaps are devices, regions are segments.

The pickle has protocol 4, the highest that the viewer reads, and holds only dictionaries, lists, numbers and text.
"""

import pickle
import re
from collections import Counter, deque
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.label_table import Labels
from bfcviz.events.marks import BEGINS, ENDS
from bfcviz.events.origin import recorded_failures
from bfcviz.events.schema import Events, Flag, Kind
from bfcviz.events.structured_arrays import taken
from bfcviz.events.trace import Trace
from bfcviz.formats.torch import BLOCK_SIZE
from bfcviz.model.model import Model

# ------------------------------------------------------------------------------
# The history of a trace as PyTorch's entries: one list a device, frames of labels, and annotations for marks.

MOST: Final = 500_000
"""Entries of one device, the last ones: PyTorch keeps its history in a ring too, and its viewer holds no more."""

_FRAME: Final = re.compile(r"(?P<name>.*) \((?P<file>.*):(?P<line>\d{1,9})\)")
_UNKNOWN_FILE: Final = "??"
_KEPT: Final = frozenset({"stack", "compile_context", BEGINS, ENDS})
"""Details of labels that a snapshot has a place for."""

Frame = dict[str, Any]


class Frames:
    """The frames of labels for a PyTorch snapshot: of the stack, or one with the name. Each list is made once."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._lists: dict[int, list[Frame]] = {0: []}
        self._more: dict[int, dict[str, str]] = {0: {}}
        self.dropped = Counter[str]()

    def of(self, label: int) -> list[Frame]:
        """The frames of a label for a PyTorch snapshot, the innermost first; pickle writes a shared list once."""
        known = self._lists.get(label)
        if known is None:
            known = self._lists[label] = self._frames(label)
        return known

    def more(self, label: int) -> dict[str, str]:
        """The name of a label for a PyTorch snapshot, and what else PyTorch has a place for, beside the frames."""
        known = self._more.get(label)
        if known is None:
            name, details = self._labels[label]
            known = {"user_metadata": name} if name else {}
            if "compile_context" in details:
                known["compile_context"] = details["compile_context"]
            self._more[label] = known
            self.dropped.update(each for each in details if each not in _KEPT)
        return known

    def _frames(self, label: int) -> list[Frame]:
        name, details = self._labels[label]
        lines = [line for line in details.get("stack", "").split("\n") if line]
        if not lines:
            return [{"name": name, "filename": _UNKNOWN_FILE, "line": 0}] if name else []
        return [_snapshot_frame(line) for line in lines]


def _snapshot_frame(line: str) -> Frame:
    found = _FRAME.fullmatch(line)
    if found is None:
        return {"name": line, "filename": _UNKNOWN_FILE, "line": 0}
    return {"name": found["name"], "filename": found["file"], "line": int(found["line"])}


class DeviceEntries:
    """The entries of every device in a PyTorch snapshot to be written.

    Attributes:
        annotations: marks and phases.
        grown: for each device the addresses of regions that grew.
    """

    def __init__(self, trace: Trace, frames: Frames) -> None:
        pools = range(len(trace.origin.pools))
        self.annotations: list[dict[str, Any]] = []
        self.grown: list[set[int]] = [set() for _ in pools]
        self._trace = trace
        self._frames = frames
        self._rings: list[deque[dict[str, Any]]] = [deque(maxlen=MOST) for _ in pools]
        self._slots: list[dict[int, int]] = [{} for _ in pools]
        self._device_free = {each.event: each.device_free for each in recorded_failures(trace.origin.details)}
        self._counts = Counter[str]()
        self._totals = np.zeros(len(self._rings), np.int64)

    @property
    def traces(self) -> list[list[dict[str, Any]]]:
        """`device_traces` of the PyTorch snapshot."""
        return [list(ring) for ring in self._rings]

    def add(self, start: int, stop: int) -> None:
        """Add the events [start, stop) to the entries of the PyTorch snapshot."""
        pools = len(self._rings)
        blocks = [_entries_of(events, pools) for events in self._trace.blocks(start, stop)]
        left = np.sum(blocks, axis=0, dtype=np.int64) if blocks else np.zeros(pools, np.int64)
        self._totals += left
        for events, here in zip(self._trace.blocks(start, stop), blocks, strict=True):
            left -= here
            kinds = events["kind"]
            unused = (kinds == Kind.SPLIT) | (kinds == Kind.MERGE)
            self._counts["SPLIT and MERGE"] += int(np.count_nonzero(unused))
            # Later blocks alone fill the ring: only regions and marks of this one matter.
            unused |= (left >= MOST)[events["pool"]] & (kinds != Kind.EXTEND) & (kinds != Kind.MARK)
            self._add(taken(events, np.flatnonzero(~unused)))

    def notes(self) -> list[str]:
        """What the entries of the PyTorch snapshot do not say, as sentences."""
        found = [
            "times are whole microseconds; numbers of threads are left out",
            f"PyTorch's history has requested sizes only: that of each chunk is its `{BLOCK_SIZE}`, which bfcviz reads",
        ]
        if gone := self._counts["SPLIT and MERGE"]:
            found.append(f"{gone:,} SPLIT and MERGE events are left out: a snapshot has none")
        for pool, ring in enumerate(self._rings):
            if gone := int(self._totals[pool]) - len(ring):
                found.append(
                    f"device {pool}: the first {gone:,} of {int(self._totals[pool]):,} entries are left out; choose "
                    "other steps with a range"
                )
        if unknown := self._counts["device_free"]:
            found.append(f"{unknown:,} oom entries have device_free 0: the trace does not say it")
        if self._frames.dropped:
            names = ", ".join(sorted(self._frames.dropped))
            found.append(f"details of labels are left out: {names}")
        return found

    def _add(self, events: Events) -> None:
        names = events.dtype.names or ()
        for values in events.tolist():
            event = dict(zip(names, values, strict=True))
            kind, pool = Kind(event["kind"]), event["pool"]
            if kind == Kind.MARK:
                self._annotate(event)
                continue
            for action in self._actions(kind, event):
                self._rings[pool].append(self._entry(action, kind, event))

    def _actions(self, kind: Kind, event: dict[str, int]) -> tuple[str, ...]:
        if kind != Kind.EXTEND:
            return _ACTIONS[kind]
        if event["flags"] & Flag.GREW:
            self.grown[event["pool"]].add(self._slots[event["pool"]].get(event["region"], event["address"]))
            return ("segment_map",)
        self._slots[event["pool"]][event["region"]] = event["address"]
        return ("segment_alloc",)

    def _entry(self, action: str, kind: Kind, event: dict[str, int]) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "action": action,
            "stream": event["stream"],
            "time_us": event["time"] // 1000,
        }
        if kind == Kind.OOM:
            free = self._device_free.get(event["seq"])
            self._counts["device_free"] += free is None
            entry |= {"size": event["requested"], "device_free": free or 0}
        elif kind in {Kind.EXTEND, Kind.RELEASE}:
            return entry | {"addr": event["address"], "size": event["size"], "frames": []}
        else:
            entry |= {"addr": event["address"], "size": event["requested"], BLOCK_SIZE: event["size"]}
        return entry | {"frames": self._frames.of(event["label"])} | self._frames.more(event["label"])

    def _annotate(self, event: dict[str, int]) -> None:
        name, details = self._trace.labels[event["label"]]
        sides = {BEGINS: "START", ENDS: "END"}
        stages = [(stage, details[side]) for side, stage in sides.items() if side in details]
        for stage, text in stages or [("START", name), ("END", name)]:
            self.annotations.append(
                {"stage": stage, "name": text, "device": event["pool"], "time_us": event["time"] // 1000}
            )


def _entries_of(events: Events, pools: int) -> NDArray[np.int64]:
    """How many entries of these events each device has in a PyTorch snapshot."""
    cells = events["pool"].astype(np.intp) * len(_ENTRIES) + events["kind"]
    counts = np.bincount(cells, minlength=pools * len(_ENTRIES)).reshape(pools, len(_ENTRIES))
    found: NDArray[np.int64] = counts @ _ENTRIES
    return found


_ACTIONS: Final[dict[int, tuple[str, ...]]] = {
    Kind.RELEASE: ("segment_free",),
    Kind.ALLOCATE: ("alloc",),
    # Beside each other: the viewer joins the two.
    Kind.FREE: ("free_requested", "free_completed"),
    Kind.OOM: ("oom",),
}

_ENTRIES: Final = np.array([len(_ACTIONS.get(kind, ())) for kind in range(max(Kind) + 1)], np.int64)
"""Entries of an event, by its kind."""

_ENTRIES[Kind.EXTEND] = 1


PROTOCOL: Final = 4


def write_snapshot(trace: Trace, start: int, stop: int, path: Path) -> list[str]:
    """Write the heaps at step `stop` for PyTorch, and the events [start, stop) as history; returns what is left out."""
    frames = Frames(trace.labels)
    entries = DeviceEntries(trace, frames)
    entries.add(start, stop)
    notes = entries.notes()
    segments = []
    for pool, heap in enumerate(trace.origin.pools):
        model = Model(trace, pool)
        model.seek(stop)
        found, mixed = _snapshot_segments(model, frames, entries.grown[pool])
        segments += found
        limit = "" if heap.limit is None else f", its limit of {heap.limit:,} bytes"
        notes.append(f"device {pool} is the heap {heap.name}; its name{limit} and its bins are left out")
        if mixed:
            notes.append(
                f"device {pool}: {mixed:,} regions hold chunks of several streams; they get stream 0"
            )
    # The options of the first heap that are plain values: PyTorch has one set of settings.
    options = trace.origin.pools[0].options.items()
    settings = {name: value for name, value in options if isinstance(value, bool | int | float | str)}
    snapshot = {
        "segments": segments,
        "device_traces": entries.traces,
        "allocator_settings": settings,
        "external_annotations": entries.annotations,
    }
    with path.open("wb") as file:
        pickle.dump(snapshot, file, PROTOCOL)
    return notes


def _snapshot_segments(model: Model, frames: Frames, grown: set[int]) -> tuple[list[dict[str, Any]], int]:
    """The regions of a heap as PyTorch's segments; and how many of them hold chunks of several streams."""
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
