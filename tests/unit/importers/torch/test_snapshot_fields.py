"""The fields of snapshots of 2026, and snapshots saved as JSON."""

import json
import pickle

import pytest

from bfcviz.errors import BfcvizError
from bfcviz.events.origin import Status
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.holders import holders
from bfcviz.model.model import Model

MIB = 1 << 20
BASE = 0x7F0000000000
FRAME = {"filename": "/home/me/net.py", "line": 22, "name": "forward"}
BACKWARD = {
    "filename": "Functions.cpp",
    "line": 0,
    "name": "torch::autograd::generated::MulBackward0_apply_functional()",
}
GENERATED = {
    "filename": "/home/me/torchinductor/ab/cab.py", "line": 4, "name": "call", "fx_node_op": "call_function",
    "fx_node_name": "relu_1",
    "fx_original_trace": 'File "/home/me/model.py", line 31, in forward\n    x = self.relu(x)\n',
}  # fmt: skip
FORWARD = [
    '  File "/home/me/train.py", line 9, in <module>\n',
    '  File "/home/me/net.py", line 22, in forward\n    y = x * x\n',
]


def entry(action, at, size, **more):
    return {
        "action": action,
        "addr": BASE + at * MIB,
        "size": size * MIB,
        "stream": 0,
        "time_us": 1000 + at,
        "frames": [],
        **more,
    }


def block(at, size, state="active_allocated", **more):
    return {
        "address": BASE + at * MIB,
        "size": size * MIB,
        "requested_size": size * MIB,
        "state": state,
        "frames": [],
        **more,
    }


def snapshot(blocks, trace, pool=(0, 0), **settings):
    segment = {
        "device": 0, "address": BASE, "total_size": sum(each["size"] for each in blocks), "stream": 0,
        "segment_type": "large", "segment_pool_id": pool, "is_expandable": False, "frames": [], "blocks": blocks,
    }  # fmt: skip
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": settings}


def saved(tmp_path, value, form="pickle"):
    path = tmp_path / f"snapshot.{form}"
    path.write_bytes(pickle.dumps(value) if form == "pickle" else json.dumps(value).encode())
    return path


forms = pytest.mark.parametrize("form", ["pickle", "json"])


def names(path):
    trace = open_trace(path)
    model = Model(trace)
    model.seek(len(trace))
    return {trace.labels.name(int(chunk["label"])): int(chunk["size"]) // MIB for chunk in model.in_use()}


@forms
def test_metadata_is_text_a_dict_or_json(tmp_path, form):
    blocks = [block(0, 2), block(2, 3), block(5, 4), block(9, 5), block(14, 6, "inactive")]
    metadata = ["step 3", {"layer": 4, "kind": "weight"}, '{"name": "wq", "layer": 4}', "N/A"]
    sizes = [2, 3, 4, 5]
    trace = [
        entry("alloc", at, size, user_metadata=text, frames=[FRAME])
        for at, size, text in zip([0, 2, 5, 9], sizes, metadata, strict=True)
    ]
    found = names(saved(tmp_path, snapshot(blocks, trace), form))
    assert found == {"step 3": 2, "layer: 4, kind: weight": 3, "wq (layer: 4)": 4, "net.py:22 forward": 5}


@forms
def test_annotations_name_blocks(tmp_path, form):
    blocks = [block(0, 2), block(2, 3), block(5, 4, "inactive"), block(9, 1)]
    trace = [
        entry("alloc", 2, 3, frames=[FRAME]),
        entry("annotate", 2, 0, user_metadata="wq.weight"),
        entry("annotate", 0, 0, user_metadata="embedding"),
        entry("alloc", 5, 4, frames=[FRAME]),
        entry("annotate", 6, 0, user_metadata="inside"),
        entry("free_completed", 5, 4),
        entry("annotate", 5, 0, user_metadata="nothing is there"),
    ]
    path = saved(tmp_path, snapshot(blocks, trace), form)
    assert names(path) == {"wq.weight": 3, "embedding": 2, "allocated before the recording began": 1}
    opened = open_trace(path)
    for by in ("op", "line", "stack"):  # one holder, one name
        model = Model(opened)
        model.seek(len(opened))
        found = holders(model, by)
        assert "allocated before the recording began" in found.names
    assert "inside" in {opened.labels.name(number) for number in range(len(opened.labels))}


def test_gradients_are_named_by_the_forward_pass_and_generated_code_by_its_source(tmp_path):
    trace = [
        entry("alloc", 0, 2, frames=[BACKWARD], forward_frames=FORWARD),
        entry("alloc", 2, 3, frames=[GENERATED]),
    ]
    path = saved(tmp_path, snapshot([block(0, 2), block(2, 3)], trace))
    assert names(path) == {"gradient of net.py:22 forward": 2, "model.py:31 forward": 3}
    opened = open_trace(path)
    details = [opened.labels[number].details for number in range(len(opened.labels))]
    assert {"relu_1 (call_function)"} == {each["fx_node"] for each in details if "fx_node" in each}
    assert any(each.get("forward_stack", "").startswith("forward (/home/me/net.py:22)") for each in details)


@forms
def test_private_pools(tmp_path, form):
    path = saved(tmp_path, snapshot([block(0, 2)], [entry("alloc", 0, 2, pool_id=(0, 3))], pool=(0, 3)), form)
    opened = open_trace(path)
    assert "0.3" in {
        opened.labels[number].details.get("private_pool") for number in range(len(opened.labels))
    }


@forms
def test_a_history_that_overflowed_is_truncated(tmp_path, form):
    value = snapshot(
        [block(0, 2), block(2, 1)],
        [entry("alloc", 0, 2)],
        trace_alloc_overflowed=True,
        trace_alloc_max_entries=1000,
    )
    opened = open_trace(saved(tmp_path, value, form))
    assert opened.origin.status is Status.TRUNCATED
    assert not opened.origin.lacks_end  # only the beginning of its history is missing
    assert "1,000" in opened.origin.reasons[0]
    model = Model(opened)
    model.seek(len(opened))
    assert any("kept" in name for name in holders(model).names)
    value["allocator_settings"]["trace_alloc_overflowed"] = False
    assert open_trace(saved(tmp_path, value, form)).origin.status is Status.COMPLETE


def test_json_and_pickle_give_the_same_events(tmp_path):
    value = snapshot(
        [block(0, 2), block(2, 3, "inactive")],
        [entry("alloc", 0, 2, frames=[FRAME]), entry("alloc", 2, 3), entry("free_completed", 2, 3)],
    )
    first, second = (open_trace(saved(tmp_path, value, form)) for form in ("pickle", "json"))
    assert first.read(0, len(first)).tolist() == second.read(0, len(second)).tolist()


@pytest.mark.parametrize(
    "damage",
    [
        '{"device_traces": ',
        '{"device_traces": [[{"action": "alloc", "addr": -1}]]}',
        '{"segments": [], "device_traces": [[1, {"action": "alloc"}]]}',
        '{"segments": 3, "device_traces": []}',
        '{"device_traces": ' + "[" * 3000 + "]" * 3000 + "}",
        '{"device_traces": NaN}',
        '{"device_traces": [], "segments": [{"blocks": [[{"action": "oom"}]]}]}',
    ],
)  # fmt: skip
def test_damaged_json_is_one_error(tmp_path, damage):
    path = tmp_path / "damaged.json"
    path.write_text(damage)
    with pytest.raises(BfcvizError):
        open_trace(path)
