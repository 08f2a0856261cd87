"""Damaged snapshots: cut, bit-flipped, or with impossible numbers. A trace or one FileError, never anything else."""

import pickle
import time
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared import SHARED, needs_shared

from bfcviz.errors import FileError
from bfcviz.importers.torch.snapshot import read_snapshot

FOLDER = SHARED / "real" / "snapshots"
NAMES = ["torch_octree_nca_67k", "torch_oom_snapshot_llminf", "torch_select_n_10k", "torch_empty_sunny"]
SECONDS = 20  # of processor time; a whole file takes a tenth of a second


@cache
def sample(name):
    return (FOLDER / f"{name}.pickle").read_bytes()


def opened(path, data):
    """Whether the file opens; any other error than a FileError fails the test."""
    path.write_bytes(data)
    begin = time.process_time()
    try:
        trace = read_snapshot(path)
    except FileError as error:
        assert str(path) in str(error)  # noqa: PT017
        found = False
    else:
        trace.read(0, len(trace))
        found = True
    assert time.process_time() - begin < SECONDS
    return found


@needs_shared
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(NAMES), st.data())
def test_real_files_with_flipped_bits(tmp_path, name, data):
    damaged = bytearray(sample(name))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    opened(tmp_path / "damaged.pickle", bytes(damaged))


@needs_shared
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(NAMES), st.data())
def test_real_files_that_are_cut_off(tmp_path, name, data):
    whole = sample(name)
    stop = data.draw(st.integers(1, len(whole) - 1))
    opened(tmp_path / "cut.pickle", whole[:stop])


number = st.sampled_from([0, 1, 512, 4096, 1 << 20, (1 << 62) - 512, 1 << 62, (1 << 63) - 1, 1 << 63, -1])
actions = st.sampled_from(
    ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
     "oom", "snapshot", "annotate", "other"]
)  # fmt: skip
small = st.integers(0, 12).map(lambda n: 512 * n)
entry = st.fixed_dictionaries(
    {"action": actions, "addr": small | number, "size": small | number, "stream": st.sampled_from([0, 1, 7])},
    optional={
        "time_us": number,
        "device_free": number,
        "user_metadata": st.text(),
        "pool_id": st.just((0, 1)),
    },
)


def segment(blocks, at):
    size = sum(block["size"] for block in blocks)
    return {
        "device": 0,
        "address": at,
        "total_size": size,
        "stream": 0,
        "is_expandable": True,
        "blocks": blocks,
    }


block = st.fixed_dictionaries(
    {
        "size": st.integers(1, 5).map(lambda n: 512 * n),
        "state": st.sampled_from(["inactive", "active_allocated"]),
    }
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(block, min_size=1, max_size=6), max_size=3), st.lists(entry, max_size=40))
def test_entries_that_contradict_each_other(tmp_path, blocks, entries):
    segments = [segment(each, 8192 * place) for place, each in enumerate(blocks, 1)]
    value = {"segments": segments, "device_traces": [entries]}
    path = tmp_path / "strange.pickle"
    if opened(path, pickle.dumps(value)):
        trace = read_snapshot(path)
        totals = trace.origin.details["totals"][0]
        assert totals["blocks"] == sum(map(len, blocks))


@pytest.mark.parametrize("value", [[], {}, 3, None, {"segments": 3}, {"segments": [3]}, {"segments": [{}]},
                                   {"segments": [], "device_traces": [[3]]}, [[], []]])  # fmt: skip
def test_other_pickles(tmp_path, value):
    assert opened(tmp_path / "other.pickle", pickle.dumps(value)) == (value == [])


ODD = [None, [], {}, (), "text", b"bytes", 1.5, True, -1, 1 << 80, [[]], {"a": []}]
SNAPSHOT = {
    "segments": [
        {
            "device": 0, "address": 4096, "total_size": 2048, "allocated_size": 512, "active_size": 512,
            "requested_size": 500, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [{"filename": "a.py", "line": 1, "name": "f"}],
            "blocks": [
                {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated",
                 "frames": [{"filename": "a.py", "line": 1, "name": "f"}]},
                {"address": 4608, "size": 1536, "requested_size": 0, "state": "inactive", "frames": []},
            ],
        }
    ],
    "device_traces": [
        [
            {"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 5, "frames": [],
             "compile_context": "N/A", "user_metadata": ""},
            {"action": "oom", "device_free": 100, "size": 1 << 30, "stream": 0, "time_us": 9, "frames": []},
        ]
    ],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                           "roundup_power2_divisions": {"1": 0}, "expandable_segments": False},
    "external_annotations": [{"stage": "START", "name": "step", "device": 0, "time_us": 1}],
}  # fmt: skip


def with_each_value_odd(value):
    """Copies of a nested value in which one part is one of `ODD`."""
    yield from ODD
    if isinstance(value, dict):
        for key in value:
            yield {other: value[other] for other in value if other != key}
            yield from ({**value, key: odd} for odd in with_each_value_odd(value[key]))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from ([*value[:place], odd, *value[place + 1 :]] for odd in with_each_value_odd(part))


def test_every_part_may_be_of_any_type(tmp_path):
    path = tmp_path / "odd.pickle"
    assert opened(path, pickle.dumps(SNAPSHOT, 4))
    found = [opened(path, pickle.dumps(odd, 4)) for odd in with_each_value_odd(SNAPSHOT)]
    assert len(found) > 500
    assert not all(found)
