"""Requests to events: what the heap must have done, and how well that agrees with what was recorded.

A heap recorded from its first request on is replayed through our own, which must take every decision again;
a heap of which the beginning was not recorded is tiled from the recorded addresses.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin import Pool
from bfcviz.events.schema import Events
from bfcviz.importers.tensorflow.comparison import Checks, compare
from bfcviz.importers.tensorflow.interleave import interleave, step_marks
from bfcviz.importers.tensorflow.recorded_addresses import PlacedChunks, place_chunks
from bfcviz.importers.tensorflow.replay import ReplayedRequests, replay
from bfcviz.importers.tensorflow.requests import ABSENT, RecordedRequests, Requests
from bfcviz.units import format_bytes

_TRUSTED = 0.99
"""The least part of addresses a replay must meet; below that, recorded places tell more than it does."""
_UNLIMITED = 1 << 62
_NOT_KNOWN = (
    "pool_bytes",
    "requested_bytes_in_use",
    "regions",
    "chunks_in_use",
    "chunks_free",
    "free_bytes",
    "largest_free_chunk",
    "external_fragmentation",
)
"""Of a heap whose beginning was not recorded."""


@dataclass(frozen=True)
class Reconstruction:
    """Events of all heaps, and what is known of their truth.

    Attributes:
        events: one stream, in order.
        pools: the heaps, with the options they must have had.
        checks: for each heap, as JSON values: how it was made, and how many requests agree with a replay.
        facts: for each heap, what it said itself in the end, and None for what nobody knows: stronger than
            what the events give.
        reasons: what is not as recorded, in words; empty where everything agrees.
    """

    events: Events
    pools: tuple[Pool, ...]
    checks: tuple[dict[str, object], ...]
    facts: tuple[dict[str, int | None], ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class _Heap:
    """One heap's part of it."""

    events: Events
    pool: Pool
    check: dict[str, object]
    reasons: list[str]
    facts: dict[str, int | None] = field(default_factory=dict)


def reconstruct(recorded: RecordedRequests) -> Reconstruction:
    """The events of every heap in `recorded`, woven together, with a MARK where a step begins."""
    before = recorded.labels.intern("in use before the profile began")
    heaps = []
    for number, name in enumerate(recorded.pools):
        places = np.flatnonzero(recorded.requests["pool"] == number)
        heaps.append(_heap(recorded.requests[places], places, name, before))
    marks = step_marks(recorded.requests, recorded.labels.intern("step"))
    return Reconstruction(
        events=interleave([heap.events for heap in heaps], marks, recorded.requests["time"]),
        pools=tuple(heap.pool for heap in heaps),
        checks=tuple(heap.check for heap in heaps),
        facts=tuple(heap.facts for heap in heaps),
        reasons=tuple(reason for heap in heaps for reason in heap.reasons),
    )


def _heap(requests: Requests, places: NDArray[np.intp], name: str, label_before: int) -> _Heap:
    """Replay one heap, tile it where that does not lead far."""
    limit = _limit(requests)
    allocations, unmatched = match_frees(requests)
    refuses_growth = False
    replayed = replay(requests, allocations, limit or _UNLIMITED, allow_growth=True)
    checks = compare(requests, replayed.rebuilt)
    if checks.differing:
        other = replay(requests, allocations, limit or _UNLIMITED, allow_growth=False)
        compared = compare(requests, other.rebuilt)
        if compared.differing < checks.differing:
            refuses_growth, replayed, checks = True, other, compared
        del other
    check: dict[str, object] = {
        "pool": name,
        "method": "replayed",
        "allow_growth": not refuses_growth,
        "checked": checks.checked,
        "matched": checks.matched,
        "differing": checks.differing,
        "differing_by_field": dict(checks.fields),
        "first_differing": checks.first,
        "frees_without_allocation": unmatched,
    }
    if checks.fields["addr"] > len(requests) * (1 - _TRUSTED):
        tiled = place_chunks(requests, label_before)
        if tiled is not None:
            return _tiled(tiled, places, Pool(name, limit), check, _facts(requests))
    events = replayed.events
    events["time"] = places[events["time"]]
    options: dict[str, Any] = {"allow_growth": not refuses_growth, "honour_alignment": False}
    return _Heap(events, Pool(name, limit, options), check, _differences(name, checks, replayed, unmatched))


