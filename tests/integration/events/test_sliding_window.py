"""A window on a heap against a full recording of the same heap, for any order of operations and refreshes."""

from itertools import pairwise

import numpy as np
import pytest
from heaps import KIB, MIB, new_heap
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.errors import TraceError
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.origin import KnownGaps, Origin, Pool, Status
from bfcviz.events.sliding_window import WindowSource
from bfcviz.events.trace import Trace
from bfcviz.model import Model, keyframes, timeline
from bfcviz.model.trace_from_source import beginning

KEEP = 512
PIECE = 64


class Watched:
    """A heap, all its events, and a window on it."""

    def __init__(self, capacity=1 << 14, before=0, keep=KEEP, asks=True):
        self.random = np.random.default_rng(7)
        self.log = EventLog(capacity)
        self.heap = new_heap(MIB, log=self.log, allow_growth=True)
        self.held = []
        self.reader = Reader(self.log, 0)
        self.written = []
        self.work(before)
        window = WindowSource(
            self.log,
            self.heap.labels,
            Origin(pools=(Pool("heap", MIB),)),
            keyframes,
            begin=(lambda: beginning(self.heap.moment(), self.log)) if asks else None,
            keep=keep,
        )
        self.trace = Trace(window)

    def work(self, operations):
        for number in range(operations):
            if self.held and self.random.random() < 0.48:
                self.heap.free(self.held.pop(self.random.integers(len(self.held))))
            else:
                size = int(2 ** self.random.uniform(2, 16))
                address = self.heap.try_allocate(size, label=f"op{number % 5}")
                if address is not None:
                    self.held.append(address)
            if number % 8 == 7:
                self.note()
        self.note()

    def note(self):
        """Record the new events, so that none is lost."""
        self.written.append(self.reader.read())

    def recorded(self):
        events = np.concatenate(self.written)
        events["pool"] = 0
        return Trace.from_events(events, self.heap.labels, Origin(pools=(Pool("heap", MIB),)))


def assert_same(window, full, model, *, peaks=True):
    """The window shows the same as the recording, at every step that it has."""
    first, length = window.first, len(window)
    assert np.array_equal(window.read(first, length), full.read(first, length))
    theirs = Model(full)
    for step in sorted({first, length, *range(first, length, 37)}, key=lambda s: s * 7919 % 101):
        model.seek(step)
        theirs.seek(step)
        assert np.array_equal(model.chunks(), theirs.chunks()), step
        assert model.regions().tolist() == theirs.regions().tolist()
        ours, other = vars(model.stats()), vars(theirs.stats())
        if not peaks:  # a late window does not know what came before its first step
            for name in [name for name in ours if "peak" in name or name in {"ooms", "largest_alloc_size"}]:
                del ours[name], other[name]
        assert ours == other
    if first:
        with pytest.raises(TraceError, match="no longer kept"):
            model.seek(first - 1)
        with pytest.raises(TraceError, match="keeps only"):
            window.read(first - 1, first)


@given(st.lists(st.integers(0, 200), max_size=12))
def test_it_shows_at_any_time_what_a_recording_shows(turns):
    watched = Watched()
    model = Model(watched.trace)
    for operations in turns:
        watched.work(operations)
        before = len(watched.trace)
        assert watched.trace.refresh() == watched.log.head - before
        assert len(watched.trace) == watched.log.head
        assert_same(watched.trace, watched.recorded(), model)
    assert watched.trace.origin.status is Status.RECORDING


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(0, 300))
def test_after_lost_events_it_restarts_at_the_state_of_the_heap(turns, before):
    watched = Watched(capacity=128, before=before)
    model = Model(watched.trace)
    gaps = missed = 0
    for operations in turns:
        watched.work(operations)
        seen = len(watched.trace)
        watched.trace.refresh()
        assert len(watched.trace) == watched.log.head
        if watched.trace.first > seen:
            gaps += 1
            missed += watched.trace.first - seen
        assert_same(watched.trace, watched.recorded(), model, peaks=False)
    assert (watched.trace.source.gaps, watched.trace.source.missed) == (gaps, missed)
    assert (watched.trace.origin.status is Status.DEGRADED) == (gaps > 0)
    assert not gaps or f"{missed:,} events were overwritten" in " ".join(watched.trace.origin.reasons)


def test_a_peak_before_all_that_is_left_is_still_known():
    watched = Watched(capacity=128)
    watched.heap.free(watched.heap.allocate(900 * KIB))
    watched.note()
    watched.work(300)
    trace = watched.trace
    trace.refresh()
    assert trace.first > 10
    model = Model(trace)
    model.seek(len(trace))
    assert model.stats().peak_bytes_in_use == watched.heap.stats().peak_bytes_in_use >= 900 * KIB
    model.seek(trace.first)
    assert model.stats().peak_bytes_in_use == watched.heap.stats().peak_bytes_in_use


