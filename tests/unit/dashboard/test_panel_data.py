"""PanelData reads the new events of a growing trace, and no old ones again."""

import pytest
from heaps import new_heap

from bfcviz.dashboard.layouts import layouts, names_in
from bfcviz.dashboard.panels_and_zoom import PanelData
from bfcviz.events.trace import Trace
from bfcviz.figures import address_time
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model.trace_from_source import trace_of

PANELS = sorted({name for layout in layouts() for name in names_in(layout)})
READERS = 8
"""Parts of the dashboard that read each new event once: at most so many."""

AROUND_THE_STEP = 400
"""Events near the step shown that are read to explain it, however long the trace is."""


@pytest.fixture
def events_read(monkeypatch):
    """The number of events that were read, in a list of one."""
    count, read = [0], Trace.read

    def counted(trace, start, stop):
        count[0] += stop - start
        return read(trace, start, stop)

    monkeypatch.setattr(Trace, "read", counted)
    return count


@pytest.mark.parametrize("as_image", [True, False])
@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_refresh_reads_the_new_events_only(axis, as_image, events_read, monkeypatch):
    monkeypatch.setattr(address_time, "EXACT_LIFETIMES", 100 if as_image else 10**9)
    heap = new_heap(1 << 30)
    held = [heap.allocate(1000 + 256 * (place % 9)) for place in range(60)]

    def work(operations):
        for place in range(operations):
            heap.free(held[place * 7 % 60])
            held[place * 7 % 60] = heap.allocate(1000 + 256 * (place % 11))

    work(1200)
    trace = trace_of(heap)
    data, look = PanelData(trace, 0), Look(axis=axis, colour="label")
    data.model.seek(len(trace))
    chunk = data.model.chunks()[0]
    look = Look(axis=axis, colour="label", selected=Selected(int(chunk["address"]), int(chunk["born"])))
    data.panels(PANELS, look)
    for operations in (5, 20, 80):
        work(operations)
        new = trace.refresh()
        events_read[0] = 0
        data.model.seek(len(trace))
        data.panels(PANELS, look)
        assert 0 < events_read[0] <= READERS * new + AROUND_THE_STEP < len(trace)
