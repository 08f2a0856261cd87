"""`convert`: write a trace, or a range of its steps, in the format of a file's suffix."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bfcviz.errors import FileError, TraceError
from bfcviz.events.storage.blocks import write_blocks
from bfcviz.events.storage.files import replacing
from bfcviz.events.trace import Trace
from bfcviz.exporters.chrome_counters import write_chrome_trace
from bfcviz.exporters.torch_snapshot import write_snapshot
from bfcviz.exporters.trace_part import part_of
from bfcviz.extras import needed
from bfcviz.model.keyframe_bytes import keyframes
from bfcviz.model.trace_index import IndexBuilder


def write_csv(trace: Trace, start: int, stop: int, path: Path) -> list[str]:
    """Write the events [start, stop), a row each, with names of kinds and labels; returns what the file leaves out."""
    with needed("a CSV file", "pyarrow", "tables"):
        from pyarrow import csv  # noqa: PLC0415  an extra
    from bfcviz.events.storage.parquet import SCHEMA, ParquetLabelNames, parquet_table, without_formulas  # noqa: PLC0415

    names = ParquetLabelNames(trace.labels)
    with csv.CSVWriter(path, without_formulas(SCHEMA.empty_table()).schema) as writer:
        for events in trace.blocks(start, stop):
            writer.write_table(without_formulas(parquet_table(events, names)))
    left_out = ["the names, limits and options of the heaps are left out"]
    if any(trace.labels[number].details for number in range(1, len(trace.labels))):
        left_out.append("details of labels, such as shapes and stacks, are left out")
    if start:
        left_out.append(f"the heap at step {start:,}, where the rows begin, is left out")
    return left_out


def convert(  # noqa: PLR0913  what, where to, and how
    trace: Trace,
    path: str | os.PathLike[str],
    start: int | None = None,
    stop: int | None = None,
    *,
    overwrite: bool = False,
    mode: int | None = None,
) -> list[str]:
    """Write the steps [start, stop] of a trace to `path`, in the format of its suffix, one of `SUFFIXES`.

    Args:
        trace: the events.
        path: the file; if anything fails, an existing file is not changed.
        start: the first step; None: the first of the trace.
        stop: the last step; None: the last of the trace.
        overwrite: replace an existing file.
        mode: the permissions of the file; None: those of any new file.

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
    with replacing(path, overwrite=overwrite, mode=mode) as made:
        return list(write(trace, start, stop, made))


def _convert_to_parquet(trace: Trace, start: int, stop: int, path: Path) -> Sequence[str]:
    from bfcviz.events.storage.parquet import write_parquet  # noqa: PLC0415  pyarrow, an extra

    part = part_of(trace, start, stop)
    write_parquet(part.source, path, partial(keyframes, part))
    return part.origin.reasons[len(trace.origin.reasons) :]


def _convert_to_blocks(trace: Trace, start: int, stop: int, path: Path) -> Sequence[str]:
    part = part_of(trace, start, stop)
    write_blocks(part.source, path, IndexBuilder(len(part.origin.pools)))
    return part.origin.reasons[len(trace.origin.reasons) :]


_WRITERS: Final[dict[str, Callable[[Trace, int, int, Path], Sequence[str]]]] = {
    ".parquet": _convert_to_parquet,
    ".bfc": _convert_to_blocks,
    ".csv": write_csv,
    ".json": write_chrome_trace,
    ".pickle": write_snapshot,
}

SUFFIXES: Final = tuple(_WRITERS)
"""The endings of file names that `convert` knows."""
