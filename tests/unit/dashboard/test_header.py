"""The header: the verdict, the totals, the line of the step, and what is hostile in a file."""

import re

import pytest
from heaps import MIB, new_heap
from unit.analysis.built import state
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.analysis.account import AccountFigures, AccountPoolFigures, account_of
from bfcviz.analysis.event_text import explain_event
from bfcviz.analysis.free_chunk_search import search_of
from bfcviz.dashboard import header as module
from bfcviz.dashboard.header import Header, notice
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Status
from bfcviz.events.trace import Trace
from bfcviz.exporters.heap_cards import opening_card
from bfcviz.figures.text import picture_facts
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.trace_from_source import trace_of


def shown(trace, step, look=Look(), header=None):  # noqa: B008  never changed
    """A header that shows a step of a trace."""
    header, model = header or Header(), Model(trace)
    model.seek(step)
    header.show(model, look, search_of(trace, step - 1, model) if step else None)
    return header


def text(widget):
    return " ".join(re.sub("<[^>]*>", " ", widget.value).split())


def fragmented():
    """A heap of 64 MiB where 24 MiB fail, with events after the failure."""
    heap = new_heap(64 * MIB)
    held = [heap.allocate(8 * MIB, label=f"layer_{number}") for number in range(8)]
    for address in held[1::2]:
        heap.free(address)
    assert heap.try_allocate(24 * MIB, label="attention") is None
    heap.allocate(MIB, label="after")
    return trace_of(heap)


def failed_step(trace):
    return next(step for step in range(len(trace)) if trace.read(step, step + 1)[0]["kind"] == 7) + 1


def test_at_a_failure_it_says_why():
    trace = fragmented()
    step = failed_step(trace)
    header = shown(trace, step)
    assert "failed" in header.headline.value
    for fact in ("OOM", "24.0 MiB", "8.0 MiB of 32.0 MiB free", "fragmented by layer_"):
        assert fact in text(header.headline)
    assert "do" not in header.headline.value  # it is the step shown: no link
    assert "asked 24.0 MiB" in text(header.numbers)
    assert f"step {step} of {len(trace)} : attention failed to allocate 24.0 MiB" in text(header.step_line)


def test_elsewhere_the_headline_links_to_the_failure():
    trace = fragmented()
    step = failed_step(trace)
    for other in (0, step - 1, len(trace)):
        header = shown(trace, other)
        assert "OOM" in text(header.headline)
        assert f'{{"do":"step","step":{step}}}' in header.headline.value
        assert "asked" not in text(header.numbers)


def test_without_a_failure_it_says_the_peak_and_who_held_it():
    heap = PlainHeap(64 * MiB)
    heap.free(heap.allocate(6 * MiB, "net/conv"))
    heap.allocate(MiB, "bias")
    header = shown(heap.trace(), len(heap.events))
    assert "failed" not in header.headline.value
    assert "6.0 MiB in use" in text(header.headline)
    assert "100% held by net/conv" in text(header.headline)
    assert '"do":"step","step":3' in header.headline.value


def test_each_failure_is_diagnosed_once(monkeypatch):
    trace, calls = fragmented(), []
    module = "bfcviz.dashboard.header.diagnose"
    diagnose = Header.__init__.__globals__["HeadlineFinder"].find.__globals__["diagnose"]
    monkeypatch.setattr(module, lambda *given: calls.append(given) or diagnose(*given))
    header, model = Header(), Model(trace)
    for step in range(len(trace) + 1):
        model.seek(step)
        header.show(model, Look(), None)
    assert len(calls) == 1


def test_a_growing_trace_gets_its_failure_and_each_event_is_read_once(monkeypatch):
    heap = new_heap(64 * MIB)
    trace = trace_of(heap)
    header, model = Header(), Model(trace)
    header.show(model, Look(), None)
    held = [heap.allocate(8 * MIB, label="layer") for _ in range(8)]
    trace.refresh()
    model.seek(len(trace))
    header.show(model, Look(), None)
    assert "64.0 MiB" in text(header.headline)
    heap.free(held[0])
    heap.try_allocate(16 * MIB, label="attention")
    trace.refresh()
    model.seek(len(trace))
    header.show(model, Look(), None)
    assert "OOM: needed 16.0 MiB" in text(header.headline)


