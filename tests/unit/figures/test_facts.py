"""The line of facts: file, step and totals."""

from shared import sample_trace

from bfcviz.events.origin import Origin
from bfcviz.events.trace import Trace
from bfcviz.figures.text import picture_facts
from bfcviz.model import Model
from bfcviz.units import format_bytes


def test_it_names_the_file_the_step_and_the_totals():
    trace = sample_trace("conv")
    model = Model(trace)
    model.seek(33_817)
    stats, facts = model.stats(), picture_facts(model)
    assert facts.startswith("conv.xplane.pb.gz")
    assert "33,817 of 65,583" in facts
    sizes = (
        stats.bytes_in_use,
        stats.free_bytes,
        stats.largest_free_chunk,
        stats.pool_bytes,
        stats.bytes_limit,
    )
    assert all(format_bytes(size) in facts for size in sizes)


def test_a_hostile_name_is_escaped_and_unknown_numbers_are_left_out():
    trace = sample_trace("oom_log")
    origin = Origin(
        "other",
        "<img src=x onerror=alert(1)>\n",
        trace.origin.status,
        (),
        trace.origin.pools,
        {"history": "state", "facts": [{"free_bytes": None, "largest_free_chunk": None}]},
    )
    bare = Trace.from_events(trace.read(0, len(trace)), trace.labels, origin)
    model = Model(bare)
    model.seek(len(bare))
    facts = picture_facts(model)
    assert "<img" not in facts
    assert "\n" not in facts
    assert "free" not in facts
    assert "in use" in facts
