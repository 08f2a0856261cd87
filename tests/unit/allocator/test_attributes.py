"""Attributes of allocators merge and compare as in TensorFlow; a request that wants no retry fails at once."""

import dataclasses
import time

import pytest
from heaps import KIB, new_heap
from hypothesis import given, settings
from hypothesis import strategies as st

from bfcviz.allocator.interface import DEFAULT, AllocationAttributes, AllocatorAttributes
from bfcviz.errors import InvalidRequest, OutOfMemory

unscoped = st.builds(
    AllocatorAttributes,
    **dict.fromkeys(("on_host", "nic_compatible", "gpu_compatible", "track_sizes"), st.booleans()),
    device_specific=st.integers(0, 255),
)
scoped = st.builds(dataclasses.replace, unscoped, scope_id=st.integers(0, 2))


@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        (AllocatorAttributes(), 0),
        (AllocatorAttributes(on_host=True), 1),
        (AllocatorAttributes(nic_compatible=True), 2),
        (AllocatorAttributes(gpu_compatible=True), 4),
        (AllocatorAttributes(track_sizes=True), 8),
        (AllocatorAttributes(on_host=True, gpu_compatible=True, device_specific=0x81), 0x81000005),
    ],
)
def test_bits_are_tensorflows(attributes, value):
    assert attributes.value == value
    assert AllocatorAttributes.from_value(value) == attributes


@settings(max_examples=50)
@given(unscoped)
def test_a_value_tells_all_but_the_scope(attributes):
    assert AllocatorAttributes.from_value(attributes.value) == attributes
    assert 0 <= attributes.value < 1 << 32


@pytest.mark.parametrize("value", [-1, 0x10, 0x800000, 1 << 32])
def test_bits_without_a_meaning_are_refused(value):
    with pytest.raises(InvalidRequest, match="only the bits 0xff00000f"):
        AllocatorAttributes.from_value(value)


@pytest.mark.parametrize("wrong", [{"device_specific": 256}, {"device_specific": -1}, {"scope_id": -1}])
def test_numbers_that_do_not_fit_are_refused(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        AllocatorAttributes(**wrong)


@settings(max_examples=50)
@given(unscoped, unscoped, unscoped)
def test_merge_is_the_least_upper_bound(a, b, c):
    both = a.merge(b)
    assert a.is_equal_or_less_restrictive(both)
    assert b.is_equal_or_less_restrictive(both)
    bounds_both = a.is_equal_or_less_restrictive(c) and b.is_equal_or_less_restrictive(c)
    assert both.is_equal_or_less_restrictive(c) == bounds_both
    assert both == b.merge(a) == both.merge(a)
    assert both.merge(c) == a.merge(b.merge(c))
    assert a.merge(DEFAULT) == a == a.merge(a)


@settings(max_examples=50)
@given(unscoped, unscoped)
def test_the_order_is_one(a, b):
    assert a.is_equal_or_less_restrictive(a)
    assert DEFAULT.is_equal_or_less_restrictive(a)
    mutual = a.is_equal_or_less_restrictive(b) and b.is_equal_or_less_restrictive(a)
    assert mutual == (a == b)
    assert a.is_equal_or_less_restrictive(b) == (a.merge(b) == b)


@settings(max_examples=50)
@given(scoped, scoped)
def test_one_scope_at_most_survives_a_merge(a, b):
    if a.scope_id and b.scope_id and a.scope_id != b.scope_id:
        with pytest.raises(InvalidRequest, match=f"{a.scope_id} .* {b.scope_id}"):
            a.merge(b)
    else:
        assert a.merge(b).scope_id == max(a.scope_id, b.scope_id)
        assert a.merge(b).value == a.value | b.value


def test_scopes_do_not_count_in_the_order():
    assert AllocatorAttributes(on_host=True, scope_id=1).is_equal_or_less_restrictive(
        AllocatorAttributes(on_host=True, scope_id=2)
    )


def test_bits_of_the_device_merge_like_the_others():
    merged = AllocatorAttributes(device_specific=0x0F).merge(AllocatorAttributes(device_specific=0xF1))
    assert merged == AllocatorAttributes(device_specific=0xFF)


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
