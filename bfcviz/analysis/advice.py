"""Advice that fits a diagnosis: each rule looks at its numbers and settings, and quotes what it used.

A rule gives no advice for what is already on, and none whose numbers say that it would not help.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from math import ceil, floor, log10
from typing import Final

from bfcviz.analysis.diagnosis import Advice, AdviceKind, Diagnosis, Family, Verdict
from bfcviz.formats import cupy, rmm, tensorflow, torch, xla
from bfcviz.formats.settings import SettingWords
from bfcviz.units import MiB, format_bytes

# ------------------------------------------------------------------------------
# The words of each family's settings.

_VULKAN: Final = SettingWords(
    title="VMA",
    limit="VmaAllocatorCreateInfo::pHeapSizeLimit",
    one_region="VmaPoolCreateInfo::blockSize={size}",
    other="vmaBeginDefragmentation()",
    heap="vmaBuildStatsString(allocator, &text, VK_TRUE)",
    history="bfcviz reads only states of VMA: write vmaBuildStatsString() at several moments",
)

_OWN: Final = SettingWords(
    title="bfcviz",
    limit="limit={size}",
    one_region="AllocatorOptions(allow_growth=False)",
    release="AllocatorOptions(garbage_collection=True)",
    fraction="AllocatorOptions(fragmentation_fraction={fraction})",
    heap="bfcviz record",
    history="bfcviz record, with bfcviz.label(name) around the calls",
)

WORDS: Final[Mapping[Family, SettingWords]] = {
    Family.TENSORFLOW: tensorflow.WORDS,
    Family.JAX: xla.WORDS,
    Family.TORCH: torch.WORDS,
    Family.RMM: rmm.WORDS,
    Family.CUPY: cupy.WORDS,
    Family.VULKAN: _VULKAN,
    Family.OWN: _OWN,
}
"""The words of each family."""

GROWS_IN_PLACE: Final = frozenset({"cupy", "torch", "rmm"})
"""Frameworks that our heap can serve from memory that grows in place: `memory="virtual"`."""


# ------------------------------------------------------------------------------
# What the trace does not say, and what to run again to know it.


def missing_information(found: Diagnosis) -> Iterator[Advice]:
    """One advice for each gap that matters to this diagnosis."""
    words = WORDS[found.settings.family]
    if not found.recorded.has_heap:
        yield _rerun(
            f"The chunks of that moment are not in the file. Run again with {words.heap} to record them.",
            heap=0,
        )
        return
    if found.verdict is Verdict.UNKNOWN and not found.knows("largest_free_chunk"):
        yield _rerun(
            f"The file does not say what was free. Run again with {words.heap} to record the chunks of a failure.",
            heap=0,
        )
    elif found.verdict is Verdict.UNKNOWN:
        yield _rerun(
            "The file does not show why a free chunk that is large enough was not taken. Run again with "
            f"{words.history} to record every event before the failure.",
            largest_free_chunk=found.largest_free_chunk,
        )
    pins = [pin for run in found.runs for pin in run.pins]
    unnamed = sum(not pin.label for pin in pins)
    lacking = [
        *(["how old they are"] if pins and found.is_state_only else []),
        *([f"who holds {unnamed:,} of them"] if unnamed else []),
    ]
    if lacking:
        yield _rerun(
            f"The file does not say of the {len(pins):,} chunks in the way {' and '.join(lacking)}. Run again with "
            f"{words.history}.",
            chunks=len(pins),
            unnamed=unnamed,
        )
    if (
        found.bytes_limit is None
        and found.verdict is not Verdict.NO_FAILURE
        and found.recorded.device_free is None
    ):
        yield _rerun(
            "The file states neither a limit nor the free memory of the device, so it is not known whether the pool "
            "could grow. Record with bfcviz, or print the device's free memory beside the failure (nvidia-smi).",
            pool_bytes=found.pool_bytes,
        )


def _rerun(text: str, **numbers: float) -> Advice:
    return Advice(AdviceKind.RERUN, text, numbers)


# ------------------------------------------------------------------------------
# An estimate of the batch size that would fit, from the bytes in use and the request.

_SHAPE_OF_REQUEST: Final = re.compile(r"\[\s*(\d+)\s*,")
"""The first of several dimensions in a printed shape, such as `shape[128,64,32,32]`."""


def batch_advice(found: Diagnosis) -> Advice | None:
    """The shares of the batch size that bound what fits, as an estimate.

    The upper bound takes all memory in use as proportional to the batch size, the lower one only this request. The true
    share lies between, because weights do not grow with the batch. If the free memory is not in one chunk, a request
    must fit the largest free chunk; so it must if all memory in use would fit the capacity, for then only its places
    are in the way.
    """
    if found.verdict in {Verdict.UNKNOWN, Verdict.NO_FAILURE, Verdict.REFUSED} or found.event is None:
        return None
    total, capacity = found.bytes_in_use + found.rounded, _capacity(found)
    fits = max(found.largest_free_chunk, found.room or 0)
    if capacity <= 0 or fits <= 0:
        return None
    low = fits / found.rounded
    is_scattered = found.verdict is Verdict.FRAGMENTATION or capacity >= total
    high = low if is_scattered else max(low, capacity / total)
    return Advice(
        AdviceKind.BATCH_SIZE, _text(found, low, high, fits), {"least": low, "most": high, "fits": fits}
    )


def _capacity(found: Diagnosis) -> int:
    return found.pool_bytes if found.bytes_limit is None else found.bytes_limit


def _text(found: Diagnosis, low: float, high: float, fits: int) -> str:
    shares = _range(floor(100 * low), floor(100 * high))
    shape = _SHAPE_OF_REQUEST.search(found.recorded.tensor) or _SHAPE_OF_REQUEST.search(found.label)
    first = int(shape[1]) if shape else 0
    batches = ""
    if floor(first * high) > 0:
        numbers = _range(floor(first * low), floor(first * high))
        batches = f" If the first dimension of the tensor, {first:,}, is the batch: {numbers}."
    how = f"a request of at most {format_bytes(fits)} fits, {format_bytes(found.rounded)} were needed"
    if high > low:
        how += (
            f"; if all {format_bytes(found.bytes_in_use)} in use shrink with the batch, "
            f"{format_bytes(_capacity(found))} are enough for the upper share"
        )
    return f"Reduce the batch size to {shares} %, an estimate: {how}.{batches}"


def _range(low: int, high: int) -> str:
    """Two bounds as words; a lower one that is far off is left out."""
    if low == high:
        return f"about {low:,}"
    return f"{low:,} to {high:,}" if 10 * low > high else f"at most {high:,}"


# ------------------------------------------------------------------------------
# Advice that fits a diagnosis: each rule looks at its numbers and settings, and quotes what it used.

_LEAST_SPLIT: Final = 1 << torch.LEAST_MAX_SPLIT.bit_length()  # the next power of two: every version takes it
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
        f"{torch.setting('expandable_segments', 'True')}. Now "
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
        f"Keep small chunks out of large segments: {torch.setting('max_split_size_mb', size // MiB)}. The "
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
        f"Return cached segments earlier: {torch.setting('garbage_collection_threshold', f'{threshold:.2f}')}. "
        f"{format_bytes(free)} of {format_bytes(found.pool_bytes)} are in wholly free segments.",
        {"threshold": threshold, "bytes": free, "pool": found.pool_bytes},
    )


def _fraction(found: Diagnosis) -> Advice | None:
    """Split more, where the waste of one chunk would have been enough."""
    limit, wasted, largest, settings = found.bytes_limit, found.wasted, found.largest_waste, found.settings
    how = WORDS[settings.family].fraction
    if not how or limit is None or wasted is None or largest < found.rounded:
        return None
    now = tensorflow.max_waste(limit, settings.fragmentation_fraction or 0)
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
