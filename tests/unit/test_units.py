"""Sizes are bytes or text everywhere, and an error names the parameter."""

import numpy as np
import pytest
from heaps import new_heap

import bfcviz
from bfcviz.devices.allocator_wrappers import GuardAllocator, LimitAllocator
from bfcviz.units import bytes_range, format_bytes, parse_bytes, read_as

MIB = 1 << 20


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("4096", 4096), ("512MiB", 512 * MIB), (" 2 GiB ", 2 << 30), ("1.5g", 3 << 29), ("1 kB", 1000),
        ("10 GB", 10**10), ("80gib", 80 << 30), ("2B", 2), (0, 0),
        (np.uint64(7), 7), (-1, -1),
    ],
)  # fmt: skip
def test_sizes_that_there_are(given, size):
    assert parse_bytes(given) == size
    assert type(parse_bytes(given)) is int


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("", ValueError),
        ("much", ValueError),
        ("-1", ValueError),
        (1.5, TypeError),
        (None, TypeError),
        (True, TypeError),
    ],
)
def test_what_is_no_size_is_refused_by_the_name_of_the_parameter(given, error):
    with pytest.raises(error, match=f"headroom={given!r}"):
        parse_bytes(given, "headroom")


def test_a_decimal_unit_is_said_in_both():
    assert read_as("10 GB") == "10 GB is 10,000,000,000 bytes (9.3 GiB)"
    assert not any(map(read_as, ("10 GiB", "10g", "10", 10, None)))


@pytest.mark.parametrize("size", [0, 256, 5 * MIB, 3 << 40])
def test_a_size_read_back_is_the_size(size):
    assert parse_bytes(format_bytes(size)) == size


def test_a_heap_takes_sizes_as_text():
    heap = bfcviz.BFCAllocator(
        bfcviz.SimulatedSubAllocator("gapped", gap="1MiB", granule="2MiB", capacity="8MiB"), "8MiB"
    )
    assert heap.limit == heap.stats().bytes_limit == 8 * MIB
    assert heap.sub_allocator.capacity == 8 * MIB
    address = heap.allocate("1MiB")
    assert heap.requested_size(address) == MIB
    assert heap.try_allocate("9 MiB") is None
    assert LimitAllocator(heap, "1MiB").limit == MIB
    assert (
        GuardAllocator(bfcviz.BFCAllocator(bfcviz.HostSubAllocator("1MiB"), "1MiB"), "1KiB").guard_bytes
        == 1024
    )
    assert bfcviz.HostSubAllocator("1MiB", keep_available="2MiB").capacity == MIB
    assert bfcviz.Pool("gpu", "1GiB") == bfcviz.Pool("gpu", 1 << 30)


REFUSED = {
    "limit": lambda text: bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), text),
    "num_bytes": lambda text: new_heap().allocate(text),
    "capacity": bfcviz.HostSubAllocator,
    "keep_available": lambda text: bfcviz.HostSubAllocator(keep_available=text),
    "gap": lambda text: bfcviz.SimulatedSubAllocator(gap=text),
    "granule": lambda text: bfcviz.SimulatedSubAllocator(granule=text),
    "small": lambda text: bfcviz.serve_numpy("1MiB", small=text),
}


@pytest.mark.parametrize("name", REFUSED)
def test_text_that_is_no_size_is_refused(name):
    with pytest.raises(ValueError, match=f"{name}='lots'"):
        REFUSED[name]("lots")


@pytest.mark.parametrize("serve", [bfcviz.serve_numpy, lambda limit: bfcviz.watch(numpy=True, limit=limit)])
def test_so_is_a_limit_of_what_is_served(serve):
    with pytest.raises(ValueError, match="limit='lots'"):
        serve("lots")


def test_a_range_tells_its_ends_apart():
    assert bytes_range(1 << 30, 2 << 30) == "1.0 GiB to 2.0 GiB"
    assert bytes_range(55_253_663_744, 55_257_858_048) == "55,253,663,744 to 55,257,858,048 bytes"
