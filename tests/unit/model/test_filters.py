import numpy as np
import pytest
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.event_source import BLOCK
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Kind, bin_of
from bfcviz.model import Model
from bfcviz.model.filters import (
    SORTS,
    ChunkFilter,
    EventFilter,
    LabelSearch,
    found_by,
    matching,
    order_chunks,
)


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


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (">1KiB", [1280]),
        (">=1KiB", [1024, 1280]),
        ("<1 KiB", [768]),
        ("<=1024", [768, 1024]),
        ("=1KiB", [1024]),
        (">768 B <1280", [1024]),
        ("layer >=1KiB", [1280]),
    ],
)
def test_a_search_bounds_the_size_as_it_is_written(text, sizes):
    heap = PlainHeap(MiB)
    for size, name in ((768, "layer"), (1024, "other"), (1280, "layer")):
        heap.allocate(size, name)
    model = Model(heap.trace())
    model.seek(len(model.trace))
    chunks = model.chunks()
    used = chunks[chunks["in_use"]]
    assert used[found_by(heap.labels, text)(used)]["size"].tolist() == sizes


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


@pytest.fixture(scope="module")
def model():
    model = Model(busy_trace())
    model.seek(400)
    return model


def arranged(model, wanted=ChunkFilter(), by="address", **how):  # noqa: B008  it never changes
    return order_chunks(model.chunks(), model.trace.labels, wanted, by, **how)


def key_of(model, chunk, by):
    """What a chunk is ordered by, worked out one by one; None where it has no such thing."""
    used = {
        "requested": chunk["requested"],
        "waste": chunk["size"] - chunk["requested"],
        "label": model.trace.labels.name(int(chunk["label"])).casefold(),
        "born": chunk["born"],
        "age": model.step - int(chunk["born"]),
        "thread": chunk["thread"],
        "stream": chunk["stream"],
    }
    if by in used:
        return used[by] if chunk["in_use"] else None
    return {
        "address": chunk["address"],
        "size": chunk["size"],
        "state": chunk["in_use"],
        "bin": bin_of(int(chunk["size"])),
        "region": chunk["region"],
    }[by]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("by", list(SORTS))
def test_every_order_is_what_sorting_gives(model, by, descending):
    listed = arranged(model, by=by, descending=descending)
    whole = listed.page(0, len(listed))
    chunks = model.chunks()
    keys = [key_of(model, chunk, by) for chunk in chunks]
    has = [i for i in range(len(chunks)) if keys[i] is not None]
    # sorted() keeps equal ones by address either way
    order = sorted(has, key=keys.__getitem__, reverse=descending)
    order += [i for i in range(len(chunks)) if keys[i] is None]
    assert whole["address"].tolist() == chunks["address"][order].tolist()


@pytest.mark.parametrize("by", list(SORTS))
def test_pages_are_pieces_of_the_whole_and_places_lead_back(model, by):
    listed = arranged(model, by=by)
    whole = listed.page(0, len(listed))
    for start in range(0, len(listed) + 5, 7):
        assert np.array_equal(listed.page(start, start + 7), whole[start : start + 7])
    for place, chunk in enumerate(whole):
        assert listed.place_of(int(chunk["address"])) == place
    assert listed.place_of(1) is None
    assert listed.place_of(int(whole["address"].max()) + 1) is None


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (ChunkFilter(state="free"), lambda c, _: not c["in_use"]),
        (ChunkFilter(state="in use"), lambda c, _: c["in_use"]),
        (ChunkFilter(text="Layer_3"), lambda _, name: "layer_3" in name),
        (ChunkFilter(thread=0), lambda c, _: c["in_use"]),
        (ChunkFilter(least_size=1024, most_size=9000), lambda c, _: 1024 <= c["size"] <= 9000),
    ],
)
def test_only_what_is_asked_for(model, wanted, fits):
    listed = arranged(model, wanted, "size")
    chunks = model.chunks()
    slowly = {int(c["address"]) for c in chunks if fits(c, model.trace.labels.name(int(c["label"])))}
    assert 0 < len(slowly) < len(chunks)
    assert set(listed.page(0, len(listed))["address"].tolist()) == slowly
    left_out = next(int(c["address"]) for c in chunks if int(c["address"]) not in slowly)
    assert listed.place_of(left_out) is None


def test_an_address_finds_the_one_chunk_it_lies_in(model):
    chunk = model.chunks()[7]
    inside = int(chunk["address"]) + int(chunk["size"]) - 1
    listed = arranged(model, ChunkFilter(text=f"{inside:#x}"))
    assert listed.page(0, 9)["address"].tolist() == [chunk["address"]]


def test_an_empty_heap_has_no_rows():
    model = Model(busy_trace())
    for by in SORTS:
        listed = arranged(model, by=by)
        assert len(listed) == len(listed.page(0, 14)) == 0
        assert listed.place_of(0) is None


def test_reasons_for_an_order_are_said_in_words():
    assert ChunkFilter().reasons() == []
    assert ChunkFilter(state="free", least_size=256).reasons() == ["free", "size at least 256 B"]
