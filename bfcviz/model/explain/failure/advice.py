"""Advice that fits a diagnosis: each rule looks at its numbers and settings, and quotes what it used.

A rule gives no advice for what is already on, and none whose numbers say that it would not help.
"""

from collections.abc import Callable, Iterator
from math import ceil, floor, log10
from typing import Final

from bfcviz.model.explain.failure.diagnosis import Advice, AdviceKind, Diagnosis, Verdict
from bfcviz.model.explain.failure.framework_words import GROWS_IN_PLACE, WORDS
from bfcviz.model.explain.failure.missing_information import missing_information
from bfcviz.model.explain.failure.request_size import batch_advice
from bfcviz.model.explain.failure.settings import Family
from bfcviz.units import MiB, format_bytes

_LEAST_SPLIT: Final = 32 * MiB  # PyTorch accepts no `max_split_size_mb` of 20 and less
_SHAPE: Final = frozenset({"pool_bytes", "regions", "free_bytes", "largest_free_chunk"})
"""Numbers that most rules use, as in `Diagnosis.unknown`."""

_SPLIT: Final = frozenset({Verdict.FRAGMENTATION, Verdict.REGIONS, Verdict.REFUSED})


def advice_for(found: Diagnosis) -> Iterator[Advice]:
    """Every advice that fits, the one that changes least first."""
    if found.verdict is not Verdict.NO_FAILURE:
        for rule in _RULES:
            needed = {"pool_bytes"} if rule in _OF_POOL else _SHAPE
            advice = rule(found) if found.unknown.isdisjoint(needed) else None
            if advice is not None:
                yield advice
    yield from missing_information(found)


def _is_split(found: Diagnosis) -> bool:
    """Whether enough is free, but not in one chunk."""
    return found.verdict in _SPLIT and found.free_bytes >= found.rounded > found.largest_free_chunk


def _free_pins(found: Diagnosis) -> Advice | None:
    if not found.runs or not 0 < found.runs[0].bytes_in_use < found.rounded:
        return None  # to free as much as is asked is no advice
    run = found.runs[0]
    what = "the chunk in use" if run.chunks_in_use == 1 else f"the {run.chunks_in_use:,} chunks in use"
    names = sorted({pin.label for pin in run.pins if pin.label})
    named = f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""
    return Advice(
        AdviceKind.FREE_PINS,
        f"Free {what}{named} in the place at {run.address:#x}, {format_bytes(run.bytes_in_use)} in all, before this "
        f"request: one free chunk of {format_bytes(run.size)} results. No other place needs fewer bytes freed. If they "
        "live long, allocate them before the large chunks that come and go.",
        {
            "address": run.address,
            "chunks": run.chunks_in_use,
            "bytes": run.bytes_in_use,
            "free_chunk": run.size,
        },
    )


def _region_release(found: Diagnosis) -> Advice | None:
    words, free, room = WORDS[found.settings.family], found.regions.free_bytes, found.room
    helps = found.verdict in {Verdict.REGIONS, Verdict.CAPACITY} and free > 0
    if not helps or found.settings.garbage_collection or not words.release:
        return None
    if free + (room or 0) < found.rounded:
        return None
    count = len(found.regions.wholly_free)
    what = "the wholly free region" if count == 1 else f"the {count:,} wholly free regions"
    left = "" if not room else f", and the limit leaves {format_bytes(room)}"
    return Advice(
        AdviceKind.REGION_RELEASE,
        f"Release {what}: {format_bytes(free)}{left}, enough for one region of "
        f"{format_bytes(found.rounded)}: {words.release}.",
        {"regions": count, "bytes": free, "room": room or 0, "needed": found.rounded},
    )


def _expandable(found: Diagnosis) -> Advice | None:
    settings = found.settings
    if settings.family is not Family.TORCH or settings.torch.expandable or not _is_split(found):
        return None
    return Advice(
        AdviceKind.EXPANDABLE_SEGMENTS,
        "Let segments grow in place, so that free memory is mapped to where it is needed: "
        f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. Now "
        f"{format_bytes(found.free_bytes)} are free in all (segments: {found.regions.count:,}), "
        f"at most {format_bytes(found.largest_free_chunk)} in one chunk.",
        {
            "regions": found.regions.count,
            "free_bytes": found.free_bytes,
            "largest_free_chunk": found.largest_free_chunk,
        },
    )


def _other_allocator(found: Diagnosis) -> Advice | None:
    settings = found.settings
    other = WORDS[settings.family].other
    if settings.family is Family.OWN and settings.framework in GROWS_IN_PLACE and found.regions.count > 1:
        other = f'bfcviz.serve_{settings.framework}(memory="virtual")'
    if not other or settings.torch.expandable or not _is_split(found):
        return None
    return Advice(
        AdviceKind.OTHER_ALLOCATOR,
        f"Use an allocator that maps pages to where they are needed: {other}. "
        f"{format_bytes(found.free_bytes - found.rounded)} more than the request are free.",
        {"spare": found.free_bytes - found.rounded},
    )


def _growth_off(found: Diagnosis) -> Advice | None:
    settings, limit = found.settings, found.bytes_limit
    how = WORDS[settings.family].one_region
    grows = settings.allow_growth if settings.allow_growth is not None else found.regions.count > 1
    if not how or not grows or limit is None or found.regions.count < 2 or not _is_split(found):
        return None
    free = limit - found.bytes_in_use
    return Advice(
        AdviceKind.GROWTH_OFF,
        f"Take the pool as one region at the start: {how.format(size=limit)}. It grew to {found.regions.count:,} "
        f"regions, the largest of {format_bytes(found.regions.largest)}; one region of {format_bytes(limit)} would "
        f"have {format_bytes(free)} beside the {format_bytes(found.bytes_in_use)} in use.",
        {"regions": found.regions.count, "largest": found.regions.largest, "limit": limit, "free": free},
    )


