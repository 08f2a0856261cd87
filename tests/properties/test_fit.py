"""What `fit_of` says against a search without NumPy, and against what the real heap then does."""

from heaps import MIB, model_of, new_heap
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.analysis.would_fit import fit_of
from bfcviz.errors import OutOfMemory

ACTIONS = st.lists(st.tuples(st.booleans(), st.integers(1, 40_000), st.integers(0, 1000)), max_size=40)


def used_heap(actions, **options):
    """A heap after these allocations and frees."""
    heap = new_heap(MIB // 4 - 100, **options)
    held = []
    for allocates, size, pick in actions:
        if allocates or not held:
            try:
                held.append(heap.allocate(size))
            except OutOfMemory:
                continue
        else:
            heap.free(held.pop(pick % len(held)))
    return heap


def naive_miss(chunks, wanted):
    """The fewest bytes and chunks to free in neighbouring chunks of one region, one window after the other."""
    windows = []
    for first in range(len(chunks)):
        size = used = count = 0
        for chunk in chunks[first:]:
            if chunk["region"] != chunks[first]["region"]:
                break
            size += int(chunk["size"])
            used += int(chunk["size"]) * int(chunk["in_use"])
            count += int(chunk["in_use"])
            if size >= wanted:
                windows.append((used, count))
                break
    return min(windows, default=None)


@given(ACTIONS, st.integers(1, MIB // 4), st.booleans(), st.booleans())
def test_the_answer_is_what_the_heap_does(actions, size, growth, collects):
    heap = used_heap(actions, allow_growth=growth, garbage_collection=collects)
    model = model_of(heap)
    rounded = max(256, -(-size // 256) * 256)
    chunks = model.chunks()
    large = [(int(c["size"]), int(c["address"])) for c in chunks if not c["in_use"] and c["size"] >= rounded]
    fit = fit_of(model, size)
    assert [(int(c["size"]), int(c["address"])) for c in fit.takers] == sorted(large)
    if not large:
        miss = None if fit.miss is None else (fit.miss.bytes_in_use, fit.miss.chunks_in_use)
        assert miss == naive_miss(chunks, rounded)
    regions = heap.regions().tolist()
    try:
        address = heap.allocate(size)
    except OutOfMemory:
        address = None
    assert fit.fits == (address is not None and heap.regions().tolist() == regions)
    if fit.fits:
        assert address == int(fit.takers[0]["address"])
    elif not collects:
        assert fit.grows == (address is not None)
