import copy
import gzip
import json
from pathlib import Path

import pytest
from shared import SHARED, needs_shared
from unit.importers.vma_dump import DUMP

from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.events.trace import Status, Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.model import Model

REAL = SHARED / "real" / "other" / "vma_sample.json"


def opened(path: Path, dump: object, encoding: str = "utf-8") -> Trace:
    text = dump if isinstance(dump, str) else json.dumps(dump)
    (path / "dump.json").write_bytes(text.encode(encoding))
    return open_trace(path / "dump.json")


def changed(change) -> dict:
    dump = copy.deepcopy(DUMP)
    change(dump)
    return dump


def model_of(trace: Trace, pool: int = 0) -> Model:
    model = Model(trace, pool)
    model.seek(len(trace))
    return model


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_blocks_are_regions_and_suballocations_are_chunks(tmp_path: Path, encoding: str) -> None:
    trace = opened(tmp_path, DUMP, encoding)
    assert [pool.name for pool in trace.origin.pools] == ["Type 0", "Type 0, pool staging"]
    model = model_of(trace)
    assert [(int(r["size"])) for r in model.regions()] == [4096, 500]
    chunks = model.chunks()
    assert chunks["size"].tolist() == [1000, 24, 1024, 2048, 500]
    assert chunks["in_use"].tolist() == [True, False, True, False, True]
    names = [trace.labels[int(label)] for label in chunks["label"][chunks["in_use"]]]
    assert [label.name for label in names] == ["vertices", "IMAGE_OPTIMAL", "BUFFER"]
    assert dict(names[0].details) == {"type": "BUFFER", "usage": "3"}
    assert dict(names[1].details) == {"usage": "7", "customdata": "F5"}
    assert names[2].details["dedicated"] == "yes"
    assert (trace.origin.status, len(trace.origin.reasons)) == (Status.DEGRADED, 1)
    assert "made-up addresses" in trace.origin.reasons[0]
    assert trace.origin.details["history"] == "state"
    assert trace.origin.details["facts"][0] == {  # type: ignore[index]
        "peak_bytes_in_use": None,
        "device_total": 8000,
        "device_free": 500,
    }
    saved = open_trace(trace.save(tmp_path / "saved.parquet"))
    assert info(saved)["allocators"] == info(trace)["allocators"]


@needs_shared
def test_the_real_dump_is_exact(tmp_path: Path) -> None:
    trace = open_trace(REAL)
    stated = json.loads(REAL.read_text())
    totals: list[dict[str, int]] = trace.origin.details["totals"]  # type: ignore[assignment]
    for key in ("BlockCount", "BlockBytes", "AllocationCount", "AllocationBytes", "UnusedRangeCount"):
        assert sum(each[key] for each in totals) == stated["Total"][key]
    assert len(trace.origin.pools) == 10
    assert len(trace.origin.reasons) == 1
    allocators: list[dict[str, int]] = info(trace)["allocators"]  # type: ignore[assignment]
    assert [each["bytes_in_use"] for each in allocators] == [each["AllocationBytes"] for each in totals]
    assert [each["pool_bytes"] for each in allocators] == [each["BlockBytes"] for each in totals]
    assert [each["chunks_in_use"] for each in allocators] == [each["AllocationCount"] for each in totals]
    assert [each["chunks_free"] for each in allocators] == [each["UnusedRangeCount"] for each in totals]
    largest = max(each["largest_free_chunk"] for each in allocators)
    assert largest == stated["Total"]["UnusedRangeSizeMax"]
    (tmp_path / "packed").write_bytes(gzip.compress(REAL.read_text().encode("utf-16")))
    assert info(open_trace(tmp_path / "packed")) == info(trace)


def test_totals_that_differ_are_told(tmp_path: Path) -> None:
    trace = opened(tmp_path, changed(lambda d: d["Total"].update(BlockBytes=1, AllocationCount="x")))
    assert trace.origin.reasons[:2] == (
        "the dump states BlockBytes 1, but its pools hold 9664",
        "the dump states AllocationCount x, but its pools hold 4",
    )


def test_holes_that_a_dump_leaves_out_are_free(tmp_path: Path) -> None:
    block = DUMP["DefaultPools"]["Type 0"]["Blocks"]["0"]["Suballocations"]  # type: ignore[index]
    only = [each for each in block if each["Type"] != "FREE"]
    trace = opened(
        tmp_path, changed(lambda d: d["DefaultPools"]["Type 0"]["Blocks"]["0"].update(Suballocations=only))
    )
    assert info(trace)["allocators"] == info(opened(tmp_path, DUMP))["allocators"]


