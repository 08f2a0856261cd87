from bfcviz.events.labels import Labels
from bfcviz.events.origin import Origin
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import RecordedHistory
from bfcviz.model.model import Model


def test_more_events_than_the_ring_keeps_are_all_there() -> None:
    history = RecordedHistory()
    rounds = 5 << 16
    for n in range(rounds):
        history.at(2 * n)
        history.ledger.allocate(0x1000, 512, 512)
        history.at(2 * n + 1)
        history.ledger.free(0x1000)
    events = history.events()
    assert len(events) == 1 + 2 * rounds
    model = Model(Trace.from_events(events, Labels(), Origin()))
    model.seek(len(events))
    assert model.stats().num_allocs == rounds


def test_marks_and_inconsistencies_are_kept() -> None:
    history = RecordedHistory()
    history.at(5, thread=9)
    history.mark(0, value=7)
    history.ledger.free(0x1000)
    assert history.inconsistencies.unknown_frees == 1
    (mark,) = history.events()
    assert (mark["kind"], mark["size"], mark["thread"], mark["by"], mark["time"]) == (Kind.MARK, 7, 9, 9, 5)
