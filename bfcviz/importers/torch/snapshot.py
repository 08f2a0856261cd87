"""`read_snapshot`: a PyTorch memory snapshot as a trace, one heap a device."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from bfcviz.errors import FileError, TraceError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_POOLS, STATE_ONLY, Origin, Pool, RecordedFailure, Status
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.formats.torch import Rules, StreamNumbers
from bfcviz.importers.file_content import Content, read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.heap_state import by_time, one_after_another
from bfcviz.importers.torch.allocation_history import OOM, TraceRange, TraceRows
from bfcviz.importers.torch.device_replay import DeviceReplay, SnapshotTables, effective
from bfcviz.importers.torch.json_reader import read_json
from bfcviz.importers.torch.pickle_reader import PickleReader
from bfcviz.importers.torch.snapshot_content import (
    BEFORE,
    BEFORE_KEPT,
    SnapshotContent,
    StackLabels,
    content_of,
    state_events,
    totals_of,
)

_MOST_OPTIONS: Final = 64
_LONGEST_OPTION: Final = 1024
_LATEST: Final = 1 << 52  # microseconds


def read_snapshot(path: Path) -> Trace:
    """Read a snapshot of any version of PyTorch, or what is whole of one that is cut off.

    Raises:
        FileError: it is no snapshot, or holds anything that can run code.
    """
    content = read_content(path)
    rows, size = TraceRows(), len(content.data)
    value, cut = _read(path, content, rows)
    del content  # the file's bytes are not needed any more
    found = content_of(path, value, cut)
    try:
        return _Importer(path, found, rows, size).trace(cut)
    except (TraceError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "", str(error)) from None


def _read(path: Path, content: Content, rows: TraceRows) -> tuple[Any, str | None]:
    """The value of the file, and why its end is missing."""
    if (
        content.data[:1] in {b"{", b"["}
        or content.data[:2] in {b"\xff\xfe", b"\xfe\xff"}
        or content.data[:1] == b"\xef"
    ):
        return read_json(path, content.data, rows), None
    reader = PickleReader(path, content.data, rows)
    value = reader.read()
    return value, reader.cut and (content.cut or reader.cut)


class _Importer:
    """Makes the trace of a snapshot."""

    def __init__(self, path: Path, found: SnapshotContent, rows: TraceRows, file_size: int) -> None:
        self._path = path
        self._found = found
        self._rows = rows
        table = Labels()
        before = BEFORE_KEPT if found.settings.get(_OVERFLOWED) is True else BEFORE
        self._tables = SnapshotTables(
            rows,
            Rules.of(found.settings),
            StackLabels(table, rows, file_size, before),
            table,
            self._first_time(),
        )
        self._devices = (found.devices or [0])[:MAX_POOLS]
        self._reasons = list(found.notes)
        self._failures: dict[int, list[int]] = {}

    def trace(self, cut: str | None) -> Trace:
        """The trace; `cut`: why the end of the file is missing."""
        replayed = {device for device in self._devices if self._has_history(device)}
        logs = [self._events(device, replayed=device in replayed) for device in self._devices]
        timed = bool(replayed) and not any(self._is_without_times(device) for device in replayed)
        events = by_time(logs) if timed else one_after_another(logs)
        failures = self._recorded_failures(events)
        details: dict[str, Any] = {"framework": "torch", "totals": [self._totals(d) for d in self._devices]}
        if not replayed:
            details["history"] = STATE_ONLY
        if failures:
            details["failures"] = failures
        self._add_reasons()
        status = Status.DEGRADED if self._reasons else Status.COMPLETE
        if self._found.settings.get(_OVERFLOWED) is True:
            status = Status.TRUNCATED if not self._reasons else status
            self._reasons.insert(0, _overflow(self._found.settings))
        if cut is not None:
            status = Status.TRUNCATED if not self._reasons else status
            self._reasons.insert(
                0, f"{cut}: the heap at the end is shown, entries that are not whole are missing"
            )
        origin = Origin(
            format=Format.TORCH_SNAPSHOT.value,
            source=self._path.name,
            status=status,
            reasons=tuple(self._reasons),
            pools=tuple(
                Pool(f"cuda:{device}", None, _options(self._found.settings)) for device in self._devices
            ),
            details=details,
        )
        return Trace.from_events(events, self._tables.table, origin)

    # -- one device -----------------------------------------------------------------------------------------------

    def _has_history(self, device: int) -> bool:
        trace = self._found.traces.get(device)
        if trace is None:
            return False
        actions = np.frombuffer(self._rows.action, np.uint8)[trace.first : trace.stop]
        return bool(len(effective(self._rows, trace)) or (actions == OOM).any())

    def _events(self, device: int, *, replayed: bool) -> Events:
        segments = self._found.segments.get(device, [])
        if not replayed:
            return state_events(segments, self._tables.labels.of_block, StreamNumbers().of)
        trace = self._found.traces[device]
        replay = DeviceReplay(self._tables, trace, segments)
        annotations = sorted(
            (each for each in self._found.annotations if each.device == device), key=lambda each: each.time
        )
        events = replay.run(annotations)
        self._failures[device] = replay.failures
        self._add_doubts(device, replay)
        return events

    def _add_doubts(self, device: int, replay: DeviceReplay) -> None:
        name = f"cuda:{device}"
        if replay.differing:
            self._reasons.append(
                f"{name}: {replay.differing:,} blocks or segments at the end of the trace differed from the snapshot's "
                "segments and were corrected there: entries are missing or were left out by PyTorch"
            )
        if replay.impossible:
            self._reasons.append(
                f"{name}: {replay.impossible:,} entries of the trace do not fit those after them"
            )
        if replay.strange_regions:
            self._reasons.append(
                f"{name}: {replay.strange_regions:,} regions are not the snapshot's segments"
            )
        if replay.failures_left_out:
            self._reasons.append(f"{name}: {replay.failures_left_out:,} failed requests are left out")
        if words := replay.history.inconsistencies.words():
            self._reasons.append(f"{name}: {words}")

    def _totals(self, device: int) -> dict[str, int]:
        trace = self._found.traces.get(device, TraceRange(0, 0))
        return totals_of(self._found.segments.get(device, []), trace.stop - trace.first)

    # -- all devices ----------------------------------------------------------------------------------------------

    def _first_time(self) -> int:
        """Time of step 0, in microseconds: the first entry or annotation."""
        times = np.frombuffer(self._rows.time, np.int64)
        times = times[times >= 0]
        known = [annotation.time for annotation in self._found.annotations]
        if len(times):
            known += [int(times.min()), int(times.max())]
        if known and max(known) - min(known) > _LATEST:
            raise FileError(
                self._path, "", f"times of entries are {max(known) - min(known):,} microseconds apart"
            )
        return min(known, default=0)

    def _is_without_times(self, device: int) -> bool:
        trace = self._found.traces[device]
        return bool((np.frombuffer(self._rows.time, np.int64)[trace.first : trace.stop] < 0).any())

    def _recorded_failures(self, events: Events) -> list[dict[str, Any]]:
        found = []
        for index in np.flatnonzero(events["kind"] == Kind.OOM).tolist():
            device = self._devices[int(events["pool"][index])]
            row = self._failures[device].pop(0)
            failure = RecordedFailure(
                event=index,
                op=self._tables.table.name(int(events["label"][index])),
                device_free=self._rows.address[row],
            )
            found.append(failure.to_json())
        return found

    def _add_reasons(self) -> None:
        more = len(self._found.devices) - len(self._devices)
        if more > 0:
            self._reasons.append(f"{more:,} devices are left out: a trace can have {MAX_POOLS}")
        if strange := self._rows.strange:
            names = ", ".join(sorted(strange)[:5])
            self._reasons.append(
                f"{sum(strange.values()):,} entries of unknown kinds ({names[:200]}) are left out"
            )
        if without := self._tables.labels.without_stack:
            self._reasons.append(
                f"the stacks of {without:,} labels are left out: together they hold too much text"
            )


_OVERFLOWED: Final = "trace_alloc_overflowed"


def _overflow(settings: Mapping[str, Any]) -> str:
    kept = settings.get("trace_alloc_max_entries")
    number = f" (max_entries={kept:,})" if isinstance(kept, int) and 0 < kept < _LATEST else ""
    return (
        f"PyTorch kept only the last entries of its history{number} and overwrote those before: it begins later than "
        "the recording"
    )


def _options(settings: Mapping[str, Any]) -> dict[str, object]:
    """The allocator's settings that are plain values, by PyTorch's names."""
    options: dict[str, object] = {}
    for name, value in list(settings.items())[:_MOST_OPTIONS]:
        if isinstance(value, str):
            options[name] = value[:_LONGEST_OPTION]
        elif _is_number(value):
            options[name] = value
        elif isinstance(value, dict) and any(value.values()) and all(map(_is_number, value.values())):
            options[name] = dict(list(value.items())[:_MOST_OPTIONS])
    return options


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < _LATEST
