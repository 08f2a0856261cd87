"""Growths: pools that grew while enough was free, counted again by a plain replay of the events."""

import json
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from heap_strategies import operations, run
from heaps import KIB, MIB, new_heap
from hypothesis import given
from hypothesis import strategies as st
from shared import SHARED, needs_shared, snapshot_trace

import bfcviz
from bfcviz.analysis.pool_growths import growth_verdict, growths, growths_json
from bfcviz.cli import main
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import BEGIN_MARKS, Origin, Pool, Status
from bfcviz.events.schema import Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.formats.torch import Rules
from bfcviz.model.trace_from_source import trace_of

SNAPSHOTS = SHARED / "real" / "snapshots"


def plain_rows(trace, pool):
    names = ("seq", "kind", "address", "size", "requested", "label", "stream", "region", "flags")
    rows = (
        dict(zip(names, row, strict=True))
        for block in trace.blocks()
        for row in block[block["pool"] == pool][list(names)].tolist()
    )
    return list(rows)


def plain_share(trace, row, torch):
    if torch is None:
        return None
    private = trace.labels[row["label"]].details.get("private_pool", "")
    return row["stream"], torch.round_up(row["requested"]) <= MIB, private


def plain_growths(trace, pool, torch=None):
    """Step -> (requested, free bytes, stranded bytes by region) of each growth while enough was free."""
    rows = plain_rows(trace, pool)
    shares, current = {}, {}
    for row in rows:  # the share of a region is that of the first request in it
        if row["kind"] == Kind.EXTEND and not row["flags"] & Flag.GREW:
            current[row["region"]] = row["seq"]
        elif row["kind"] == Kind.ALLOCATE and not row["flags"] & Flag.PIECE:
            shares.setdefault(current[row["region"]], plain_share(trace, row, torch))
    begins = next((row["seq"] for row in rows if trace.labels.name(row["label"]) in BEGIN_MARKS), 0)
    regions, used, found, last = {}, {}, {}, None
    for at, row in enumerate(rows):
        if row["kind"] == Kind.ALLOCATE:
            used[row["address"]] = row["size"], row["region"]
        elif row["kind"] == Kind.FREE:
            del used[row["address"]]
        elif row["kind"] == Kind.RELEASE:
            del regions[row["region"]]
        elif row["kind"] == Kind.EXTEND:
            request = plain_request(rows, at) if row["seq"] >= begins else None
            if request and request[0]["seq"] != last:
                last = request[0]["seq"]
                share = plain_share(trace, {**request[0], "requested": request[1]}, torch)
                mine = {
                    slot: size
                    for slot, (born, size) in regions.items()
                    if torch is None or shares.get(born, 0) == share
                }
                failed = plain_failed_fit(request[1], mine, used, torch)
                found |= {row["seq"]: failed} if failed else {}
            born, size = regions.get(row["region"], (row["seq"], 0))
            regions[row["region"]] = born, size + row["size"]
    return found


def plain_failed_fit(requested, regions, used, torch):
    """Requested and free bytes, and those of regions with chunks in use; None where not enough is free."""
    free = dict(regions)
    for size, slot in used.values():
        if slot in free:
            free[slot] -= size
    rounded = torch.round_up(requested) if torch else max(256, -(-requested // 256) * 256)
    if sum(free.values()) < rounded:
        return None
    pinned = {slot for _, slot in used.values()}
    return requested, sum(free.values()), sum(size for slot, size in free.items() if slot in pinned)


def plain_request(rows, at):
    """The ALLOCATE that takes memory of an EXTEND soon after it, and its bytes."""
    grant = rows[at]
    requests = []
    for row in rows[at : at + 64]:
        if row["kind"] == Kind.ALLOCATE and row["seq"] < grant["seq"] + 64:
            requests += [] if row["flags"] & Flag.PIECE and requests else [[]]
            requests[-1].append(row)
    stop = grant["address"] + grant["size"]
    for chunks in requests:
        if any(row["address"] < stop and row["address"] + row["size"] > grant["address"] for row in chunks):
            return chunks[0], sum(row["requested"] for row in chunks)
    return None


def as_plain(found):
    return {
        each.step: (
            each.requested,
            each.free,
            sum(pin.stranded for pin in each.pins) if len(each.pins) < 10 else None,
        )
        for each in found.found
    }


def assert_equal(found, plain):
    ours = as_plain(found)
    assert ours.keys() == plain.keys()
    for step, (requested, free, held) in ours.items():
        assert (requested, free) == plain[step][:2], step
        assert held is None or held == plain[step][2], step


@given(operations(max_size=150))
def test_like_a_plain_count(steps):
    heap = run(steps)
    pools = tuple(Pool(f"pool {number}", None, {}) for number in range(2))
    trace = Trace.from_events(heap.events(), Labels(), Origin("bfcviz", "", Status.COMPLETE, (), pools, {}))
    for pool in range(2):
        assert_equal(growths(trace, pool), plain_growths(trace, pool))


requests = st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.integers(0, 99)), max_size=120)


