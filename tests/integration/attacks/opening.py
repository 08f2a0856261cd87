"""Open a file as a user does: read it, seek in it, explain its events. Also valid traces to start from."""

import json
import random
from functools import cache
from io import StringIO

import numpy as np
from heaps import MIB, new_heap

import bfcviz
from bfcviz.analysis.diagnosis import failure_lines
from bfcviz.analysis.event_text import explain_event
from bfcviz.analysis.failures import all_failures, diagnosis_json
from bfcviz.cli.info import info, info_lines
from bfcviz.errors import BfcvizError
from bfcviz.events.label_table import Labels
from bfcviz.events.log import Reader
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace
from bfcviz.model import Model

LONG = 1 << 20  # events


def verdict(path, rng, *, thorough=False):
    """ "opened" or "refused"; anything but a BfcvizError with a text passes through.

    `thorough`: also walk all heaps to their end, ask why requests failed, and sometimes read the file twice.
    """
    try:
        trace = bfcviz.open(path)
    except BfcvizError as error:
        return _refused(error)
    steps = {trace.first, len(trace), *(rng.randint(trace.first, len(trace)) for _ in range(4))}
    if len(trace) > LONG:
        steps = {trace.first}  # `info` goes through all of it once; more would be slow, not wrong
    looks = [lambda: info_lines(trace.origin, json.loads(json.dumps(info(trace), allow_nan=False)))]
    looks += [
        lambda pool=pool: _go_through(trace, pool, steps) for pool in range(min(3, len(trace.origin.pools)))
    ]
    looks += [lambda step=step: explain_event(trace, step) for step in steps if step < len(trace)]
    looks += [lambda: "".join(trace.labels.names), lambda: trace.keyframe_before(len(trace))]
    if thorough:
        walked = len(trace.origin.pools) if len(trace) < LONG >> 4 else 1
        looks += [lambda pool=pool: Model(trace, pool).seek(len(trace)) for pool in range(walked)]
        looks += [lambda: print(bfcviz.why(trace), file=StringIO()), lambda: _ask(trace, rng)]
        looks += [lambda: _read_again(path, trace)] if rng.random() < 0.2 and len(trace) < LONG else []
    for look in looks:
        try:
            look()
        except BfcvizError as error:
            _refused(error)
    return "opened"


def _ask(trace, rng):
    """What `bfcviz why` prints: each failure, and whether a size would fit."""
    found = all_failures(trace)[:20]
    found += [bfcviz.why(trace, size=rng.choice((1, 300, 1 << 20, 1 << 40)), step=len(trace))]
    for each in found:
        json.dumps(diagnosis_json(each), allow_nan=False)
        assert failure_lines(each)


def _read_again(path, trace):
    """The same file gives the same trace."""
    again = bfcviz.open(path)
    assert again.read(0, len(again)).tobytes() == trace.read(0, len(trace)).tobytes(), "other events"
    assert list(again.labels.names) == list(trace.labels.names), "other labels"
    assert repr(again.origin) == repr(trace.origin), "another origin"


def _refused(error):
    if not str(error):
        raise AssertionError("an error without words") from error
    return "refused"


def _go_through(trace, pool, steps):
    model = Model(trace, pool)
    for step in (*steps, trace.first):
        model.seek(step)
        stats, chunks = model.stats(), model.chunks()
        assert len(chunks) == stats.chunks_in_use + stats.chunks_free
        model.regions()


@cache
def good_trace(count=400, seed=0):
    """A trace of a heap that grew, ran out of memory and gave regions back; the same in every run."""
    rng, labels = random.Random(seed), Labels()
    heap = new_heap(4 * MIB, labels=labels, allow_growth=True, garbage_collection=True)
    held = []
    while heap.log.head < count:
        size = rng.choice((1, 300, 5000, 70_000, MIB))
        label = labels.intern(f"op {size % 17}", shape=f"[{size}]", stack="train.py:1\nmain.py:2")
        if (address := heap.try_allocate(size, label=label, stream=size % 3)) is not None:
            held.append(address)
        while held and (address is None or rng.random() < 0.4):
            heap.free(held.pop(rng.randrange(len(held))))
            address = 0
        if rng.random() < 0.02:
            heap.mark("step", size)
    events = Reader(heap.log, 0).read(count)
    events["time"], events["thread"], events["by"] = np.arange(count) * 100, events["thread"] > 0, 1
    heap.close()
    return Trace.from_events(events, labels, Origin(pools=(Pool("bfc", 4 * MIB), Pool("other"))))