def test_the_headline_of_a_heap_at_work_says_what_grows_and_when_the_limit_is_reached():
    heap = new_heap(64 * MIB, log=EventLog(1 << 12))
    trace = trace_of(heap)
    header, model = Header(), Model(trace)
    header.show(model, Look(), None)
    for number in range(40):
        heap.mark("step", number)
        heap.free(heap.allocate(4 * MIB, label="forward"))
        heap.allocate(MIB, label="kept")
    trace.refresh()
    model.seek(len(trace))
    header.show(model, Look(), None)
    assert "kept" not in text(header.headline)  # it was searched just before
    header = Header()
    header.show(model, Look(), None)
    found = text(header.headline)
    assert model.step == len(trace)
    for fact in ("kept", "+1.0 MiB", "64.0 MiB", "21 steps"):
        assert fact in found


def growing(steps, kept):
    """A trace that has ended, of a heap of 512 MiB in which each of the first `kept` steps keeps 1 MiB."""
    heap = PlainHeap(64 * MiB)
    for number in range(steps):
        heap.mark("step", number)
        heap.free(heap.allocate(4 * MiB, "forward"))
        if number < kept:
            heap.allocate(MiB, "kept")
    return heap.trace()


def test_a_trace_that_has_ended_says_first_what_grew_to_its_end_and_its_card_says_the_same():
    trace = growing(40, kept=40)
    header, card = shown(trace, len(trace)), opening_card(trace)
    for fact in ("kept", "+1.0 MiB", "512.0 MiB", "470 steps"):
        assert fact in text(header.headline)
        assert fact in card.headline
    assert card.headline in card.html
    assert "Peak: 43.0 MiB in use" in card.html  # step 39 held 39 MiB and took 4 MiB


def test_what_grew_long_before_the_end_does_not_lead():
    trace = growing(80, kept=20)
    assert "Peak: 24.0 MiB in use" in text(shown(trace, len(trace)).headline)
    assert "Peak: 24.0 MiB in use" in opening_card(trace).headline


def test_tiles_and_bars_have_the_totals_of_the_step():
    trace = busy_trace()
    header, model = shown(trace, 300, Look(wanted=3 * MiB)), Model(trace)
    model.seek(300)
    stats = model.stats()
    found = re.findall(r"<b>([\d.]+) \w+</b>", header.numbers.value)
    assert len(found) == 4
    waste = stats.bytes_in_use - stats.requested_bytes_in_use
    for size in (stats.bytes_in_use, stats.free_bytes, stats.largest_free_chunk, waste):
        from bfcviz.units import format_bytes  # noqa: PLC0415

        assert f"<b>{format_bytes(size)}</b>" in header.numbers.value
    assert "asked 3.0 MiB" in text(header.numbers)


def test_numbers_that_the_file_does_not_have_are_unknown():
    facts = {
        "free_bytes": None,
        "largest_free_chunk": None,
        "chunks_free": None,
        "requested_bytes_in_use": None,
    }
    trace = state([[4, -4]], facts=facts)
    header = shown(trace, len(trace))
    assert text(header.numbers).count("unknown") == 3
    assert "asked" not in text(header.numbers)  # bars only compare a request with what is free


def test_the_details_open_on_request_and_stay_open():
    trace = busy_trace()
    header = shown(trace, 300)
    assert " open" not in header.step_line.value
    assert "external fragmentation" not in header.step_line.value
    header.toggle_details()
    for step in (300, 301):
        shown(trace, step, header=header)
        assert "<details open>" in header.step_line.value
        assert explain_event(trace, step - 1).replace("&", "&amp;").split(":")[0] in text(header.step_line)
        assert "external fragmentation" in header.step_line.value
    header.toggle_details()
    assert " open" not in header.step_line.value


