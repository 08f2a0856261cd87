"""A part of a trace: at each of its steps the heap is that of the whole."""

import csv
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from shared import sample_trace
from unit.exporters.snapshots import chunks_at, heap_with_everything
from unit.figures.synthetic import busy_trace, trace_of
from unit.model.one_pass import find

import bfcviz
from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage.parquet import without_formulas
from bfcviz.events.trace import Trace
from bfcviz.exporters import convert as convert_module
from bfcviz.exporters.convert import convert, part_of
from bfcviz.model.model import Model

FIELDS = ["address", "size", "requested", "label", "thread", "stream", "region", "in_use"]


@pytest.fixture(scope="module")
def sample():
    return sample_trace("lstm")


@pytest.mark.parametrize("steps", [(0, 500), (9000, 12000), (20000, 20000)])
def test_every_step_has_the_heap_of_the_whole(sample, steps):
    start, stop = steps
    part = part_of(sample, start, stop)
    before = len(part) - (stop - start)
    whole, model = Model(sample), Model(part)
    for step in range(start, stop + 1, 250):
        whole.seek(step)
        model.seek(before + step - start)
        assert (whole.chunks()[FIELDS] == model.chunks()[FIELDS]).all()
        assert (whole.regions() == model.regions()).all()
    model.seek(0)
    assert len(model.chunks()) == 0


def test_frees_name_their_allocations(sample):
    part = part_of(sample, 9000, 12000)
    events = part.read(0, len(part))
    frees = events[events["kind"] == Kind.FREE]
    allocated = events[frees["other"]]
    assert len(frees)
    assert (allocated["kind"] == Kind.ALLOCATE).all()
    assert (allocated["address"] == frees["address"]).all()
    assert len(find(part, 0, 0, len(part)).lifetimes) == int((events["kind"] == Kind.ALLOCATE).sum())


def test_all_steps_are_the_trace_itself(sample):
    assert part_of(sample, 0, len(sample)) is sample


def test_it_says_that_it_is_a_part(tmp_path):
    trace = busy_trace(100)
    notes = convert(trace, tmp_path / "part.parquet", 50, 90)
    part = bfcviz.open(tmp_path / "part.parquet")
    assert part.origin.status == Status.DEGRADED
    assert notes == [*part.origin.reasons]
    assert "from step 50 to 90" in notes[0]
    assert chunks_at(part, len(part)) == chunks_at(trace, 90)
    assert part_of(trace, 0, 90).origin.status == Status.TRUNCATED


def test_steps_outside_are_refused(tmp_path):
    trace = busy_trace(10)
    with pytest.raises(TraceError, match="the trace has steps 0 to"):
        convert(trace, tmp_path / "part.parquet", 5, len(trace) + 1)
    assert not any(tmp_path.iterdir())


def test_several_heaps_keep_their_handles():
    one = busy_trace(60, seed=1)
    events = np.array(one.read(0, len(one)))
    other = events.copy()
    other["pool"] = 1
    both = np.empty(2 * len(events), events.dtype)
    both[::2], both[1::2] = events, other
    place = np.arange(len(both))
    frees = both["kind"] == Kind.FREE
    both["other"][frees] = 2 * both["other"][frees] + place[frees] % 2
    both["seq"] = place

    trace = trace_of(both, one.labels, pools=2)
    part = part_of(trace, 60, 120)
    for pool in (0, 1):
        assert chunks_at(part, len(part), pool) == chunks_at(trace, 120, pool)


# ------------------------------------------------------------------------------
# Texts in CSV files: a spreadsheet must not calculate them.


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


# ------------------------------------------------------------------------------
# Counters for Chrome and Perfetto: exact extremes, instants and phases, a few MB whatever the trace.


NAMES = {
    "in_use": "bytes_in_use",
    "pool": "pool_bytes",
    "free": "free_bytes",
    "largest free chunk": "largest_free_chunk",
}


def written(trace, tmp_path, *steps):
    path = tmp_path / "trace.json"
    notes = convert(trace, path, *steps, overwrite=True)
    return json.loads(path.read_text())["traceEvents"], notes


def values(entries, name):
    return [
        (each["ts"], each["args"]["bytes"]) for each in entries if each["ph"] == "C" and each["name"] == name
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_short_trace_has_every_change(name, tmp_path):
    trace = busy_trace(60)
    entries, _ = written(trace, tmp_path)
    model, expected = Model(trace), []
    for step in range(1, len(trace) + 1):
        model.seek(step)
        value = getattr(model.stats(), NAMES[name])
        if not expected or expected[-1][1] != value:
            expected.append((1000 * (step - 1) / 1000, value))
    assert values(entries, name) == expected


def test_a_long_trace_keeps_its_extremes(monkeypatch, tmp_path):
    monkeypatch.setattr(convert_module, "POINTS", 50)
    trace = busy_trace(400)
    entries, notes = written(trace, tmp_path)
    model, in_use = Model(trace), []
    for step in range(1, len(trace) + 1):
        model.seek(step)
        in_use.append(model.stats().bytes_in_use)
    found = [value for _, value in values(entries, "in_use")]
    assert (max(found), min(found), found[-1]) == (max(in_use), min(in_use), in_use[-1])
    assert len(found) <= 150
    assert "the counters are reduced to the extremes of 50 parts of the events" in notes
    times = [time for time, _ in values(entries, "in_use")]
    assert times == sorted(times)


def test_instants_and_phases(tmp_path):
    entries, _ = written(heap_with_everything(), tmp_path)
    instants = [(each["name"], each["cat"]) for each in entries if each["ph"] == "i"]
    assert sorted(instants) == [("EXTEND", "EXTEND"), ("EXTEND", "EXTEND"), ("OOM", "OOM"), ("epoch", "MARK")]
    (phase,) = [each for each in entries if each["ph"] == "X"]
    assert (phase["name"], phase["ts"]) == ("forward", 0)
    assert phase["dur"] > 0
    (oom,) = [each for each in entries if each["name"] == "OOM"]
    assert oom["args"]["requested"] == 1 << 40


def test_many_instants_are_thinned_and_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(convert_module, "MOST_INSTANTS", 1)
    entries, notes = written(heap_with_everything(), tmp_path)
    assert sum(each["name"] == "EXTEND" for each in entries) == 1
    assert "pool 0: of 2 EXTEND instants, one in 2 is written" in notes


def test_a_mark_without_a_finite_value_leaves_the_file_json(tmp_path):
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False) as w:
        for value in (0.5, math.nan, math.inf, 7):
            bfcviz.mark("loss", value)
    path = tmp_path / "marks.json"
    convert(w.trace, path)

    def refused(word):
        raise AssertionError(word)

    events = json.loads(path.read_text(), parse_constant=refused)["traceEvents"]
    assert [each["args"]["value"] for each in events if each["name"] == "loss"] == [0.5, "nan", "inf", 7]
