import json
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.errors import TraceError
from bfcviz.events import label_table as labels_module
from bfcviz.events.label_table import Label, Labels

texts = st.text()  # without surrogates, as every text that came out of a file
tables = st.lists(st.tuples(texts, st.dictionaries(texts, texts, max_size=3)), max_size=20)


def filled(rows):
    labels = Labels()
    ids = [labels.intern(name, **details) for name, details in rows]
    return labels, ids


def test_number_0_is_the_empty_label():
    labels = Labels()
    assert labels[0] == Label("", {})
    assert labels.intern("") == 0
    assert len(labels) == 1


def test_the_same_label_has_one_number_and_details_tell_labels_apart():
    labels = Labels()
    plain, shaped = labels.intern("MatMul"), labels.intern("MatMul", shape="[2]", data_type="f32")
    assert (plain, shaped) == (1, 2)
    assert labels.intern("MatMul", data_type="f32", shape="[2]") == shaped
    assert labels[shaped] == Label("MatMul", {"shape": "[2]", "data_type": "f32"})
    assert labels.name(plain) == labels.name(shaped) == "MatMul"


def test_half_characters_are_spelled_out_so_that_files_can_hold_them():
    labels = Labels()
    number = labels.intern("bad \ud800", where="\udfff")
    assert labels.intern("bad \ud800", where="\udfff") == number
    assert labels[number] == Label("bad \\ud800", {"where": "\\udfff"})
    assert labels.intern("bad \\ud800", where="\\udfff") == number


@given(tables)
def test_json_round_trip(rows):
    labels, ids = filled(rows)
    again = Labels.from_json(labels.to_json())
    assert [again[i] for i in range(len(again))] == [labels[i] for i in range(len(labels))]
    assert [again.intern(name, **details) for name, details in rows] == ids


@given(tables, tables)
def test_lines_round_trip(tmp_path_factory, before, after):
    path = tmp_path_factory.mktemp("labels") / "labels.jsonl"
    labels, _ = filled(before)
    with FileIO(path, "wb") as file:
        labels.append_to(file)
        for name, details in after:
            labels.intern(name, **details)
        labels.append_to(None)
        labels.intern("after the end of the file")
    again, together = Labels(), Labels()
    lines = path.read_bytes().splitlines()
    for line in lines:
        again.add_line(line)
    assert [again[i] for i in range(len(again))] == [labels[i] for i in range(len(again))]
    assert together.add_next_lines(lines)
    assert [together[i] for i in range(len(together))] == [labels[i] for i in range(len(again))]
    assert together.intern("a new name", of="this one") == len(together) - 1
    assert len(again) == len(labels) - ("after the end of the file" not in dict([*before, *after]))


def test_a_label_is_in_the_file_before_its_number_is_known(tmp_path):
    labels = Labels()
    with FileIO(tmp_path / "labels.jsonl", "wb") as file:
        labels.append_to(file)
        for count in range(1, 50):
            labels.intern(f"op{count}")
            assert len((tmp_path / "labels.jsonl").read_bytes().splitlines()) == count


def test_threads_get_one_number_for_one_label():
    labels = Labels()
    names = [f"op{i % 500}" for i in range(4000)]
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(labels.intern, names))
    assert len(labels) == 501
    assert all(labels.name(number) == name for number, name in zip(ids, names, strict=True))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_costs_the_name_and_nothing_else():
    labels = Labels()
    known = labels.intern("known")
    with FileIO("/dev/full", "wb") as file:
        labels.append_to(file)
        assert labels.error is not None
        assert labels.intern("new") == 0
        assert labels.intern("known") == known
        assert len(labels) == 2


def test_a_label_of_absurd_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(labels_module, "MAX_LABEL_BYTES", 100)
    labels = Labels()
    with FileIO(tmp_path / "labels.jsonl", "wb") as file:
        labels.append_to(file)
        with pytest.raises(TraceError, match="label"):
            labels.intern("x" * 100)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"names": "x", "details": {}}',
        '{"names": [], "details": {}}',
        '{"names": ["a"], "details": {}}',
        '{"names": ["", 7], "details": {}}',
        '{"names": ["", "\\ud800"], "details": {}}',
        '{"names": [""]}',
        '{"names": [""], "details": []}',
        '{"names": ["", "a"], "details": {"2": {}}}',
        '{"names": ["", "a"], "details": {"-1": {}}}',
        '{"names": ["", "a"], "details": {"' + "9" * 5000 + '": {}}}',
        '{"names": ["", "a"], "details": {"1": {"k": 5}}}',
        '{"names": ["", "a"], "details": {"1": ["k"]}}',
        '{"names": [NaN], "details": {}}',
        "[" * 100_000,
        '{"names": ' + "9" * 10_000,
    ],
)
def test_what_is_no_table_is_a_value_error(text):
    with pytest.raises(ValueError):
        Labels.from_json(text)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"id": 2, "name": "skipped"},
        {"id": "1", "name": "x"},
        {"id": 1},
        {"id": 1, "name": 4},
        {"id": 1, "name": "x", "details": 4},
        {"id": 1, "name": "x", "details": {"k": None}},
        [1],
        None,
    ],
)
def test_a_line_that_is_not_the_next_label_is_a_value_error(entry):
    labels, line = Labels(), json.dumps(entry).encode()
    with pytest.raises(ValueError):
        labels.add_line(line)
    assert not labels.add_next_lines([line])
    assert len(labels) == 1


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"id":1,"name":"a"},{"id":2,"name":"b"}'],
        [b'{"id":1,"name":"a"', b'"details":{}}'],
        [b'{"id":1,"name":"a', b'b"}'],
        [b'{"id":1,"name":"a"}', b""],
        [b'{"id":1,"name":"a"}', b'{"id":1,"name":"a"}'],
        [b'{"id":2,"name":"a"}', b'{"id":1,"name":"b"}'],
        [b'{"id":true,"name":"a"}'],
        [b'{"id":1.0,"name":"a"}'],
        [b'{"id":1,"name":"\\ud800"}'],
        [b'{"id":1,"name":"a","details":{"k":"\\ud800"}}'],
        [b'{"id":1,"name":"a","details":[]}'],
        [b'{"id":1,"name":"a","details":null}'],
    ],
)
def test_lines_that_are_not_the_next_labels_are_not_added_together(lines):
    labels = Labels()
    assert not labels.add_next_lines(lines)
    assert len(labels) == 1


def test_a_detail_named_id_is_not_taken_for_the_start_of_a_line():
    labels = Labels()
    line = b'{"id":1,"name":"a","details":{"id":"7"}}'
    labels.add_line(line)
    labels.add_line(b'{"id":2,"na{"id":2,"name":"b"}')
    assert (labels[1], labels[2]) == (Label("a", {"id": "7"}), Label("b", {}))
