"""Damaged snapshots: cut, bit-flipped, or with impossible numbers. A trace or one FileError, never anything else."""

import copy
import pickle
import random
import time
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared import SHARED, needs_shared, write_anew

from bfcviz.analysis.diagnosis import failure_lines
from bfcviz.analysis.failures import all_failures
from bfcviz.analysis.would_fit import would_fit
from bfcviz.cli.info import info, info_lines
from bfcviz.errors import FileError
from bfcviz.events.origin import Status
from bfcviz.importers.torch.snapshot import read_snapshot

FOLDER = SHARED / "real" / "snapshots"
NAMES = ["torch_octree_nca_67k", "torch_oom_snapshot_llminf", "torch_select_n_10k", "torch_empty_sunny"]
SECONDS = 20  # of processor time; a whole file takes a tenth of a second


@cache
def sample(name):
    return (FOLDER / f"{name}.pickle").read_bytes()


def opened(path, data):
    """The trace; None where the file does not open. Any other error than a FileError fails the test."""
    write_anew(path, data)
    begin = time.process_time()
    try:
        trace = read_snapshot(path)
    except FileError as error:
        assert str(path) in str(error)  # noqa: PT017
        trace = None
    else:
        trace.read(0, len(trace))
    assert time.process_time() - begin < SECONDS
    return trace


@needs_shared
@settings(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(NAMES), st.data())
def test_real_files_with_flipped_bits(tmp_path, name, data):
    damaged = bytearray(sample(name))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    opened(tmp_path / "damaged.pickle", bytes(damaged))


@needs_shared
@settings(suppress_health_check=list(HealthCheck))
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


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(block, min_size=1, max_size=6), max_size=3), st.lists(entry, max_size=40))
def test_entries_that_contradict_each_other(tmp_path, blocks, entries):
    segments = [segment(each, 8192 * place) for place, each in enumerate(blocks, 1)]
    value = {"segments": segments, "device_traces": [entries]}
    path = tmp_path / "strange.pickle"
    if (trace := opened(path, pickle.dumps(value))) is not None:
        totals = trace.origin.details["totals"][0]
        assert totals["blocks"] == sum(map(len, blocks))


@pytest.mark.parametrize("value", [[], {}, 3, None, {"segments": 3}, {"segments": [3]}, {"segments": [{}]},
                                   {"segments": [], "device_traces": [[3]]}, [[], []]])  # fmt: skip
def test_other_pickles(tmp_path, value):
    trace = opened(tmp_path / "other.pickle", pickle.dumps(value))
    assert (trace is not None) == (value == [])


ODD = [None, [], {}, (), "text", b"bytes", 1.5, float("nan"), float("inf"), True, -1, 0, 1, 511, 1 << 31,
       1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 80, [[]], {"a": []}, "oom", "segment_unmap", "inactive",
       "active_allocated"]  # fmt: skip
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
            {"action": "segment_alloc", "addr": 2 << 20, "size": 2 << 20, "stream": 0, "time_us": 2, "frames": []},
            {"action": "alloc", "addr": 2 << 20, "size": 700, "stream": 3, "time_us": 3,
             "frames": [{"filename": "b.py", "line": 2, "name": "g"}]},
            {"action": "free_completed", "addr": 2 << 20, "size": 700, "stream": 3, "time_us": 4, "frames": []},
            {"action": "segment_free", "addr": 2 << 20, "size": 2 << 20, "stream": 0, "time_us": 4, "frames": []},
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


def answered(path, value, known=None):
    """Whether the file opens; if so, `info` and `why` answer, once of equal traces, which `known` collects."""
    trace = opened(path, pickle.dumps(value, 4))
    if trace is None:
        return False
    if known is not None:
        content = repr(trace.origin), trace.labels.to_json(), trace.read(0, len(trace)).tobytes()
        if content in known:
            return True
        known.add(content)
    lines = info_lines(trace.origin, info(trace))
    failed = all_failures(trace)
    asked = [would_fit(trace, len(trace), 3 << 20, pool=pool) for pool in range(len(trace.origin.pools))]
    assert lines
    assert all(failure_lines(each) for each in [*failed, *asked])
    return True


