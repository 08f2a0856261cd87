"""Read a device memory profile of JAX (`jax.profiler.save_device_memory_profile`: pprof, gzip).

The profile says who holds how much memory of which device, and nothing else: no addresses, no free memory, no time. So
each holder is one chunk in use, and the chunks of a device lie at made-up addresses, one after another.
"""

from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np

from bfcviz.code_places import own_place
from bfcviz.errors import FileError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_POOLS, Origin, Pool, Status
from bfcviz.events.origin_details import REGION_FACTS, STATE_ONLY
from bfcviz.events.trace import Trace
from bfcviz.importers.collected.pprof_messages import PprofProfile, PprofSample
from bfcviz.importers.file_content import read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.heap_state import HEAP_CHUNK, events_of_state, regions_without_gaps
from bfcviz.importers.limits import LABELS, MEMORY_EVENTS, Limits
from bfcviz.importers.pools import one_after_another
from bfcviz.importers.protobuf_wire import Wire

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
    """The trace in a profile: a pool for each device, and one for what belongs to none, such as executables.

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
        },
    )
    events = one_after_another([events_of_state(table, regions_without_gaps(table)) for table in tables])
    return Trace.from_events(events, holders.labels, origin)


class _Holders:
    """The chunks of each device.

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
        """What the profile counts for each device; holders of 0 bytes and their allocations included."""
        empty = dict.fromkeys(("holders", "allocations", "bytes"), 0)
        return [{**empty, **self._counted.get(name, {})} for name in names]

    def add(self, sample: PprofSample) -> None:
        """Add a holder."""
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
