"""Reconstruct events from requests, and check them against every recorded number.

A heap that was recorded from its first request on is replayed in our own heap, which must make the same decisions. If
the beginning was not recorded, the chunks are placed at their recorded addresses.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin import MAX_POOLS, Pool
from bfcviz.events.origin_details import REGION_FACTS
from bfcviz.events.schema import Events
from bfcviz.importers.tensorflow.comparison import Checks, compare
from bfcviz.importers.tensorflow.interleave import interleave, step_marks
from bfcviz.importers.tensorflow.recorded_addresses import PlacedChunks, place_chunks
from bfcviz.importers.tensorflow.replay import HeapRules, ReplayedRequests, replay
from bfcviz.importers.tensorflow.requests import ABSENT, RecordedRequests, Requests, match_frees
from bfcviz.importers.tensorflow.same_named_heaps import heaps_of
from bfcviz.units import format_bytes

_TRUSTED = 0.99
"""The minimum share of matching addresses in a replay; below it, the recorded addresses are more reliable."""
_UNLIMITED = 1 << 62
_UNKNOWN = (*REGION_FACTS, "requested_bytes_in_use", "chunks_in_use")
"""Facts that are unknown if the beginning of the heap was not recorded."""


@dataclass(frozen=True)
class Reconstruction:
    """Events of all heaps, and how they compare with the recorded numbers.

    Attributes:
        events: one stream, in order.
        pools: the heaps, with the options they must have had.
        checks: for each heap, as JSON values: the method, and how many requests agree with a replay.
        facts: for each heap, the totals that it recorded last, and None for unknown ones; they take precedence over
            the events.
        reasons: descriptions of the differences; empty if everything agrees.
    """

    events: Events
    pools: tuple[Pool, ...]
    checks: tuple[dict[str, object], ...]
    facts: tuple[dict[str, int | None], ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class _Heap:
    """The part of one heap in a reconstruction."""

    events: Events
    pool: Pool
    check: dict[str, object]
    reasons: list[str]
    facts: dict[str, int | None] = field(default_factory=dict)


def reconstruct(recorded: RecordedRequests) -> Reconstruction:
    """The events of every heap in `recorded`, interleaved, with a MARK at the start of each step."""
    before = recorded.labels.intern("in use before the profile began")
    requests = recorded.requests.copy()
    heaps: list[_Heap] = []
    spare = MAX_POOLS - len(recorded.pools)
    for number, name in enumerate(recorded.pools):
        places = np.flatnonzero(recorded.requests["pool"] == number)
        found = _heaps_of_name(recorded.requests[places], places, name, before)
        if len(found) > spare + 1:
            found = [(places, _heap(recorded.requests[places], places, name, before))]
        spare -= len(found) - 1
        for part, heap in found:
            requests["pool"][part] = len(heaps)
            heaps.append(heap)
    marks = step_marks(requests, recorded.labels.intern("step"))
    return Reconstruction(
        events=interleave([heap.events for heap in heaps], marks, requests["time"]),
        pools=tuple(heap.pool for heap in heaps),
        checks=tuple(heap.check for heap in heaps),
        facts=tuple(heap.facts for heap in heaps),
        reasons=tuple(reason for heap in heaps for reason in heap.reasons),
    )


def _heaps_of_name(
    requests: Requests, places: NDArray[np.intp], name: str, label_before: int
) -> list[tuple[NDArray[np.intp], _Heap]]:
    """The heap with this name, and its requests; several ones if that makes every replay exact."""
    heap = _heap(requests, places, name, label_before)
    parts = heaps_of(requests) if heap.check["differing"] else []
    if len(parts) < 2:
        return [(places, heap)]
    names = [name, *(f"{name} ({number})" for number in range(2, len(parts) + 1))]
    found = [
        (places[part], _heap(requests[part], places[part], each, label_before))
        for part, each in zip(parts, names, strict=True)
    ]
    return [(places, heap)] if any(heap.check["differing"] for _, heap in found) else found


def _heap(requests: Requests, places: NDArray[np.intp], name: str, label_before: int) -> _Heap:
    """Replay one heap; if too few addresses match, use the recorded addresses instead."""
    limit = _limit(requests)
    allocations, unmatched = match_frees(requests)
    refuses_growth = False
    replayed = replay(requests, allocations, HeapRules(limit or _UNLIMITED, allow_growth=True))
    checks = compare(requests, replayed.rebuilt)
    if checks.differing:
        other = replay(requests, allocations, HeapRules(limit or _UNLIMITED, allow_growth=False))
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
        placed = place_chunks(requests, label_before)
        if placed is not None:
            return _heap_from_addresses(placed, places, Pool(name, limit), check, _facts(requests))
    events = replayed.events
    order: NDArray[np.uint64] = events["time"]
    events["time"] = places[order]
    options: dict[str, Any] = {"allow_growth": not refuses_growth, "honour_alignment": False}
    return _Heap(events, Pool(name, limit, options), check, _differences(name, checks, replayed, unmatched))


def _limit(requests: Requests) -> int | None:
    """The limit of the heap: bytes in use, reserved and available; None if not recorded."""
    known = requests[(requests["bytes_available"] != ABSENT) & (requests["bytes_in_use"] != ABSENT)]
    reserved = np.where(known["bytes_reserved"] == ABSENT, 0, known["bytes_reserved"])
    limits, counts = np.unique(
        known["bytes_available"] + known["bytes_in_use"] + reserved, return_counts=True
    )
    usual = int(limits[np.argmax(counts)]) if len(limits) else 0
    return usual if 0 < usual <= _UNLIMITED else None


def _differences(name: str, checks: Checks, replayed: ReplayedRequests, unmatched: int) -> list[str]:
    """Descriptions of the differences between the replay and the recorded numbers."""
    reasons = []
    if unmatched:
        reasons.append(
            f"heap {name!r}: {unmatched} frees of addresses never allocated in the profile were left out"
        )
    if replayed.refused:
        reasons.append(f"heap {name!r}: {replayed.refused} requests failed in the replay")
    if checks.bytes_before:
        reasons.append(
            f"heap {name!r}: {format_bytes(checks.bytes_before)} were in use before the profile began, at unknown "
            "addresses: start the profile earlier, before the program creates the dataset and the model"
        )
    if checks.differing:
        reasons.append(
            f"heap {name!r}: {checks.differing} of {checks.checked} requests differ from the reconstruction; "
            f"first {checks.first}"
        )
    return reasons


def _facts(requests: Requests) -> dict[str, int | None]:
    """The totals that the heap recorded last; None for those that need a known beginning."""
    facts = dict.fromkeys(_UNKNOWN)
    for name in ("bytes_in_use", "peak_bytes_in_use"):
        known = requests[name][requests[name] != ABSENT]
        facts[name] = int(known[-1]) if len(known) and known[-1] >= 0 else None
    return facts


def _heap_from_addresses(
    placed: PlacedChunks,
    places: NDArray[np.intp],
    pool: Pool,
    check: dict[str, object],
    facts: dict[str, int | None],
) -> _Heap:
    """The heap from its recorded addresses, and what those do not show."""
    events = placed.events
    order: NDArray[np.uint64] = events["time"]
    events["time"] = places[order]
    why = (
        "was in use before the profile began"
        if placed.chunks_before or placed.bytes_not_seen
        else f"cannot be replayed ({check['differing']} requests differ, first {check['first_differing']})"
    )
    shown = (
        f"heap {pool.name!r} {why}, so its regions are unknown: the picture shows only the memory that the "
        f"{check['checked']} requests touch. Chunks in use at the start: {placed.chunks_before}; "
        f"bytes in use in chunks that the profile does not mention: {format_bytes(placed.bytes_not_seen)}"
    )
    reasons = [shown]
    if placed.contradicting:
        reasons.append(
            f"heap {pool.name!r}: {placed.contradicting} requests overlap chunks in use and were left out"
        )
    if placed.bytes_differing:
        reasons.append(f"heap {pool.name!r}: bytes in use differ after {placed.bytes_differing} requests")
    more = {
        "method": "tiled",
        "allow_growth": None,
        "chunks_before": placed.chunks_before,
        "contradicting": placed.contradicting,
        "bytes_not_seen": placed.bytes_not_seen,
    }
    return _Heap(events, pool, check | more, reasons, facts)
