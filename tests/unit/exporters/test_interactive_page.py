"""The page without a kernel as a file: its size, its part of a long trace, and what it refuses."""

import json
import re
import zlib
from base64 import b64decode

import numpy as np
import pytest
from unit.figures.odd_traces import ODD
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

import bfcviz
from bfcviz.errors import BfcvizError
from bfcviz.exporters.interactive_page import interactive_html, save_page
from bfcviz.exporters.report import report_of


def data_of(page):
    return json.loads(zlib.decompress(b64decode(re.search(r'id="data">(.*?)</script>', page)[1])))


def test_a_page_has_at_most_3_mb_for_100_000_events():
    trace = busy_trace(10_000)  # of random sizes; every tenth allocation has a label of its own
    size = len(interactive_html(report_of(trace)).encode())
    assert size + 20 * (100_000 - len(trace)) < 3_000_000  # its later events cost less: 14 bytes each


def test_a_page_of_a_long_trace_has_the_steps_around_the_one_shown_and_says_so():
    trace = busy_trace(300)
    peak = bfcviz.peak(trace)
    report = report_of(trace, stop=len(trace) - 1)
    assert report.model.step == peak
    page = interactive_html(report, most=100)
    data = data_of(page)
    assert data["first"] <= peak <= data["last"] == data["first"] + 100
    assert data["heap"]["count"] == 100
    assert f"steps {data['first']:,} to {data['last']:,}" in page


def test_a_page_refuses_addresses_that_are_not_exact_in_it():
    trace = busy_trace(20)
    events = trace.read(0, len(trace)).copy()
    moves = events["kind"] <= 6
    events["address"][moves] += np.uint64(1 << 60)
    far = bfcviz.Trace.from_events(events, trace.labels, trace.origin)
    with pytest.raises(BfcvizError, match="2\\^53"):
        interactive_html(report_of(far))


def test_a_trace_without_events_gives_a_page_without_a_script():
    trace = busy_trace(5)
    empty = bfcviz.Trace.from_events(trace.read(0, 0), trace.labels, trace.origin)
    assert "<script" not in interactive_html(report_of(empty))


def test_export_writes_the_page_of_a_trace(tmp_path):
    trace = busy_trace(50)
    path = bfcviz.export(trace, tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == interactive_html(report_of(trace))
    saved = trace.save(tmp_path / "saved.bfc")
    of_file = bfcviz.export(saved, tmp_path / "file.html")
    assert of_file.read_text(encoding="utf-8") == interactive_html(report_of(bfcviz.open(saved)))
    with pytest.raises(BfcvizError, match="exists"):
        save_page(trace, path)
    save_page(trace, path, start=10, stop=40, overwrite=True)
    assert data_of(path.read_text(encoding="utf-8"))["first"] == 10


@pytest.mark.parametrize(("small", "listed"), [(0, False), (1, True)])
def test_the_legend_has_others_where_the_page_can_show_some(small, listed):
    heap = PlainHeap(64 * MiB)
    for number in range(7):
        heap.allocate((9 - number) * MiB, f"x{chr(97 + number)}")
    for _ in range(small):
        heap.allocate(256, "y")  # too small for a colour of its own
    data = data_of(interactive_html(report_of(heap.trace())))
    (by_holder,) = (each for each in data["colourings"] if each["name"] == "holder")
    assert len(by_holder["names"]) == len(by_holder["fills"]["light"])
    assert sum(name.startswith("x") for name in by_holder["names"]) == 7
    assert ("other" in by_holder["names"]) == listed


@pytest.mark.parametrize("name", ODD)
def test_odd_traces_have_a_page(name):
    trace = ODD[name]()
    for pool in range(len(trace.origin.pools)):
        assert interactive_html(report_of(trace, pool=pool)).startswith("<!doctype html>")
