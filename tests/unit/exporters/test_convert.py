"""Texts in CSV files: a spreadsheet must not calculate them; and steps that a trace does not have."""

import csv

import pyarrow as pa
import pytest
from unit.figures.synthetic import busy_trace

from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin
from bfcviz.events.schema import Kind
from bfcviz.events.storage.parquet import without_formulas
from bfcviz.events.trace import Trace
from bfcviz.exporters.convert import convert

FORMULAS = ['=HYPERLINK("http://x","y")', "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1"]
PLAIN = ["conv1/kernel", "a=b", "'=1", " =1", "", "1e-3", "train.py:41 f"]


def test_labels_that_begin_like_a_formula_are_quoted(tmp_path):
    labels, log = Labels(), EventLog(64)
    for name in [*FORMULAS, *filter(None, PLAIN)]:
        log.put(Kind.MARK, 0, 0, 0, 1, 0, 0, labels.intern(name), 0, 0, -1, 0)
    log.put(Kind.MARK, 0, 0, 0, 1, 0, 0, 0, 0, 0, -1, 0)
    trace = Trace.from_events(log.copy(0, log.head), labels, Origin())
    convert(trace, tmp_path / "events.csv")
    with (tmp_path / "events.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = [row["label_name"] for row in rows]
    assert found == [*(f"'{name}" for name in FORMULAS), *filter(None, PLAIN), ""]
    assert {row["bin"] for row in rows} == {"-1"}  # a number stays one


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_every_column_of_texts_is_looked_at(kind):
    texts = pa.array([*FORMULAS, *PLAIN, None], pa.string()).cast(kind)
    numbers = pa.array(range(-1, len(texts) - 1))
    found = without_formulas(pa.table({"number": numbers, "holder": texts}))
    assert found["holder"].to_pylist() == [*(f"'{name}" for name in FORMULAS), *PLAIN, None]
    assert found["number"].to_pylist() == numbers.to_pylist()


def test_steps_outside_are_refused(tmp_path):
    trace = busy_trace(10)
    with pytest.raises(TraceError, match="the trace has steps 0 to"):
        convert(trace, tmp_path / "part.parquet", 5, len(trace) + 1)
    assert not any(tmp_path.iterdir())
