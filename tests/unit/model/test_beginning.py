"""The start of a window, where the log has lost events."""

from heaps import BASE, MIB, new_heap

from bfcviz.events.log import EventLog
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.model.trace_from_source import beginning


def test_where_nothing_is_left_of_the_events_before_it_it_is_the_beginning():
    heap = new_heap(log=EventLog(64))
    heap.allocate(1000)
    moment = heap.moment()
    for number in range(200):
        heap.mark("mark", number)
    first, _, events = beginning(moment, heap.log)
    assert (first, len(events)) == (moment.step, 0)


def test_a_reader_that_comes_late_begins_where_the_heap_is():
    heap = ObservedHeap(EventLog(64))
    heap.grant(BASE, MIB)
    for number in range(200):
        heap.allocate(BASE + number * 512, 256, label=f"op{number % 5}")
    found = beginning(heap.moment(), heap.log)
    assert found.first > 0
    assert found.first + len(found.events) == heap.log.head
