"""The memory of a recorded process as a whole, of which a heap is a part: sampled from outside, drawn beside the heap.

`bfcviz record` reads the resident set of each process that it records, five times a second, and appends a row to a file
in the recording's folder; the recorded process does nothing for it. A trace has the samples in its origin's details::

    "process_memory": {"time_ns": [0, 204118033, ...], "resident_bytes": [51380224, 248512512, ...]}

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

PROCESS_FILE: Final = "process.bin"
PROCESS_MEMORY: Final = "process_memory"
"""The detail of an origin that has the samples."""

_SAMPLE: Final = np.dtype([("time_ns", "<i8"), ("resident_bytes", "<u8")])
"""A row of the file; its time is that of the calendar."""

MOST_SAMPLES: Final = 1000
"""Of a trace: of more, the largest of each equal part is kept."""

_MOST_BYTES: Final = 1 << 24  # of the file: 58 hours; later samples are not read


class ProcessMemory(NamedTuple):
    """Samples of a process, at least one.

    Attributes:
        times: i8[n], ascending, nanoseconds since the log began.
        num_bytes: u8[n], the resident set.
    """

    times: NDArray[np.int64]
    num_bytes: NDArray[np.uint64]


def process_memory(details: Mapping[str, object]) -> ProcessMemory | None:
    """The samples in the details of an origin; None: there are none, or they cannot be right."""
    found = details.get(PROCESS_MEMORY)
    if not isinstance(found, dict):
        return None
    columns = [found.get("time_ns"), found.get("resident_bytes")]
    if not all(isinstance(column, list) and 0 < len(column) <= MOST_SAMPLES for column in columns):
        return None
    try:
        times, num_bytes = np.array(columns[0], np.int64), np.array(columns[1], np.uint64)
    except (TypeError, ValueError, OverflowError):
        return None
    if times.shape != num_bytes.shape or times.ndim != 1 or (np.diff(times) < 0).any():
        return None
    return ProcessMemory(times, num_bytes)


def sample_process(process: int, folder: Path) -> None:
    """Append how much memory a process of this machine has now to the file in the folder of its recording.

    Raises:
        OSError: there is no such process, or the file cannot be written.
    """
    resident = int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if not resident:  # it has ended, and its parent did not ask how
        return
    row = np.array([(time.time_ns(), resident)], _SAMPLE)
    with os.fdopen(
        os.open(folder / PROCESS_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab"
    ) as file:
        file.write(row.tobytes())


def read_samples(folder: Path, started_ns: object) -> dict[str, Any]:
    """The detail of the samples in a recording's folder, as the item of a dict; empty: there are none.

    Args:
        folder: of the recording.
        started_ns: when its log began, in nanoseconds of the calendar.
    """
    if not isinstance(started_ns, int) or not 0 <= started_ns < 1 << 62:
        return {}
    data = b""
    with suppress(OSError), (folder / PROCESS_FILE).open("rb") as file:
        data = file.read(_MOST_BYTES)
    rows = np.frombuffer(data, _SAMPLE, len(data) // _SAMPLE.itemsize)
    rows = rows[rows["time_ns"] >= 0]
    times, num_bytes = _thinned_process_memory(rows["time_ns"] - np.int64(started_ns), rows["resident_bytes"])
    if not len(times) or (np.diff(times) < 0).any():  # the calendar was set back
        return {}
    return {PROCESS_MEMORY: {"time_ns": times.tolist(), "resident_bytes": num_bytes.tolist()}}


def _thinned_process_memory(
    times: NDArray[np.int64], num_bytes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    if len(times) <= MOST_SAMPLES:
        return times, num_bytes
    starts = np.linspace(0, len(times), MOST_SAMPLES, endpoint=False).astype(np.intp)
    stops = np.append(starts[1:], len(times))
    largest = [start + int(num_bytes[start:stop].argmax()) for start, stop in zip(starts, stops, strict=True)]
    return times[largest], num_bytes[largest]


def peak_of_process() -> int | None:
    """The most memory that this process had at once, in bytes: its resident set; None: not known."""
    try:
        # Not getrusage: it counts what the process that started this one had.
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), None)
