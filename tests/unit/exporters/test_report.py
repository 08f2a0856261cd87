"""The data of a report: the step it shows, its totals, its holders; and its renderings of odd traces."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from heaps import new_heap
from shared import sample_trace
from unit.analysis.built import state
from unit.figures.odd_traces import LABELS, ODD, many_regions
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

import bfcviz
from bfcviz.analysis.diagnosis import failure_lines
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.pool_growths import growths
from bfcviz.cli.report import FORMATS, rendered
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.exporters import report as content
from bfcviz.exporters.report import report_of
from bfcviz.figures.colouring import colouring
from bfcviz.figures.theme import LIGHT
from bfcviz.model.find_steps import opening, peak
from bfcviz.model.trace_from_source import trace_of
from bfcviz.public_functions import lead_without_failure
from bfcviz.units import format_bytes


def failed_heap():
    """Two chunks of 1 MiB pin the free memory of a heap of 8 MiB."""
    heap = PlainHeap(8 * MiB)
    held = [heap.allocate(MiB, f"layer_{number}/<b>op</b>") for number in range(8)]
    for number in (0, 1, 3, 4, 6, 7):
        heap.free(held[number])
    heap.allocate(3 * MiB, "the/one|that`fails")
    trace = heap.trace()
    origin = replace(trace.origin, pools=(Pool("heap", 8 * MiB),))
    return Trace.from_events(trace.read(0, len(trace)), trace.labels, origin)


def grown_in_vain():
    """Two chunks of 1 MiB pin the free memory of a region of 8 MiB: 3 MiB find no place, and the pool grows."""
    heap = new_heap(64 * MiB, allow_growth=True, first_region=8 * MiB)
    held = [heap.allocate(MiB, label=f"layer_{number}") for number in range(8)]
    for number in (0, 1, 3, 4, 6, 7):
        heap.free(held[number])
    heap.allocate(3 * MiB, label="late")
    return trace_of(heap)


def test_a_pool_that_grew_while_enough_was_free_leads():
    trace = grown_in_vain()
    report = report_of(trace)
    worst = growths(trace).worst
    assert report.worst_growth == worst
    assert worst.requested == 3 * MiB
    name, value, share, _ = content.pins(report)[1][0]
    assert (name, value) == (worst.pins[0].line, format_bytes(worst.pins[0].stranded))
    assert share == worst.pins[0].stranded / worst.free
    for form in ("md", "html"):
        page = rendered(report, form)
        assert page.index(content.title(report)) < page.index("3.0 MiB") < page.index(content.summary(report))
    told = json.loads(rendered(report, "json"))
    assert told["growths"][0]["step"] == worst.step
    part = report_of(trace, 0, len(trace) - 1)  # growths are looked for in a whole trace
    assert part.worst_growth is None
    assert report_of(failed_heap()).worst_growth is None


def grown_with_every_step():
    """A program that keeps 64 KiB of each step, and something else that it frees."""
    heap = new_heap(64 * MiB)
    for number in range(40):
        heap.mark("step", number)
        heap.free(heap.allocate(MiB, label="forward"))
        heap.allocate(64 << 10, label="kept|<b>")
    return trace_of(heap)


@pytest.mark.parametrize("form", ["md", "html", "interactive"])
def test_what_grows_with_every_step_leads_where_nothing_failed(form):
    trace = grown_with_every_step()
    report = report_of(trace)
    page = rendered(report, form)
    (lead,) = [line for line in lead_without_failure(trace, growths(trace)) if "grows" in line]
    assert report.growing.names[0] == "kept|<b>"
    amount = lead.partition("grows: ")[2]
    assert amount.strip() in page
    assert page.index(content.title(report)) < page.index(amount.strip())
    ((name, value, share, _),) = content.growing_rows(report)
    assert (name, share) == ("kept|<b>", 1.0)
    assert page.count(value) > 1
    part = report_of(trace, 0, len(trace) - 1)  # looked for in a whole trace, as growths are
    assert part.growing is None
    assert report_of(failed_heap()).growing is None


def test_json_has_what_grows_with_every_step():
    (found,) = json.loads(rendered(report_of(grown_with_every_step()), "json"))["keeps_growing"]
    assert (found["holder"], found["bytes_a_step"], found["chunks_a_step"]) == ("kept|<b>", 64 << 10, 1)
    assert "keeps_growing" not in json.loads(rendered(report_of(grown_in_vain()), "json"))


def test_it_shows_the_failure():
    trace = failed_heap()
    report = report_of(trace)
    assert (report.has_failure, report.shown.event, report.model.step) == (
        True,
        len(trace) - 1,
        len(trace),
    )
    assert report.shown == diagnose(trace, len(trace) - 1)
    assert content.title(report).startswith("Fragmentation")
    told = f"at step {opening(trace)[1]:,}"  # where the Inspector opens
    assert f"{told} of {len(trace):,}" in content.summary(report)
    assert f"{told}:" in failure_lines(report.shown)[0]
    assert content.numbers(report) == "3.0 MiB asked for, 6.0 MiB free, largest free chunk 2.0 MiB"
    assert [row.name for row in content.pins(report)[1]] == ["layer_2/<b>op</b>"]


def test_without_a_failure_it_shows_the_peak():
    trace = sample_trace("lstm")
    report = report_of(trace)
    assert (report.has_failure, report.model.step) == (False, peak(trace))
    assert content.title(report) == "No request failed"


def test_only_the_range_counts():
    trace = busy_trace(400)
    report = report_of(trace, 100, 200)
    assert not report.has_failure
    assert 100 <= report.model.step <= 200
    model, most = bfcviz.Model(trace), []
    for step in range(101, 201):
        model.seek(step)
        most.append(model.stats().bytes_in_use)
    assert report.model.step == 101 + int(np.argmax(most))
    assert report.series["step"][-1] == 200
    assert report_of(trace, 100).has_failure


def test_the_holders_are_those_of_the_step_shown():
    report = report_of(busy_trace(300), 0, 250)
    (by_op, *_) = report.holders
    rows = report.model.in_use()
    assert by_op.bytes_in_use == int(rows["size"].sum())
    assert sum(row.share for row in content.holder_rows(by_op)) == pytest.approx(1.0)


def test_chunks_without_a_label_are_told_by_size():
    heap = PlainHeap(8 * MiB)
    for _ in range(3):
        heap.allocate(MiB)
    heap.allocate(512)
    report = report_of(heap.trace())
    assert report.holders == []
    assert content.by_size(report)[0][:2] == ("3 x 1.0 MiB", "3.0 MiB")
    assert content.NO_HOLDERS in rendered(report, "html")


def test_sizes_of_the_same_text_are_one_row_as_in_a_dashboard():
    heap = PlainHeap(256 * MiB)
    sizes = [int(share * MiB) for share in (1.12, 1.08, 1.12, 1.1, *range(2, 15))]
    for size in sizes:
        heap.allocate(size)
    report = report_of(heap.trace())
    *rows, rest = content.by_size(report)
    assert ("4 x 1.1 MiB", "4.4 MiB") in [row[:2] for row in rows]
    assert [row.share for row in rows] == sorted((row.share for row in rows), reverse=True)
    assert rest[:2] == ("2 chunks of 2 other sizes", "5.0 MiB")
    assert sum(row.share for row in (*rows, rest)) == pytest.approx(1.0)


def test_json_holds_the_same_numbers():
    trace = failed_heap()
    report = report_of(trace)
    found = json.loads(rendered(report, "json"))
    assert found["shown"]["heap_verdict"] == "fragmentation"
    assert found["totals"]["bytes_in_use"] == report.stats.bytes_in_use == 2 * MiB
    assert found["timeline"][-1]["bytes_in_use"] == 2 * MiB
    assert sum(row["bytes"] for row in found["holders"]["op"]) == 2 * MiB
    assert found["settings"]["bytes_limit"] == trace.origin.pools[0].limit


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


KNOWN = {
    "html", "head", "meta", "title", "style", "body", "header", "span", "div", "h1", "h2", "h3", "p", "ol", "li",
    "section", "table", "tbody", "tr", "td", "figure", "figcaption", "svg", "path", "rect", "text", "tspan", "image",
}  # fmt: skip


ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "style", "viewbox", "height", "width", "x", "y", "d",
    "preserveaspectratio", "role", "aria-label", "fill", "stroke", "stroke-width", "stroke-dasharray", "paint-order",
    "font-family", "font-size", "text-anchor", "transform", "dy", "href",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ODD)
def test_odd_traces_are_reported(name, form):
    trace = ODD[name]()
    for pool in range(len(trace.origin.pools)):
        text = rendered(report_of(trace, pool=pool), form)
        text.encode()
        if form == "html":
            page = Tags(text)
            assert page.tags <= KNOWN
            assert page.attributes <= ATTRIBUTES
            assert len(text) < 1_000_000
        if form == "json":
            json.loads(text)


def test_hostile_labels_mean_nothing_in_markdown():
    text = rendered(report_of(ODD["odd_labels"]()), "md")
    assert "<" not in re.sub(r"\\<", "", text)
    assert all(line.count("|") - line.count("\\|") in {0, 4, 5} for line in text.splitlines())
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert any("script" in label for label in LABELS)


def test_thousands_of_regions_and_chunks_make_a_small_page():
    page = rendered(report_of(many_regions()), "html")
    assert len(page) < 1_000_000


def map_legend(page, theme):
    """The legend of the memory map in a page: name -> colour."""
    part = (
        page.partition("<h2>Memory map")[2]
        .partition(f'<div class="bfcviz-{theme}">')[2]
        .partition("</div>")[0]
    )
    found = re.findall(r'height="6" fill="([^"]+)"/>(?:<path [^>]*/>)?<text [^>]*>([^<]*)</text>', part)
    return {name: colour for colour, name in found}


@pytest.fixture(scope="module")
def page_of_conv():
    return rendered(report_of(sample_trace("conv")), "html")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_map_has_the_colours_and_the_legend_of_the_dashboard(theme, page_of_conv):
    trace, page = sample_trace("conv"), page_of_conv
    figure = bfcviz.draw("region_map", trace, peak(trace), colour="holder", theme=theme)
    drawn = {
        each.name: each.fillcolor for each in figure.select_traces({"fill": "toself", "showlegend": True})
    }
    legend = map_legend(page, theme)
    assert {name: legend[name] for name in drawn} == drawn
    assert {"functional_1", "no label", "adam/AssignAddVariableOp*", "other"} <= legend.keys()


def test_a_holder_has_the_colour_of_its_memory_in_the_map(page_of_conv):
    table = page_of_conv.partition("<h3>By op</h3>")[2].partition("</table>")[0]
    found = dict(re.findall(r'class="name">([^<]*)</td>.*?class="bar ([\w-]*)"', table))
    trace = sample_trace("conv")
    names = dict(colouring(trace, 0, "holder", LIGHT, report_of(trace).model.chunks()).holders.names())
    for name, kind in found.items():
        if kind.startswith("holder-"):
            holder = names.get(int(kind[7:]))  # None: other
            assert holder is None or name.startswith(holder)
    assert sum(kind.startswith("holder-") for kind in found.values()) >= 10
    assert found["206 others"] == "several"


def test_waste_that_the_file_does_not_know_is_not_drawn():
    trace = state([[(4, 3), -4]], asked=6, limit=8, facts={"requested_bytes_in_use": None})
    assert "waste (size - requested)" not in map_legend(rendered(report_of(trace), "html"), "light")


def test_it_shows_who_held_the_memory_of_the_device():
    trace = state([[4, -4]], asked=5, limit=8, device_free=2 * MiB, device_total=30 * MiB)
    report = report_of(trace)
    account = report.shown.account
    assert (account.total, account.free, account.unaccounted) == (30 * MiB, 2 * MiB, 20 * MiB)
    page = rendered(report, "html")
    assert page.count('class="bfcviz-account-table"') == 1
    assert page.count('class="p-') == len([part for part in account.parts if part.size])
    assert all(content.escaped(part.name) in rendered(report, "md") for part in account.parts)
    assert json.loads(rendered(report, "json"))["shown"]["account"]["not_accounted_for_bytes"] == 20 * MiB


def test_without_figures_of_the_device_there_is_no_such_part():
    assert "bfcviz-account-table" not in rendered(report_of(failed_heap()), "html").split("</style>")[1]


def test_a_report_says_which_numbers_of_chunks_the_file_lacks():
    log, dump, history = (sample_trace(name) for name in ("oom_log", "oom_dump", "lstm"))
    for trace, lacks in ((log, True), (dump, False), (history, False)):
        report = report_of(trace)
        assert ("requested size" in " ".join(content.completeness(report))) is lacks
        found = json.loads(rendered(report, "json"))
        for totals in (found["totals"], *found["heaps"]):
            assert (totals["requested_bytes_in_use"] is None) is lacks
    assert "nothing is missing" not in rendered(report_of(log), "md")


def test_a_report_of_a_heap_at_work_is_not_of_a_truncated_file():
    heap = new_heap(8 * MiB)
    heap.allocate(MiB, label="first")
    at_work = report_of(trace_of(heap))
    assert (at_work.status, content.facts(at_work)[-1]) == ("recording", "recording")
    assert json.loads(rendered(at_work, "json"))["status"] == "recording"
    (said,) = content.completeness(at_work)
    assert not any(word in said for word in ("truncated", "the end is missing"))


def test_a_report_of_an_open_recording_says_that_the_program_is_at_work(tmp_path):
    with (
        Recording(tmp_path / "run") as recording,
        new_heap(8 * MiB, log=recording.log, labels=recording.labels) as heap,
    ):
        heap.allocate(MiB, label="first")
        assert report_of(bfcviz.open(tmp_path / "run")).status == "recording"
    assert report_of(bfcviz.open(tmp_path / "run")).status == "complete"
