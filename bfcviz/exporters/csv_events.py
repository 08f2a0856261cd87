"""Write the events of a trace as CSV: a row an event, with the names of its kind and its label."""

from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from bfcviz.events.storage.arrow import FIELDS, LabelNames, table_of, without_formulas
from bfcviz.events.trace import Trace

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
