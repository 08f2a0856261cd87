"""Counters for Chrome and Perfetto: exact extremes, instants and phases, a few MB whatever the trace."""

import json
import math

import pytest
from unit.exporters.snapshots import heap_with_everything
from unit.figures.synthetic import busy_trace

import bfcviz
from bfcviz.exporters import chrome_counters
from bfcviz.exporters.convert import convert
from bfcviz.model.model import Model

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
    monkeypatch.setattr(chrome_counters, "POINTS", 50)
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
    monkeypatch.setattr(chrome_counters, "MOST_INSTANTS", 1)
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
