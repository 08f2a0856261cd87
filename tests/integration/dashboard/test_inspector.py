import asyncio
import base64
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import traitlets
from unit.dashboard.pages import assert_fit_for_a_page, everything_in
from unit.dashboard.side_html import Side, cells
from unit.dashboard.test_toolbar import until
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

import bfcviz
from bfcviz.dashboard import Inspector
from bfcviz.dashboard import toolbar as player_module
from bfcviz.dashboard.figure_widget import difference
from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures import FIGURES
from bfcviz.figures.holder_list import MOST
from bfcviz.model.find_steps import failed_steps
from bfcviz.units import format_bytes


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


@pytest.fixture
def inspector(trace):
    return Inspector(trace, 0)


def words(inspector):
    return inspector.header.step_line.value


def press(inspector, name):
    inspector.toolbar.buttons[name].click()


def drawn(inspector, name):
    return [trace for trace in inspector.view.widget.data if trace.name == name]


@pytest.mark.parametrize("given", [7, None])
def test_what_is_no_trace_is_refused(given):
    with pytest.raises(BfcvizError, match=str(given)):
        Inspector(given)


def test_it_takes_the_path_of_a_file(tmp_path):
    with pytest.raises(FileError, match=r"missing\.parquet"):
        Inspector(tmp_path / "missing.parquet")
    path = bfcviz.sample("oom_dump")
    assert Inspector(str(path)).panel_data.trace.path == Inspector(path).panel_data.trace.path == path


def test_it_begins_where_it_is_told(trace):
    assert Inspector(trace, 0).step == 0
    assert Inspector(trace, 300).step == 300
    assert "step 300 of 609" in words(Inspector(trace, 300))


def test_it_opens_at_the_first_failed_request(trace):
    event = Inspector(trace).step - 1
    assert trace.read(event, event + 1)["kind"][0] == Kind.OOM
    assert Kind.OOM not in trace.read(0, event)["kind"]


def test_of_a_file_without_a_history_it_shows_the_free_chunks_first():
    log = bfcviz.open(bfcviz.sample("oom_log"))
    first, chosen = bfcviz.Inspector(log), bfcviz.Inspector(log, views="active_memory")
    assert (first.views, chosen.views) == ("free_chunks", "active_memory")
    assert {"ladder", "active_memory"} & {*first.view.panels} == {"ladder"}
    for each in (first, chosen):
        each.close()


def test_without_a_failure_it_opens_at_the_peak():
    heap = PlainHeap(MiB)
    first = heap.allocate(1024)
    heap.allocate(4096)
    heap.free(first)
    inspector = Inspector(heap.trace())
    stats = inspector.panel_data.model.stats()
    assert stats.bytes_in_use == stats.peak_bytes_in_use == 5120
    assert Inspector(two_pools(), pool=1).step == Inspector(two_pools(), 6, pool=1).step == 6


@pytest.mark.parametrize("exact_chunks", [3000, 50, 0])
def test_the_picture_is_the_one_drawn_from_scratch(trace, exact_chunks, monkeypatch):
    """Stepping changes in place what a new Inspector would draw, as rectangles, as an image, and across."""
    monkeypatch.setattr(sys.modules["bfcviz.figures.region_map"], "EXACT_CHUNKS", exact_chunks)
    walked = Inspector(trace)
    for step in (1, 2, 300, 299, 609, 0, 300):
        walked.step = step
    fresh = Inspector(trace, 300)
    for walked_trace, fresh_trace in zip(walked.view.widget.data, fresh.view.widget.data, strict=True):
        one, other = walked_trace.to_plotly_json(), fresh_trace.to_plotly_json()
        assert one.keys() == other.keys()
        assert difference(one, other).keys() <= {"uid"}
    assert walked.view.widget.layout.to_plotly_json() == fresh.view.widget.layout.to_plotly_json()


@pytest.mark.parametrize("look", [{}, {"colour": "state"}, {"search": "op"}])
def test_while_a_key_is_held_only_the_image_of_the_map_follows(trace, look, monkeypatch):
    held = Inspector(trace, 200)
    held.go(look=replace(held.look, **look))
    sent = []
    monkeypatch.setattr(type(held.view.widget), "_send_update", lambda _, parts: sent.append(parts))
    for _ in range(20):
        held.receive({"do": "key", "key": "ArrowRight", "held": True})
    assert held.step == 220
    assert "220" in words(held)
    later = [part for parts in sent[1:] for part in parts]
    assert sum("image" in part for part in later) > len(later) // 2  # else regions came
    held.receive({"do": "release"})
    fresh = Inspector(trace, 220)
    fresh.go(look=replace(fresh.look, **look))
    for one, other in zip(held.view.widget.data, fresh.view.widget.data, strict=True):
        assert difference(one.to_plotly_json(), other.to_plotly_json()).keys() <= {"uid"}
    assert held.view.widget.layout.to_plotly_json() == fresh.view.widget.layout.to_plotly_json()


