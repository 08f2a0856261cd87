"""read_snapshot on real snapshots of every era: the counted totals, the model's state, the history before."""

import json
from collections import Counter

import numpy as np
import pytest
from shared import SHARED, needs_shared

from bfcviz.analysis.failures import all_failures
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.model import Model

FOLDER = SHARED / "real" / "snapshots"
EXPECTED = SHARED / "real" / "expected.jsonl"
COUNTED = {
    entry["file"]: entry
    for entry in map(json.loads, EXPECTED.read_text().splitlines() if EXPECTED.exists() else [])
    if entry["file"].endswith(".pickle")
}
SUMS = (
    "segments",
    "blocks",
    "reserved",
    "allocated",
    "active",
    "requested",
    "inactive_blocks",
    "inactive_bytes",
)

pytestmark = needs_shared
every_file = pytest.mark.parametrize("name", COUNTED)


@pytest.fixture(scope="module")
def opened():
    return {name: open_trace(FOLDER / name) for name in COUNTED}


@every_file
def test_totals_are_those_counted_by_an_independent_script(opened, name):
    totals, counted = opened[name].origin.details["totals"], COUNTED[name]
    assert {key: sum(pool[key] for pool in totals) for key in SUMS} == {key: counted[key] for key in SUMS}
    assert max(pool["largest_inactive"] for pool in totals) == counted["largest_inactive"]
    assert sum(pool["trace_entries"] for pool in totals) == sum(counted["trace_events"])


@every_file
def test_the_model_agrees_with_the_totals(opened, name):
    trace = opened[name]
    for pool, totals in enumerate(trace.origin.details["totals"]):
        model = Model(trace, pool)
        model.seek(len(trace))
        stats, chunks = model.stats(), model.chunks()
        free = chunks[~chunks["in_use"]]
        assert (len(model.regions()), stats.pool_bytes) == (totals["segments"], totals["reserved"])
        assert (len(chunks), stats.bytes_in_use) == (totals["blocks"], totals["active"])
        assert stats.requested_bytes_in_use == totals["requested"]
        assert (len(free), free["size"].sum()) == (totals["inactive_blocks"], totals["inactive_bytes"])
        assert stats.largest_free_chunk == totals["largest_inactive"]


@every_file
def test_nothing_was_corrected_or_left_out(opened, name):
    origin = opened[name].origin
    in_pieces = name.startswith("torch_code_location")
    assert (origin.status is Status.DEGRADED, len(origin.reasons)) == (in_pieces, int(in_pieces))
    assert origin.details["framework"] == "torch"
    assert origin.details.get("history") == (
        "state" if "cs336 octree code".find(name.split("_")[1]) < 0 else None
    )


def test_every_entry_becomes_an_event(opened):
    trace = opened["torch_cs336_ctx128_fullstep.pickle"]
    events = trace.read(0, len(trace))
    begin = next(
        row for row in np.flatnonzero(events["kind"] == Kind.MARK).tolist()
        if trace.labels.name(int(events["label"][row])) == "history begins here"
    )  # fmt: skip
    kinds = Counter(events["kind"][begin:].tolist())
    assert kinds[Kind.ALLOCATE] == 6770
    assert kinds[Kind.FREE] == 5894
    assert (kinds[Kind.EXTEND], kinds[Kind.RELEASE]) == (782, 430)
    assert kinds[Kind.MARK] == 1 + 4  # and two phases


def test_phases_and_stacks_are_labels(opened):
    trace = opened["torch_cs336_ctx128_fullstep.pickle"]
    labels = [trace.labels[number] for number in range(len(trace.labels))]
    assert any(label.details.get("begins") == "Optimizer.step#AdamW.step" for label in labels)
    assert any(".py:" in label.details.get("stack", "") for label in labels)


def test_a_failed_request_of_one_device(opened):
    trace = opened["torch_code_location_2.6M.pickle"]
    (failure,) = trace.origin.details["failures"]
    event = trace.read(failure["event"], failure["event"] + 1)[0]
    assert (event["kind"], trace.origin.pools[event["pool"]].name) == (Kind.OOM, "cuda:1")
    assert failure["device_free"] == 95_682_560
    (found,) = all_failures(trace)
    assert found.rounded >= found.requested == event["requested"] > event["size"]
    assert trace.origin.pools[0].options["expandable_segments"] is True


def test_the_device_without_memory_is_left_out(opened):
    assert [pool.name for pool in opened["torch_select_n_10k.pickle"].origin.pools] == ["cuda:1"]
    assert [pool.name for pool in opened["torch_code_location_2.6M.pickle"].origin.pools] == [
        "cuda:0", "cuda:1", "cuda:2",
    ]  # fmt: skip
