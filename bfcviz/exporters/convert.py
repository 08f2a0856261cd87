"""`convert`: write a trace, or a range of its steps, in the format of a file's suffix."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import csv

from bfcviz.errors import FileError, TraceError
from bfcviz.events.storage.files import replacing
from bfcviz.events.storage.parquet import FIELDS, LabelNames, table_of, without_formulas, write_parquet
from bfcviz.events.trace import Trace
from bfcviz.exporters.chrome_counters import write_chrome_trace
from bfcviz.exporters.part_of_trace import part_of
from bfcviz.exporters.torch_snapshot import write_snapshot
from bfcviz.model.keyframe_bytes import keyframes

# ------------------------------------------------------------------------------
# Write the events of a trace as CSV: a row an event, with the names of its kind and its label.

_SCHEMA = pa.schema([*FIELDS, pa.field("kind_name", pa.string()), pa.field("label_name", pa.string())])


def write_csv(trace: Trace, start: int, stop: int, path: Path) -> list[str]:
    """Write the events [start, stop) to `path`; returns what the file does not say."""
    names = LabelNames(trace.labels)
    with csv.CSVWriter(path, _SCHEMA) as writer:
        for events in trace.blocks(start, stop):
            writer.write_table(without_formulas(table_of(events, names)).cast(_SCHEMA))
    left_out = ["the names, limits and options of the heaps are left out"]
    if any(trace.labels[number].details for number in range(1, len(trace.labels))):
        left_out.append("details of labels, such as shapes and stacks, are left out")
    if start:
        left_out.append(f"the heap at step {start:,}, where the rows begin, is left out")
    return left_out


# ------------------------------------------------------------------------------
# `convert`: write a trace, or a range of its steps, in the format of a file's suffix.


def convert(
    trace: Trace,
    path: str | os.PathLike[str],
    start: int | None = None,
    stop: int | None = None,
    *,
    overwrite: bool = False,
) -> list[str]:
    """Write the steps [start, stop] of a trace to `path`, in the format of its suffix, one of `SUFFIXES`.

    Args:
        trace: the events.
        path: the file; if anything fails, an existing file is not changed.
        start: the first step; None: the first of the trace.
        stop: the last step; None: the last of the trace.
        overwrite: replace an existing file.

    Returns:
        What the file does not say, as sentences.

    Raises:
        FileError: the suffix is unknown, the file exists, or it cannot be written.
        TraceError: the trace has no such steps, or events contradict each other.
    """
    path = Path(path)
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise FileError(path, "", f"names no format of a trace: its name must end in {', '.join(SUFFIXES)}")
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    if not trace.first <= start <= stop <= len(trace):
        raise TraceError(
            f"steps {start} to {stop} were asked for; the trace has steps {trace.first} to {len(trace)}"
        )
    with replacing(path, overwrite=overwrite) as made:
        return list(write(trace, start, stop, made))


def _write_parquet(trace: Trace, start: int, stop: int, path: Path) -> Sequence[str]:
    part = part_of(trace, start, stop)
    write_parquet(part.source, path, partial(keyframes, part))
    return part.origin.reasons[len(trace.origin.reasons) :]


_WRITERS: Final[dict[str, Callable[[Trace, int, int, Path], Sequence[str]]]] = {
    ".parquet": _write_parquet,
    ".csv": write_csv,
    ".json": write_chrome_trace,
    ".pickle": write_snapshot,
}

SUFFIXES: Final = tuple(_WRITERS)
"""The endings of file names that `convert` knows."""
