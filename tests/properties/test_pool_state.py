"""PoolState: whole blocks against single events, and compiled against plain Python where events are damaged."""

import numpy as np
from both_ways import COMPILED, PLAIN, both_ways, is_compiled
from heap_strategies import damaged, operations, run
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.errors import TraceError


@both_ways
@given(operations())
def test_whole_blocks_agree_with_single_events(table_class, steps):
    heap = run(steps)
    events = heap.events()
    table = table_class(0, 2)
    table.apply(events)
    at_end = heap.states[-1][0]
    assert (table.bytes_in_use, table.largest_free_chunk) == (
        at_end["bytes_in_use"],
        at_end["largest_free_chunk"],
    )
    table.undo(events)
    assert table.step == table.pool_bytes == table.largest_free_chunk == len(table.chunk_rows()) == 0


@is_compiled
@given(operations(max_size=25).filter(bool), st.data())
def test_a_damaged_event_is_refused_alike_and_leaves_a_right_step(steps, data):
    heap = run(steps)
    events = data.draw(damaged(heap.events()))
    outcomes = []
    for table_class in (COMPILED, PLAIN):
        table = table_class(0, 2)
        message = ""
        try:
            table.apply(events)
        except TraceError as error:
            message = str(error)
            assert message.startswith(f"event {table.step} (")
        rows = np.sort(table.chunk_rows(), order="address")
        outcomes.append((table.step, message, rows.tolist(), table.largest_free_chunk))
        table.undo(events[: table.step])
        assert (table.pool_bytes, table.free_bytes, table.num_allocs, len(table.chunk_rows())) == (0, 0, 0, 0)
    assert outcomes[0] == outcomes[1]


@is_compiled
@given(operations(max_size=25), st.data())
def test_undoing_other_events_is_refused_alike(steps, data):
    heap = run(steps)
    events = heap.events()
    wrong = data.draw(damaged(events))
    outcomes = []
    for table_class in (COMPILED, PLAIN):
        table = table_class(0, 2)
        table.apply(events)
        message = ""
        try:
            table.undo(wrong)
        except TraceError as error:
            message = str(error)
        outcomes.append((table.step, message, table.bytes_in_use, table.pool_bytes, table.largest_free_chunk))
    assert outcomes[0] == outcomes[1]