@given(requests)
def test_a_heap_that_grows(steps):
    heap = new_heap(1 << 30, log=EventLog(1 << 14), allow_growth=True)
    held = []
    for size, frees, pick in steps:
        if frees and held:
            heap.free(held.pop(pick % len(held)))
        else:
            held.append(heap.allocate(size * MIB // 2, label=f"op{size % 5}"))
    trace = trace_of(heap)
    found = growths(trace)
    assert_equal(found, plain_growths(trace, 0))
    assert (growth_verdict(found) == "growth") == bool(found.found)


def worked_heap(capacity):
    """3,000 operations of a heap that grows, over a log of so many events."""
    heap = new_heap(1 << 40, log=EventLog(capacity), allow_growth=True)
    choose, held = random.Random(5), []
    for _ in range(3000):
        if held and choose.random() < 0.45:
            heap.free(held.pop(choose.randrange(len(held))))
        else:
            held.append(heap.allocate(choose.choice([KIB, 256 * KIB, MIB, 3 * MIB]) * choose.randint(1, 5)))
    return heap


def test_the_last_events_have_the_same_growths():
    whole, part = trace_of(worked_heap(1 << 14)), trace_of(worked_heap(1 << 11))
    assert part.first > whole.first == 0
    late = {step: row for step, row in as_plain(growths(whole)).items() if step >= part.first}
    assert late
    assert as_plain(growths(part)) == late
    assert (growths(whole).is_whole, growths(part).is_whole) == (True, False)


def test_a_history_that_was_cut_is_told_so():
    whole = trace_of(worked_heap(1 << 14))
    origin = replace(whole.origin, status=Status.TRUNCATED, reasons=("the last block is missing",))
    events = np.concatenate(list(whole.blocks()))
    part = Trace.from_events(events, whole.labels, origin)
    for found, is_cut in ((growths(whole), False), (growths(part), True)):
        assert ("the last block is missing" in str(found)) == is_cut
        assert growths_json([found])["growths_by_pool"][0]["history_is_whole"] != is_cut
    few = Trace.from_events(events[:20], whole.labels, origin)
    assert growths(few).found == ()
    assert "as far as the file goes" in str(growths(few))


@cache
def growths_of_snapshot(name, pool=0):
    return growths(snapshot_trace(name), pool)


@needs_shared
@pytest.mark.parametrize("name", sorted(path.stem for path in SNAPSHOTS.glob("*.pickle")))
def test_real_snapshots(name):
    trace = snapshot_trace(name)
    for number, pool in enumerate(trace.origin.pools):
        found = growths_of_snapshot(name, number)
        if not found.has_history:
            assert trace.origin.details["history"] == "state"
            assert not found.found
            continue
        assert_equal(found, plain_growths(trace, number, Rules.of(pool.options)))
        for growth in found.found:
            assert growth.free >= growth.rounded > (growth.largest or 0)
        answer = growths_json([found])
        assert len(answer["growths"]) == len(found.found)
        assert answer["growths_by_pool"][0]["verdict"] in {"growth", "nothing_wrong"}


@needs_shared
def test_the_snapshot_that_strands_most():
    found = growths_of_snapshot("torch_cs336_ctx128_fullstep")
    assert (len(found.found), found.times) == (768, 782)
    assert found.peak_pool == 61_111_009_280
    worst = found.worst
    assert worst.requested == 102_400_000
    assert worst.share == (0, "large", "")
    assert worst.pins[0].line.startswith("optimizers.py:84")


def test_why_without_a_failure_leads_with_the_growth(tmp_path, capsys):
    heap = new_heap(1 << 30, log=EventLog(1 << 14), allow_growth=True)
    first = [heap.allocate(MIB, label=f"op{number}") for number in range(14)]
    for address in first[::2]:
        heap.free(address)
    heap.allocate(2 * MIB, label="asker")
    path = trace_of(heap).save(tmp_path / "grown.parquet")
    assert main(["why", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (growth,) = [each for each in answer["growths"] if each["label"] == "asker"]
    assert growth["requested"] == 2 * MIB <= growth["free"] == growth["stranded_bytes"]
    assert {"op1", "op3"} <= {pin["line"] for pin in growth["pins"]}
    assert answer["growths_by_pool"][0]["verdict"] == "growth"
    assert main(["why", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "stranded" in lines[0]
    assert "asker" in lines[1]
    assert lines[0].startswith(str(bfcviz.why(path)).splitlines()[0])
    assert bfcviz.growths(path).worst.step == growth["step"]


@needs_shared
def test_what_expandable_segments_save_is_replayed():
    trace = snapshot_trace("torch_cs336_ctx128_fullstep")
    (line,) = [each for each in bfcviz.why(trace).unwrapped if "replayed" in each]
    peaks = [
        bfcviz.replay(trace, policy).reserved.max() for policy in ("torch:expandable_segments=true", "torch")
    ]
    assert [f"{peak / (1 << 30):.1f} GiB" in line for peak in peaks] == [True, True]
    assert peaks[0] < peaks[1]
