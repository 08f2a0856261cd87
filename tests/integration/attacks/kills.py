"""Attack: SIGKILL at a random moment of a recording; all allocations that were acknowledged must be in it."""

import os
import signal
import time

from integration.attacks.children import ended, expect, shared_memory, start, wait_for
from integration.live import kill_server
from integration.live.test_kill_recorded import check

from bfcviz import BFCAllocator, Recording, SimulatedSubAllocator
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Status, Trace

LIMIT = 1 << 30


def case(_number, rng, folder):
    run, shared, closes = folder / "run", shared_memory(), rng.random() < 0.5
    work = close if closes else kill_server.work
    count = rng.choice((0, 1, 10, 1000))
    child = start(lambda: work(str(run), count if closes else str(folder), shared))
    assert wait_for(child, lambda: shared.begun), expect(ended(child), 0)
    time.sleep(rng.random() ** 3 * (0.02 if closes else 0.1))
    os.kill(child, signal.SIGKILL)
    expect(ended(child), -signal.SIGKILL)
    trace = Trace.open(run)
    if closes:
        check_closed(trace, shared.done)
        return str(trace.origin.status)
    check(trace, shared.done)
    return "truncated"


def close(folder, count, shared):
    """A child's life that allocates `count` times, closes the recording, and waits to be killed."""
    recording = Recording(folder)
    heap = BFCAllocator(SimulatedSubAllocator(), LIMIT, log=recording.log, labels=recording.labels)
    shared.begun = 1
    for number in range(1, count + 1):
        heap.allocate(number, label=str(number))
        shared.done = number
    recording.close()
    signal.pause()


def check_closed(trace, acknowledged):
    """It is whole, or ends early; each allocation and its name is there."""
    assert trace.origin.status in {Status.COMPLETE, Status.TRUNCATED}, trace.origin
    events = trace.read(0, len(trace))
    allocated = events[events["kind"] == Kind.ALLOCATE]
    assert len(allocated) in {acknowledged, acknowledged + 1}
    assert [trace.labels.name(number) for number in allocated["label"]] == [
        str(n) for n in allocated["requested"]
    ]
