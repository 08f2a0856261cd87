"""The events of several heaps in one order."""

import numpy as np
import pytest

from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import (
    RecordedHistory,
    by_time,
    one_after_another,
    without,
)
from bfcviz.model.model import Model


def log_of(address: int, *times: int) -> Events:
    """An allocation and its free at each pair of times."""
    history = RecordedHistory()
    for begin, end in zip(times[::2], times[1::2], strict=True):
        history.at(begin, thread=3)
        history.ledger.allocate(address, 512, requested=500)
        history.at(end, thread=4)
        history.ledger.free(address)
    return history.events()


def trace_of(events: Events, pools: int) -> Trace:
    return Trace.from_events(events, Labels(), Origin(pools=tuple(Pool(f"heap {n}") for n in range(pools))))


@pytest.mark.parametrize("join", [by_time, one_after_another])
def test_every_heap_keeps_its_events(join: object) -> None:
    trace = trace_of(join([log_of(0x1000, 1, 5, 7, 9), log_of(0x2000, 2, 3, 8, 20)]), 2)  # type: ignore[operator]
    for pool in (0, 1):
        model = Model(trace, pool)
        model.seek(len(trace))
        assert (model.stats().num_allocs, model.stats().bytes_in_use, model.stats().pool_bytes) == (2, 0, 512)


def test_by_time_sorts_by_time() -> None:
    events = by_time([log_of(0x1000, 1, 5), log_of(0x2000, 2, 3)])
    assert np.all(np.diff(events["time"]) >= 0)
    asked = events[np.isin(events["kind"], [Kind.ALLOCATE, Kind.FREE])]
    assert asked["pool"].tolist() == [0, 1, 1, 0]
    assert asked["thread"].tolist() == [3, 3, 3, 3]
    assert asked["by"].tolist() == [3, 3, 4, 4]


def test_more_heaps_than_a_trace_can_have_are_refused() -> None:
    with pytest.raises(TraceError, match="257"):
        one_after_another([log_of(0x1000, 1, 2)] * 257)


def test_events_without_some_are_numbered_again() -> None:
    history = RecordedHistory()
    for address in (4096, 8192):
        history.at(address)
        history.ledger.oom(1 << 20)
        history.ledger.allocate(address, 512, requested=500)
    history.ledger.free(4096)
    history.ledger.free(8192)
    log = history.events()
    events = without(log, log["kind"] == Kind.OOM)
    assert events["seq"].tolist() == list(range(len(log) - 2))
    frees = events[events["kind"] == Kind.FREE]
    assert events["address"][frees["other"]].tolist() == frees["address"].tolist() == [4096, 8192]
    assert events["kind"][frees["other"]].tolist() == [Kind.ALLOCATE] * 2
    model = Model(trace_of(events, 1))
    model.seek(len(events))
    assert model.stats().bytes_in_use == 0
