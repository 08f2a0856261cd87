"""The account of a device: the parts add up, and a figure that cannot be is named and left out."""

import gzip
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import SHARED, needs_shared, sample_trace

import bfcviz
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.analysis.account import (
    AccountFigures,
    AccountPoolFigures,
    PartKind,
    account_at,
    account_of,
    figures_of_facts,
)
from bfcviz.analysis.failures import all_failures
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool, RecordedFailure
from bfcviz.events.trace import Trace
from bfcviz.model.trace_from_source import trace_of

GIB = 1 << 30
MIB = 1 << 20
MESSAGES = SHARED / "real" / "messages" / "expected.jsonl"
ENTRIES = [json.loads(line) for line in MESSAGES.read_text().splitlines()] if MESSAGES.is_file() else []


def of(**facts):
    return account_of(figures_of_facts(facts))


# -- texts ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not ENTRIES, reason="no ../shared beside this checkout")
@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["file"] for entry in ENTRIES])
def test_the_numbers_of_a_pasted_text(entry):
    facts = entry["facts"]
    found = of(**facts)
    derived = {
        re.sub("^[a-z]+_else$", "others", name): each["value"]
        for name, each in facts.get("derived", {}).items()
    }
    numbers = {
        "shortfall_vs_free": found.shortfall,
        "process_outside_pool": found.outside,
        "not_this_process": found.size_of(PartKind.OTHERS, PartKind.DRIVER, PartKind.UNACCOUNTED),
        "others": found.size_of(PartKind.OTHERS),
        "spilled_at_least": found.spilled,
        "left_under_limit": found.free,
        "free_under_limit": found.free,
        "reserved": found.pools[0].total if found.pools else None,
        "reserved_unallocated": found.pools[0].cached if found.pools else None,
        "outside_pool": found.unaccounted,
    }
    for name in numbers.keys() & derived.keys():
        if derived[name] >= 0:
            assert numbers[name] == derived[name], name
    assert (found.spilled is not None) == ("spilled_at_least" in derived)
    assert_adds_up(found)


def test_a_text_of_pytorch_says_where_the_rest_went():
    found = of(
        device_total=16 * GIB,
        device_free=2 * GIB,
        process_in_use=12 * GIB,
        allocated=10 * GIB,
        reserved_unallocated=GIB,
        requested=3 * GIB,
    )
    assert [(part.kind, part.size) for part in found.parts] == [
        (PartKind.OTHERS, 2 * GIB),
        (PartKind.OUTSIDE, GIB),
        (PartKind.IN_USE, 10 * GIB),
        (PartKind.CACHED, GIB),
        (PartKind.FREE, 2 * GIB),
    ]
    assert (found.shortfall, found.unaccounted, found.contradictions) == (GIB, 0, ())


def test_cached_blocks_of_private_pools_are_not_in_use():
    found = of(device_total=8 * GIB, allocated=3 * GIB, reserved_unallocated=GIB, private_pools=2 * GIB)
    assert (found.pools[0].in_use, found.pools[0].cached) == (GIB, 3 * GIB)


def test_what_no_figure_explains_has_its_own_part():
    found = of(device_total=10 * GIB, device_free=GIB, allocated=2 * GIB, reserved=3 * GIB)
    assert found.unaccounted == 6 * GIB
    assert (found.process, found.others, found.outside) == (None, None, None)


