"""Read a device memory profile of JAX (`jax.profiler.save_device_memory_profile`: pprof, gzip).

The profile says who holds how much memory of which device, and nothing else: no addresses, no free memory, no time. So
each holder is one chunk in use, and the chunks of a device lie at made-up addresses, one after another.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, STATE_ONLY, Origin, Pool, Status, end_missing
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import HEAP_CHUNK, events_of_state, one_after_another, regions_of
from bfcviz.importers.file_content import (
    LABELS,
    MAX_NAME_BYTES,
    MEMORY_EVENTS,
    PARTS,
    TEXT,
    Limits,
    read_content,
)
from bfcviz.importers.file_format import Format
from bfcviz.importers.protobuf_wire import LENGTH, Field, Wire
from bfcviz.stack_frames import CodePlace, own_place

# ------------------------------------------------------------------------------
# PprofProfile: the samples of a pprof profile (profile.proto), with their stacks and labels as text.
#
# ::
#
#     Profile { 1 sample_type { 1 type 2 unit } 2 sample { 1 location_id 2 value 3 label { 1 key 2 str 3 num } }
#               4 location { 1 id 4 line { 1 function_id 2 line } } 5 function { 1 id 2 name 4 filename }
#               6 string_table }
#
# Texts are indexes of the string table, which comes late: so samples are read after the rest.

_READ = _SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6


class PprofSample(NamedTuple):
    """One sample of a pprof profile; frames from the innermost out, values in the order of the sample types."""

    frames: tuple[CodePlace, ...]
    values: list[int]
    labels: dict[str, str]


class PprofProfile:
    """Reads a pprof profile.

    Attributes:
        types: type and unit of each value, such as `("space", "bytes")`.
        cut: why the end is missing; None if it is not.

    Raises:
        FileError: it is corrupt, or holds more than the limits allow.
    """

    def __init__(self, wire: Wire) -> None:
        self.cut: str | None = None
        self._wire = wire
        self._limits: Limits = wire.limits
        self._parts: dict[int, list[Field]] = {number: [] for number in _READ}
        for field in wire.fields(0, len(wire.data)):
            if field.missing:  # only the last one
                self.cut = f"the profile is cut off at byte {len(wire.data)}"
                break
            self._limits.count(PARTS, 1)
            if field.number in self._parts and field.wire == LENGTH:
                self._parts[field.number].append(field)
        self._texts = [self._text(field) for field in self._parts[_STRING]]
        self.types = [self._type(field) for field in self._parts[_SAMPLE_TYPE]]
        self._functions = dict(map(self._function, self._parts[_FUNCTION]))
        self._frames = dict(map(self._location, self._parts[_LOCATION]))

    def samples(self) -> Iterator[PprofSample]:
        """All samples of a pprof profile, in the order of the file."""
        stacks: dict[tuple[int, ...], tuple[CodePlace, ...]] = {}
        for field in self._parts[_SAMPLE]:
            numbers, labels = self._read(field, inner=3)
            places = tuple(numbers.get(1, ()))
            if places not in stacks:
                stacks[places] = self._stack(places)
            yield PprofSample(stacks[places], numbers.get(2, []), dict(map(self._label, labels)))

    def _stack(self, places: tuple[int, ...]) -> tuple[CodePlace, ...]:
        """The frames of these locations of a pprof profile; samples may name the same long frames without end."""
        frames = [frame for place in places for frame in self._frames.get(place, ())]
        self._limits.count(TEXT, sum(len(frame.function) + len(frame.file) + 8 for frame in frames))
        return tuple(frames)

    def _read(self, message: Field, inner: int = 0) -> tuple[dict[int, list[int]], list[Field]]:
        """The numbers in a message of a pprof profile by field number, and its messages, which are fields `inner`."""
        numbers: dict[int, list[int]] = {}
        messages: list[Field] = []
        for field in self._wire.fields(message.start, message.stop):
            self._limits.count(PARTS, 1)
            if field.number == inner and field.wire == LENGTH:
                messages.append(field)
                continue
            values = self._wire.numbers(field)
            self._limits.count(PARTS, len(values))
            numbers.setdefault(field.number, []).extend(values)
        return numbers, messages

    def _text(self, field: Field) -> str:
        """A text of a pprof profile by its index."""
        length = min(field.stop - field.start, MAX_NAME_BYTES)
        return self._wire.data[field.start : field.start + length].decode("utf-8", "replace")

    def _named(self, numbers: dict[int, list[int]], field: int) -> str:
        """The text of a pprof profile whose index is in a field; empty without one."""
        index = numbers.get(field, [0])[-1]
        return self._texts[index] if index < len(self._texts) else ""

    def _type(self, field: Field) -> tuple[str, str]:
        """A sample type of a pprof profile."""
        numbers, _ = self._read(field)
        return self._named(numbers, 1), self._named(numbers, 2)

    def _function(self, field: Field) -> tuple[int, tuple[str, str]]:
        """A function of a pprof profile."""
        numbers, _ = self._read(field)
        return numbers.get(1, [0])[-1], (self._named(numbers, 2), self._named(numbers, 4))

    def _location(self, field: Field) -> tuple[int, list[CodePlace]]:
        """Number and frames of a location of a pprof profile; more than one where functions are inlined."""
        numbers, lines = self._read(field, inner=4)
        frames = []
        for each in lines:
            line, _ = self._read(each)
            function = self._functions.get(line.get(1, [0])[-1], ("", ""))
            frames.append(CodePlace(*function, line.get(2, [0])[-1]))
        return numbers.get(1, [0])[-1], frames

    def _label(self, field: Field) -> tuple[str, str]:
        """A label of a pprof profile."""
        numbers, _ = self._read(field)
        return self._named(numbers, 1), self._named(numbers, 2) or str(numbers.get(3, [""])[-1])


# ------------------------------------------------------------------------------
# Read a device memory profile of JAX (`jax.profiler.save_device_memory_profile`: pprof, gzip).

_UNKNOWN: Final = (
    "a device memory profile says who holds memory, and no more: addresses are made up, and free memory, fragmentation "
    "and time are unknown"
)
_FACTS: Final = dict.fromkeys((*REGION_FACTS, "requested_bytes_in_use", "peak_bytes_in_use"))
_FIRST_ADDRESS: Final = 1 << 32
_LARGEST: Final = 1 << 60  # of all chunks together
_NO_DEVICE: Final = "no device"
_BYTES: Final = ("space", "inuse_space")
_COUNTS: Final = ("allocations", "inuse_objects")


def read_profile(path: Path) -> Trace:
    """The trace in a memory profile of JAX (pprof): a pool for each device, and one for what belongs to none.

    Raises:
        FileError: it cannot be read, is corrupt, or is a profile of something other than memory.
    """
    limits = Limits.of(path)
    content = read_content(path)
    profile = PprofProfile(Wire(path, content.data, limits))
    holders = _Holders(path, profile, limits)
    for sample in profile.samples():
        holders.add(sample)
    missing = [reason for reason in (content.cut, profile.cut) if reason is not None]
    problems = [f"left out: {count:,} {what}" for what, count in holders.left_out.items()]
    names = list(holders.rows) or [_NO_DEVICE]
    tables = [np.array(holders.rows.get(name, []), HEAP_CHUNK) for name in names]
    origin = Origin(
        format=Format.PPROF.value,
        source=path.name,
        status=Status.DEGRADED,
        reasons=(*missing, *problems, _UNKNOWN),
        pools=tuple(Pool(name) for name in names),
        details={
            "history": STATE_ONLY,
            "framework": "jax",
            "facts": [_FACTS] * len(names),
            "totals": holders.totals(names),
            **end_missing(missing),
        },
    )
    events = one_after_another([events_of_state(table, regions_of(table)) for table in tables])
    return Trace.from_events(events, holders.labels, origin)


class _Holders:
    """The chunks of each device in a pprof profile.

    Attributes:
        rows: device -> rows of HEAP_CHUNK.
        left_out: what is no chunk -> count.
    """

    def __init__(self, path: Path, profile: PprofProfile, limits: Limits) -> None:
        self.labels = Labels()
        self.rows: dict[str, list[tuple[int, int, int, int, int, bool]]] = {}
        self.left_out = Counter[str]()
        self._limits = limits
        self._counted: dict[str, Counter[str]] = {}
        self._bytes = self._place(profile, _BYTES)
        self._count = self._place(profile, _COUNTS)
        self._sum = 0
        if self._bytes is None:
            types = ", ".join(name[:40] for name, _ in profile.types[:8]) or profile.cut or "nothing"
            raise FileError(
                path,
                "",
                f"this is a pprof profile of other values than memory in use ({types}); record one with "
                "jax.profiler.save_device_memory_profile",
            )

    def totals(self, names: list[str]) -> list[dict[str, int]]:
        """What a pprof profile counts for each device; holders of 0 bytes and their allocations included."""
        empty = dict.fromkeys(("holders", "allocations", "bytes"), 0)
        return [{**empty, **self._counted.get(name, {})} for name in names]

    def add(self, sample: PprofSample) -> None:
        """Add a holder from a pprof profile."""
        self._limits.count(MEMORY_EVENTS, 1)
        size, count = self._value(sample, self._bytes), self._value(sample, self._count)
        device = sample.labels.get("device", "")[:64] or _NO_DEVICE
        if self._sum + size >= _LARGEST or count >= _LARGEST:
            self.left_out["holders with impossible numbers"] += 1
            return
        if device not in self.rows:
            if len(self.rows) == MAX_POOLS:
                self.left_out[f"holders on devices after the first {MAX_POOLS}"] += 1
                return
            self.rows[device], self._counted[device] = [], Counter()
        self._sum += size
        self._counted[device] += Counter(holders=1, allocations=count, bytes=size)
        if not size:
            self.left_out["holders of 0 bytes"] += 1
            return
        rows = self.rows[device]
        start = rows[-1][0] + rows[-1][1] if rows else _FIRST_ADDRESS
        rows.append((start, size, size, self._label(sample, count), 0, True))

    def _label(self, sample: PprofSample, count: int) -> int:
        details = {"kind": sample.labels.get("kind", ""), "allocations": str(count)}
        details["stack"] = "\n".join(frame.text for frame in sample.frames)
        before = len(self.labels)
        place = own_place(sample.frames)
        name = details["kind"] if place is None else place.name
        number = self.labels.intern(name, **{key: text for key, text in details.items() if text})
        self._limits.count(LABELS, len(self.labels) - before)
        return number

    @staticmethod
    def _place(profile: PprofProfile, names: tuple[str, ...]) -> int | None:
        """The place of a value in each sample."""
        return next((at for at, (name, _) in enumerate(profile.types) if name in names), None)

    @staticmethod
    def _value(sample: PprofSample, place: int | None) -> int:
        return sample.values[place] if place is not None and place < len(sample.values) else 0
