import numpy as np

from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.importers.event_makers import interleave
from bfcviz.importers.tensorflow.reconstruct import REQUEST, Requests, step_marks


def log(*entries: tuple[Kind, int, int]) -> Events:
    """(kind, place of the request, other)"""
    events: Events = np.zeros(len(entries), EVENT)
    events["seq"] = np.arange(len(entries))
    for event, (kind, place, other) in zip(events, entries, strict=True):
        event["kind"], event["time"], event["other"] = kind, place, other
    return events


def steps(*entries: tuple[int, bool]) -> Requests:
    """(step, free)"""
    requests: Requests = np.zeros(len(entries), REQUEST)
    for row, (step, free) in zip(requests, entries, strict=True):
        row["step"], row["free"] = step, free
    return requests


def test_a_mark_stands_where_another_step_begins() -> None:
    requests = steps((0, False), (-7, False), (0, False), (9, True), (-7, False), (-1, False), (8, False))
    requests["thread"] = range(1, 8)
    marks = step_marks(requests, label=3)
    assert marks["time"].tolist() == [1, 6]
    assert marks["size"].tolist() == [(1 << 64) - 7, 8]
    assert marks["thread"].tolist() == marks["by"].tolist() == [2, 7]
    assert set(marks["label"]) == {3}
    assert set(marks["kind"]) == {Kind.MARK}
    assert set(marks["bin"]) == {-1}


def test_requests_without_steps_have_no_marks() -> None:
    assert len(step_marks(steps((0, False), (-1, False), (5, True)), 1)) == 0


def test_logs_are_woven_in_the_order_of_the_requests() -> None:
    first = log((Kind.EXTEND, 0, 0), (Kind.ALLOCATE, 0, 1), (Kind.ALLOCATE, 2, 2), (Kind.FREE, 4, 2))
    second = log((Kind.EXTEND, 1, 0), (Kind.ALLOCATE, 1, 1), (Kind.FREE, 3, 1))
    marks = step_marks(steps((0, False), (5, False), (5, False), (0, True), (0, True)), 9)
    woven = interleave([first, second], marks, np.array([0, 15, 25, 35, 45]))
    assert woven["seq"].tolist() == list(range(8))
    assert woven["time"].tolist() == [0, 0, 15, 15, 15, 25, 35, 45]
    assert woven["pool"].tolist() == [0, 0, 0, 1, 1, 0, 1, 0]
    assert [Kind(k).name for k in woven["kind"]] == [
        *("EXTEND", "ALLOCATE", "MARK", "EXTEND", "ALLOCATE", "ALLOCATE", "FREE", "FREE")
    ]
    # A FREE names the seq of its ALLOCATE in the stream; an ALLOCATE keeps its id.
    assert woven["other"].tolist() == [0, 1, 0, 0, 1, 2, 4, 5]