def test_dumps_before_version_3_have_their_pools_elsewhere(tmp_path: Path) -> None:
    old = {
        "DefaultPools": {"Type 0": {"Blocks": DUMP["DefaultPools"]["Type 0"]["Blocks"]}},  # type: ignore[index]
        "DedicatedAllocations": {"Type 0": [{"Type": "BUFFER", "Size": 500}]},
        "Pools": {"0": {"MemoryTypeIndex": 0, "Blocks": {"0": {"TotalBytes": 64, "Suballocations": []}}}},
    }
    trace = opened(tmp_path, old)
    assert [pool.name for pool in trace.origin.pools] == ["Type 0", "pool 0", "Type 0, dedicated"]
    assert [each["bytes_in_use"] for each in info(trace)["allocators"]] == [2024, 0, 500]  # type: ignore[attr-defined]


def _block(dump: dict) -> dict:
    return dump["DefaultPools"]["Type 0"]["Blocks"]["0"]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda d: d.update(DefaultPools=[]), "DefaultPools: corrupt dump: is not an object"),
        (lambda d: d.update(DefaultPools={}, CustomPools={}), "holds no pools"),
        (lambda d: d.update(CustomPools={"Type 0": {"Name": "x"}}), "is not a list"),
        (lambda d: _block(d).update(TotalBytes=-1), "TotalBytes is -1"),
        (lambda d: _block(d).update(TotalBytes=1 << 70), "TotalBytes is 1180591620717411303424"),
        (lambda d: _block(d).update(TotalBytes=True), "TotalBytes is True"),
        (lambda d: _block(d).update(TotalBytes=4096.5), "TotalBytes is 4096.5"),
        (lambda d: _block(d).update(TotalBytes=100), "or the block ends"),
        (lambda d: _block(d)["Suballocations"].reverse(), "overlaps"),
        (lambda d: _block(d)["Suballocations"][0].update(Size=0), "Size is 0"),
        (lambda d: _block(d)["Suballocations"][0].pop("Offset"), "Offset is None"),
        (lambda d: _block(d)["Suballocations"].append(7), "is not an object"),
    ],
)
def test_impossible_dumps_are_one_error_with_the_place(tmp_path: Path, change, cause: str) -> None:
    with pytest.raises(FileError) as caught:
        opened(tmp_path, changed(change))
    assert cause in str(caught.value)


@pytest.mark.parametrize("odd", [1 << 15, "Type 0", [], None, [["Type 0"]]])
def test_odd_tables_of_memory_types_tell_nothing_of_the_driver(tmp_path: Path, odd: object) -> None:
    trace = opened(tmp_path, changed(lambda dump: dump["MemoryInfo"]["Heap 0"].update(MemoryPools=odd)))
    assert trace.origin.details["facts"] == [{"peak_bytes_in_use": None}] * 2


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"DefaultPools": ' + "[" * 100_000, "nested too deeply"),
        ('{"DefaultPools": {"Type 0": NaN}}', "NaN is not a JSON number"),
        ('{"DefaultPools": {"Type 0": 1e999}}', "not a JSON number"),
        ('["DefaultPools"]', "is not an object"),
        (json.dumps(DUMP)[:-9], "is not JSON"),
    ],
)
def test_damaged_json_is_one_error(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(FileError, match=cause):
        opened(tmp_path, text)


def test_text_of_another_encoding_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(json.dumps(DUMP).encode().replace(b"vertices", b"vert\xffces"))
    with pytest.raises(FileError, match="not utf-8"):
        open_trace(tmp_path / "dump")
    (tmp_path / "dump").write_bytes(gzip.compress(json.dumps(DUMP).encode())[:-9])
    with pytest.raises(FileError, match="cut off"):
        open_trace(tmp_path / "dump")


def test_a_key_that_occurs_twice_shows_in_the_totals(tmp_path: Path) -> None:
    text = json.dumps(DUMP).replace(
        '"Type 0": {"PreferredBlockSize"', '"Type 0": {}, "Type 0": {"PreferredBlockSize"'
    )
    assert len(opened(tmp_path, text).origin.reasons) == 1  # the second one counts
    text = json.dumps(DUMP).replace('"CustomPools": {', '"CustomPools": {"Type 0": [{"Name": "lost"}], ')
    assert len(opened(tmp_path, text).origin.pools) == 2
