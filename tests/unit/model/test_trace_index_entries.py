"""What is stored with the blocks of a trace says what its events say."""

import numpy as np
import pytest
from heap_strategies import run, seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import PlainHeap, busy_trace
from unit.model.index_answers import answers, fresh

from bfcviz.errors import TraceError
from bfcviz.events.schema import Kind
from bfcviz.events.storage import blocks
from bfcviz.events.trace import Trace
from bfcviz.figures import active_memory
from bfcviz.figures.active_memory import active_memory_window
from bfcviz.model import Model, trace_index
from bfcviz.model.bytes_by_label import bytes_at_moments
from bfcviz.model.filters import EventFilter, LabelSearch, matching
from bfcviz.model.find_steps import peak, worst_fragmentation
from bfcviz.model.trace_index import IndexBuilder, decoded_index_entry, index_of


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MOST_EVENTS", 300)
        patch.setattr(trace_index, "LEAST_EVENTS", 1)
        patch.setattr(trace_index, "_ALWAYS_STORED", 1)
        patch.setattr(trace_index, "_MOST_LABELS", 10_000)
        patch.setattr(active_memory, "LEAST_EVENTS", 1)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


def stored(trace, folder):
    """The trace as a file of blocks that are described."""
    describe = IndexBuilder(len(trace.origin.pools))
    return Trace.open(trace.save(folder / "trace.bfc", overwrite=True, describe=describe))


@pytest.fixture(scope="module")
def busy_file(tmp_path_factory):
    return stored(busy_trace(), tmp_path_factory.mktemp("busy")).path


def check(trace, pool, folder):
    """Compare what the two traces answer, and count the events that the index of the stored one reads."""
    saved, expected = stored(trace, folder), answers(trace, pool)
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks.BlockSource, "read", lambda *_: read.append(1))
        index = index_of(saved, pool)
    assert (not read, index is not None) == (True, True)
    found = answers(saved, pool)
    assert np.allclose(found.pop("label"), expected.pop("label"), rtol=1e-6)
    assert found == expected
    assert (peak(saved, pool), worst_fragmentation(saved, pool)) == (
        peak(trace, pool),
        worst_fragmentation(trace, pool),
    )
    assert index.varied == index_of(trace, pool).varied
    return saved


@given(seeded_operations(), st.sampled_from([0, 1]))
def test_any_heap(folder, steps, pool):
    trace = fresh(run(steps).trace())
    if len(trace):
        check(trace, pool, folder)


def test_a_real_run_and_its_states(folder):
    trace = fresh(sample_trace("lstm"))
    saved = check(trace, 0, folder)
    models = Model(trace), Model(saved)
    for step in (len(trace), 20_000, 301, 0):
        for model in models:
            model.seek(step)
        assert np.array_equal(*(model.chunks() for model in models))
        assert models[0].stats() == models[1].stats()
    assert saved.keyframe_before(len(trace))[0] > 300


def test_the_areas_of_a_long_range_hold_all_bytes(folder):
    trace = busy_trace()
    saved = stored(trace, folder)
    index_of(saved)
    window = active_memory_window(saved)
    exact = active_memory_window(trace)
    held, edges = window.by_class.held.sum(axis=0), window.by_class.edges
    every, steps = exact.by_class.held.sum(axis=0), exact.by_class.edges
    assert (held * np.diff(edges)).sum() == pytest.approx((every * np.diff(steps)).sum(), rel=1e-2)
    assert window.others == exact.others + len(exact.bands.lifetimes)


def test_events_that_contradict_each_other_have_no_index(folder):
    trace = busy_trace()
    events = trace.read(0, len(trace)).copy()
    events["size"][np.flatnonzero(events["kind"] == Kind.ALLOCATE)[-1]] += 256
    saved = stored(Trace.from_events(events, trace.labels, trace.origin), folder)
    assert saved.index_entries() is None
    assert index_of(saved) is None


