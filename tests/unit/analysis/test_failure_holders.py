"""Who held the heap when a request failed: the holders of a diagnosis, and the advice that begins with the largest."""

from collections import Counter

import pytest
from heaps import MIB, new_heap
from shared import SHARED, needs_shared

import bfcviz
from bfcviz.analysis.diagnosis import AdviceKind, Verdict, failure_headline
from bfcviz.analysis.diagnosis_json import diagnosis_json
from bfcviz.analysis.why import all_failures
from bfcviz.errors import OutOfMemory
from bfcviz.model.model import Model
from bfcviz.model.trace_from_source import trace_of

FILE = SHARED / "real/snapshots/torch_code_location_2.6M.pickle"


def failure_of(*sizes_of, request=8 * MIB):
    heap = new_heap(16 * MIB)
    for label, size in sizes_of:
        heap.allocate(size, label=label)
    with pytest.raises(OutOfMemory):
        heap.allocate(request, label="request")
    (found,) = all_failures(trace_of(heap))
    return found


def test_the_largest_are_named_and_the_others_counted_together():
    found = failure_of(*((name, size * MIB) for name, size in zip("aabcde", (3, 3, 4, 2, 1, 1), strict=True)))
    assert found.held_by == (
        ("a", 6 * MIB, 2),
        ("b", 4 * MIB, 1),
        ("c", 2 * MIB, 1),
        ("2 others", 2 * MIB, 2),
    )
    assert [each["name"] for each in diagnosis_json(found)["held_by"]] == ["a", "b", "c", "2 others"]
    assert found.verdict is Verdict.CAPACITY
    assert failure_headline(found).endswith(f" {6 / 16:.0%} of it held by a")
    (advice,) = (each for each in found.advice if each.kind is AdviceKind.LARGEST_HOLDER)
    assert advice.numbers == {"bytes": 6 * MIB, "chunks": 2, "missing": 6 * MIB}


def test_one_that_is_left_is_named_as_the_others_are():
    found = failure_of(*((name, 4 * MIB) for name in "abcd"), request=4 * MIB)
    assert [each.name for each in found.held_by] == list("abcd")


def test_a_holder_of_less_than_is_missing_is_no_place_to_begin():
    found = failure_of(*((name, MIB) for name in "abcdefghijklmno"))
    assert found.verdict is Verdict.CAPACITY
    assert AdviceKind.LARGEST_HOLDER not in {each.kind for each in found.advice}


def test_without_names_there_is_no_holder():
    assert failure_of(("", 12 * MIB)).held_by == ()


@needs_shared
def test_a_real_failure_names_the_lines_that_hold_most():
    found = all_failures(trace := bfcviz.open(FILE))[0]
    model = Model(trace, found.pool)
    model.seek(found.step)
    sums = Counter()
    for chunk in model.in_use():
        sums[trace.labels.name(int(chunk["label"]))] += int(chunk["size"])
    assert [(each.name, each.bytes) for each in found.held_by[:3]] == sums.most_common(3)
    assert sum(each.bytes for each in found.held_by) == found.bytes_in_use
    assert sum(each.chunks for each in found.held_by) == found.chunks_in_use
