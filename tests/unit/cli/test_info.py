"""`bfcviz info`: its object, and the same as text."""

import json

import numpy as np
import pytest
from shared import sample_file, sample_trace

import bfcviz
from bfcviz.cli import main
from bfcviz.cli.info import info, info_lines
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.trace import Origin, Pool, Status, Trace

SAMPLE = bfcviz.sample("lstm")
UNKNOWN = dict.fromkeys(
    (
        *("bytes_limit", "pool_bytes", "bytes_in_use", "requested_bytes_in_use", "peak_bytes_in_use"),
        *("regions", "chunks_in_use", "chunks_free", "free_bytes", "largest_free_chunk"),
        "external_fragmentation",
    )
)
KEYS = {"name", *UNKNOWN}


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


def test_one_object_describes_a_trace() -> None:
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
        "failures": [],
    }


def test_numbers_that_the_source_states_take_precedence() -> None:
    facts = [{"pool_bytes": None, "bytes_in_use": 9000, "unknown": 1}]
    origin = Origin(pools=(Pool("bfc"),), details={"facts": facts})
    (allocator,) = info(Trace.from_events(ONE_CHUNK, Labels(), origin))["allocators"]  # type: ignore[misc]
    assert (allocator["pool_bytes"], allocator["bytes_limit"], allocator["bytes_in_use"]) == (
        None,
        None,
        9000,
    )
    assert set(allocator) == KEYS


def test_totals_in_the_words_of_the_framework() -> None:
    origin = Origin(pools=(POOL,), details={"totals": [{"segments": 1, "inactive_bytes": 1536}]})
    found = info(Trace.from_events(ONE_CHUNK, Labels(), origin))
    assert found["allocators"][0]["totals"] == {"segments": 1, "inactive_bytes": 1536}  # type: ignore[index]
    assert "segments 1, inactive_bytes 1,536" in "\n".join(info_lines(origin, found))


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


def test_a_trace_still_recorded_is_not_complete() -> None:
    found = info(Trace.from_events(ONE_CHUNK, Labels(), Origin(status=Status.RECORDING)))
    assert found["status"] == "truncated"
    assert "recorded" in found["reasons"][0]  # type: ignore[index]


def test_a_real_profile_in_numbers() -> None:
    trace = sample_trace("conv")
    found = info(trace)
    (allocator,) = found["allocators"]  # type: ignore[misc]
    assert (found["format"], found["status"]) == ("xplane", "complete")
    assert allocator["name"] == "bfc_cpu_allocator_for_gpu"
    assert (allocator["bytes_limit"], allocator["pool_bytes"]) == (4000 << 20, 126 << 20)
    assert (allocator["regions"], allocator["chunks_in_use"]) == (6, 17_578 - 16_926)
    assert allocator["bytes_in_use"] + allocator["free_bytes"] == allocator["pool_bytes"]
    assert info(bfcviz.open(sample_file("conv"))) == found


# -- the command ---------------------------------------------------------------------------------------------


def test_json_is_the_object_and_nothing_else(capsys):
    assert main(["info", str(sample_file("lstm")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == info(sample_trace("lstm"))


def test_the_text_shows_the_same_numbers_with_units(capsys):
    assert main(["info", str(SAMPLE)]) == 0
    text = capsys.readouterr().out
    rows = dict(line.strip().split("  ", 1) for line in text.splitlines() if line.startswith("  "))
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["status"] == "complete"
    assert rows["events"] == "32,001"
    assert rows["checked"].startswith("24,697 recorded events")
    assert rows["checked"].endswith(" 0 differ")
    assert rows["pool"] == "6.0 MiB in 2 regions"
    assert rows["in use"] == "1.4 MiB in 631 chunks"
    assert rows["external fragmentation"] == "13.3 %"


def test_the_heading_is_the_file_that_was_opened(tmp_path, capsys):
    sample, path = bfcviz.sample("oom_log"), tmp_path / "converted.bfc"
    assert main(["convert", str(sample), "-o", str(path)]) == 0
    capsys.readouterr()
    for file, named in ((path, {path.name, sample.name}), (sample, {sample.name})):
        assert main(["info", str(file)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == file.name
        assert {name for name in (path.name, sample.name) if any(name in line for line in lines)} == named


def test_reasons_follow_the_status():
    found = {"format": "made", "status": "degraded", "reasons": ["one", "two"], "events": 0, "allocators": []}
    assert "degraded; one; two" in "\n".join(info_lines(Origin(source="made"), found))


def test_unknown_numbers_are_shown_as_unknown():
    allocator = {"name": "bfc", **UNKNOWN}
    found = {"format": "made", "status": "complete", "reasons": [], "events": 1, "allocators": [allocator]}
    text = "\n".join(
        info_lines(Origin(source="made", pools=(Pool("bfc"),), details={"checks": "nonsense"}), found)
    )
    assert text.count("unknown") == 8
    assert "None" not in text


def test_one_of_a_thing_is_singular():
    allocator = {"name": "bfc", **UNKNOWN, "pool_bytes": 2048, "regions": 1}
    found = {"format": "made", "status": "complete", "reasons": [], "events": 1, "allocators": [allocator]}
    assert "2.0 KiB in 1 region\n" in "\n".join(info_lines(Origin(source="made"), found))


def test_an_allocator_without_a_name_is_named_as_in_the_reasons():
    pool = Pool("BFC allocator", None, {"allocator_name": "", "dump": 1})
    trace = Trace.from_events(np.zeros(0, EVENT), Labels(), Origin("tensorflow-log", "a.log", pools=(pool,)))
    assert "BFC allocator after the last event" in info_lines(trace.origin, info(trace))


def test_it_says_which_numbers_of_chunks_a_file_lacks() -> None:
    trace = sample_trace("oom_log")
    found = info(trace)
    (heap,) = found["allocators"]
    assert all(word in heap["missing"] for word in ("requested size", "name", "thread", "stream"))
    text = " ".join(" ".join(info_lines(trace.origin, found)).split())
    assert heap["missing"] in text
    assert "missing" not in info(sample_trace("lstm"))["allocators"][0]
