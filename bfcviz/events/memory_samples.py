"""The memory of a recorded process and of its devices, of which a heap is a part: sampled, drawn beside the heap.

`bfcviz record` reads the resident set of each process that it records, five times a second, and appends a row to a file
in the recording's folder; the recorded process does nothing for it. What all processes use of a device only a process
with a context on it can ask: a recorded process whose heap is on a device appends that to a second file, as often. A
trace has the samples in its origin's details, those of devices by number::

    "process_memory": {"time_ns": [0, 204118033, ...], "resident_bytes": [51380224, 248512512, ...]}
    "device_memory": {"0": {"time_ns": [0, 200117204, ...], "used_bytes": [523239424, 2670723072, ...]}}

Times are those of the events: nanoseconds since the log began.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.event_record import RECORD
from bfcviz.events.log import EVENTS_FILE
from bfcviz.events.log_memory import MAPPED_SLOTS, SLOT
from bfcviz.events.origin import process_peak
from bfcviz.events.storage.files import append
from bfcviz.units import format_bytes

PROCESS_FILE: Final = "process.bin"
DEVICE_FILE: Final = "device.bin"
SAMPLE_FILES: Final = (PROCESS_FILE, DEVICE_FILE)

PROCESS_MEMORY: Final = "process_memory"
DEVICE_MEMORY: Final = "device_memory"
"""The details of an origin that have the samples."""

SAMPLE_EVERY_S: Final = 0.2

_RESIDENT: Final = np.dtype([("time_ns", "<i8"), ("resident_bytes", "<u8")])
_USED: Final = np.dtype([("time_ns", "<i8"), ("used_bytes", "<u8"), ("device", "<u8")])
"""A row of each file; its time is that of the calendar."""

MOST_SAMPLES: Final = 1000
"""Of a process or a device in a trace: of more, the largest of each equal part is kept."""

_MOST_BYTES: Final = 1 << 24  # of a file: 58 hours of a process, 38 of a device; later samples are not read
_MOST_DEVICES: Final = 64


class MemorySamples(NamedTuple):
    """Samples of the memory of a process or a device, at least one.

    Attributes:
        times: i8[n], ascending, nanoseconds since the log began.
        num_bytes: u8[n], the resident set, or what all processes use of the device.
    """

    times: NDArray[np.int64]
    num_bytes: NDArray[np.uint64]


def process_memory(details: Mapping[str, object]) -> MemorySamples | None:
    """The memory samples of a process in an origin's details; None: there are none, or they cannot be right."""
    return _memory_samples(details.get(PROCESS_MEMORY), "resident_bytes")


def process_peak_text(details: Mapping[str, object]) -> str | None:
    """The peak of the recorded process in words: `at least` the highest sample where its end could not say the peak."""
    if (peak := process_peak(details)) is not None:
        return format_bytes(peak)
    samples = process_memory(details)
    return None if samples is None else f"at least {format_bytes(int(samples.num_bytes.max()))}"


def device_memory(details: Mapping[str, object], device: int | None) -> MemorySamples | None:
    """The memory samples of a device in an origin's details, as `process_memory`."""
    found = details.get(DEVICE_MEMORY)
    return _memory_samples(found.get(str(device)), "used_bytes") if isinstance(found, dict) else None


def _memory_samples(found: object, column: str) -> MemorySamples | None:
    if not isinstance(found, dict):
        return None
    columns = [found.get("time_ns"), found.get(column)]
    if not all(isinstance(column, list) and 0 < len(column) <= MOST_SAMPLES for column in columns):
        return None
    try:
        times, num_bytes = np.array(columns[0], np.int64), np.array(columns[1], np.uint64)
    except (TypeError, ValueError, OverflowError):
        return None
    if times.shape != num_bytes.shape or times.ndim != 1 or (np.diff(times) < 0).any():
        return None
    return MemorySamples(times, num_bytes)


def sample_process(process: int, folder: Path) -> None:
    """Append how much memory a process of this machine has now to the file in the folder of its recording.

    Raises:
        OSError: there is no such process, or the file cannot be written.
    """
    resident = int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if not resident:  # it has ended, and its parent did not ask how
        return
    resident = max(resident - _mapped_events_bytes(folder), 0)
    append(folder / PROCESS_FILE, np.array([(time.time_ns(), resident)], _RESIDENT).tobytes())


def _mapped_events_bytes(folder: Path) -> int:
    """What the resident set of a process has of the file of its events, which is not the program's."""
    try:
        return min((folder / EVENTS_FILE).stat().st_size, MAPPED_SLOTS * SLOT * RECORD)
    except OSError:
        return 0


def add_device_sample(folder: Path, device: int, used: int) -> None:
    """Append how much of a device all processes use now to the file in the folder of a recording.

    Raises:
        OSError: the file cannot be written.
    """
    append(folder / DEVICE_FILE, np.array([(time.time_ns(), used, device)], _USED).tobytes())


def read_samples(folder: Path, started_ns: object) -> dict[str, Any]:
    """The details of the memory samples in a recording's folder; empty: there are none.

    Args:
        folder: of the recording.
        started_ns: when its log began, in nanoseconds of the calendar.
    """
    if not isinstance(started_ns, int) or not 0 <= started_ns < 1 << 62:
        return {}
    process = _samples_as_detail(_sample_rows(folder / PROCESS_FILE, _RESIDENT), started_ns)
    rows = _sample_rows(folder / DEVICE_FILE, _USED)
    devices = {
        str(device): found
        for device in np.unique(rows["device"])[:_MOST_DEVICES]
        if (found := _samples_as_detail(rows[rows["device"] == device], started_ns))
    }
    return {name: found for name, found in ((PROCESS_MEMORY, process), (DEVICE_MEMORY, devices)) if found}


def _sample_rows(path: Path, row: np.dtype[np.void]) -> NDArray[np.void]:
    data = b""
    with suppress(OSError), path.open("rb") as file:
        data = file.read(_MOST_BYTES)
    rows = np.frombuffer(data, row, len(data) // row.itemsize)
    return rows[rows["time_ns"] >= 0]


def _samples_as_detail(rows: NDArray[np.void], started_ns: int) -> dict[str, list[int]]:
    """The memory samples of a process or a device; empty: none, or the calendar was set back."""
    column = str((rows.dtype.names or ())[1])
    times, num_bytes = _thinned_samples(rows["time_ns"] - np.int64(started_ns), rows[column])
    if not len(times) or (np.diff(times) < 0).any():
        return {}
    return {"time_ns": times.tolist(), column: num_bytes.tolist()}


def _thinned_samples(
    times: NDArray[np.int64], num_bytes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    if len(times) <= MOST_SAMPLES:
        return times, num_bytes
    starts = np.linspace(0, len(times), MOST_SAMPLES, endpoint=False).astype(np.intp)
    stops = np.append(starts[1:], len(times))
    largest = [start + int(num_bytes[start:stop].argmax()) for start, stop in zip(starts, stops, strict=True)]
    return times[largest], num_bytes[largest]


def peak_of_process(folder: Path) -> int | None:
    """The most memory that this process had at once, in bytes: its resident set, without what it has of its recording.

    None: not known.

    Args:
        folder: of the recording.
    """
    try:
        # Not getrusage: it counts what the process that started this one had.
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    peak = next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), None)
    return None if peak is None else max(peak - _mapped_events_bytes(folder), 0)
