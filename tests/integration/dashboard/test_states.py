"""The Inspector of a file that holds states and no history."""

from dataclasses import replace

from unit.analysis.built import state, two_states

from bfcviz.dashboard import Inspector
from bfcviz.figures.view_options import Selected
from bfcviz.model.find_steps import end_of_state


def test_an_inspector_opens_at_the_state_and_not_at_an_empty_heap():
    trace = state([[4, -4, 4, -4]])
    inspector = Inspector(trace)
    assert inspector.step == len(trace)
    assert "no history" in inspector.header.notice.value


def test_another_pool_is_shown_at_its_own_state():
    trace, end = two_states()
    inspector = Inspector(trace, pool=0)
    assert inspector.step == end == end_of_state(trace, 0)
    inspector.pool = 1
    assert inspector.step == len(trace) == end_of_state(trace, 1)
    assert inspector.panel_data.model.stats().bytes_in_use == 8 << 20


def test_the_timelines_do_not_claim_a_history():
    inspector = Inspector(state([[4, -4]]), views="everything")
    panels = inspector.panel_data.panels(
        ["stats_timeline", "event_rate", "address_time", "region_map"], inspector.look
    )
    told = {name for name, panel in panels.items() if "no history" in panel.caption}
    assert told == {"stats_timeline", "event_rate", "address_time"}


def test_the_life_of_a_chunk_tells_no_age():
    trace = state([[4, -4]])
    inspector = Inspector(trace)
    chunk = inspector.panel_data.model.chunks()[0]
    inspector.go(look=replace(inspector.look, selected=Selected(int(chunk["address"]), int(chunk["born"]))))
    shown = inspector.chunk.text.value
    assert "4.0 MiB" in shown
    assert "ago" not in shown
    assert "allocated" not in shown