def test_another_key_ends_what_is_held(inspector):
    inspector.receive({"do": "key", "key": "ArrowRight", "held": True})
    assert len(drawn(inspector, "touched by this step")[0].x) == 1  # of no rectangle
    inspector.receive({"do": "key", "key": "ArrowRight"})
    assert len(drawn(inspector, "touched by this step")[0].x) > 1


def test_one_figure_and_it_is_never_made_again(inspector):
    figure = inspector.view.widget
    inspector.step = 300
    assert inspector.view.widget is figure
    assert list(everything_in(inspector)).count(figure) == 1


def test_buttons_walk(inspector):
    press(inspector, "forward")
    press(inspector, "forward")
    press(inspector, "back")
    assert inspector.step == 1
    press(inspector, "last")
    assert inspector.step == 609
    press(inspector, "first")
    assert inspector.step == 0


def test_next_and_previous_go_to_the_events_of_the_chosen_kind(inspector, trace):
    for kind in (Kind.SPLIT, Kind.MERGE, Kind.EXTEND, Kind.OOM):
        inspector.step = 20
        inspector.toolbar.target.value = kind.name
        press(inspector, "next")
        assert inspector.step > 20, kind
        between = trace.read(20, inspector.step)["kind"].tolist()
        assert between[-1] == kind
        assert kind not in between[:-1]
        press(inspector, "forward")
        press(inspector, "previous")
        assert inspector.step == 20 + len(between), kind


def test_a_jump_with_nowhere_to_go_says_so(inspector):
    inspector.step = 609
    press(inspector, "oom")
    assert inspector.step == 609
    assert "no OOM event after" in words(inspector)
    inspector.step = 5
    assert "no OOM event" not in words(inspector)


def test_the_button_to_the_next_failure_answers_only_where_there_is_a_later_one(trace):
    failed = failed_steps(trace, 0)
    inspector = Inspector(trace, 0)
    button = inspector.toolbar.buttons["oom"]
    for step, disabled in (
        (0, False),
        (failed[-1] - 1, False),
        (failed[-1], True),
        (0, False),
        (len(trace), True),
    ):
        inspector.step = step
        assert (button.layout.display, button.disabled) == (None, disabled), step


def test_it_finds_the_worst_and_the_peak(inspector):
    press(inspector, "peak")
    stats = inspector.panel_data.model.stats()
    assert stats.bytes_in_use == stats.peak_bytes_in_use
    press(inspector, "worst")
    series = inspector.panel_data.history(inspector.look).series
    assert (
        series["external_fragmentation_max"].max()
        == series["external_fragmentation_last"][inspector.step - 1]
    )


def test_each_step_is_drawn_once(inspector, monkeypatch):
    shown = []
    monkeypatch.setattr(inspector.view, "show", lambda *_, **__: shown.append(inspector.step))
    inspector.toolbar.step.value = 10
    inspector.step = 11
    assert shown == [10, 11]


@pytest.mark.parametrize("step", [-1, 610])
def test_a_step_outside_the_trace_is_refused(inspector, step):
    inspector.step = 7
    with pytest.raises(traitlets.TraitError, match="steps 0 to 609"):
        inspector.step = step
    assert inspector.step == 7
    with pytest.raises(traitlets.TraitError):
        Inspector(busy_trace(), step)


def test_the_touched_chunk_is_outlined(inspector):
    inspector.step = 300
    outline = np.array(drawn(inspector, "touched by this step")[0].x)
    inspector.step = 304
    assert not np.array_equal(outline, drawn(inspector, "touched by this step")[0].x)


def test_an_empty_trace_is_shown():
    inspector = Inspector(trace_of(np.zeros(0, EVENT)))
    assert "holds no events" in words(inspector)
    assert inspector.toolbar.step.disabled
    for name in ("forward", "back", "play", "first", "last"):
        assert inspector.toolbar.buttons[name].disabled
    for name in ("next", "previous", "oom", "worst", "peak"):
        press(inspector, name)
    assert inspector.step == 0


def test_a_trace_of_one_event_is_shown():
    heap = PlainHeap(MiB)
    heap.extend(256)
    inspector = Inspector(heap.trace(), theme="dark")
    press(inspector, "forward")
    assert inspector.step == 1
    assert "1.0 MiB" in words(inspector)


