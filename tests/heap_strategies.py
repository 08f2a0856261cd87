"""Hypothesis strategies for streams of events that a heap could have written, and for damage to them."""

from random import Random

from hypothesis import strategies as st
from naive_heap import NaiveHeap

from bfcviz.events.schema import EVENT

OPERATIONS = ("extend", "grow", "allocate", "pad", "free", "hold", "join", "release", "oom", "mark")


def operations(max_size=60):
    """What `run` carries out: names with two numbers, whose meaning depends on what is there by then."""
    step = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 40), st.integers(0, 1000), st.integers(0, 1))
    return st.lists(step, max_size=max_size)


def seeded_operations():
    """As `operations`, of a seed: drawn at once, and on average twice as many; shrunk only to fewer."""
    return st.builds(_operations_of, st.sampled_from([0, 1, 2, 3, 5, 8, 13, 21, 34, 60]), st.integers(0, 999))


def _operations_of(count, seed):
    random = Random(seed)
    return [
        (random.choice(OPERATIONS), random.randint(0, 40), random.randint(0, 1000), random.randint(0, 1))
        for _ in range(count)
    ]


def run(steps, pools=2):
    """A heap after the operations; those that make no sense at their moment do nothing."""
    heap = NaiveHeap(pools)
    for pool in range(pools):
        heap.extend(pool, 1 << 40, 256 * 40, pool)
    for name, pick, amount, pool in steps:
        _STEPS[name](heap, pool, pick, amount)
    return heap


def _extend(heap, pool, pick, amount):
    taken = heap.pools[pool].regions
    # Places far apart, in no order; slots are used again.
    address = (pick + 1) << 36
    if all(region[0].address != address for region in taken.values()):
        heap.extend(pool, address, 256 * (amount + 1), min(set(range(len(taken) + 1)) - set(taken)))


def _grow(heap, pool, pick, amount):
    slots = sorted(heap.pools[pool].regions)
    if slots:
        heap.grow(pool, slots[pick % len(slots)], 256 * (amount + 1))


def _allocate(heap, pool, pick, amount, padding=0):
    heap.allocate(pool, 13 * amount + 1, padding, label=pick % 4, thread=pick % 3, stream=pick % 2)


def _pad(heap, pool, pick, amount):
    _allocate(heap, pool, pick, amount, padding=256 * (pick % 4))


def _free(heap, pool, pick, amount, held=False):
    used = heap.pools[pool].in_use()
    if used:
        heap.free(pool, used[(pick + amount) % len(used)], held=held)


def _hold(heap, pool, pick, amount):
    _free(heap, pool, pick, amount, held=True)


def _join(heap, pool, pick, amount):
    free = heap.pools[pool].free()
    if free:
        piece = free[(pick + amount) % len(free)]
        heap.coalesce(pool, heap.pools[pool].slot_of(piece), piece)


def _release(heap, pool, pick, amount):
    regions = heap.pools[pool].regions
    wholly_free = [slot for slot, region in regions.items() if all(piece.owner is None for piece in region)]
    if wholly_free:
        heap.release(pool, wholly_free[(pick + amount) % len(wholly_free)])


def _oom(heap, pool, pick, amount):
    heap.allocate(pool, (1 << 30) + amount, label=pick % 4)


def _mark(heap, pool, pick, amount):
    heap.mark(pool, pick % 4, amount)


_STEPS = {
    "extend": _extend,
    "grow": _grow,
    "allocate": _allocate,
    "pad": _pad,
    "free": _free,
    "hold": _hold,
    "join": _join,
    "release": _release,
    "oom": _oom,
    "mark": _mark,
}


@st.composite
def damaged(draw, events):
    """`events` with one field of one event changed."""
    events = events.copy()
    index = draw(st.integers(0, len(events) - 1))
    name = draw(st.sampled_from(EVENT.names))
    bits = 8 * EVENT[name].itemsize - (EVENT[name].kind == "i")
    near = st.sampled_from([-257, -256, -1, 1, 255, 256]).map(lambda d: int(events[index][name]) + d)
    any_value = st.integers(0, (1 << bits) - 1)
    events[index][name] = draw(st.one_of(near, any_value)) % (1 << bits)
    return events