def test_the_details_say_why_the_pool_grew_where_no_request_failed(monkeypatch):
    heap = PlainHeap(4 * MiB, regions=2)
    held = [heap.allocate(MiB, name) for name in ("input", "weights", "output", "kept")]
    heap.free(held[0])
    heap.free(held[2])
    heap.allocate(2 * MiB, "attention")
    header = shown(heap.trace(), 5)
    assert text(header.headline).endswith("why")
    assert "stranded" not in text(header.step_line)
    header.toggle_details()
    assert "2.0 MiB stranded" in text(header.step_line)
    assert "attention requested 2.0 MiB; 2.0 MiB were free in the pool, in 2 chunks" in text(header.step_line)
    failed = shown(fragmented(), 3)
    failed.toggle_details()
    assert not text(failed.headline).endswith("why")
    assert "stranded" not in text(failed.step_line)
    monkeypatch.setattr(
        module, "_MOST_EXPLAINED", 5
    )  # all events are read for it, while nothing else is answered
    assert not text(shown(heap.trace(), 5).headline).endswith("why")


def test_it_names_the_file(tmp_path):
    busy_trace(20).save(tmp_path / "a<b>.parquet")
    header = shown(Trace.open(tmp_path / "a<b>.parquet"), 5)
    assert "a&lt;b&gt;.parquet" in header.step_line.value


def test_it_names_the_heap_of_this_process():
    with BFCAllocator(SimulatedSubAllocator(), 8 * MiB, name="gpu<0>", log=EventLog(64)) as heap:
        heap.allocate(MiB)
        trace = trace_of(heap)
        trace.refresh()
        assert "heap gpu&lt;0&gt; of this process" in shown(trace, 1).step_line.value
        assert "gpu&lt;0&gt;" in picture_facts(Model(trace))
    assert "of this process" not in shown(busy_trace(20), 5).step_line.value


def test_an_error_is_shown_until_it_is_hidden():
    header = shown(busy_trace(20), 5)
    header.show_error("no step <9>")
    assert "no step &lt;9&gt;" in header.step_line.value
    assert "step 5 of" in text(header.step_line)
    header.hide_error()
    assert "no step" not in header.step_line.value


def test_names_cannot_inject_html():
    heap = PlainHeap(4 * MiB)
    heap.allocate(MiB, "<img src=x onerror=alert(1)>")
    header = shown(heap.trace(), 3)
    header.toggle_details()
    for part in (header.headline, header.step_line):
        assert "<img" not in part.value
        assert "&lt;img" in part.value


@pytest.mark.parametrize("status", [Status.TRUNCATED, Status.DEGRADED])
def test_an_incomplete_trace_says_so_and_why(status):
    whole = busy_trace(20)
    origin = Origin(status=status, reasons=("it broke <off>", "a disk was full"), pools=whole.origin.pools)
    header = shown(Trace.from_events(whole.read(0, len(whole)), whole.labels, origin), 5)
    assert header.notice.layout.display is None
    assert str(status) in header.notice.value
    assert "it broke &lt;off&gt;; a disk was full" in header.notice.value


@pytest.mark.parametrize("status", [Status.COMPLETE, Status.RECORDING])
def test_a_complete_trace_needs_no_notice(status):
    assert notice(Origin(status=status)) == ("", "")
    assert shown(busy_trace(20), 5).notice.layout.display == "none"


def test_a_file_of_one_state_says_that_it_has_no_history():
    assert "no history" in shown(state([[4, -4]]), 2).notice.value


def test_the_device_is_one_line_with_a_bar_until_nothing_is_known_of_it():
    header = Header()
    assert header.device.layout.display == "none"
    pools = (AccountPoolFigures("<script>", 4 * MIB, 2 * MIB),)
    header.show_device(account_of(AccountFigures("device 0", 0, 16 * MIB, 6 * MIB, pools=pools)))
    assert header.device.layout.display is None
    assert text(header.device) == "device 0: 6.0 MiB of 16.0 MiB free"
    assert re.findall('class="p-([a-z_]+)"', header.device.value) == [
        "in_use",
        "cached",
        "not_accounted_for",
        "free",
    ]
    assert "<script>" not in header.device.value
    header.show_device(None)
    assert (header.device.layout.display, header.device.value) == ("none", "")
