"""Snapshots: their budget, and the way that they shorten."""

import pytest
from both_ways import COMPILED, small_steps
from heap_strategies import run
from unit.model.state.busy_heap import busy_heap

from bfcviz.model import Model, pool_state
from bfcviz.model.snapshots import Snapshots


@pytest.mark.parametrize("budget", [0, 20_000, 1 << 30])
def test_snapshots_stay_within_their_budget(budget):
    heap = run([("allocate", i % 5, i, 0) for i in range(200)])
    kept = Snapshots(budget)
    kept.spacing = 2
    table = COMPILED(0, 2)
    events = heap.events()
    for at in range(0, len(events) - 1, 2):
        table.apply(events[at : at + 2])
        if kept.wants(table.step):
            kept.add(table.snapshot())
        assert kept.nbytes <= budget
        assert kept.before(table.step).step <= table.step
    steps = [kept.before(step).step for step in range(table.step + 1)]
    assert steps == sorted(steps)
    assert kept.before(0).step == 0
    if budget == 1 << 30:
        assert max(step - start for step, start in enumerate(steps)) < 2


def test_snapshots_shorten_the_way_back(monkeypatch):
    heap = busy_heap()
    trace = heap.trace()
    with small_steps(pool_state.PoolState, block=16):
        model = Model(trace)
        model.seek(len(trace))
        read = []
        monkeypatch.setattr(trace, "read", lambda a, b: (read.append(b - a), trace.events[a:b])[1])
        model.seek(len(trace) // 2)
    assert 0 < sum(read) < 40
    assert model.chunks().tolist() == heap.states[model.step][0]["chunks"]
