import numpy as np
import pytest
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.event_source import BLOCK
from bfcviz.events.labels import Labels
from bfcviz.events.schema import EVENT, Kind
from bfcviz.model.filters import EventFilter, LabelSearch, matching


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


def size_of(event):
    return event["requested"] if event["kind"] == Kind.OOM else event["size"]


FILTERS = {
    "all": (EventFilter(), lambda _event, _name: True),
    "kinds": (EventFilter(kinds=frozenset({Kind.OOM, Kind.SPLIT})), lambda e, _: e["kind"] in {7, 2}),
    "label": (EventFilter(text="LAYER_3"), lambda _, name: "layer_3" in name),
    "sizes": (
        EventFilter(least_size=4096, most_size=65536),
        lambda e, _: 4096 <= size_of(e) <= 65536,
    ),
    "thread": (EventFilter(thread=5), lambda e, _: e["thread"] == 5),
    "several": (
        EventFilter(kinds=frozenset({Kind.FREE}), text="layer_1/", least_size=1000),
        lambda e, name: e["kind"] == Kind.FREE and "layer_1/" in name and e["size"] >= 1000,
    ),
}


@pytest.mark.parametrize("name", list(FILTERS))
def test_events_are_found_as_one_by_one(trace, name):
    wanted, fits = FILTERS[name]
    found = matching(trace, 0, wanted)
    events = trace.read(0, len(trace))
    slowly = [int(e["seq"]) for e in events if fits(e, trace.labels.name(int(e["label"])))]
    assert list(found) == slowly
    assert isinstance(found, range) or found.dtype == np.uint32


def test_a_request_that_failed_is_as_large_as_what_it_asked_for(trace):
    assert matching(trace, 0, EventFilter(least_size=128 * MiB)).tolist() == [len(trace) - 1]


def test_marks_have_no_size_and_no_address():
    events = np.zeros(1, EVENT)
    events["kind"], events["size"], events["bin"] = Kind.MARK, 100, -1
    trace = trace_of(events)
    assert len(matching(trace, 0, EventFilter())) == 1
    assert len(matching(trace, 0, EventFilter(least_size=1))) == 0
    assert len(matching(trace, 0, EventFilter(text="0x10"))) == 0


def test_an_address_finds_what_happened_to_its_memory(trace):
    events = trace.read(0, len(trace))
    inside = int(events["address"][10]) + 17
    found = matching(trace, 0, EventFilter(text=f"{inside:#X}"))
    assert 10 in found
    for event in events[found]:
        assert event["address"] <= inside < event["address"] + event["size"]
    assert Kind.OOM not in events["kind"][found]


@pytest.mark.parametrize("text", ["0x", "0xyz", "0x" + "f" * 17])
def test_what_is_no_address_is_looked_for_in_labels(text):
    heap = PlainHeap(MiB)
    heap.allocate(256, f"kernel {text}")
    heap.allocate(256, "other")
    assert matching(heap.trace(), 0, EventFilter(text=text)).tolist() == [2]


def test_only_the_pool_asked_for():
    events = np.zeros(4, EVENT)
    events["seq"], events["kind"], events["bin"], events["pool"] = range(4), Kind.MARK, -1, [0, 1, 0, 1]
    trace = trace_of(events, pools=2)
    assert matching(trace, 0, EventFilter()).tolist() == [0, 2]
    assert matching(trace, 1, EventFilter()).tolist() == [1, 3]


def marks(count):
    events = np.zeros(count, EVENT)
    events["seq"], events["kind"], events["bin"] = range(count), Kind.MARK, -1
    return trace_of(events)


def test_it_goes_on_from_where_it_was():
    trace = marks(BLOCK + 100)
    wanted = EventFilter(kinds=frozenset({Kind.MARK}))
    whole = matching(trace, 0, wanted)
    parts = [
        matching(trace, 0, wanted, start=a, stop=b) for a, b in ((0, 70), (70, BLOCK + 1), (BLOCK + 1, None))
    ]
    assert np.array_equal(whole, np.concatenate(parts))
    assert len(whole) == len(trace)


def test_it_can_be_interrupted():
    trace = marks(3 * BLOCK)
    counts = []

    def progress(done):
        counts.append(done)
        return len(counts) < 2

    found = matching(trace, 0, EventFilter(kinds=frozenset({Kind.MARK})), progress)
    assert counts == [BLOCK, 2 * BLOCK]
    assert len(found) == 2 * BLOCK


def test_labels_are_searched_in_their_details_and_as_they_come():
    labels = Labels()
    labels.intern("Conv2D", stack="model.py:12")
    search = LabelSearch(labels, "MODEL.py")
    assert search.hits().tolist() == [False, True]
    labels.intern("model.pyx")
    labels.intern("other")
    assert search.hits().tolist() == [False, True, True, False]


def test_reasons_are_said_in_words():
    assert EventFilter().reasons() == []
    wanted = EventFilter(
        kinds=frozenset({Kind.OOM, Kind.SPLIT}), text="conv", least_size=65536, most_size=MiB, thread=3
    )
    assert wanted.reasons() == [
        "kind SPLIT or OOM",
        "label contains 'conv'",
        "size at least 64.0 KiB",
        "size at most 1.0 MiB",
        "thread 3",
    ]
    assert EventFilter(text="0xFF").reasons() == ["address 0xff lies in it"]
