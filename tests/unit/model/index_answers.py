"""What is found in the index of a trace and by a scan of its events: both say the same."""

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import timeline
from bfcviz.model.bytes_by_label import byte_steps
from bfcviz.model.find_steps import busy_window, events_of, failures, peak, worst_fragmentation
from bfcviz.model.trace_index import index_of, known_index


def fresh(trace):
    """The same events in memory, of which there is no index yet."""
    return Trace.from_events(trace.read(0, len(trace)), trace.labels, trace.origin)


def answers(trace, pool):
    """What is found by a scan of the events, or in the index where it was made."""
    return {
        "window": busy_window(trace, pool),
        "failures": failures(trace, None),
        "label": byte_steps(trace, pool, "label").tolist(),
        "events": [
            events_of(trace, kinds, of, min(trace.first + 1, len(trace))).tolist()
            for kinds in ([Kind.OOM], [Kind.MARK], [Kind.OOM, Kind.MARK], [Kind.FREE])
            for of in (None, 0, 1)
        ],
    }


def check(trace, pool):
    """Compare the two, and the extremes of every series with those of the exact timeline."""
    assert known_index(trace) is None
    expected = answers(trace, pool)
    index = index_of(trace, pool)
    assert index is not None
    assert answers(trace, pool) == expected
    whole, rows = timeline(trace, pool, points=1), index.rolling.series
    for field in (name for name in whole.dtype.names if name.endswith("_max")):
        if len(rows):
            assert rows[field].max() == whole[field][0]
            assert rows[field.replace("_max", "_min")].min() == whole[field.replace("_max", "_min")][0]
    for found_step, field in (
        (peak(trace, pool), "bytes_in_use_max"),
        (worst_fragmentation(trace, pool), "external_fragmentation_max"),
    ):
        highest = whole[field][0] if len(whole) else 0
        assert found_step == (int(whole[f"{field}_step"][0]) if highest else trace.first)
    allocations = [events_of(trace, [Kind.ALLOCATE], pool)[name] for name in ("thread", "stream")]
    varied = {
        name for name, values in zip(("thread", "stream"), allocations, strict=True) if len(set(values)) > 1
    }
    assert index.varied == varied
