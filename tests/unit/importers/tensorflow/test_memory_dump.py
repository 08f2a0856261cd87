import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from shared import needs_shared
from unit.importers.made import REAL
from unit.importers.profile_maker import chunk, number
from unit.importers.tensorflow.dump_maker import BASE, HEAP, dump, mem_chunk

from bfcviz.errors import FileError
from bfcviz.events.origin import STATE_ONLY, Status
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.tensorflow import memory_dump
from bfcviz.model.model import Model


def opened(tmp_path: Path, data: bytes) -> Trace:
    path = tmp_path / "dump.1795252469832506"
    path.write_bytes(data)
    return open_trace(path)


def model_of(trace: Trace, pool: int = 0) -> Model:
    model = Model(trace, pool)
    model.seek(len(trace))
    return model


def test_every_number_is_read(tmp_path: Path) -> None:
    trace = opened(tmp_path, dump(*HEAP, stats=(9, 768, 5000, 4096)))
    model = model_of(trace)
    chunks = model.chunks()
    assert chunks["address"].tolist() == [BASE, BASE + 512, BASE + 2048, BASE + 8192]
    assert chunks["size"].tolist() == [512, 1536, 2048, 256]
    assert chunks["in_use"].tolist() == [True, False, False, True]
    assert model.stats().requested_bytes_in_use == 401
    label = trace.labels[int(chunks["label"][0])]
    assert (label.name, dict(label.details)) == ("conv", {"step": "3", "action_count": "7"})
    assert chunks["label"][3] == 0
    details = trace.origin.details
    assert details["history"] == STATE_ONLY
    assert details["facts"] == [{"peak_bytes_in_use": 5000}]
    assert details["totals"][0]["largest_alloc_size"] == 4096  # type: ignore[index]
    assert trace.origin.pools[0].name == "GPU_0_bfc"


def test_regions_end_at_gaps_and_between_free_neighbours(tmp_path: Path) -> None:
    trace = opened(tmp_path, dump(*HEAP))
    regions = [(region["address"], region["size"]) for region in model_of(trace).regions()]
    assert regions == [(BASE, 2048), (BASE + 2048, 2048), (BASE + 8192, 256)]
    assert trace.origin.status == Status.DEGRADED
    assert "3 were concluded from gaps" in trace.origin.reasons[0]


def test_free_neighbours_that_wait_for_a_timestamp_are_one_region(tmp_path: Path) -> None:
    chunks = (mem_chunk(BASE, 256, freed_at_count=5), mem_chunk(BASE + 256, 256))
    assert len(model_of(opened(tmp_path, dump(*chunks))).regions()) == 1


def test_the_failed_request_is_said_to_be_missing(tmp_path: Path) -> None:
    trace = opened(tmp_path, dump(*HEAP))
    assert Kind.OOM not in trace.read(0, len(trace))["kind"]
    assert "does not hold the failed request" in str(trace.origin.details["failed_request"])


def test_several_dumps_are_one_heap_each(tmp_path: Path) -> None:
    trace = opened(tmp_path, dump(*HEAP) + dump(*HEAP[3:], name="cpu") + dump(*HEAP[:1]))
    assert [pool.name for pool in trace.origin.pools] == ["GPU_0_bfc", "cpu", "GPU_0_bfc (dump 2)"]
    assert [model_of(trace, pool).stats().chunks_in_use for pool in range(3)] == [2, 1, 1]


def test_more_dumps_than_pools_are_counted(tmp_path: Path) -> None:
    trace = opened(tmp_path, dump(*HEAP[3:]) * 260)
    assert len(trace.origin.pools) == 256
    assert "4 of 260 dumps were left out" in trace.origin.reasons[0]


def test_sums_that_contradict_the_chunks_are_said(tmp_path: Path) -> None:
    trace = opened(tmp_path, dump(*HEAP, chunk(2, number(2, 769) + number(5, 4)), stats=(9, 768, 5000, 4096)))
    reasons = " ".join(trace.origin.reasons)
    assert "768 bytes in use in bins, but the file states 769" in reasons
    assert "2 chunks in use, but the file states 0" in reasons
    assert "4 chunks, but" not in reasons
    assert "768 bytes in use, but" not in reasons


def test_snapshots_are_kept_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_dump, "_SHOWN_SNAPSHOTS", 2)
    snapshots = b"".join(chunk(4, number(1, at) + number(2, at * 256)) for at in range(3))
    trace = opened(tmp_path, dump(*HEAP) + snapshots)
    assert trace.origin.details["snapshots"] == [[[0, 0], [1, 256]]]
    assert "1 snapshots of its size were left out" in trace.origin.reasons[1]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (
            mem_chunk(BASE + 256, 512, 1),
            "chunk 0x7f0000000100: corrupt memory dump: the chunk begins inside another one",
        ),
        (mem_chunk(BASE + 512, 0, 1), "a chunk of 0 bytes"),
        (mem_chunk(BASE + 512, 256, 257), "257 were requested"),
        (mem_chunk((1 << 63) - 256, 512, 1), "a chunk of 512 bytes at 0x7fffffffffffff00"),
        (chunk(5, number(2, -1)), "field 2 is -1, a negative number"),
        (chunk(3, b"\x0a"), "corrupt memory dump"),
        (chunk(1, b"n" * (1 << 17)), "a name of 131,072 bytes"),
    ],
)
def test_impossible_numbers_are_one_error(tmp_path: Path, bad: bytes, why: str) -> None:
    with pytest.raises(FileError, match=re.escape(why)):
        opened(tmp_path, dump(HEAP[0], bad, HEAP[3]))


def test_a_cut_gives_the_chunks_before_it(tmp_path: Path) -> None:
    trace = opened(tmp_path, dump(*HEAP)[:-3])
    assert trace.origin.reasons[0].startswith("the memory dump is cut off at byte")
    assert len(model_of(trace).chunks()) == 3
    trace = opened(tmp_path, gzip.compress(dump(*HEAP))[:-12])
    assert "the gzip file is cut off" in trace.origin.reasons[0]


@needs_shared
def test_a_real_dump_holds_the_chunks_of_its_log() -> None:
    text = (REAL / "oom_transformer.log").read_text()
    lines = re.findall(r"(InUse|Free) +at ([0-9a-f]+) of size (\d+)", text)
    trace = open_trace(REAL / "oom_transformer.memory_dump")
    model = model_of(trace)
    found = model.chunks()
    assert found["in_use"].tolist() == [state == "InUse" for state, *_ in lines]
    assert found["address"].tolist() == [int(address, 16) for _, address, _ in lines]
    assert found["size"].tolist() == [int(size) for *_, size in lines]
    regions = re.findall(r"Next region of size (\d+)", text)
    assert [region["size"] for region in model.regions()] == [int(size) for size in regions]
    assert len(trace.origin.reasons) == 1
    assert np.count_nonzero(trace.read(0, len(trace))["kind"] == Kind.OOM) == 0


@needs_shared
def test_a_real_dump_and_its_log_are_the_same_heap() -> None:
    dumped, logged = (open_trace(REAL / f"oom_transformer.{end}") for end in ("memory_dump", "log"))
    heaps = [model_of(trace) for trace in (dumped, logged)]
    chunks, others = (heap.chunks() for heap in heaps)
    for column in ("address", "size", "in_use"):
        assert chunks[column].tolist() == others[column].tolist()
    regions, others = (
        [(int(region["address"]), int(region["size"])) for region in heap.regions()] for heap in heaps
    )
    assert regions == others
    assert [heap.stats().largest_free_chunk for heap in heaps] == [760_064, 760_064]
