import json
from pathlib import Path

import numpy as np
import pytest
from shared import SHARED, needs_shared

from bfcviz.cli.info import info
from bfcviz.events.labels import Labels
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.trace import Origin, Pool, Status, Trace
from bfcviz.importers.open_trace import open_trace

KEYS = {
    *("name", "bytes_limit", "pool_bytes", "bytes_in_use", "requested_bytes_in_use", "peak_bytes_in_use"),
    *(
        "regions",
        "chunks_in_use",
        "chunks_free",
        "free_bytes",
        "largest_free_chunk",
        "external_fragmentation",
    ),
}


def events(*rows: dict[str, int]) -> Events:
    made: Events = np.zeros(len(rows), EVENT)
    made["seq"] = np.arange(len(rows))
    for event, row in zip(made, rows, strict=True):
        for name, value in row.items():
            event[name] = value
    return made


ONE_CHUNK = events(
    {"kind": Kind.EXTEND, "address": 4096, "size": 2048, "requested": 512, "bin": 3},
    {"kind": Kind.SPLIT, "address": 4608, "size": 1536, "other": 1, "bin": 2},
    {"kind": Kind.ALLOCATE, "address": 4096, "size": 512, "requested": 300, "other": 1, "bin": 3},
)
POOL = Pool("GPU_0_bfc", 4096)


def test_one_object_tells_everything_about_a_trace() -> None:
    found = info(Trace.from_events(ONE_CHUNK, Labels(), Origin(format="made", pools=(POOL,))))
    assert found == {
        "format": "made",
        "status": "complete",
        "reasons": [],
        "events": 3,
        "allocators": [
            {
                "name": "GPU_0_bfc",
                "bytes_limit": 4096,
                "pool_bytes": 2048,
                "bytes_in_use": 512,
                "requested_bytes_in_use": 300,
                "peak_bytes_in_use": 512,
                "regions": 1,
                "chunks_in_use": 1,
                "chunks_free": 1,
                "free_bytes": 1536,
                "largest_free_chunk": 1536,
                "external_fragmentation": 0.0,
            }
        ],
    }


def test_what_the_source_does_not_say_is_null_and_what_it_says_itself_stands() -> None:
    facts = [{"pool_bytes": None, "bytes_in_use": 9000, "unknown": 1}]
    origin = Origin(pools=(Pool("bfc"),), details={"facts": facts})
    (allocator,) = info(Trace.from_events(ONE_CHUNK, Labels(), origin))["allocators"]  # type: ignore[misc]
    assert (allocator["pool_bytes"], allocator["bytes_limit"], allocator["bytes_in_use"]) == (
        None,
        None,
        9000,
    )
    assert set(allocator) == KEYS


@pytest.mark.parametrize("facts", ["nonsense", [], ["nonsense"], None])
def test_damaged_facts_are_none(facts: object) -> None:
    origin = Origin(pools=(POOL,), details={"facts": facts})
    (allocator,) = info(Trace.from_events(ONE_CHUNK, Labels(), origin))["allocators"]  # type: ignore[misc]
    assert allocator["bytes_in_use"] == 512


def test_a_trace_without_events_is_an_empty_heap() -> None:
    found = info(Trace.from_events(ONE_CHUNK[:0], Labels(), Origin(pools=(POOL, POOL))))
    assert (found["events"], len(found["allocators"])) == (0, 2)  # type: ignore[arg-type]


def test_events_that_contradict_each_other_degrade_the_trace() -> None:
    wrong = ONE_CHUNK.copy()
    wrong["size"][1] = 4096
    found = info(Trace.from_events(wrong, Labels(), Origin(pools=(POOL,))))
    assert found["status"] == "degraded"
    assert "at step 1" in found["reasons"][0]  # type: ignore[index]
    json.dumps(found, allow_nan=False)


def test_a_trace_still_recorded_is_not_whole_yet() -> None:
    found = info(Trace.from_events(ONE_CHUNK, Labels(), Origin(status=Status.RECORDING)))
    assert (found["status"], found["reasons"]) == ("truncated", ["it is still being recorded"])


@needs_shared
def test_a_real_profile_in_numbers(tmp_path: Path) -> None:
    trace = open_trace(SHARED / "real" / "tensorflow" / "conv.xplane.pb.gz")
    found = info(trace)
    (allocator,) = found["allocators"]  # type: ignore[misc]
    assert (found["format"], found["status"]) == ("xplane", "complete")
    assert allocator["name"] == "bfc_cpu_allocator_for_gpu"
    assert (allocator["bytes_limit"], allocator["pool_bytes"]) == (4000 << 20, 126 << 20)
    assert (allocator["regions"], allocator["chunks_in_use"]) == (6, 17_578 - 16_926)
    assert allocator["bytes_in_use"] + allocator["free_bytes"] == allocator["pool_bytes"]
    assert info(open_trace(trace.save(tmp_path / "a.parquet"))) == found