def two_pools():
    """Events of two heaps, turn by turn."""
    heaps = [PlainHeap(MiB), PlainHeap(2 * MiB)]
    for heap in heaps:
        heap.allocate(1024)
    events = np.zeros(6, EVENT)
    for pool, heap in enumerate(heaps):
        events[pool::2] = np.array(heap.events)
        events["pool"][pool::2] = pool
    events["seq"] = range(6)
    return trace_of(events, pools=2)


def test_several_pools_get_a_menu_and_each_its_steps():
    inspector = Inspector(two_pools(), 0)
    assert inspector.toolbar.pool.layout.display is None
    press(inspector, "forward")
    press(inspector, "forward")
    assert inspector.step == 3
    inspector.toolbar.pool.value = 1
    assert inspector.pool == 1
    assert inspector.panel_data.model.stats().pool_bytes == 2 * MiB
    press(inspector, "forward")
    press(inspector, "back")
    assert inspector.step == 2
    with pytest.raises(traitlets.TraitError, match="pools 0 to 1"):
        inspector.pool = 2


def test_another_trace_is_shown_in_the_same_view(trace):
    inspector = Inspector(busy_trace(2000), 1500, views="everything")
    inspector.change_trace(trace)
    assert inspector.step == 0
    inspector.step = 300
    fresh = Inspector(trace, 300, views="everything")
    assert words(inspector) == words(fresh)
    for one, other in zip(inspector.view.widget.data, fresh.view.widget.data, strict=True):
        assert difference(one.to_plotly_json(), other.to_plotly_json()).keys() <= {"uid"}
    assert inspector.toolbar.of.value == fresh.toolbar.of.value


def test_another_trace_is_followed_where_the_last_one_was(trace):
    inspector = Inspector(busy_trace(2000), follow=True)
    inspector.change_trace(trace)
    assert (inspector.step, inspector.follow) == (len(trace), True)


def test_play_goes_on_until_paused(inspector, monkeypatch):
    monkeypatch.setattr(player_module, "FRAME_S", 0.0)
    monkeypatch.setattr(player_module, "YIELD_S", 0.0)

    async def run():
        press(inspector, "play")
        assert inspector.toolbar.buttons["play"].icon == "pause"
        await until(lambda: inspector.step >= 3)
        press(inspector, "play")
        await until(lambda: inspector.toolbar.buttons["play"].icon == "play")

    asyncio.run(run())
    assert 3 <= inspector.step <= 5


def test_play_stops_at_the_end(inspector, monkeypatch):
    monkeypatch.setattr(player_module, "FRAME_S", 0.0)
    inspector.step = 600
    inspector.toolbar.speed.value = 10

    async def run():
        press(inspector, "play")
        await until(lambda: not inspector.player.playing)

    asyncio.run(run())
    assert inspector.step == 609
    assert inspector.toolbar.buttons["play"].icon == "play"


def test_play_without_an_event_loop_is_explained(inspector):
    press(inspector, "play")
    assert "event loop" in words(inspector)
    assert inspector.toolbar.buttons["play"].icon == "play"


def test_every_picture_can_be_exported(inspector):
    inspector.step = 300
    for name in (*FIGURES, "everything"):
        inspector.export_row.figure.value = name
        inspector.export_row.export(".html")
        link = inspector.export_row.link.value
        assert ("bfcviz-" if name == "everything" else f"bfcviz-{name}-") + "step300.html" in link
        body = base64.b64decode(re.search(r"base64,([^']*)'", link)[1])
        assert body.startswith(b"<!doctype html>"), name
        inspector.export_row.export(".csv")
        if name == "everything":
            assert "no numbers" in inspector.export_row.link.value
        else:
            assert f"bfcviz-{name}-step300.csv" in inspector.export_row.link.value


def test_two_brushed_moments_show_what_grew_until_it_ends(trace):
    inspector = Inspector(trace, 0)
    inspector.receive({"do": "brush", "from": 100, "to": 300})
    inspector.receive({"do": "holders_as", "as": "what grew"})
    assert (inspector.look.since, inspector.step) == (100, 300)
    assert inspector.header.step_line.value.count("step 300 of")
    grown = bfcviz.what_grew(trace, 100, 300)
    first = Side(inspector.holders.body.value)
    assert cells(inspector.holders.body.value)[0][1] == f"+{format_bytes(int(grown.rows['grew'][0]))}"
    assert len(first.all("tr", "tbody")) == min(len(grown.rows), MOST + 1)
    assert most_grown(inspector) == cells(inspector.holders.body.value)[0][1]
    for by in ("op", "size"):
        inspector.receive({"do": "holders_by", "by": by})
        assert most_grown(inspector) == cells(inspector.holders.body.value)[0][1]
    inspector.receive({"do": "brush", "from": 50, "to": 200})
    assert (inspector.look.since, inspector.step) == (50, 200)
    inspector.step = 20  # before the first moment: nothing to compare
    assert not Side(inspector.holders.body.value).all("tr", "tbody")
    assert_fit_for_a_page(inspector)
    inspector.receive({"do": "key", "key": "Escape"})
    assert inspector.look.since is None