def test_memory_stays_within_bounds_and_steps_only_leave_at_the_front():
    watched = Watched()
    firsts = []
    for _ in range(40):
        watched.work(50)
        watched.trace.refresh()
        firsts.append(watched.trace.first)
        assert len(watched.trace) - watched.trace.first <= KEEP
        assert len(watched.trace.source._pieces) * watched.trace.source.block <= KEEP + PIECE
    assert all(one <= other for one, other in pairwise(firsts))
    assert len(watched.trace) - watched.trace.first > KEEP - 2 * PIECE
    assert "no longer kept" in watched.trace.origin.reasons[0]


def test_known_gaps_stay_in_the_origin_when_events_leave():
    watched = Watched()
    gaps = KnownGaps(("a sample",), ("free_bytes",))
    origin = Origin(pools=(Pool("heap"),), reasons=gaps.reasons, details=gaps.to_details())
    trace = Trace(WindowSource(watched.log, watched.heap.labels, origin, keyframes, keep=KEEP))
    assert (trace.origin.status, trace.origin.reasons) == (Status.DEGRADED, ("a sample",))
    for _ in range(8):
        watched.work(200)
        trace.refresh()
    assert trace.first > 0
    assert (trace.origin.status, trace.origin.reasons[0], len(trace.origin.reasons)) == (
        Status.DEGRADED,
        "a sample",
        2,
    )


def test_more_new_events_than_it_keeps():
    watched = Watched()
    watched.work(2000)
    watched.trace.refresh()
    assert len(watched.trace) == watched.log.head > 2 * KEEP
    assert_same(watched.trace, watched.recorded(), Model(watched.trace))


def test_a_model_that_was_left_behind_moves_to_what_there_is():
    watched = Watched()
    watched.work(100)
    watched.trace.refresh()
    model = Model(watched.trace)
    model.seek(50)
    watched.work(1000)
    watched.trace.refresh()
    assert watched.trace.first > 50
    assert_same(watched.trace, watched.recorded(), model)
    assert Model(watched.trace).step == watched.trace.first


def test_a_timeline_of_what_there_is():
    watched = Watched(before=900)
    trace = watched.trace
    ours = timeline(trace, 0, trace.first, len(trace), points=50)
    theirs = timeline(watched.recorded(), 0, trace.first, len(trace), points=50)
    assert trace.first > 0
    assert np.array_equal(ours, theirs)


def test_the_log_alone_is_followed_until_it_is_lapped():
    watched = Watched(capacity=128, asks=False)
    watched.work(20)
    watched.trace.refresh()
    length = len(watched.trace)
    watched.work(300)
    assert watched.trace.refresh() == 0
    assert watched.trace.refresh() == 0
    assert (len(watched.trace), watched.trace.following) == (length, False)
    assert watched.trace.origin.status is Status.DEGRADED
    assert "overwritten" in watched.trace.origin.reasons[-1]
    assert_same(watched.trace, watched.recorded(), Model(watched.trace))


def test_a_log_that_lost_its_beginning_needs_the_heap():
    with pytest.raises(TraceError, match="pass the heap itself"):
        Watched(capacity=128, before=300, asks=False)


def test_a_log_in_a_file_is_never_lapped(tmp_path):
    heap = new_heap(log=EventLog(64, tmp_path))
    trace = Trace(WindowSource(heap.log, heap.labels, Origin(), keyframes, keep=KEEP))
    for number in range(400):
        heap.mark("mark", number)
    assert trace.refresh() == 400
    assert trace.read(trace.first, 400)["size"].tolist() == list(range(trace.first, 400))
    heap.close()


def test_what_was_read_stays_what_it_was():
    watched = Watched(before=100)
    events = watched.trace.read(watched.trace.first, len(watched.trace))
    before = events.copy()
    watched.work(2000)
    watched.trace.refresh()
    assert np.array_equal(events, before)
    with pytest.raises(ValueError, match="read-only"):
        events["seq"] = 0


def test_an_empty_range_is_empty_where_nothing_was_written():
    trace = Watched().trace
    assert len(trace.read(0, 0)) == 0
    assert [len(trace.source.read(step, step)) for step in (0, 1, PIECE - 1, PIECE, PIECE + 1)] == [0] * 5


def test_a_window_cannot_be_too_small_nor_be_saved_as_parquet_when_it_is_not_whole(tmp_path):
    with pytest.raises(TraceError, match="at least 512"):
        Watched(keep=100)
    watched = Watched(before=20)
    assert len(Trace.open(watched.trace.save(tmp_path / "whole.parquet"))) == len(watched.trace)
    watched.work(1000)
    watched.trace.refresh()
    with pytest.raises(TraceError, match="bfc"):
        watched.trace.save(tmp_path / "part.parquet")
    saved, first = Trace.open(watched.trace.save(tmp_path / "part.bfc")), watched.trace.first
    assert saved.first == first > 0
    assert np.array_equal(saved.read(first, len(saved)), watched.trace.read(first, len(watched.trace)))
