"""Parquet files with any byte changed, and files that would fill the memory: the right events or one FileError."""

import json

import numpy as np
import pytest
from shared import write_anew
from unit.events.fabricate import alike, fabricate, fabricate_labels, fabricate_trace, read_all, repacked

from bfcviz.cli.info import info
from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.storage import parquet
from bfcviz.events.trace import BLOCK
from bfcviz.importers.open_trace import open_trace

COUNT = BLOCK + 500


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return fabricate_trace(COUNT).save(tmp_path_factory.mktemp("good") / "good.parquet")


def test_any_changed_byte_is_found_or_harmless(good, tmp_path):
    data = bytearray(good.read_bytes())
    path = tmp_path / "bent.parquet"
    rng = np.random.default_rng(3)
    expected, found = fabricate(COUNT), 0
    for place in [*range(8), *rng.integers(0, len(data), 60), *range(len(data) - 300, len(data), 7)]:
        bent = data.copy()
        bent[place] ^= 1 << int(rng.integers(8))
        write_anew(path, bent)
        try:
            trace = read_all(path)
            same = np.array_equal(trace.read(0, len(trace)), expected[: len(trace)])
            assert same, f"byte {place} changed the events unseen"
        except FileError:
            found += 1
    assert found > 40


def test_a_row_group_larger_than_memory_should_hold_is_refused(tmp_path):
    path = repacked(tmp_path / "t.parquet", alike(parquet.MAX_GROUP + 1), group=parquet.MAX_GROUP + 1)
    with pytest.raises(FileError, match="row groups") as caught:
        open_trace(path)
    assert f"{parquet.MAX_GROUP:,}" in str(caught.value)


def test_many_tiny_row_groups_are_refused(tmp_path):
    path = repacked(tmp_path / "t.parquet", alike(2000), group=1)
    with pytest.raises(FileError, match="2,000 row groups"):
        open_trace(path)


def test_labels_that_unpack_to_much_are_refused(tmp_path):
    labels = fabricate_labels(2)
    labels.to_json = lambda: '{"names":["",' + '"aa",' * 3_000_000 + '"b"],"details":{}}'
    with pytest.raises(FileError, match="labels"):
        open_trace(repacked(tmp_path / "t.parquet", alike(3), labels=labels))


def test_bent_footers_raise_nothing_but_our_errors(tmp_path):
    data = fabricate_trace(300).save(tmp_path / "good.parquet").read_bytes()
    rng = np.random.default_rng(7)
    path = tmp_path / "bent.parquet"
    for _ in range(150):
        bent = bytearray(data)
        for place in rng.integers(0, len(data), int(rng.integers(1, 6))):
            bent[place] = rng.integers(256)
        write_anew(path, bent)
        try:
            trace = open_trace(path)
            trace.read(0, len(trace))
            json.dumps(info(trace), allow_nan=False)
        except BfcvizError:
            continue


def test_an_origin_of_many_values_is_refused(tmp_path):
    path = repacked(tmp_path / "t.parquet", alike(3), details={"x": [[]] * 2_000_000})
    with pytest.raises(FileError, match="values"):
        open_trace(path)
