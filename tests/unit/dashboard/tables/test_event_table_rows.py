"""The row of an event in the list of events."""

from unit.dashboard.pages import page
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.dashboard.event_list import EventList
from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind


def test_a_row_shows_every_field_of_its_event():
    trace = busy_trace()
    listed = EventList(trace)
    event = next(event for event in trace.read(10, 60) if event["kind"] == Kind.ALLOCATE)
    after = int(event["seq"]) + 1
    listed.show(after)
    row = next(row for row in page(listed).rows if row["does"]["step"] == after)
    step, time, kind, label, size, requested, words, address, thread, stream = row["cells"]
    assert (step, time, kind, address) == (
        f"{after}",
        f"0.0{after - 1} ms",
        "ALLOCATE",
        f"{event['address']:#x}",
    )
    assert size.split()[1] in {"B", "KiB", "MiB"}
    assert requested.split()[1] in {"B", "KiB", "MiB"}
    assert label == trace.labels.name(int(event["label"]))
    assert (thread, stream) == ("0", "0")
    assert words.startswith("from bin ")


def test_an_event_without_an_address_shows_none():
    heap = PlainHeap(MiB, labels=Labels())
    heap.allocate(4 * MiB)
    listed = EventList(heap.trace())
    oom = next(row["cells"] for row in page(listed).rows if row["cells"][2] == "OOM")
    assert oom[3:6] == ["-", "-", "4.0 MiB"]
    assert oom[6].startswith("free 1.0 MiB, largest 1.0 MiB")
    assert oom[7] == "-"
