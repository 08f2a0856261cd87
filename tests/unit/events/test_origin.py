"""Where a trace comes from: its JSON text, and the checks of what a file says."""

import json

import numpy as np
import pytest
from unit.events.fabricate import fabricate, repacked

from bfcviz.errors import FileError, TraceError
from bfcviz.events.origin import Origin, Pool, Status, origin_from_json
from bfcviz.importers.open_trace import open_trace

FULL = Origin(
    format="xplane",
    source="host.xplane.pb",
    status=Status.TRUNCATED,
    reasons=("first", "second"),
    pools=(Pool("gpu0", 1 << 40, {"allow_growth": True}), Pool("gpu1")),
    details={"checked": 5, "versions": {"tensorflow": "2.19"}},
)


def test_round_trip_with_what_stands_beside_it():
    assert origin_from_json(FULL.to_json(events=7).encode()) == (FULL, {"events": 7})


def test_numbers_of_numpy_and_paths_become_json(tmp_path):
    origin = Origin(details={"n": np.int64(3), "where": tmp_path})
    assert origin_from_json(origin.to_json().encode())[0].details == {"n": 3, "where": str(tmp_path)}


def test_what_json_cannot_say_is_refused():
    looped = {}
    looped["again"] = looped
    for details in ({"x": float("nan")}, looped):
        with pytest.raises(TraceError, match="JSON"):
            Origin(details=details).to_json()


def test_a_trace_has_a_pool():
    with pytest.raises(TraceError, match=r"256 pools.* 0"):
        Origin(pools=())


def changed(**changes):
    entry = json.loads(FULL.to_json())
    for key, value in changes.items():
        entry[key] = value
    return json.dumps(entry)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("{" * 50_000, "not JSON|deeply"),
        ("[" * 50_000, "deeply"),
        ("[]", "not the origin"),
        ("{}", "not the origin"),
        (changed(bfcviz=2), "version 2"),
        (changed(bfcviz=None), "version None"),
        (changed(format=3), "format"),
        (changed(status="fine"), "fine"),
        (changed(reasons=[3]), "reasons"),
        (changed(reasons="x"), "reasons"),
        (changed(pools=[]), "pools"),
        (changed(pools=[3]), "pool"),
        (changed(pools=[{"name": "x", "options": {}, "bytes_limit": -1}]), "bytes_limit"),
        (changed(pools=[{"name": "x", "options": {}, "bytes_limit": True}]), "bytes_limit"),
        (changed(pools=[{"name": "x", "options": {}, "bytes_limit": 1e300}]), "bytes_limit"),
        (changed(pools=[{"name": None, "options": {}}]), "name"),
        (changed(pools=[{"name": "x", "options": []}] * 300), "pools"),
        (changed(details=[]), "details"),
    ],
)
def test_what_is_no_origin_is_a_value_error(text, why):
    with pytest.raises(ValueError, match=why):
        origin_from_json(text.encode())


def test_half_a_character_becomes_a_question_mark():
    text = json.dumps({**json.loads(FULL.to_json()), "source": "run\udc80 \u00fc"})
    origin, _ = origin_from_json(text.encode())
    assert origin.source == "run? \u00fc"


WRONG_DETAILS = [
    {"facts": 5},
    {"facts": ["x"]},
    {"facts": [{"bytes_in_use": "many"}]},
    {"facts": [{"bytes_in_use": 10**300}]},
    {"facts": [{"bytes_in_use": -1}]},
    {"facts": [{"bytes_in_use": 1.5}]},
    {"facts": [{"external_fragmentation": 7}]},
    {"facts": [{}, {}]},
    {"checks": [{"checked": "all", "differing": 0, "pool": "a"}]},
    {"checks": [{"checked": 5}]},
    {"checks": [{"checked": 5, "differing": 0, "pool": None}]},
    {"threads": ["main"]},
    {"threads": {"1": None}},
]


@pytest.mark.parametrize("details", WRONG_DETAILS, ids=str)
def test_wrong_details_are_refused_in_files_and_folders(folder, tmp_path, details):
    for status in ("degraded", "complete"):
        path = repacked(tmp_path / "t.parquet", fabricate(100), details=details, status=status)
        with pytest.raises(FileError):
            open_trace(path)
    origin = json.loads((folder / "origin.json").read_text())
    (folder / "origin.json").write_text(json.dumps({**origin, "details": details}))
    with pytest.raises(FileError, match=r"origin\.json"):
        open_trace(folder)


def test_facts_of_a_complete_trace_are_refused(tmp_path):
    facts = {"facts": [{"bytes_in_use": 5}]}
    with pytest.raises(FileError, match="facts"):
        open_trace(repacked(tmp_path / "t.parquet", fabricate(9), details=facts))
    assert (
        len(open_trace(repacked(tmp_path / "t.parquet", fabricate(9), details=facts, status="degraded"))) == 9
    )


@pytest.mark.parametrize("fraction", ["x", None, 1e308, -1, [], True])
def test_wrong_options_are_refused(tmp_path, fraction):
    pools = [{"name": "bfc", "bytes_limit": 1 << 30, "options": {"fragmentation_fraction": fraction}}]
    with pytest.raises(FileError, match="fragmentation_fraction"):
        open_trace(repacked(tmp_path / "t.parquet", fabricate(9), pools=pools))


@pytest.mark.parametrize(
    ("status", "reasons", "known", "whole"),
    [
        (Status.COMPLETE, (), [], True),
        (Status.DEGRADED, ("a",), ["a"], True),
        (Status.DEGRADED, ("a", "b"), ["a"], False),
        (Status.DEGRADED, ("a",), 5, False),
        (Status.TRUNCATED, ("a",), ["a"], False),
        (Status.RECORDING, ("a",), ["a"], False),
    ],
)
def test_a_recording_with_known_gaps_alone_has_lost_nothing(status, reasons, known, whole):
    origin = Origin(status=status, reasons=reasons, details={"known_gaps": known})
    assert origin.has_ended_whole == whole
