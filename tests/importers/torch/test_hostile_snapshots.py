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