def test_a_damaged_entry_is_an_error_and_the_events_are_read(folder):
    trace = busy_trace()
    entry, _ = IndexBuilder(1)(trace.read(0, 300))
    assert decoded_index_entry(entry, 1).pools[0].rows["step"][-1] == 300
    for damaged in (b"", entry[:40], entry[:-3], entry[:30] + b"x" + entry[31:], b"x" + entry[1:]):
        with pytest.raises(TraceError):
            decoded_index_entry(damaged, 1)
    with pytest.raises(TraceError):
        decoded_index_entry(entry, 2)
    assert trace_index.index_parts(5) == [0, 1, 2, 3, 5]
    saved = stored(trace, folder)
    saved.source.index_entries = lambda: [b"damaged"]
    assert index_of(saved).rolling.series["step"][-1] == len(trace)


def set_all(rows, name, value):
    rows[name] = value


def shifted(entry):
    for pool in entry.pools:
        pool.rows["step"] += 1


@pytest.mark.parametrize(
    ("is_used", "change"),
    [
        (True, lambda _: None),
        (False, lambda entry: set_all(entry.pools[0].labels, "label", 1 << 20)),
        (False, lambda entry: set_all(entry.pools[0].labels, "part", trace_index.PARTS)),
        (False, lambda entry: set_all(entry.pools[0].labels, "byte_steps", np.nan)),
        (False, lambda entry: set_all(entry.pools[0].rows, "step", 3)),
        (False, lambda entry: set_all(entry.pools[0].rows, "step", (1 << 64) - 1)),
        (False, lambda entry: set_all(entry.pools[0].rows, "events", 1 << 63)),
        (False, lambda entry: set_all(entry.pools[0].rows, "bytes_in_use_max_step", 1 << 62)),
        (False, shifted),
        (
            False,
            lambda entry: entry.pools.__setitem__(0, entry.pools[0]._replace(rows=entry.pools[0].rows[:0])),
        ),
        (False, lambda entry: set_all(entry.notable, "label", 1 << 20)),
        (False, lambda entry: set_all(entry.notable, "pool", 1)),
        (False, lambda entry: set_all(entry.notable, "kind", Kind.FREE)),
        (False, lambda entry: set_all(entry.notable, "seq", 1 << 60)),
    ],
)
def test_an_impossible_entry_is_not_used(busy_file, monkeypatch, is_used, change):
    def changed(data, pools):
        found = decoded_index_entry(data, pools)
        each = [pool._replace(rows=pool.rows.copy(), labels=pool.labels.copy()) for pool in found.pools]
        entry = found._replace(pools=each, notable=found.notable.copy())
        change(entry)
        return entry

    monkeypatch.setattr(trace_index, "decoded_index_entry", changed)
    saved = Trace.open(busy_file)
    index = index_of(saved)
    assert index.knows_holders == is_used
    assert len(index.byte_steps) <= len(saved.labels)


def test_bytes_at_moments_of_a_stored_index_are_the_means_of_parts(busy_file, monkeypatch):
    saved = Trace.open(busy_file)
    index, labels = index_of(saved), len(saved.labels)
    assert index.knows_holders
    model, held = Model(busy_trace()), np.zeros(labels)
    for step in range(1, len(saved) + 1):
        model.seek(step)
        chunks = model.in_use()
        held += np.bincount(chunks["label"], chunks["size"].astype(float), labels)
    with monkeypatch.context() as patch:
        patch.setattr(Trace, "blocks", lambda _: pytest.fail("the events were read"))
        parts = bytes_at_moments(saved, 0, labels)
    assert parts.shape[1] == labels
    assert (parts > 0).any(axis=1).sum() > 1  # of the whole trace, not of one moment
    known = parts.sum(axis=0)
    assert (known <= held * (1 + 1e-6)).all()
    assert known.sum() > 0.9 * held.sum()  # the largest of each part
    assert (bytes_at_moments(saved, 0, 3) == parts[:, :3]).all()


def test_stored_rows_too_few_for_a_picture_are_not_used(busy_file, monkeypatch):
    monkeypatch.setattr(trace_index, "_ALWAYS_STORED", 1 << 22)
    assert not index_of(Trace.open(busy_file)).knows_holders
    monkeypatch.setattr(trace_index, "_PICTURE_INTERVALS", 1)
    assert index_of(Trace.open(busy_file)).knows_holders


