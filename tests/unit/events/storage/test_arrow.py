"""Events as Arrow tables and pandas data frames."""

import sys

import numpy as np
import pytest
from unit.events.fabricate import fabricate, fabricate_trace

from bfcviz.errors import MissingExtra
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.trace import BLOCK, Trace

COUNT = 2 * BLOCK + 100


@pytest.fixture(scope="module")
def trace():
    return fabricate_trace(COUNT)


def test_the_table_has_the_fields_and_the_names(trace):
    table, events = trace.to_arrow(), fabricate(COUNT)
    assert table.column_names == [*EVENT.names, "kind_name", "label_name"]
    assert all(np.array_equal(table.column(name).to_numpy(), events[name]) for name in EVENT.names)
    sample = slice(BLOCK - 50, BLOCK + 50)
    names = [Kind(kind).name for kind in events["kind"][sample].tolist()]
    assert table.column("kind_name").slice(BLOCK - 50, 100).to_pylist() == names
    labels = [trace.labels.name(label) or None for label in events["label"][sample].tolist()]
    assert table.column("label_name").slice(BLOCK - 50, 100).to_pylist() == labels


def test_pandas_takes_labels_that_share_a_name():
    labels = Labels()
    numbers = [0, labels.intern("a", shape="1"), labels.intern("a", shape="2"), labels.intern("b")]
    events = fabricate(4)
    events["label"] = numbers
    frame = Trace.from_events(events, labels, Origin()).to_pandas()
    assert frame["label_name"].cat.categories.tolist() == ["a", "b"]
    assert frame["label_name"].isna().tolist() == [True, False, False, False]
    assert frame["label_name"][1:].tolist() == ["a", "a", "b"]


def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bfcviz\[lab\]'"):
        fabricate_trace(5).to_pandas()