def _limit(requests: Requests) -> int | None:
    """The heap's limit: what is in use, reserved and available; None where that was not recorded."""
    told = requests[(requests["bytes_available"] != ABSENT) & (requests["bytes_in_use"] != ABSENT)]
    reserved = np.where(told["bytes_reserved"] == ABSENT, 0, told["bytes_reserved"])
    limits, counts = np.unique(told["bytes_available"] + told["bytes_in_use"] + reserved, return_counts=True)
    usual = int(limits[np.argmax(counts)]) if len(limits) else 0
    return usual if 0 < usual <= _UNLIMITED else None


def match_frees(requests: Requests) -> tuple[NDArray[np.int64], int]:
    """For each request the place of the allocation it is or frees, -1 where that is unknown; how many are."""
    places = np.arange(len(requests), dtype=np.int64)
    live: dict[int, int] = {}
    unmatched = 0
    columns = zip(requests["address"].tolist(), requests["free"].tolist(), strict=True)
    for place, (address, free) in enumerate(columns):
        if free:
            places[place] = live.pop(address, -1)
            unmatched += places[place] < 0
        else:
            live[address] = place
    return places, int(unmatched)


def _differences(name: str, checks: Checks, replayed: ReplayedRequests, unmatched: int) -> list[str]:
    """Why the replay is not what was recorded, where it is not."""
    reasons = []
    if unmatched:
        reasons.append(
            f"heap {name!r}: {unmatched} frees of addresses never allocated in the profile were left out"
        )
    if replayed.refused:
        reasons.append(f"heap {name!r}: {replayed.refused} requests could not be served in the replay")
    if checks.bytes_before:
        reasons.append(
            f"heap {name!r}: {format_bytes(checks.bytes_before)} were in use before the profile began, and it never "
            "mentions where: start it earlier, before the dataset and the model are made"
        )
    if checks.differing:
        reasons.append(
            f"heap {name!r}: {checks.differing} of {checks.checked} requests differ from the reconstruction; "
            f"first {checks.first}"
        )
    return reasons


def _facts(requests: Requests) -> dict[str, int | None]:
    """What the heap said itself in the end; None for what only a known beginning would tell."""
    facts = dict.fromkeys(_NOT_KNOWN)
    for name in ("bytes_in_use", "peak_bytes_in_use"):
        told = requests[name][requests[name] != ABSENT]
        facts[name] = int(told[-1]) if len(told) and told[-1] >= 0 else None
    return facts


def _tiled(
    tiled: PlacedChunks,
    places: NDArray[np.intp],
    pool: Pool,
    check: dict[str, object],
    facts: dict[str, int | None],
) -> _Heap:
    """The heap as its recorded addresses tell it, with what that cannot tell."""
    events = tiled.events
    events["time"] = places[events["time"]]
    why = (
        "was in use before the profile began"
        if tiled.chunks_before or tiled.bytes_not_seen
        else f"cannot be replayed ({check['differing']} requests differ, first {check['first_differing']})"
    )
    shown = (
        f"heap {pool.name!r} {why}, so its regions are not known: the memory shown is what the "
        f"{check['checked']} requests touch. Chunks in use at the start: {tiled.chunks_before}; "
        f"in use by chunks the profile never mentions: {format_bytes(tiled.bytes_not_seen)}"
    )
    reasons = [shown]
    if tiled.contradicting:
        reasons.append(
            f"heap {pool.name!r}: {tiled.contradicting} requests overlap chunks in use and were left out"
        )
    if tiled.bytes_differing:
        reasons.append(f"heap {pool.name!r}: bytes in use differ after {tiled.bytes_differing} requests")
    more = {
        "method": "tiled",
        "allow_growth": None,
        "chunks_before": tiled.chunks_before,
        "contradicting": tiled.contradicting,
        "bytes_not_seen": tiled.bytes_not_seen,
    }
    return _Heap(events, pool, check | more, reasons, facts)