def _split_size(found: Diagnosis) -> Advice | None:
    """PyTorch's rule that keeps small chunks out of large segments."""
    settings = found.settings
    fits = settings.family is Family.TORCH and settings.torch.max_split is None and _is_split(found)
    if not fits or not found.pinned_by:
        return None
    largest = max(pin.size for pin in found.pinned_by)
    size = max(_LEAST_SPLIT, 1 << (largest - 1).bit_length())
    if size >= found.rounded:
        return None
    return Advice(
        AdviceKind.SPLIT_SIZE,
        f"Keep small chunks out of large segments: PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:{size // MiB}. The "
        f"largest chunk that pins the best place has {format_bytes(largest)}; the request needs "
        f"{format_bytes(found.rounded)}.",
        {"max_split_size_mb": size // MiB, "largest_pin": largest},
    )


def _collection_threshold(found: Diagnosis) -> Advice | None:
    settings, free = found.settings, found.regions.free_bytes
    if settings.family is not Family.TORCH or settings.torch.collection_threshold or not free:
        return None
    if found.verdict not in {Verdict.REGIONS, Verdict.REFUSED, Verdict.CAPACITY}:
        return None
    threshold = ceil(100 * (found.pool_bytes - free) / found.pool_bytes) / 100
    if not 0 < threshold < 1:
        return None
    return Advice(
        AdviceKind.COLLECTION_THRESHOLD,
        f"Return cached segments earlier: PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:{threshold:.2f}. "
        f"{format_bytes(free)} of {format_bytes(found.pool_bytes)} are in wholly free segments.",
        {"threshold": threshold, "bytes": free, "pool": found.pool_bytes},
    )


def _fraction(found: Diagnosis) -> Advice | None:
    """Split more, where the waste of one chunk would have been enough."""
    limit, wasted, largest, settings = found.bytes_limit, found.wasted, found.largest_waste, found.settings
    how = WORDS[settings.family].fraction
    if not how or limit is None or wasted is None or largest < found.rounded:
        return None
    now = (settings.fragmentation_fraction or 0) * limit or 128 * MiB
    scale = 10 ** -floor(log10(largest / limit))
    fraction = floor(largest / limit * scale) / scale  # rounded down: then that chunk is split
    if fraction * limit >= now:
        return None
    return Advice(
        AdviceKind.FRAGMENTATION_FRACTION,
        f"Split chunks sooner: {how.format(fraction=f'{fraction:g}')}. One chunk in use wastes "
        f"{format_bytes(largest)}, all together {format_bytes(wasted)}; the request needs "
        f"{format_bytes(found.rounded)}. Now waste below {format_bytes(now)} is kept.",
        {"fraction": fraction, "wasted": wasted, "largest_waste": largest, "kept_below": now},
    )


def _larger_limit(found: Diagnosis) -> Advice | None:
    limit, words, total = found.bytes_limit, WORDS[found.settings.family], found.recorded.device_total
    if limit is None or found.verdict in {Verdict.REFUSED, Verdict.UNKNOWN}:
        return None
    needed = found.pool_bytes + found.rounded
    how = words.limit.format(size=needed, mib=ceil(needed / MiB))
    if words.share and not total:
        how = f"{words.share.format(share='...')}, {needed / limit:.2f} times as large"
    elif words.share and total:
        how = words.share.format(share=f"{min(1, ceil(100 * needed / total) / 100):.2f}")
    beyond = f" The device has {format_bytes(total)}: it cannot." if total and needed > total else ""
    return Advice(
        AdviceKind.LARGER_LIMIT,
        f"With a limit of {_rounded_up(needed)}, {_rounded_up(needed - limit)} more than now, the pool could have "
        f"grown by one region that holds this request{f': {how}' if how else ''}.{beyond} That is what this request "
        "lacked: under another limit earlier regions may have other sizes, and a later request may need more.",
        {"needed": needed, "limit": limit, "more": needed - limit},
    )


def _rounded_up(num_bytes: int) -> str:
    """A number of bytes as text that says no less."""
    unit = 1024 ** max(0, (num_bytes.bit_length() - 1) // 10)
    return format_bytes(ceil(10 * num_bytes / unit) * unit / 10) if unit > 1 else format_bytes(num_bytes)


def _other_users(found: Diagnosis) -> Advice | None:
    used, free = found.device_used, found.recorded.device_free
    if used is None or free is None or found.verdict in {Verdict.ABOVE_LIMIT, Verdict.UNKNOWN}:
        return None
    others = used - found.pool_bytes
    if free >= found.rounded or others < found.rounded - free:
        return None
    return Advice(
        AdviceKind.OTHER_USERS,
        f"Other pools and processes, and the driver itself, hold {format_bytes(others)} of the device; "
        f"{format_bytes(free)} of it were free, {format_bytes(found.rounded - free)} less than needed. nvidia-smi "
        "names the processes.",
        {"others": others, "device_free": free, "missing": found.rounded - free},
    )


_RULES: Final[tuple[Callable[[Diagnosis], Advice | None], ...]] = (
    _region_release,
    _expandable,
    _other_allocator,
    _growth_off,
    _free_pins,
    _split_size,
    _collection_threshold,
    _fraction,
    _other_users,
    batch_advice,
    _larger_limit,
)
_OF_POOL: Final = frozenset({_other_users, _larger_limit})
"""Rules that use the bytes of the pool, and not its chunks."""
