"""LogFile: lines of all versions of RMM, also while they are written."""

from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.live.rmm import LogFile

LINES = """Thread,Time,Action,Pointer,Size,Stream
13395,16:53:04.281065,allocate,0x7f0000064000,100,0
13395,16:53:04:281072,allocate,0x7f0000065000,300,0x1
13395,23:59:59.281076,deallocate,0x7f0000064000,100,0
13395,00:00:01.281178,allocate failure,(nil),20000,0
13395,00:00:02,resize,0x0,1,0
what is this
13395,00:00:03.000000,free,0x7f00000"""


def take(log):
    for when, request in log.read():
        log.report(when, request)


def test_lines_of_all_versions_are_read(tmp_path):
    path = tmp_path / "rmm.dev0.csv"
    path.write_text(LINES)
    log = LogFile(path, ObservedHeap(EventLog(1 << 8), unit=256), 0)
    take(log)
    with path.open("a") as file:  # the last line becomes whole
        file.write("65000,300,0x1\n")
    take(log)
    events = log.heap.log.copy(0, log.heap.log.head)
    kinds = events["kind"].tolist()
    assert [kinds.count(kind) for kind in (Kind.ALLOCATE, Kind.FREE, Kind.OOM)] == [2, 2, 1]
    day, second = 86_400, 1_000_000_000
    seconds = (events["time"][events["kind"] == Kind.FREE] // second).tolist()
    assert seconds == [day - 1, day + 3]
    assert log.unreadable == 2
    assert log.heap.stats().bytes_in_use == 0
