"""Attributes of allocators; a request that wants no retry fails at once."""

import time

import pytest
from heaps import KIB, new_heap

from bfcviz.allocator.interface import DEFAULT, AllocationAttributes, AllocatorAttributes
from bfcviz.errors import InvalidRequest, OutOfMemory


@pytest.mark.parametrize("wrong", [{"device_specific": 256}, {"device_specific": -1}, {"scope_id": -1}])
def test_numbers_that_do_not_fit_are_refused(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        AllocatorAttributes(**wrong)


def test_they_say_what_they_ask_for():
    assert str(DEFAULT) == "device memory"
    text = str(AllocatorAttributes(on_host=True, track_sizes=True, device_specific=3, scope_id=2))
    assert text == "on_host, track_sizes, device_specific=3, scope_id=2"


def test_a_request_asks_for_nothing_special():
    plain = AllocationAttributes()
    assert (plain.no_retry_on_failure, plain.allocation_will_be_logged) == (False, False)
    assert plain.freed_before() == 0


def test_a_request_that_wants_no_retry_fails_at_once():
    heap = new_heap(KIB, retry_s=60)
    heap.allocate(KIB)
    begin = time.monotonic()
    assert heap.try_allocate(1, attributes=AllocationAttributes(no_retry_on_failure=True)) is None
    with pytest.raises(OutOfMemory):
        heap.allocate_elements("f4", 3, attributes=AllocationAttributes(no_retry_on_failure=True))
    assert time.monotonic() - begin < 30