def test_what_was_not_free_at_the_start_is_told_beside_the_rest():
    """A log of TensorFlow 1 says it; it may have changed since, so it is no part."""
    found = of(device_total=11 * GIB, device_free_at_start=GIB, in_use=GIB // 2, reserved=GIB)
    (rest,) = [part for part in found.parts if part.kind is PartKind.UNACCOUNTED]
    assert (rest.size, "10.0 GiB" in rest.note) == (10 * GIB, True)


def test_a_limit_without_a_pool_says_nothing():
    found = of(limit=10 * GIB)
    assert (found.total, found.parts, found.is_of_device) == (None, (), False)


# -- which process is this one -------------------------------------------------------------------------------


def test_a_listed_process_that_has_all_the_rest_is_this_one():
    """In a container the driver prints another pid."""
    found = of(device_total=80 * GIB, device_free=GIB, process_3011507=79 * GIB - 3 * MIB)
    assert found.process == 79 * GIB - 3 * MIB
    assert found.others == 3 * MIB


def test_a_listed_process_beside_an_unlisted_one_is_not_told_apart():
    found = of(device_total=80 * GIB, device_free=GIB, process_7=40 * GIB)
    assert (found.process, found.others) == (None, None)
    assert found.unaccounted == 79 * GIB


def test_a_process_smaller_than_the_pools_is_another_one():
    figures = AccountFigures(
        total=80 * GIB, free=GIB, processes={7: 2 * GIB}, pools=(AccountPoolFigures("a", 30 * GIB, 0),)
    )
    found = account_of(figures)
    assert (found.process, found.others) == (None, 2 * GIB)


def test_of_two_processes_the_own_pid_counts():
    figures = AccountFigures(
        total=80 * GIB,
        free=20 * GIB,
        processes={7: 40 * GIB, 8: 15 * GIB},
        pid=8,
        pools=(AccountPoolFigures("a", 10 * GIB, 0),),
    )
    found = account_of(figures)
    assert (found.process, found.others, found.outside) == (15 * GIB, 40 * GIB, 5 * GIB)
    assert found.unaccounted == 5 * GIB


# -- figures that cannot be ----------------------------------------------------------------------------------


def test_more_free_than_there_is_leaves_free_unknown():
    found = of(device_total=8 * GIB, device_free=12 * GIB, allocated=GIB, reserved=GIB)
    assert (found.free, found.unaccounted) == (None, 7 * GIB)
    assert "free memory" in found.contradictions[0]


def test_more_in_use_than_the_pool_has_leaves_the_cache_unknown():
    found = of(device_total=8 * GIB, allocated=3 * GIB, reserved=2 * GIB)
    assert (found.pools[0].in_use, found.pools[0].cached, len(found.contradictions)) == (3 * GIB, None, 1)
    rounded = of(device_total=8 * GIB, allocated=3 * GIB, reserved=3 * GIB - MIB)
    assert (rounded.pools[0].cached, rounded.contradictions) == (0, ())


def test_more_allocated_than_the_device_has_is_spilled():
    found = of(device_total=8 * GIB, device_free=0, allocated=22 * GIB, reserved_unallocated=MIB)
    assert found.spilled == 14 * GIB
    assert "system memory" in found.contradictions[0]
    assert_adds_up(found)


@pytest.mark.parametrize("printed", [2**64 - 1, 0, -1])
def test_the_process_that_windows_does_not_know(printed):
    """WDDM prints 2^64 - 1, WSL 0."""
    found = of(
        device_total=8 * GIB, device_free=GIB, process_in_use=printed, allocated=4 * GIB, reserved=5 * GIB
    )
    assert (found.process, found.outside, found.unaccounted) == (None, None, 2 * GIB)
    assert len(found.contradictions) == 1
    assert "this process" in found.contradictions[0]


def test_free_memory_that_the_pools_occupy():
    found = of(device_total=8 * GIB, device_free=4 * GIB, allocated=6 * GIB, reserved=6 * GIB)
    assert (found.free, found.unaccounted) == (None, 2 * GIB)


def test_a_process_larger_than_what_is_in_use():
    found = of(device_total=8 * GIB, device_free=6 * GIB, process_in_use=7 * GIB, allocated=GIB, reserved=GIB)
    assert (found.process, found.free) == (None, 6 * GIB)


def test_rounded_figures_do_not_contradict_each_other():
    """79.35 + 0.4 GiB, each printed with two digits, of 79.74: 10 MiB too much."""
    found = of(
        device_total=round(79.74 * GIB), device_free=round(0.4 * GIB), process_in_use=round(79.35 * GIB)
    )
    assert found.contradictions == ()
    assert_adds_up(found)


# -- the rules -----------------------------------------------------------------------------------------------


def assert_adds_up(found):
    assert all(part.size >= 0 for part in found.parts)
    if found.total is not None and (found.parts or found.total):
        assert sum(part.size for part in found.parts) == found.total
    json.dumps(found.to_json(), allow_nan=False)
    assert str(found)
    assert found._repr_html_().count("<table") == 1


sizes = st.one_of(
    st.none(), st.integers(0, 16 * GIB), st.sampled_from([0, 1, 8 * GIB, 2**64 - 1, -1, -(2**63), 1 << 50])
)
pools = st.lists(
    st.builds(
        AccountPoolFigures, st.sampled_from(["PyTorch", "<b>"]), in_use=sizes, cached=sizes, size=sizes
    ),
    max_size=3,
).map(tuple)
figures = st.builds(
    AccountFigures,
    total=sizes,
    free=sizes,
    process=sizes,
    outside=sizes,
    others=sizes,
    reserved=sizes,
    processes=st.dictionaries(st.integers(0, 9), sizes.filter(lambda size: size is not None), max_size=3),
    pid=st.one_of(st.none(), st.integers(0, 9)),
    pools=pools,
    has_all_pools=st.booleans(),
    whole=st.sampled_from(["device", "limit"]),
    slack=st.sampled_from([0, 4 * MIB]),
    requested=sizes,
)


@given(figures)
def test_parts_are_never_negative_and_add_up(given_figures):
    assert_adds_up(account_of(given_figures))


@given(figures)
def test_a_known_figure_is_a_figure_that_was_given(given_figures):
    """Nothing is invented."""
    found = account_of(given_figures)
    assert found.total in {None, given_figures.total}
    assert found.process in {None, given_figures.process, *given_figures.processes.values()}
    if found.whole == "device":
        assert found.free in {None, given_figures.free}


@given(st.data())
def test_figures_of_a_real_device_have_no_contradiction(data):
    """Whatever a device holds, and whichever of its figures are known."""
    take = lambda: data.draw(st.integers(0, 8 * GIB))  # noqa: E731
    used, cached, outside, others, reserved, free = (take() for _ in range(6))
    own = used + cached + outside
    known = data.draw(
        st.fixed_dictionaries(
            {name: st.booleans() for name in ["total", "free", "process", "others", "reserved"]}
        )
    )
    numbers = {
        "total": own + others + reserved + free,
        "free": free,
        "process": own,
        "others": others,
        "reserved": reserved,
    }
    given_figures = AccountFigures(
        **{name: numbers[name] for name, is_known in known.items() if is_known},
        pools=(AccountPoolFigures("PyTorch", used, cached),),
    )
    found = account_of(given_figures)
    assert found.contradictions == ()
    assert_adds_up(found)
    if all(known.values()) and found.total:
        assert (found.outside, found.others, found.unaccounted) == (outside, others, 0)


# -- traces --------------------------------------------------------------------------------------------------


def test_a_heap_without_figures_of_the_device_is_an_account_of_its_limit():
    trace = sample_trace("oom_log")
    found = account_at(trace)
    assert (found.whole, found.total) == ("limit", trace.origin.pools[0].limit)
    assert not found.is_of_device
    assert_adds_up(found)


def test_all_heaps_of_a_device_count(tmp_path):
    """Two heaps of device 1 and one of device 0, whose numbers do not count."""
    log = EventLog(1 << 10)
    heap = BFCAllocator(SimulatedSubAllocator(), 8 * MIB, log=log)
    heap.allocate(MIB)
    assert heap.try_allocate(16 * MIB) is None
    one = trace_of(log)
    events = one.read(0, len(one))
    events = np.concatenate([events[:-1], events[:-1], events[:-1], events[-1:]])
    events["seq"] = np.arange(len(events))
    third = (len(events) - 1) // 3
    for pool in range(3):
        events["pool"][pool * third :] = pool
    failure = RecordedFailure(len(events) - 1, device_free=MIB, device_total=64 * MIB)
    pools = (Pool("cupy:0"), Pool("cupy:1"), Pool("cupy:1 stream 1"))
    origin = Origin(pools=pools, details={"failures": [failure.to_json()]})
    found = account_at(Trace.from_events(events, one.labels, origin), pool=2)
    assert [pool.name for pool in found.pools] == ["cupy:1", "cupy:1 stream 1"]
    assert (found.number, found.total, found.requested) == (1, 64 * MIB, 16 * MIB)
    assert found.pools[0] == replace(found.pools[1], name="cupy:1")
    assert found.pools[0].in_use == MIB


def test_the_public_function_takes_facts_and_traces():
    facts = {
        "device_total": 8 * GIB,
        "device_free": GIB,
        "allocated": 4 * GIB,
        "reserved": 5 * GIB,
        "peak": None,
    }
    (found,) = bfcviz.account(facts).devices
    assert found.unaccounted == 2 * GIB
    (found,) = bfcviz.account(sample_trace("oom_log")).devices
    assert found == account_at(sample_trace("oom_log"))


_TEXT = (
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 10.00 GiB of which 512.00 MiB is "
    "free. Including non-PyTorch memory, this process has 9.00 GiB memory in use. Of the allocated memory 8.00 GiB is "
    "allocated by PyTorch, and 256.00 MiB is reserved by PyTorch but unallocated."
)


def test_a_pasted_text_has_an_account():
    found = bfcviz.account(_TEXT).devices[0]
    assert found.total == 10 * GIB
    assert found.free == 512 * MIB
    assert found.size_of(PartKind.OUTSIDE) == 768 * MIB
    assert found.size_of(PartKind.OTHERS) == 512 * MIB
    assert sum(part.size for part in found.parts) == found.total
    answer = bfcviz.why(_TEXT)
    assert answer.to_json()["failures"][0]["account"] == json.loads(json.dumps(found.to_json()))
    assert all(line in str(answer).splitlines() for line in found.lines()[-3:])
    with pytest.raises(ValueError, match="step"):
        bfcviz.account(_TEXT, 3)


def test_a_text_without_figures_of_a_device_says_so():
    found = bfcviz.account("RuntimeError: CUDA error: out of memory")
    assert not found.devices
    assert found.notes
    assert bfcviz.why("RuntimeError: CUDA error: out of memory").to_json()["failures"][0]["account"] is None


def test_the_table_of_nvidia_smi_is_an_account_of_now():
    table = (
        "| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |\n"
        "| 30%   45C    P0    70W / 300W |  23912MiB / 24576MiB |     99%      Default |\n"
        "|    0   N/A  N/A      4711      C   python                          23001MiB |\n"
    )
    found = bfcviz.account(table).devices[0]
    assert (found.total, found.free) == (24576 * MIB, (24576 - 23912) * MIB)
    assert found.size_of(PartKind.OTHERS) == 23001 * MIB


def test_a_log_of_tensorflow_tells_what_was_not_free_at_the_start(tmp_path):
    log = tmp_path / "oom.log"
    device = "Found device 0 with properties: \ntotalMemory: 16.00GiB freeMemory: 14.00GiB\n"
    log.write_text(device + gzip.decompress(bfcviz.sample("oom_log").read_bytes()).decode())
    (found,) = bfcviz.account(log).devices
    assert found.is_of_device
    assert (found.total, found.free) == (16 * GIB, None)
    rest = next(part for part in found.parts if part.kind is PartKind.UNACCOUNTED)
    assert "2.0 GiB" in rest.note
    assert_adds_up(found)


@needs_shared
def test_the_heap_of_another_dump_of_a_log_is_no_part_of_the_device():
    log = bfcviz.open(SHARED / "real" / "logs" / "tf1.12_2019-04_summit_resnet_1gpu.log")
    found = [each.account for each in all_failures(log) if each.account is not None]
    assert len(found) == 3
    for account in found:
        assert sum(part.size for part in account.parts) == account.total
        assert len({part.name.split(",")[0] for part in account.parts if "bfc" in part.name}) == 1
