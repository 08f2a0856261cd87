"""SnapshotContent: the parts of a snapshot, checked. Versions of PyTorch differ in keys; no version number is read."""
# ruff: noqa: TRY004  all damage in a file is one error, a ValueError

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bfcviz.errors import FileError
from bfcviz.importers.torch.allocation_history import TraceRange, number_in, words_in

STATES: Final = {
    "inactive": False,
    "active_allocated": True,
    "active_pending_free": True,
    "active_awaiting_free": True,  # the same, in PyTorch's documents
}
"""Whether a block of each state is in use. A pending block was freed, but another stream may still use it."""

MAX_ADDRESS: Final = 1 << 62
_NEEDED = ("device", "address", "total_size", "blocks")


class Annotation(NamedTuple):
    """The begin or end of a named range of the program.

    `time`: microseconds; `number`: both ends of a range have the same, and no other range has it.
    """

    name: str
    begins: bool
    device: int
    time: int
    number: int


@dataclass
class SnapshotContent:
    """What a snapshot holds.

    Attributes:
        segments: of each device, by ascending address; with the keys of the file.
        traces: of each device that has entries.
        cut_traces: devices whose trace is cut off, or missing because the file is cut off.
        settings: of the allocator.
        annotations: in the order of the file.
        notes: what the snapshot holds that is left out.
    """

    segments: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    traces: dict[int, TraceRange] = field(default_factory=dict)
    cut_traces: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    annotations: list[Annotation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def devices(self) -> list[int]:
        """Numbers of the devices that hold anything, ascending."""
        return sorted({*self.segments, *self.traces})


def content_of(path: object, value: object, cut: str | None) -> SnapshotContent:
    """The parts of what a pickle holds.

    Args:
        path: of the file, for errors.
        value: a dict, or before PyTorch 2.0 a list of segments.
        cut: why the end of the file is missing; `value` is then what is whole.

    Raises:
        FileError: it is no snapshot, its segments are missing, or a part of it is impossible.
    """
    whole = {"segments": value} if isinstance(value, list) else value
    if not isinstance(whole, dict) or not isinstance(whole.get("segments"), list):
        raise FileError(path, "", _missing(whole, cut))
    found = SnapshotContent(cut_traces=cut is not None)
    try:
        for number, segment in enumerate(whole["segments"]):
            device = _checked_segment(number, segment)
            found.segments.setdefault(device, []).append(segment)
        for segments in found.segments.values():
            segments.sort(key=lambda segment: int(segment["address"]))
            _check_overlaps(segments)
        _add_traces(found, whole.get("device_traces", []))
        found.annotations += _annotations(whole.get("external_annotations", []))
    except ValueError as error:
        raise FileError(path, "", str(error)) from None
    settings = whole.get("allocator_settings")
    found.settings = settings if isinstance(settings, dict) else {}
    if whole.get("host_segments") or any(_as_list(whole.get("host_traces"))):
        found.notes.append(
            "memory of the host (host_segments, host_traces) is left out: only devices are shown"
        )
    return found


def _missing(whole: object, cut: str | None) -> str:
    if cut is not None:
        return (
            f"{cut}, before the end of its segments: without them the heap is not known. Copy the file again"
        )
    keys = ", ".join(map(str, whole)) if isinstance(whole, dict) else ""
    holds = f"a dict with the keys {keys[:200]}" if keys else f"a {type(whole).__name__}"
    return (
        f"this pickle holds {holds}, no PyTorch snapshot: that is a dict with segments and device_traces, "
        "which torch.cuda.memory._dump_snapshot writes"
    )


def _checked_segment(number: int, segment: object) -> int:
    """Check one segment and its blocks; returns its device."""
    if not isinstance(segment, dict) or not all(key in segment for key in _NEEDED):
        raise ValueError(f"segment {number} has not all of {', '.join(_NEEDED)}")
    address, size = number_in(segment["address"], "address"), number_in(segment["total_size"], "total_size")
    number_in(segment.get("stream", 0), "stream")
    if not size or address + size > MAX_ADDRESS:
        raise ValueError(f"segment {number} has {size} bytes at {address:#x}, which is no memory")
    at, blocks = address, segment["blocks"]
    if not isinstance(blocks, list):
        raise ValueError(f"segment {number} has blocks that are not a list")
    for place, block in enumerate(blocks):
        at = _checked_block(f"block {place} of segment {number}", block, at)
    if at != address + size:
        raise ValueError(
            f"the blocks of segment {number}, at {address:#x}, have {at - address:,} bytes, the segment {size:,}"
        )
    return number_in(segment["device"], "device")


def _checked_block(what: str, block: object, at: int) -> int:
    """Check a block that begins at `at`; returns where it ends."""
    if not isinstance(block, dict) or not number_in(block.get("size"), f"size of {what}"):
        raise ValueError(f"{what} has no size")
    if block.get("address", at) != at:
        raise ValueError(f"{what} does not begin where the block before it ends")
    state = block.get("state")
    if not isinstance(state, str) or state not in STATES:
        raise ValueError(f"{what} has the unknown state {str(state)[:40]!r}")
    number_in(block.get("requested_size", 0), f"requested_size of {what}")
    return at + int(block["size"])


def _check_overlaps(segments: Sequence[Mapping[str, Any]]) -> None:
    stop = 0
    for segment in segments:
        if segment["address"] < stop:
            raise ValueError(f"the segment at {segment['address']:#x} overlaps the one before it")
        stop = segment["address"] + segment["total_size"]


def _add_traces(found: SnapshotContent, traces: object) -> None:
    if isinstance(traces, TraceRange):  # the entries of one device, without the list around them
        traces = [traces]
    for device, trace in enumerate(_as_list(traces)):
        if isinstance(trace, TraceRange):
            found.traces[device] = trace
        elif trace:
            raise ValueError(f"the trace of device {device} is no list of entries")


def _annotations(entries: object) -> list[Annotation]:
    """The annotations; an end belongs to the newest begin of that name and device."""
    found: list[Annotation] = []
    open_ranges: dict[tuple[str, int], list[int]] = {}
    for entry in _as_list(entries):
        if (
            not isinstance(entry, dict)
            or entry.get("stage") not in ("START", "END")
            or "time_us" not in entry
        ):
            continue
        device = number_in(entry.get("device", 0), "device of an annotation")
        time = number_in(entry["time_us"], "time_us of an annotation")
        name, begins = words_in(entry.get("name")), entry["stage"] == "START"
        begun = open_ranges.setdefault((name, device), [])
        number = len(found) + 1 if begins or not begun else begun.pop()
        if begins:
            begun.append(number)
        found.append(Annotation(name, begins, device, time, number))
    return found


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
