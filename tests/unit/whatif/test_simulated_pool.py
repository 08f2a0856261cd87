"""The largest free block of every pool, after each request, compared with the memory that is not in use."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bfcviz.events.labels import Labels
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream
from bfcviz.whatif.simulation import DriverMemory

MiB = 1 << 20
LIMIT = 128 * MiB
POOLS = [
    *((name, {}) for name, entry in POLICIES.items() if entry.pool and name != "buddy"),
    ("torch", {"expandable_segments": True}),
    ("torch", {"max_split_size": 20 * MiB, "garbage_collection_threshold": 0.5}),
    ("stream_ordered", {"release_threshold": 2 * MiB, "segment": 2 * MiB}),
    ("xla", {}),
]


def pool_of(name, options, limit):
    module, made = POLICIES[name].pool or ("xla", "XLAPool")
    return getattr(import_module(f"bfcviz.whatif.policies.{module}"), made)(DriverMemory(limit), **options)


class FreeRuns:
    """The memory that the driver granted and no block has, in runs of neighbours."""

    def __init__(self, pool):
        self.pool, self.runs = pool, {}

    def follow(self, address=0, size=0):
        """Take up the driver's new calls; then the block [address, address + size) was freed, or below 0 allocated."""
        for at, num_bytes, _ in self.pool.driver.calls:
            self.change(at, num_bytes)
        self.pool.driver.calls.clear()
        self.change(address, size)

    def change(self, address, size):
        low, high = address, address + abs(size)
        if size > 0:
            for start, stop in list(self.runs.items()):
                if high == start or stop == low:
                    del self.runs[start]
                    low, high = min(low, start), max(high, stop)
            self.runs[low] = high
        elif size < 0:
            start = max(start for start in self.runs if start <= low)
            stop = self.runs.pop(start)
            assert high <= stop
            self.runs |= {left: right for left, right in ((start, low), (high, stop)) if left < right}

    @property
    def largest(self):
        return max((stop - start for start, stop in self.runs.items()), default=0)


steps = st.lists(
    st.tuples(st.sampled_from([0, 300, 70_000, 3 * MiB, 11 * MiB, 21 * MiB, 45 * MiB]), st.integers(0, 9)),
    max_size=40,
)


@pytest.mark.parametrize(("name", "options"), POOLS)
@settings(max_examples=25, deadline=None)
@given(steps=steps)
@example(steps=[(45 * MiB, 0), (45 * MiB, 0), (0, 0), (21 * MiB, 0), (45 * MiB, 0), (3 * MiB, 0), (0, 1)])
def test_the_largest_free_block_is_the_longest_run_of_free_memory(name, options, steps):
    pool, live, rows, expected = pool_of(name, options, LIMIT), [], [], []
    free = FreeRuns(pool)
    for number, (size, stream) in enumerate(steps):
        if size:
            address = pool.allocate(size, stream % 2)
            free.follow(address, -pool.block_size if address else 0)
            live.append((number, address))
            rows.append((ALLOCATE, number, size, 0, 0, 0, stream % 2, number))
        elif live:
            block, address = live.pop(stream % len(live))
            rows.append((FREE, block, 0, 0, 0, 0, 0, number))
            if address:
                pool.free(address)
                released, pool.driver.calls = pool.driver.calls, []
                free.follow(address, pool.block_size)
                pool.driver.calls = released
                free.follow()
        else:
            continue
        assert sum(stop - start for start, stop in free.runs.items()) == pool.driver.reserved - pool.in_use
        expected.append(free.largest)
    stream = RequestStream(np.array(rows, STREAM_ROW), Labels(), "test")
    assert policy_of(name, **options).serve(stream, LIMIT).largest_free.tolist() == expected