def test_entries_that_are_missing_or_too_large_are_not_used(busy_file, monkeypatch):
    saved = Trace.open(busy_file)
    entries = saved.index_entries()
    saved.source.index_entries = lambda: entries[:-1]
    assert not index_of(saved).knows_holders
    monkeypatch.setattr(trace_index, "_MOST_ENTRIES", 10_000)
    assert not index_of(Trace.open(busy_file)).knows_holders
    monkeypatch.setattr(trace_index, "FINE_ROWS", 1)
    with pytest.raises(TraceError):
        decoded_index_entry(entries[0], 1)


def test_an_entry_of_another_version_is_refused(busy_file):
    entry = Trace.open(busy_file).index_entries()[0]
    assert decoded_index_entry(entry, 1).named is not None
    with pytest.raises(TraceError):
        decoded_index_entry(entry[:4] + b"\x01\0" + entry[6:], 1)


# -- the labels that the events of a block have ---------------------------------------------------------------------


def reads_of(saved, wanted):
    """What a search finds, and the steps of the blocks that it reads."""
    read, original = [], blocks.BlockSource.read

    def noted(source, start, stop):
        read.append(start)
        return original(source, start, stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks.BlockSource, "read", noted)
        return list(matching(saved, 0, wanted)), read


@pytest.mark.parametrize("text", ["layer_3", "LAYER_1/", "busy", "step", "nothing has this name", "0x7f", ""])
def test_a_search_reads_only_the_blocks_that_have_the_label(busy_file, text):
    trace, saved, wanted = busy_trace(), Trace.open(busy_file), EventFilter(text=text)
    found, read = reads_of(saved, wanted)
    assert found == list(matching(trace, 0, wanted))
    hits = LabelSearch(trace.labels, text).hits()
    events, block = trace.read(0, len(trace)), blocks.MOST_EVENTS
    has = [hits[events["label"][start : start + block]].any() for start in range(0, len(trace), block)]
    if text not in {"", "0x7f"}:
        assert sorted({start // block for start in read}) == np.flatnonzero(has).tolist()


def test_a_name_that_few_events_have_is_found_in_few_blocks(folder):
    heap = PlainHeap(64 << 20)
    for number in range(4000):
        heap.allocate(512, label="needle" if number in {7, 2500} else f"layer_{number % 5}")
    trace = heap.trace()
    saved = stored(trace, folder)
    found, read = reads_of(saved, EventFilter(text="NEEDLE"))
    assert found == list(matching(trace, 0, EventFilter(text="needle"))) != []
    assert 0 < len(read) <= 2 < len(trace) // blocks.MOST_EVENTS
    assert reads_of(saved, EventFilter(text="needle", least_size=1 << 30))[0] == []


def test_named_labels_that_do_not_exist_are_harmless(busy_file):
    saved = Trace.open(busy_file)
    index = trace_index.known_notable(saved)
    wanted = np.ones(3, bool)
    index._named = [(steps, named + np.uint32(1 << 31)) for steps, named in index._named]
    assert index.ranges_with(wanted, 0, len(saved)) == []
    index._named = index._named[2:]  # where nothing is known, events are read
    assert index.ranges_with(wanted, 5, len(saved)) == [range(5, index._named[0][0].start)]


def test_blocks_with_many_labels_leave_room_for_the_rest_of_the_index(busy_file, monkeypatch):
    saved, wanted = Trace.open(busy_file), EventFilter(text="layer_3")
    expected = reads_of(saved, wanted)[0]
    entries = [decoded_index_entry(entry, 1) for entry in saved.index_entries()]
    rest = sum(
        each.pools[0].rows.nbytes + each.pools[0].labels.nbytes + each.notable.nbytes for each in entries
    )
    monkeypatch.setattr(trace_index, "_MOST_ENTRIES", rest)
    monkeypatch.setattr(trace_index, "_MOST_NAMED", entries[0].named.nbytes)
    again = Trace.open(busy_file)
    found, read = reads_of(again, wanted)
    assert found == expected
    assert index_of(again).knows_holders
    assert len(read) >= len(entries) - 1  # only of the first block it is known which labels it has


def test_what_is_stored_is_read_once(busy_file):
    saved, read = Trace.open(busy_file), []
    entries = saved.index_entries()
    saved.source.index_entries = lambda: read.append(1) or entries
    assert trace_index.known_notable(saved) is not None
    assert trace_index.known_notable(saved) is not None
    assert read == [1]
