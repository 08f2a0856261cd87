"""The policy `torch` against PyTorch's own decisions: histories of real snapshots, served again with their settings.

python tests/bench/torch_policy.py SNAPSHOT...

For each device of each snapshot: PyTorch's bytes of segments after every request and ours, and which blocks came to lie
in a segment of the same kind and size, and at the same place in it. Only the history in the snapshot is compared.
Blocks that were in use before it are requested first, in the order of their addresses.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bfcviz
from bfcviz.events.schema import Kind
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, MARK, requests_of

BEGIN = "history begins here"
MiB = 1 << 20


@dataclass(frozen=True)
class Comparison:
    """One device. Sizes in bytes; `worst`: the largest difference after any request of the history.

    `same_size`, `same_segment`, `same_place`: blocks with the same size; and in a segment of the same size; and at the
    same offset in it. Expandable segments grow, so that their sizes are not compared.
    """

    snapshot: str
    device: str
    requests: int
    before: int
    real_peak: int
    our_peak: int
    worst: int
    blocks: int
    same_size: int
    same_segment: int
    same_place: int
    same_failures: bool
    why: str


def compared(path):
    """The comparison of each device of a snapshot."""
    trace = bfcviz.open(path)
    events = trace.read(0, len(trace))
    return [_compared(trace, events, number) for number in range(len(trace.origin.pools))]


def _compared(trace, events, number):
    pool, stream = trace.origin.pools[number], requests_of(trace, number)
    mine = events[events["pool"] == number]
    failed = mine["seq"][mine["kind"] == Kind.OOM]
    real = reserved_after(mine, stream.rows["event"])
    outcome = policy_of("torch", **_settings(pool)).serve(stream, _limit(trace, mine, failed), record=True)
    first = _first_of_history(trace, mine)
    rows = stream.rows
    history = np.flatnonzero((rows["event"] > first) & (rows["kind"] != MARK))
    made = history[(rows["kind"][history] == ALLOCATE) & (outcome.address[history] != 0)]
    places = _places(mine, rows["event"][made], pool), _places_of(outcome, made, pool)
    same = [sum(a[:n] == b[:n] for a, b in zip(*places, strict=True)) for n in (1, 2, 3)]
    difference = np.abs(outcome.reserved.astype(np.int64) - real)[history]
    worst = int(difference.max(initial=0))
    return Comparison(
        trace.origin.source, pool.name, len(history), int((rows["event"] < first).sum()), int(real.max(initial=0)),
        outcome.peak_reserved, worst, len(made), *same,
        rows["event"][outcome.failures].tolist() == failed.tolist(),
        _why(history=len(history), placed=same[2] == len(made), worst=worst) if len(stream) else "empty",
    )  # fmt: skip


def _why(*, history, placed, worst):
    if not history:
        return "no history: why segments were cached is not known"
    if placed and not worst:
        return "exact"
    return "probably other addresses of segments decide between equal blocks" if not worst else "differs"


def _settings(pool):
    """The options of the policy as the snapshot has them."""
    split = pool.options.get("max_split_size", -1)
    return {
        "expandable_segments": bool(pool.options.get("expandable_segments", False)),
        "max_split_size": split if split > 0 else None,
        "garbage_collection_threshold": float(pool.options.get("garbage_collection_threshold", 0.0)),
    }


def _limit(trace, mine, failed):
    """PyTorch's segments at its first failure, and what the device had free; None: it never failed."""
    if not len(failed):
        return None
    there = int(reserved_after(mine, failed[:1])[0])
    free = next(
        each["device_free"] for each in trace.origin.details["failures"] if each["event"] == failed[0]
    )
    return there + free


def reserved_after(mine, at):
    """Bytes of all regions after the events `at`, int64[len(at)]."""
    size = mine["size"].astype(np.int64)
    change = np.where(mine["kind"] == Kind.EXTEND, size, 0) - np.where(mine["kind"] == Kind.RELEASE, size, 0)
    total = np.concatenate([[0], np.cumsum(change)])
    return total[np.searchsorted(mine["seq"].astype(np.int64), at, side="right")]


def _first_of_history(trace, mine):
    """The index of the first event that happened while PyTorch recorded."""
    marks = mine[mine["kind"] == Kind.MARK]
    begin = [int(mark["seq"]) for mark in marks if trace.labels.name(int(mark["label"])) == BEGIN]
    return begin[0] if begin else len(trace)


def _places(mine, at, pool):
    """For each ALLOCATE: the size of its block, the size of its segment, and the offset in it."""
    if pool.options.get("expandable_segments"):
        made = mine[(mine["kind"] == Kind.ALLOCATE) & (mine["seq"] >= at.min(initial=0))]
        head = (
            np.searchsorted(at, made["seq"].astype(np.int64), side="right") - 1
        )  # a block across regions has several
        size = np.bincount(head, made["size"], len(at)).astype(np.int64)
        return _expandable_places(made["address"][np.diff(head, prepend=-1) > 0], size)
    return _segment_places(mine, set(at.tolist()))


def _places_of(outcome, made, pool):
    """The same of an outcome."""
    if pool.options.get("expandable_segments"):
        return _expandable_places(outcome.address[made], outcome.size[made].astype(np.int64))
    events = outcome.trace.read(0, len(outcome.trace))
    served = np.flatnonzero((outcome.stream.rows["kind"] == ALLOCATE) & (outcome.address != 0))
    at = events["seq"][events["kind"] == Kind.ALLOCATE][np.searchsorted(served, made)]
    return _segment_places(events, set(at.tolist()))


def _expandable_places(address, size):
    """Segments of small and of large requests grow by themselves: offsets are from the lowest block of each kind."""
    small = size <= MiB
    low = [int(address[small == kind].min(initial=1 << 62)) for kind in (False, True)]
    rows = zip(size.tolist(), small.tolist(), address.tolist(), strict=True)
    return [(size, kind, at - low[kind]) for size, kind, at in rows]


def _segment_places(events, wanted):
    regions, found = {}, []
    kinds = (Kind.EXTEND, Kind.RELEASE, Kind.ALLOCATE)
    for event in events[np.isin(events["kind"], kinds)]:
        region, address, size = int(event["region"]), int(event["address"]), int(event["size"])
        if event["kind"] == Kind.EXTEND:
            regions[region] = address, size
        elif event["kind"] == Kind.RELEASE:
            del regions[region]
        elif int(event["seq"]) in wanted:
            start, whole = regions[region]
            found.append((size, whole, address - start))
    return found


def main(*paths):
    print("| snapshot | device | requests (before) | PyTorch's peak, MiB | ours | worst difference | blocks | same "
          "size | same segment size | same place | OOM | |")  # fmt: skip
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|")
    for each in [each for path in paths for each in compared(Path(path))]:
        sizes = " | ".join(f"{size / MiB:,.0f}" for size in (each.real_peak, each.our_peak))
        worst = f"{each.worst / MiB:,.0f}" if each.requests else "-"
        blocks = f"{each.blocks:,} | {each.same_size:,} | {each.same_segment:,} | {each.same_place:,}"
        print(
            f"| {each.snapshot} | {each.device} | {each.requests:,} ({each.before:,}) | {sizes} | {worst} | {blocks} | "
            f"{'same' if each.same_failures else 'differs'} | {each.why} |"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