def most_grown(inspector):
    """What the header says of the holder that grew most."""
    return re.search(r"most: .*, (.*?)<", inspector.header.growth.value)[1]


def test_the_header_says_what_grew_between_brushed_moments_where_the_step_stays(trace):
    inspector = Inspector(trace, 350)
    assert inspector.header.growth.layout.display == "none"
    inspector.receive({"do": "brush", "from": 100, "to": 300})
    assert (inspector.look.since, inspector.step) == (None, 350)
    grown = bfcviz.what_grew(trace, 100, 300)
    assert most_grown(inspector) == f"+{format_bytes(int(grown.rows['grew'][0]))}"
    assert inspector.header.growth.layout.display is None
    (link,) = re.findall(r"data-bfcviz='(.*?)'", inspector.header.growth.value)
    inspector.receive(json.loads(link))
    assert (inspector.look.since, inspector.step) == (100, 300)
    assert "data-bfcviz" not in inspector.header.growth.value
    inspector.receive({"do": "key", "key": "Escape"})
    inspector.receive({"do": "brush"})
    assert inspector.header.growth.layout.display == "none"
    assert_fit_for_a_page(inspector)


def test_a_menu_offers_the_phases_to_compare():
    heap = PlainHeap(64 * MiB)
    heap.mark("load begins", 1, begins="load")
    heap.allocate(MiB, "weights")
    heap.mark("load ends", 1, ends="load")
    heap.allocate(2 * MiB, "cache")
    inspector = Inspector(heap.trace())
    assert inspector.holders.moments.layout.display == "none"
    inspector.receive({"do": "holders_as", "as": "what grew"})
    menu = inspector.holders.moments
    assert menu.layout.display is None
    menu.value = menu.options[1][1]
    assert (inspector.look.since, inspector.step) == menu.options[1][1]
    assert [row[1] for row in cells(inspector.holders.body.value)] == ["+1.0 MiB"]


def test_a_state_without_a_history_has_nothing_to_compare():
    inspector = Inspector(bfcviz.sample("oom_dump"))
    inspector.receive({"do": "holders_as", "as": "what grew"})
    assert inspector.look.since is None
    assert "no history" in words(inspector)


def test_a_typed_or_dragged_size_is_answered_and_names_what_is_in_the_way():
    heap = PlainHeap(64 * MiB)
    places = [heap.allocate(size * MiB, name) for size, name in ((16, "a"), (12, "gradients"), (36, "b"))]
    heap.free(places[0])
    heap.free(places[2])
    trace = heap.trace()
    inspector = Inspector(trace, len(trace))
    answer = inspector.fit.widget
    assert answer.layout.display == "none"
    inspector.toolbar.size.value = 24 * MiB
    assert (inspector.wanted, inspector.toolbar.wanted.box.value) == (24 * MiB, "24.0 MiB")
    assert answer.layout.display is None
    best = Side(answer.value).all("button")[-1]["does"]
    assert best == {"do": "select", "address": str(places[2]), "born": None}
    inspector.toolbar.wanted.box.value = "50 MiB"
    assert inspector.toolbar.size.value == 48 * MiB  # the nearest one; the answer is for what was typed
    assert inspector.wanted == 50 * MiB
    *_, way = Side(answer.value).all("button")
    assert way["text"].strip("\u2068\u2069") == "gradients"
    inspector.receive(way["does"])
    assert inspector.look.selected.address == places[1]
    assert_fit_for_a_page(inspector)
    inspector.receive({"do": "ask"})
    assert (inspector.wanted, inspector.toolbar.size.value, answer.layout.display) == (0, 0, "none")


def test_a_search_says_how_much_it_finds(trace):
    inspector = Inspector(trace, 300)
    used = inspector.panel_data.model.in_use()
    inspector.toolbar.search.value = f">{MiB}B"
    big = used[used["size"] >= MiB]["size"]
    assert all(
        each in inspector.toolbar.hits.value for each in (f"{len(big)} chunk", format_bytes(int(big.sum())))
    )
    inspector.toolbar.search.value = "there is no such label"
    assert inspector.toolbar.hits.value
    inspector.toolbar.search.value = ""
    assert inspector.toolbar.hits.value == ""
