import json

import bfcviz
from bfcviz.cli import main
from bfcviz.cli.info import info
from bfcviz.cli.info_text import info_lines
from bfcviz.events.origin import Origin, Pool

SAMPLE = bfcviz.sample("lstm")
NOTHING_SAID = dict.fromkeys(
    (
        *("bytes_limit", "pool_bytes", "bytes_in_use", "requested_bytes_in_use", "peak_bytes_in_use"),
        *("regions", "chunks_in_use", "chunks_free", "free_bytes", "largest_free_chunk"),
        "external_fragmentation",
    )
)


def test_json_is_the_object_and_nothing_else(capsys):
    assert main(["info", str(SAMPLE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == info(bfcviz.open(SAMPLE))


def test_text_says_the_same_with_units(capsys):
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


def test_reasons_stand_beside_the_status():
    found = {"format": "made", "status": "degraded", "reasons": ["one", "two"], "events": 0, "allocators": []}
    assert "degraded; one; two" in "\n".join(info_lines(Origin(source="made"), found))


def test_what_the_source_does_not_say_is_said_to_be_so():
    allocator = {"name": "bfc", **NOTHING_SAID}
    found = {"format": "made", "status": "complete", "reasons": [], "events": 1, "allocators": [allocator]}
    text = "\n".join(
        info_lines(Origin(source="made", pools=(Pool("bfc"),), details={"checks": "nonsense"}), found)
    )
    assert text.count("the source does not say") == 8
    assert "None" not in text


def test_one_of_a_thing_is_singular():
    allocator = {"name": "bfc", **NOTHING_SAID, "pool_bytes": 2048, "regions": 1}
    found = {"format": "made", "status": "complete", "reasons": [], "events": 1, "allocators": [allocator]}
    assert "2.0 KiB in 1 region\n" in "\n".join(info_lines(Origin(source="made"), found))
