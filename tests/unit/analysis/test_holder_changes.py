"""Holder changes at pairs of steps, against plain sums over the chunks."""

from collections import defaultdict

from heap_strategies import operations
from hypothesis import given, settings
from unit.analysis.programs import common
from unit.figures.synthetic import KiB, MiB, PlainHeap
from unit.model.plain_holders import trace_of_heap

from bfcviz.analysis.alignment import PairedStep
from bfcviz.analysis.comparison import changes_table, holder_changes
from bfcviz.model import Model


def plain(trace, step):
    """Holder -> size, slot and offset of each of its chunks."""
    model = Model(trace)
    model.seek(step)
    bases = {int(region["slot"]): int(region["address"]) for region in model.regions()}
    found = defaultdict(set)
    for chunk in model.in_use():
        slot = int(chunk["region"])
        place = (int(chunk["size"]), slot, int(chunk["address"]) - bases[slot])
        found[trace.labels.name(int(chunk["label"]))].add(place)
    return found


def verdict(mine, theirs):
    sums = [sum(size for size, *_ in places) for places in (mine, theirs)]
    moved = min(sums) - sum(size for size, *_ in mine & theirs)
    return sums[1] - sums[0], moved


@settings(max_examples=30)
@given(operations(), operations())
def test_every_holder_has_its_chunks(first, second):
    a, b, holders = common(trace_of_heap(first), trace_of_heap(second))
    pairs = [PairedStep(str(part), len(a.trace) * part // 3, len(b.trace) * part // 3) for part in range(4)]
    rows = changes_table(holder_changes(a, b, holders, pairs), holders, pairs).to_pylist()
    for pair in pairs:
        mine, theirs = plain(a.trace, pair.a), plain(b.trace, pair.b)
        found = [
            (row["holder"], row["bytes_change"], row["moved_bytes"])
            for row in rows
            if row["moment"] == pair.name
        ]
        names = mine.keys() | theirs.keys()
        assert sorted(found) == sorted(
            (name or "no label", *verdict(mine[name], theirs[name])) for name in names
        )


def heap_with(*labels):
    heap = PlainHeap(MiB)
    for label in labels:
        heap.allocate(4 * KiB, label)
    return heap.trace()


def test_a_place_is_relative_to_its_region():
    a, b = heap_with("x", "y"), heap_with("y", "x")
    events = b.read(0, len(b)).copy()
    events["address"] += 1 << 30  # the region lies elsewhere
    shifted = type(b).from_events(events, b.labels, b.origin)
    for other, moved in ((b, 4 * KiB), (shifted, 4 * KiB)):
        *found, holders = common(a, other)
        changes = holder_changes(*found, holders, [PairedStep("end", len(a), len(b))])
        assert set(changes["moved_bytes"].tolist()) == {moved}
    *found, holders = common(b, shifted)
    changes = holder_changes(*found, holders, [PairedStep("end", len(b), len(b))])
    assert set(changes["moved_bytes"].tolist()) == {0}


def test_moments_of_empty_heaps_have_no_rows():
    trace = heap_with("x")
    a, b, holders = common(trace, trace)
    pairs = [PairedStep("begin", 0, 0), PairedStep("late", 0, len(trace))]
    found = holder_changes(a, b, holders, pairs)
    assert found["moment"].tolist() == [1]
    table = changes_table(found, holders, pairs)
    assert table.to_pylist() == [
        {
            "moment": "late",
            "holder": "x",
            "change": "grew",
            "bytes_change": 4 * KiB,
            "a_bytes": 0,
            "b_bytes": 4 * KiB,
            "a_chunks": 0,
            "b_chunks": 1,
            "moved_bytes": 0,
        }
    ]
