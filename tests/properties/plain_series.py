"""The series of timelines, from the states of a plain heap."""

from types import SimpleNamespace

from bfcviz.model import fragmentation
from bfcviz.model.timelines import SERIES


def values_of(heap, pool, wanted=0):
    """Each series after every event, from the heap's own states."""
    states = [dict(state[pool]) for state in heap.states[1:]]
    for state in states:
        free = [chunk[1] for chunk in state["chunks"] if not chunk[-1]]
        state["too_small_bytes"] = sum(size for size in free if size < wanted)
        stats = SimpleNamespace(**state)
        state["external_fragmentation"] = fragmentation.external(stats)
        state["internal_fragmentation"] = fragmentation.internal(stats)
        state["reserved_not_in_use"] = fragmentation.reserved_not_in_use(stats)
        state["too_small_share"] = stats.too_small_bytes / stats.free_bytes if stats.free_bytes else 0
    return {name: [state[name] for state in states] for name in SERIES}