def test_every_part_may_be_of_any_type(tmp_path):
    path = tmp_path / "odd.pickle"
    assert answered(path, SNAPSHOT)
    known = set()
    found = [answered(path, odd, known) for odd in with_each_value_odd(SNAPSHOT)]
    assert len(found) > 2000
    assert 100 < len(known) < sum(found) < len(found)


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_several_parts_are_odd_at_once(tmp_path, data):
    value = copy.deepcopy(SNAPSHOT)
    for _ in range(data.draw(st.integers(2, 4))):
        inside = list(containers(value))
        part = inside[data.draw(st.integers(0, len(inside) - 1))]
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        if not keys:
            continue
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()):
            part[key] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
        else:
            del part[key]
    answered(tmp_path / "odd.pickle", value)


def containers(value):
    """Each dict and list in a nested value."""
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from containers(part)


@pytest.mark.parametrize("line", [-1, (1 << 64) - 1, (1 << 32) - 1, 0, 1 << 80])
def test_a_frame_whose_line_is_not_known_is_kept(tmp_path, line):
    value = copy.deepcopy(SNAPSHOT)
    value["device_traces"][0][1]["frames"][0]["line"] = line
    path = tmp_path / "line.pickle"
    assert answered(path, value)
    trace = read_snapshot(path)
    assert trace.origin.status == Status.COMPLETE
    stacks = {label.name: label.details.get("stack") for label in trace.labels}
    assert stacks["b.py g"] == "g (b.py:0)"


def test_the_largest_request_that_a_snapshot_can_hold(tmp_path):
    value = copy.deepcopy(SNAPSHOT)
    value["device_traces"][0][-1]["size"] = (1 << 63) - 1
    path = tmp_path / "oom.pickle"
    assert answered(path, value)
    (found,) = all_failures(read_snapshot(path))
    assert (found.requested, found.rounded) == ((1 << 63) - 1, 1 << 63)


def test_a_segment_without_a_stream_is_on_the_default_stream(tmp_path):
    value = copy.deepcopy(SNAPSHOT)
    del value["segments"][0]["stream"]
    del value["device_traces"][0][4]  # so that the block is known by its segment alone
    value["device_traces"][0][-1]["stream"] = 0
    value["segments"][0]["blocks"][1]["state"] = "active_allocated"
    value["device_traces"][0].append(
        {"action": "free_completed", "addr": 4608, "size": 1536, "stream": 0, "time_us": 9}
    )
    path = tmp_path / "no_stream.pickle"
    assert answered(path, value)
    trace = read_snapshot(path)
    assert trace.origin.details["totals"][0]["active"] == 2048
    assert set(trace.read(0, len(trace))["stream"].tolist()) == {0, 1}


CUT = {
    "a list that is referred to, before another container": b"\x80\x04}\x8c\rdevice_traces](l\x94]",
    "a number in place of the traces": b"\x80\x04}(\x8c\rdevice_tracesK\x01}",
    "a tuple in place of the traces": b"\x80\x04}(\x8c\rdevice_traces)}",
    "a dict as a key": b"\x80\x04}(}K\x01u\x8c\x08segments",
    "an entry in place of the file": b"\x80\x04}\x8c\x06actionK\x01s.",
    "half of a frame in place of the file":
        b"\x80\x04}\x8c\x08filenameK\x01s\x8c\x04lineK\x01s\x8c\x04nameK\x01s.",
}  # fmt: skip


@pytest.mark.parametrize("data", CUT.values(), ids=CUT)
def test_crafted_pickles(tmp_path, data):
    assert opened(tmp_path / "crafted.pickle", data) is None


WORDS = [b"segments", b"device_traces", b"action", b"filename", b"line", b"name", b"alloc"]
INSTRUCTIONS = [b"(", b"]", b"}", b"l", b"d", b"a", b"e", b"s", b"u", b")", b"t", b"\x85", b"\x86", b"N",
                               b"K\x01", b"\x94", b"h\x00", b"h\x01", b"q\x00", b"\x8f", b"\x91", b"."]  # fmt: skip
TEXTS = [b"\x8c" + bytes([len(word)]) + word for word in WORDS]


def test_pickles_of_any_instructions(tmp_path):
    """The pickles are drawn here: Hypothesis takes longer to draw one than it takes to open it."""
    chooser = random.Random(19)
    for _ in range(3000):
        drawn = [chooser.choice(chooser.choice([INSTRUCTIONS, TEXTS])) for _ in range(chooser.randrange(17))]
        begun = b"\x80\x04}(\x8c\x08segments]\x8c\rdevice_traces"
        opened(tmp_path / "crafted.pickle", begun + b"".join(drawn))
