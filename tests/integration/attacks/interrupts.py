"""Attack: SIGINT at random moments of a program that records. It goes on, and its recording is consistent."""

import os
import signal
import time
from itertools import count

import numpy as np
from integration.attacks.children import ended, expect, shared_memory, start, wait_for

import bfcviz
from bfcviz.live.numpy import default_handler, set_handler, unserved
from bfcviz.model import Model

INTERRUPTS = 20  # in one child
AFTER = 50  # rounds of work to go on for where an interrupt did not come through
STEP = 7919


def case(_number, rng, folder):
    ways = {"heap": heap_work, "labels": labels_work, "stacks": stacks_work}
    way = rng.choice(("heap", "labels", "stacks", "stacks"))
    loop(rng, folder, ways[way])
    return way


def loop(rng, folder, work):
    shared = shared_memory()
    moments = [rng.random() ** 2 * 0.02 for _ in range(INTERRUPTS)]
    pid = start(lambda: record(folder / "run", work, shared))
    for number, moment in enumerate(moments, 1):
        if not wait_for(pid, lambda number=number: shared.begun == number):
            break
        time.sleep(moment)
        os.kill(pid, signal.SIGINT)
        shared.sent = number
    expect(ended(pid), 0)


def record(folder, work, shared):
    """The child: work, be interrupted, compare all books; at the end compare the recording with them."""
    recording = bfcviz.Recording(folder)
    heap, again, rest = work(recording)
    for number in range(1, INTERRUPTS + 1):
        again_and_again(again, shared, number)
        with unserved():  # NumPy's arrays of the checks are not to change what they look at
            heap.check_invariants()
            rest()
    set_handler(default_handler())
    chunks = heap.memory_map()
    recording.close()
    trace = recording.trace()
    assert str(trace.origin.status) == "complete", trace.origin
    assert list(trace.labels.names) == list(recording.labels.names)
    model = Model(trace)
    model.seek(len(trace))
    theirs = model.chunks()
    for ours, name in (("address", "address"), ("size", "size"), ("in_use", "in_use")):
        assert (chunks[ours] == theirs[name]).all(), name
    events = trace.read(0, len(trace))
    for event in events[events["kind"] == 3]:
        name, details = trace.labels[int(event["label"])]
        assert name in {"", str(event["requested"])} or details, f"label {name} of {event['requested']} bytes"


def again_and_again(work, shared, number):
    """Do `work` until an interrupt comes, or for a while after one was sent that did not come through."""
    left = AFTER
    try:
        shared.begun = number
        while left:
            work()
            left -= shared.sent == number
    except KeyboardInterrupt:
        pass


def heap_work(recording):
    """Allocate and free; what is acknowledged is in use, but for the one operation that was interrupted."""
    heap = bfcviz.BFCAllocator(
        bfcviz.SimulatedSubAllocator(), 1 << 30, log=recording.log, labels=recording.labels
    )
    live, numbers = set(), count(1)

    def work():
        size = next(numbers) * STEP % 50_021 + 1
        live.add(heap.allocate(size, label=str(size)))
        if len(live) > 50:
            address = next(iter(live))
            heap.free(address)
            live.remove(address)

    def rest():
        chunks = heap.memory_map()
        used = set(chunks["address"][chunks["in_use"]].tolist())
        assert len(used ^ live) <= 1, (len(used), len(live))
        live.clear()
        live.update(used)

    return heap, work, rest


def labels_work(recording):
    """Only new labels: each number that was given must be the label's, in memory and in the file."""
    heap, _, _ = heap_work(recording)
    given, numbers = {}, count(1)

    def work():
        name = str(next(numbers))
        given[name] = recording.labels.intern(name, stack=name * 20)

    def rest():
        assert all(recording.labels.name(number) == name for name, number in given.items())
        trace = recording.trace()
        assert not trace.origin.reasons, trace.origin.reasons
        assert all(trace.labels.name(number) == name for name, number in given.items())
        given.clear()

    return heap, work, rest


def stacks_work(recording):
    """NumPy's arrays, each from a function that was never seen: its stack is a new label."""
    service = bfcviz.serve_numpy("64MiB", log=recording, capture="stack")
    service.__enter__()  # until the process ends: an interrupt of `with` itself is not attacked
    held, numbers = [], count(1)

    def work():
        number = next(numbers)
        space = {"np": np}
        exec(f"def f{number}(): return np.empty({number % 5000 + 1}, np.uint8)", space)  # noqa: S102
        held.append(space[f"f{number}"]())
        del held[:-50]

    def rest():
        trace = recording.trace()
        assert not trace.origin.reasons, trace.origin.reasons

    return service.allocator, work, rest
