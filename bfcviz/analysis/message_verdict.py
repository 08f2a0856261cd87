"""Why the request of a stated failure was refused: the verdict that its numbers decide, with one sentence.

Arithmetic comes before a cause, in this order: the request and the device; the request and a limit that was set; what
is free; what is free together with the cache; then who holds the rest. A verdict is `unknown` only where the numbers
that would decide are not in the text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import Final

from bfcviz.formats import tensorflow
from bfcviz.formats.message_grammar import IMPOSSIBLE, Role, StatedFailure
from bfcviz.formats.message_tables import BY_SIGNAL, ENTRIES, HOST
from bfcviz.units import GiB, MiB, counted, format_bytes, listed


class StatedCause(StrEnum):
    """Why the request of a stated failure was refused."""

    REQUEST_EXCEEDS_DEVICE = "request_exceeds_device"  # it is larger than the whole device
    REQUEST_EXCEEDS_LIMIT = "request_exceeds_limit"  # larger than the limit, or than any one buffer may be
    CAP_BY_SETTING = "cap_by_setting"  # a limit that someone set ends the pool, and the device has more
    SPILLED = "spilled_to_system"  # more is allocated than the device has: the rest is in system memory
    DRIVER_REFUSED = "driver_refused_with_memory_free"  # the driver said that enough is free, and refused
    CACHED_FRAGMENTATION = "cached_fragmentation"  # enough is free only with what the allocator caches
    PRIVATE_POOLS = "private_pools"  # the free memory belongs to pools of graphs
    OTHER_PROCESS = "other_process"  # others hold what is missing
    CAPACITY = "capacity"  # full by this process
    HOST_MEMORY = "host_memory"  # system memory, not GPU memory
    NOT_LACK_OF_MEMORY = "not_lack_of_memory"  # the text names another reason
    CONSEQUENCE = "consequence"  # another rank of the job failed or hung first
    NOT_A_FAILURE = "not_a_failure"
    UNKNOWN = "unknown"  # the numbers that decide are not in the text


@dataclass(frozen=True)
class Judgement:
    """The verdict on a stated failure.

    Attributes:
        cause: the verdict.
        sentence: why, with the numbers of the text.
        second: the next likely one; None where the numbers leave no doubt.
        others: bytes that other processes hold; None where the text does not tell.
    """

    cause: StatedCause
    sentence: str
    second: StatedCause | None = None
    others: int | None = None


def judge(found: StatedFailure) -> Judgement:
    """The verdict on a stated failure."""
    judged = _judged(found)
    return replace(judged, sentence=f"{judged.sentence} {_CUT_DUMP}") if "cut_dump" in found.marks else judged


_CUT_DUMP: Final = "The list of chunks in the text is cut: this follows from its other lines."


def _judged(found: StatedFailure) -> Judgement:
    if "below_zero" in found.marks:
        below = found.facts.get("below_zero")
        amount = "" if below is None else f", {below:,} bytes below zero"
        wrapped = ", which the text prints as a number of 2^63 or more" if "wrapped" in found.marks else ""
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_DEVICE,
            f"The size of the request is negative{amount}{wrapped}: the program computed it wrong. Most often an array "
            "has 2^31 elements or more, and a number of 32 bits overflows.",
        )
    if {"host", *tensorflow.PINNED_POOLS} & found.marks:
        return _guardrail_verdict(found) or _pinned_pool_verdict(found) or _host_memory_verdict(found)
    total, request = found.fact("device_total"), found.facts.get("requested")
    if request is not None and total and _is_fact_above(found, "requested", total, "device_total"):
        return _beyond_device_verdict(found, request, total)
    is_absurd = request is not None and request >= IMPOSSIBLE
    is_beyond = request is not None and request > _LARGEST_DEVICE and not total and not found.fact("limit")
    if request is not None and (is_absurd or is_beyond) and "on_chip" not in found.marks:
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_DEVICE,
            f"{_size(request)} in one request: no single device has so much. The shape is wrong, or the program "
            "must be split.",
            StatedCause.REQUEST_EXCEEDS_LIMIT,
        )
    if found.message in _FIXED:
        return _FIXED[found.message]
    rule = _RULES.get(found.message) or _GROUPS[found.message.partition("-")[0]]
    return rule(found)


def judge_soft(found: StatedFailure) -> Judgement:
    """The verdict on a stated refusal that is no failure: what it was."""
    who = "nvidia-smi" if found.message == "nvidia-smi" else found.framework
    if found.message in _SOFT_TEXTS:
        sizes = {name: _size(found.fact(name) or 0) for name in ("requested", "limit")}
        what = _SOFT_TEXTS[found.message].format(**sizes)
    else:
        what = _SOFT.get(found.message, _soft_request_text)(found)
    return Judgement(StatedCause.NOT_A_FAILURE, f"{who}: {what}.")


_LARGEST_DEVICE: Final = 512 * GiB  # more than any single device has in 2026


def _undecided(sentence: str, second: StatedCause = StatedCause.CAPACITY) -> Judgement:
    """The verdict where no stated numbers decide; `second`: the most likely cause."""
    return Judgement(StatedCause.UNKNOWN, sentence, second)


_NO_NUMBERS: Final = _undecided("The text lacks numbers of this failure.")


def _size(number: int) -> str:
    return format_bytes(number, 2)


def _request_words(found: StatedFailure, what: str = "A request") -> str:
    """For a verdict, what was refused, with its size where the text states it."""
    size = found.fact("requested")
    return what if size is None else f"{what} of {_size(size)}"


def _is_fact_above(found: StatedFailure, name: str, other: int, *names: str) -> bool:
    """Whether a stated number is above another, whatever the digits are that the text left out."""
    return found.exceeds(name, other + sum(found.slack.get(each, 0) for each in names))


# ------------------------------------------------------------------------------
# Who holds the device, from the numbers of one process.

CONTEXT: Final = 0.25
"""Of the device: what others must hold at least to be the cause. Contexts and displays hold less."""

LEAST_OTHERS: Final = int(0.8 * GiB)
"""The same on a small device: a context with kernels, cuDNN and a display take so much of any."""

_CONTEXT_AND_CACHE: Final = 0.5
"""The same where the text does not say how much the pool of this process caches."""

SLIVER: Final = 0.05
"""Of the pool or of the device: a smaller cache may serve this request, and hardly the next."""

_LEAST_CACHE: Final = 0.02  # of the pool: a smaller cache is only the rest of rounding
_WORTH_A_WORD: Final = 0.05  # of the device: what lies outside of the allocator and is less, is the context
_FULL: Final = 0.9  # of the device: with so much in live tensors it is full
_SELF: Final = (
    0.03  # of the device: a listed process that leaves less for others is this one, as in a container
)
_LEAST_MARGIN: Final = 64 * MiB
"""A driver may refuse so much of what it says is free, or 1 % of the device: for its tables, and in other pieces."""


@dataclass(frozen=True)
class DeviceUse:
    """For a verdict, the device as PyTorch's text tells it; None where it does not.

    Attributes:
        pool: what the allocator holds.
        cached: of it, what no tensor uses.
        own: this process with all that it holds outside of the pool.
        others: bytes of other processes, or of all outside the pool where the text does not tell them apart.
        listed: bytes of the processes that are named and are not this one.
        is_listed: whether the text tells this process and the others apart.
    """

    pool: int | None
    cached: int | None
    own: int | None
    others: int | None
    listed: int
    is_listed: bool


def device_use(found: StatedFailure) -> DeviceUse:
    """For a verdict, who holds the device by PyTorch's text."""
    fact = found.fact
    allocated, reserved = fact("allocated"), fact("reserved")
    cached = fact("reserved_unallocated")
    if cached is None:
        cached = fact("cached")
    if cached is None and allocated is not None and reserved is not None:
        cached = max(0, reserved - allocated)
    pool = reserved if reserved is not None else None if allocated is None else allocated + (cached or 0)
    total, free, own = fact("device_total"), fact("device_free"), fact("process_in_use")
    if own is not None and own < (
        pool or 0
    ):  # in a container the driver may not know the process: it prints 0
        own = None
    used = None if total is None or free is None else max(0, total - free)
    listed = dict(found.processes)
    if own is None and used is not None and total is not None:
        # In a container the pid that the driver lists is not the one that the process knows.
        large = [pid for pid, held in listed.items() if held >= (pool or 0)]
        alone = [pid for pid in large if used - listed[pid] < _SELF * total]
        if pool and len(large) == 1 and pool + sum(listed.values()) > used:  # the pool is one of those listed
            alone = large
        own = listed.pop(alone[0]) if alone else None
    others = None if used is None else max(0, used - (own if own is not None else (pool or 0)))
    if used is None and listed:
        others = sum(listed.values())
    elif own is None and pool is None:
        others = sum(listed.values()) if listed else None
    return DeviceUse(pool, cached, own, others, sum(listed.values()), own is not None)


def _beyond_device_verdict(found: StatedFailure, request: int, total: int) -> Judgement:
    held = found.fact("allocated")
    use = device_use(found)
    if use.pool is not None and use.pool > total * 1.01:
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_DEVICE,
            f"The request of {_size(request)} is more than the {_size(total)} of the device, and {_size(use.pool)} "
            "are allocated already: the driver moved memory into the system, until that ended, too.",
            StatedCause.SPILLED,
        )
    nothing = " Nothing else is allocated." if held == 0 else ""
    times = f"{request / total:.1f} times" if request >= 1.5 * total else "more than"
    second = StatedCause.DRIVER_REFUSED if held == 0 else None
    return Judgement(
        StatedCause.REQUEST_EXCEEDS_DEVICE,
        f"The request of {_size(request)} is {times} the {_size(total)} of the device: it can never fit.{nothing}",
        second,
    )


# ------------------------------------------------------------------------------
# PyTorch.


def _torch_verdict(found: StatedFailure) -> Judgement:
    request, total, free = found.fact("requested"), found.fact("device_total"), found.fact("device_free")
    use = device_use(found)
    if request is None:
        return _torch_no_request_verdict(found, use)
    for rule in (
        _torch_fraction_verdict,
        _torch_spilled_verdict,
        _torch_refused_verdict,
        _torch_fragmented_verdict,
        _torch_private_pool_verdict,
    ):
        judged = rule(found, request, use)
        if judged is not None:
            return judged
    if total is not None and free is None and use.pool is not None:
        return _torch_unknown_free_verdict(found, request, total, use)
    if total is None:
        return _undecided(
            f"{_size(request)} were refused; the text does not say how much the device has and who holds it."
        )
    if free is None:
        return _torch_cut_verdict(found, request, total)
    return _torch_full_verdict(found, request, use)


def _torch_no_request_verdict(found: StatedFailure, use: DeviceUse) -> Judgement:
    """The verdict on a text of PyTorch without the size of the request: what else it says may decide."""
    total, free = found.fact("device_total"), found.fact("device_free")
    if total is None or free is None or use.pool is None:
        return _undecided(
            "The text names the failure, but not its numbers: they stand in the lines after it."
        )
    held = f"{_size(free)} of {_size(total)} are free, and this pool holds {_size(use.pool)}."
    if use.others is not None and use.others >= max(CONTEXT * total, LEAST_OTHERS, use.pool):
        return Judgement(
            StatedCause.OTHER_PROCESS,
            f"{held} {_size(use.others)} lie outside of it: another process, or a library.",
            StatedCause.CAPACITY,
            use.others,
        )
    return _undecided(f"{held} The size of the request is not in the text.")


def _torch_cut_verdict(found: StatedFailure, request: int, total: int) -> Judgement:
    """The verdict on a text of PyTorch that ends after the size of the device."""
    is_xpu = found.framework == "PyTorch XPU"
    if request >= total - found.slack.get("requested", 0) - found.slack.get("device_total", 0):
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_DEVICE,
            f"The request of {_size(request)} is as much as the whole device, of which the driver and the context need "
            "a part: it can never fit.",
            StatedCause.DRIVER_REFUSED if is_xpu else None,
        )
    is_one_buffer = is_xpu and request >= _LARGEST_BUFFER
    intel = (
        f" Drivers of Intel refuse single buffers of {_size(_LARGEST_BUFFER)} or more, unless told otherwise."
        if is_one_buffer
        else ""
    )
    return _undecided(
        f"{_size(request)} were refused on a device of {_size(total)}. How much of it is free, and who holds it, is "
        f"not in the text.{intel}",
        StatedCause.DRIVER_REFUSED if is_one_buffer else StatedCause.CAPACITY,
    )


def _live_tensors(found: StatedFailure) -> int | None:
    """For a verdict, bytes of live tensors: PyTorch counts free blocks of private pools as allocated, too."""
    allocated = found.fact("allocated")
    return None if allocated is None else max(0, allocated - (found.fact("private_pools") or 0))


def _torch_unknown_free_verdict(found: StatedFailure, request: int, total: int, use: DeviceUse) -> Judgement:
    """The verdict where PyTorch's text does not say what is free, as of older versions for XPU."""
    pool, cached, live = use.pool or 0, use.cached or 0, found.fact("allocated")
    tensors = pool - cached if live is None else live
    most = max(0, total - pool)
    held = f"PyTorch holds {_size(pool)} of {_size(total)}, {_size(tensors)} of it live tensors"
    if request > most + cached:
        return Judgement(
            StatedCause.CAPACITY,
            f"At least {_size(request - most)} are missing: {held}. The text does not say how much of the rest is "
            "free, but all of it and the cache together would be too little.",
            StatedCause.OTHER_PROCESS if most > CONTEXT * total else None,
        )
    if request > most:
        return _undecided(
            f"{held}: at most {_size(most)} are free, {_size(request - most)} less than was asked. With the cache of "
            f"{_size(cached)} it would fit only if {_size(request - cached)} were free, and the text does not say "
            "how much is."
        )
    is_one_buffer = _is_one_large_buffer(found, request, total, use)
    return _undecided(
        f"{_size(request)} were refused. {held}: the other {_size(most)} are free or in use outside of PyTorch; the "
        f"text does not say which.{' Drivers of Intel refuse single buffers of some GiB.' if is_one_buffer else ''}",
        StatedCause.DRIVER_REFUSED
        if is_one_buffer
        else StatedCause.OTHER_PROCESS
        if most > CONTEXT * total
        else StatedCause.CAPACITY,
    )


def _is_one_large_buffer(found: StatedFailure, request: int, total: int, use: DeviceUse) -> bool:
    """For a verdict, whether Intel's driver may have refused a request for its size, on a device not full."""
    return found.framework == "PyTorch XPU" and request >= _ONE_BUFFER and (use.pool or 0) < CONTEXT * total


_ONE_BUFFER: Final = 1 * GiB
"""Intel's drivers refuse single buffers from some size on: 4 GiB where nothing else is set, less under WSL."""

_LARGEST_BUFFER: Final = 4 * GiB
"""The size where nothing else is set."""


def _largest_buffer_verdict(found: StatedFailure) -> Judgement:
    """The verdict where one buffer is larger than the driver, or the memory of a multiprocessor, allows."""
    request, limit = found.fact("requested"), found.fact("limit")
    most = "" if limit is None else f", {_size(limit)}"
    if "on_chip" in found.marks:
        needed = "more" if request is None else _size(request)
        what = (
            f"A kernel needs {needed} of shared memory, more than it may use{most}. It lies inside each "
            "multiprocessor: the memory of the device is not short."
        )
        return Judgement(StatedCause.REQUEST_EXCEEDS_LIMIT, what)
    buffer = _request_words(found, "One buffer")
    if found.message == "torch-xpu-block":
        what = f"{buffer} is more than Intel's extension for PyTorch allows for any{most}."
        return Judgement(StatedCause.REQUEST_EXCEEDS_LIMIT, what)
    if found.message == "program-limit":
        what = f"{buffer} is more than {found.framework} allows for it here{most}. How much is free does not matter."
        return Judgement(StatedCause.REQUEST_EXCEEDS_LIMIT, what, StatedCause.CAP_BY_SETTING)
    return Judgement(
        StatedCause.REQUEST_EXCEEDS_LIMIT,
        f"{buffer} is more than the driver allows for any{most}.",
        StatedCause.DRIVER_REFUSED,
    )


def _outside_torch_sentence(found: StatedFailure, use: DeviceUse) -> str:
    """A verdict's sentence on what lies outside of PyTorch's memory, where that is worth one; else ""."""
    total, free = found.fact("device_total"), found.fact("device_free")
    if total is None or free is None or use.pool is None:
        return ""
    outside = total - free - use.pool
    if outside < _WORTH_A_WORD * total:
        return ""
    if "async" in found.marks:  # the text does not say what the pool of the driver holds
        return (
            f" {_size(outside)} more of the device are in use, but are not live tensors: what the driver's pool keeps "
            "for this process, its context, or other processes."
        )
    return f" {_size(outside)} more of the device are in use outside of PyTorch's allocator."


def _torch_fraction_verdict(found: StatedFailure, request: int, use: DeviceUse) -> Judgement | None:
    """The verdict where the limit of a fraction ends PyTorch's pool before the device does."""
    limit, total, free = found.fact("limit"), found.fact("device_total"), found.fact("device_free")
    if limit is None or use.pool is None or (total is not None and limit >= total):
        return None
    slack = sum(found.slack.get(name, 0) for name in ("limit", "allocated", "reserved", "requested"))
    if use.pool + request <= limit - slack:
        return None
    rest = "" if free is None else f"; {_size(free)} of the device are free"
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        f"The process may hold {_size(limit)} (set_per_process_memory_fraction): {_size(use.pool)} that it holds "
        f"and {_size(request)} more pass it{rest}.",
    )


def _torch_spilled_verdict(found: StatedFailure, _request: int, use: DeviceUse) -> Judgement | None:
    total = found.fact("device_total")
    if total is None or use.pool is None or not use.pool > total * 1.01:
        return None
    held, used = use.pool, found.fact("allocated") or 0
    in_use = f", {_size(used)} of it in use," if used > total and _size(used) != _size(held) else ""
    return Judgement(
        StatedCause.SPILLED,
        f"{_size(held)}{in_use} are allocated on a device of {_size(total)}: the driver moved at least "
        f"{_size((used if in_use else held) - total)} into system memory, until that ended, too.",
        StatedCause.CAPACITY,
    )


def _torch_refused_verdict(found: StatedFailure, request: int, use: DeviceUse) -> Judgement | None:
    free, total = found.fact("device_free"), found.fact("device_total")
    if free is None or free < request:
        return None
    if total is not None and free > total * 1.01:
        which = f" The figures contradict each other: more is free than the {_size(total)} of the device."
    elif total is not None and _is_nearly_full(found, request, free, total, use):
        live = _live_tensors(found)
        tensors = "" if live is None else f" {_size(live)} of {_size(total)} are live tensors."
        is_of_others = use.others is not None and use.others >= max(CONTEXT * total, LEAST_OTHERS)
        return Judgement(
            StatedCause.DRIVER_REFUSED,
            f"{_size(request)} were refused with {_size(free)} free: {_size(free - request)} more than that, which "
            f"the driver may need itself. With this request the device is full.{tensors}"
            f"{_outside_torch_sentence(found, use)}",
            StatedCause.OTHER_PROCESS if is_of_others else StatedCause.CAPACITY,
            use.others,
        )
    elif use.pool or found.fact("allocated") is None:
        which = " Not a lack of memory: a race with another process, or the driver or system refused."
    else:
        which = " Nothing is allocated yet: the driver or the system refused, for example a single buffer so large."
    return Judgement(
        StatedCause.DRIVER_REFUSED,
        f"{_size(request)} were refused with {_size(free)} free on the device.{which}",
    )


def _is_nearly_full(found: StatedFailure, request: int, free: int, total: int, use: DeviceUse) -> bool:
    """For a verdict, whether so little is free beyond a request that a driver may need it."""
    if not use.pool or _is_one_large_buffer(found, request, total, use):
        return False
    return free - request < max(_LEAST_MARGIN, total // 100)


def _torch_fragmented_verdict(found: StatedFailure, request: int, use: DeviceUse) -> Judgement | None:
    free = found.fact("device_free")
    if free is None or use.cached is None or use.pool is None:
        return None
    if not _would_fit_with_cache(request, free, use) or _is_held_by_others(found, request, free, use):
        return None
    if _is_cache_about_the_gap(found, request, free, use):
        return None
    others = _stated_others_of(found, use)
    beside = f" Other processes hold {_size(others)}." if others else ""
    return Judgement(
        StatedCause.CACHED_FRAGMENTATION,
        f"{_size(request - free)} are missing ({_size(request)} asked, {_size(free)} free), while PyTorch holds "
        f"{_size(use.cached)} that no tensor uses: pieces of segments in which live tensors lie."
        f"{_outside_torch_sentence(found, use)}{beside}",
        StatedCause.CAPACITY,
        use.others,
    )


def _would_fit_with_cache(request: int, free: int, use: DeviceUse) -> bool:
    """For a verdict, whether the cache and what is free are enough for a request."""
    if use.cached is None or use.pool is None:
        return False
    return free + use.cached >= request and use.cached >= _LEAST_CACHE * use.pool


def _is_cache_about_the_gap(found: StatedFailure, request: int, free: int, use: DeviceUse) -> bool:
    """For a verdict, whether the cache is as much as is missing, as far as the text's digits tell."""
    if use.cached is None or use.pool is None or use.cached < _LEAST_CACHE * use.pool:
        return False
    stated = next(
        (each for each in ("reserved_unallocated", "cached") if found.fact(each) is not None), "reserved"
    )
    names = {"requested", "device_free", stated, *(["allocated"] if stated == "reserved" else [])}
    return abs(free + use.cached - request) < sum(found.slack.get(name, 0) for name in names)


def _is_held_by_others(found: StatedFailure, request: int, free: int, use: DeviceUse) -> bool:
    """For a verdict, whether others hold so much of the device that a small cache or pool is not the cause."""
    total = found.fact("device_total")
    if total is None or use.others is None or use.others < max(CONTEXT * total, LEAST_OTHERS, request - free):
        return False
    return (use.cached or 0) < SLIVER * total or use.others > (use.pool or 0)


def _torch_private_pool_verdict(found: StatedFailure, request: int, use: DeviceUse) -> Judgement | None:
    free, private = found.fact("device_free"), found.fact("private_pools")
    if free is None or not private or private < request - free - (use.cached or 0):
        return None
    if private < _LEAST_CACHE * (use.pool or 0):
        return None
    return Judgement(
        StatedCause.PRIVATE_POOLS,
        f"{_size(request - free)} are missing, and {_size(private)} are free in private pools, which only CUDA "
        f"graphs and MemPools may use.{_outside_torch_sentence(found, use)}",
        StatedCause.CAPACITY,
        use.others,
    )


def _stated_others_of(found: StatedFailure, use: DeviceUse) -> int:
    """For a verdict, bytes of other processes that are worth a word; 0 where they could not close the gap."""
    request, free, total = found.fact("requested"), found.fact("device_free"), found.fact("device_total")
    if not use.is_listed or use.others is None or request is None or free is None or total is None:
        return 0
    return use.others if use.others >= max(request - free, _LEAST_CACHE * total) else 0


def _torch_full_verdict(found: StatedFailure, request: int, use: DeviceUse) -> Judgement:
    """The verdict where not even PyTorch's cache would do: the device is full, by this process or others."""
    total, free = found.facts["device_total"], found.facts["device_free"]
    missing, is_async = _size(request - free), "async" in found.marks
    least = _CONTEXT_AND_CACHE if is_async else CONTEXT
    if use.others is not None and use.others >= max(least * total, LEAST_OTHERS, request - free):
        who = "lie outside of this pool: another process, or a library"
        if use.is_listed:
            who = "belong to other processes"
        elif is_async:
            who = "are not live tensors of this process: another process, a library, or what the driver's pool keeps"
        holder = "The live tensors of this process hold" if is_async else "This pool holds"
        held = "" if use.pool is None else f"{holder} {_size(use.pool)} of {_size(total)}. "
        return Judgement(
            StatedCause.OTHER_PROCESS,
            f"{missing} are missing. {held}{_size(use.others)} {who}.",
            StatedCause.CACHED_FRAGMENTATION
            if _would_fit_with_cache(request, free, use)
            else StatedCause.CAPACITY,
            use.others,
        )
    if use.pool is None and use.own is None:
        return _undecided(
            f"The device is full: {_size(free)} of {_size(total)} are free, {_size(request)} were asked. Who holds "
            "it stands in the part of the message that is missing."
        )
    if use.pool is None:
        return Judgement(
            StatedCause.CAPACITY,
            f"{missing} are missing. One process holds {_size(use.own or 0)} of {_size(total)}, and nothing is left "
            "for another: it is this process. How much of it is cache is not in the text.",
            StatedCause.OTHER_PROCESS,
            use.others,
        )
    live = _live_tensors(found)
    tensors = live if live is not None else use.pool
    is_close = _is_cache_about_the_gap(found, request, free, use)
    is_sliver = use.cached is not None and (is_close or free + use.cached >= request)
    why = "pieces of segments in which live tensors lie" if is_sliver else "too little even with them"
    if is_close:
        why = "about as much as is missing, so nearly all of them would have to serve this request"
    cached = "" if use.cached is None else f", {_size(use.cached)} are cached: {why}"
    is_sum = tensors < total / 2 < tensors + request
    both = f" With the request they would be {_size(tensors + request)}." if is_sum else ""
    private = found.fact("private_pools")
    graphs = "" if not private else f" {_size(private)} are free in private pools, as of CUDA graphs."
    setting = "" if is_sliver or is_async else " No setting of the allocator helps."
    is_of_others = use.others is not None and use.others > 0.1 * total
    return Judgement(
        StatedCause.CAPACITY,
        f"{missing} are missing: {_size(tensors)} of {_size(total)} are live tensors of this process{cached}."
        f"{both}{graphs}{_outside_torch_sentence(found, use)}{_listed_others_sentence(found, use)}{setting}",
        StatedCause.CACHED_FRAGMENTATION if is_close else StatedCause.OTHER_PROCESS if is_of_others else None,
        use.others,
    )


def _listed_others_sentence(found: StatedFailure, use: DeviceUse) -> str:
    """A verdict's sentence on the listed other processes, where they could close the gap; else ""."""
    if not use.listed or not _stated_others_of(found, use):
        return ""
    return f" Other processes that the text lists hold {_size(use.listed)}."


def _mps_verdict(found: StatedFailure) -> Judgement:
    request, limit = found.fact("requested"), found.fact("limit")
    if "one_buffer" in found.marks:
        above = "" if limit is None else f", {_size(limit)}"
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_LIMIT,
            f"One buffer of {_size(request or 0)} is more than Metal allows for any{above}.",
            StatedCause.REQUEST_EXCEEDS_DEVICE,
        )
    if limit is None:
        return _NO_NUMBERS
    if request is None:
        return _mps_no_request_verdict(found, limit)
    if _is_fact_above(found, "requested", limit, "limit"):
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_DEVICE,
            f"{_size(request)} in one request are more than the whole limit of {_size(limit)}.",
            StatedCause.REQUEST_EXCEEDS_LIMIT,
        )
    own, other = found.fact("allocated") or 0, found.fact("other_allocations")
    slack = sum(found.slack.values())
    if own + (other or 0) + request <= limit - slack:
        false = " The figure for other allocations cannot be: the counter is wrong." if other is None else ""
        return Judgement(
            StatedCause.DRIVER_REFUSED,
            f"{_size(own + (other or 0))} in use and {_size(request)} more stay below the limit of {_size(limit)}, "
            f"and still Metal refused.{false}",
            StatedCause.CAPACITY,
        )
    return Judgement(
        StatedCause.CAPACITY,
        f"{_size(own)} in PyTorch's pools, {_size(other or 0)} more of Metal's memory in this process, and "
        f"{_size(request)} pass the limit of {_size(limit)}: 1.7 x what Metal recommends, if the ratio is the default.",
        StatedCause.CAP_BY_SETTING,
    )


def _mps_no_request_verdict(found: StatedFailure, limit: int) -> Judgement:
    """The verdict where PyTorch's limit for MPS is exact: the request was larger than what it leaves."""
    used = (found.fact("allocated") or 0) + (found.fact("other_allocations") or 0)
    said = (
        f"{_size(used)} of the limit of {_size(limit)} are in use. The request is not in the text; it was more than "
        f"the {_size(max(0, limit - used))} that are left."
    )
    if used >= _FULL * limit:
        return Judgement(StatedCause.CAPACITY, said, StatedCause.UNKNOWN)
    return _undecided(said)


def _torch_counters_verdict(found: StatedFailure) -> Judgement:
    """The verdict from `memory_summary()`: how much the cache held when most was reserved."""
    peak, reserved = found.fact("peak"), found.fact("peak_reserved")
    failed = counted(found.facts.get("num_ooms", 0), "request")
    if not peak or not reserved:
        return _undecided(f"{failed} failed; the rows that would say why are not in the text.")
    if peak < 0.85 * reserved:
        return Judgement(
            StatedCause.CACHED_FRAGMENTATION,
            f"{failed} failed. At most {_size(peak)} were ever in use, of up to {_size(reserved)} that PyTorch "
            f"reserved: at least {_size(reserved - peak)} stood cached, in pieces that were too small or pinned.",
            StatedCause.CAPACITY,
        )
    return Judgement(
        StatedCause.CAPACITY,
        f"{failed} failed. Up to {_size(peak)} of {_size(reserved)} reserved were live tensors: full.",
        StatedCause.CACHED_FRAGMENTATION,
    )


# ------------------------------------------------------------------------------
# TensorFlow, XLA and JAX.


def _bfc_verdict(found: StatedFailure) -> Judgement:
    judged = _bfc_rules_verdict(found)
    if not found.largest:
        return judged
    size = found.fact("largest_buffer")
    largest = f" Its largest buffer{'' if size is None else f', {_size(size)},'} is {found.largest}."
    return replace(judged, sentence=f"{judged.sentence}{largest}")


def _bfc_rules_verdict(found: StatedFailure) -> Judgement:
    for rule in (
        _async_refused_verdict,
        _taken_at_start_verdict,
        _above_limit_verdict,
        _pool_full_verdict,
        _growth_refused_verdict,
        _compiler_limit_verdict,
        _xla_program_verdict,
    ):
        judged = rule(found)
        if judged is not None:
            return judged
    request, total = found.fact("requested"), found.fact("device_total")
    limit = found.fact("limit")
    what = "A request was refused" if request is None else f"{_size(request)} were refused"
    if request is None and found.shape:
        size = _size(min(4 * prod(found.shape), IMPOSSIBLE))
        what = f"A tensor {list(found.shape)} was refused, {size} if its elements have 4 bytes"
    used = found.fact("in_use")
    known = [
        *([f"{_size(used)} of the pool are in use"] if used else []),
        *([f"the pool may have {_size(limit)}"] if limit else []),
        *([f"the device has {_size(total)}"] if total else []),
    ]
    said = " and ".join(known)
    missing = "how much the pool may have" if used else "what was in use"
    all_used = "all that" if "cut_dump" in found.marks else "what"
    rest = f"The text says neither the limit nor {all_used} was in use."
    if said:
        rest = f"{said[0].upper()}{said[1:]}, but {missing} is not in the text."
    return _undecided(f"{what}. {rest}")


def _async_refused_verdict(found: StatedFailure) -> Judgement | None:
    """The verdict where the text of CUDA's asynchronous allocator says what is free on the device."""
    request, free, total = found.fact("requested"), found.fact("device_free"), found.fact("device_total")
    if request is None or free is None or total is None:
        return None
    if free >= request:
        return Judgement(
            StatedCause.DRIVER_REFUSED,
            f"{_size(request)} were refused with {_size(free)} of {_size(total)} free on the device.",
            StatedCause.CAPACITY,
        )
    used, missing = found.fact("in_use"), _size(request - free)
    asked = f"{missing} are missing ({_size(request)} asked, {_size(free)} of {_size(total)} free)"
    if used is None:
        said = f"{asked}. Who holds the rest is not in the text."
        return _undecided(said)
    others = max(0, total - free - used)
    if others >= max(CONTEXT * total, request - free):
        return Judgement(
            StatedCause.OTHER_PROCESS,
            f"{asked}. This pool has {_size(used)} in use; the other {_size(others)} lie outside of it: another "
            "process, or a library.",
            StatedCause.CAPACITY,
            others,
        )
    return Judgement(StatedCause.CAPACITY, f"{asked}: {_size(used)} are in use by this pool.")


def _taken_at_start_verdict(found: StatedFailure) -> Judgement | None:
    """The verdict where others held the device before the program began."""
    total, start, limit = found.fact("device_total"), found.fact("device_free_at_start"), found.fact("limit")
    # A limit that was set has whole MiB.
    is_found = "start_limit" in found.marks or (limit is not None and limit % MiB > 0)
    taken = None if total is None or start is None else total - start
    is_free = taken is not None and total is not None and taken < CONTEXT * total
    is_small = is_found and limit is not None and limit < SMALLEST_DEVICE and not is_free
    if not is_small and (taken is None or total is None or taken < CONTEXT * total or found.fact("in_use")):
        return None
    if taken is None:
        left = limit if start is None else start
        return Judgement(
            StatedCause.OTHER_PROCESS,
            f"The pool may take only {_size(left or 0)}: nearly nothing of the device was free when the program "
            "started, because another program holds it, or a small share of the device is set.",
            StatedCause.CAP_BY_SETTING,
        )
    return Judgement(
        StatedCause.OTHER_PROCESS,
        f"Only {_size(start or 0)} of the device were left when the program started. Others hold {_size(taken)} of "
        f"{_size(total or 0)}.",
        StatedCause.CAPACITY,
        taken,
    )


SMALLEST_DEVICE: Final = 1 * GiB
"""No device for these frameworks has less: a pool that may take less finds the rest taken."""


def _above_limit_verdict(found: StatedFailure) -> Judgement | None:
    limit = None if found.message == "tf-refused" else found.fact("limit")  # a growth is no request
    name = "requested" if found.facts.get("requested") is not None else "program_io"
    size = found.facts.get(name)
    if not limit or size is None or not _is_fact_above(found, name, limit, "limit"):
        return None
    # A pool takes at least about two thirds of its device, if no smaller limit was set.
    beyond = size > 1.5 * limit and found.fact("device_total") is None
    what = "The request" if name == "requested" else "Arguments and results of the program"
    is_alone = name == "requested" and found.fact("program_io") is not None
    more = " The arguments and results alone are as much." if is_alone else ""
    return Judgement(
        StatedCause.REQUEST_EXCEEDS_DEVICE if beyond else StatedCause.REQUEST_EXCEEDS_LIMIT,
        f"{what}, {_size(size)}, {'is' if name == 'requested' else 'are'} {size / limit:,.1f} times the limit of "
        f"{_size(limit)}: it can never fit.{more}",
        StatedCause.REQUEST_EXCEEDS_LIMIT if beyond else StatedCause.REQUEST_EXCEEDS_DEVICE,
    )


def _pool_full_verdict(found: StatedFailure) -> Judgement | None:
    request, limit, used = found.fact("requested"), found.fact("limit"), found.fact("in_use")
    available = found.fact("available")
    if request is None:
        if limit and used:
            return _pool_counters_verdict(found, limit, used)
        return None
    if used is not None and limit is not None and request > limit - used:
        return Judgement(
            StatedCause.CAPACITY,
            f"{_size(request)} were asked, {_size(max(0, limit - used))} are left under the limit of "
            f"{_size(limit)}: {_size(used)} are in use. Full, even without any fragmentation.",
        )
    if available is not None and available >= request:
        return Judgement(
            StatedCause.OTHER_PROCESS,
            f"The pool may still grow by {_size(available)}, but the driver refused {_size(request)}: what was free "
            "when the program started is not free now.",
            StatedCause.DRIVER_REFUSED,
        )
    if used is not None and limit is not None and found.fact("extension_refused") is None:
        return _pool_in_pieces_verdict(found, request, limit, used)
    return None


def _pool_in_pieces_verdict(found: StatedFailure, request: int, limit: int, used: int) -> Judgement:
    """The verdict where enough is left under the limit of the pool, but in pieces."""
    largest, pool = found.fact("largest_free"), found.fact("reserved")
    if largest is None and pool is None and used == found.fact("peak"):
        lines = "not all of them are" if "cut_dump" in found.marks else "they are not"
        return _undecided(
            f"{_size(request)} were asked, and {_size(limit - used)} of the limit of {_size(limit)} are not in use, "
            "nor were more in use before: the pool could not grow so far because others hold it, or what is free "
            f"lies in pieces. The lines on chunks decide, and {lines} in the text.",
            StatedCause.OTHER_PROCESS,
        )
    piece = "" if largest is None else f"; the largest free chunk has {_size(largest)}"
    free = (pool if pool is not None else limit) - used
    about = "about " if "in_use" in found.slack else ""
    is_one = "one_region" in found.marks
    region = (
        " The pool is one region, which it took at the start: chunks in use lie between." if is_one else ""
    )
    return Judgement(
        StatedCause.CACHED_FRAGMENTATION,
        f"{_size(request)} were asked and {about}{_size(max(0, free))} are free under the limit of {_size(limit)}, but "
        f"not in one piece{piece}.{region}",
        StatedCause.CAPACITY if is_one else StatedCause.OTHER_PROCESS,
    )


def _pool_counters_verdict(found: StatedFailure, limit: int, used: int) -> Judgement:
    peak = found.fact("peak")
    said = f"The pool prints these counters when a request fails: {_size(used)} of {_size(limit)} are in use."
    if used > _FULL * limit:
        what = f"{said} The size of the request is not in the text."
        return Judgement(StatedCause.CAPACITY, what, StatedCause.UNKNOWN)
    if peak is not None and peak < SLIVER * limit:
        what = f"{said} Never were more than {_size(peak)}: what is free can hardly lie in pieces."
        if "one_region" in found.marks:
            return Judgement(
                StatedCause.REQUEST_EXCEEDS_LIMIT,
                f"{what} The pool is one region of the whole limit, so the request was nearly as large as that, or "
                "larger.",
                StatedCause.UNKNOWN,
            )
        why = (
            "The request was larger than the rest, or the pool could not grow because others hold the device."
        )
        return _undecided(f"{what} {why} Its size is not in the text.", StatedCause.OTHER_PROCESS)
    what = f"{said} Whether the request was larger than the rest is not in the text."
    return _undecided(what, StatedCause.CACHED_FRAGMENTATION)


def _growth_refused_verdict(found: StatedFailure) -> Judgement | None:
    refused, start = found.fact("extension_refused"), found.fact("device_free_at_start")
    if refused is None:
        return None
    if "host_and_device" in found.marks:
        return _undecided(
            f"The driver refused the {_size(refused)} of unified memory by which the pool wanted to grow. It lies in "
            "the device and in system memory: one of the two was full, or a limit of the process was reached. How "
            "much was free is not in the text.",
            StatedCause.HOST_MEMORY,
        )
    started = "" if start is None else f" At the start {_size(start)} were free."
    said = f"The driver refused the {_size(refused)} by which the pool wanted to grow"
    if found.message == "tf-refused":
        return _undecided(
            f"{said}.{started} What the program took for free may be held by another process. The pool then tries "
            "less, so that such a line alone may be no failure: whether a request failed is not in the text.",
            StatedCause.OTHER_PROCESS,
        )
    return Judgement(
        StatedCause.OTHER_PROCESS,
        f"{said}: what the program took for free is not free.{started} Another process holds it, or the system.",
        StatedCause.DRIVER_REFUSED,
    )


def _compiler_limit_verdict(found: StatedFailure) -> Judgement | None:
    """The verdict where one request passes what XLA's compiler counted on, as its warning before says."""
    request, limit, program = found.fact("requested"), found.fact("compiler_limit"), found.fact("program")
    if request is None or limit is None:
        return None
    least = "" if program is None else f", and could not bring the program below {_size(program)}"
    return Judgement(
        StatedCause.REQUEST_EXCEEDS_LIMIT,
        f"The compiler counted on {_size(limit)} of the device for what the program computes{least}. "
        f"{_size(request)} in one request is more: the program does not fit this device.",
        StatedCause.REQUEST_EXCEEDS_DEVICE,
    )


def _xla_program_verdict(found: StatedFailure) -> Judgement | None:
    total, temp, request = found.fact("program_total"), found.fact("temp"), found.fact("requested")
    if total is None:
        return None
    parts = {"arguments": "parameters", "outputs": "live_out", "temporaries": "temp"}
    if total < SMALLEST_DEVICE:
        return _undecided(
            f"The program needs only {_size(total)}. So the device is full of something else: of arrays that this "
            "process keeps, or of another process. Which of both is not in the text.",
            StatedCause.OTHER_PROCESS,
        )
    sizes = {name: found.fact(key) or 0 for name, key in parts.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    is_temp = (
        request is not None and temp is not None and abs(request - temp) <= found.slack.get("temp", 0) + _NEAR
    )
    part = "the temporary block" if is_temp else "a part"
    what = "" if request is None else f"The refused {_size(request)} are {part} of it. "
    return Judgement(
        StatedCause.CAPACITY,
        f"The program needs {_size(total)}, {_size(sizes[largest])} of it {largest}. {what}The device has less than "
        "that free.",
        StatedCause.UNKNOWN,
    )


_NEAR: Final = 1 << 20


def is_padded(found: StatedFailure) -> bool:
    """For a verdict, whether most of the largest buffer is padding of its layout."""
    size, padding = found.fact("largest_buffer"), found.fact("padding")
    return size is not None and padding is not None and 2 * padding >= size


def _largest_on_tpu(found: StatedFailure) -> str:
    size, padding = found.fact("largest_buffer"), found.fact("padding")
    if size is None or not found.largest:
        return ""
    filled = (
        "" if padding is None else f"; {_size(padding)} of it are padding, which fills up tiles of its layout"
    )
    return f" Its largest buffer, {_size(size)}, is {found.largest}{filled}."


_ON_CHIP: Final = {"vmem": "vector memory (VMEM) of a core", "smem": "scalar memory (SMEM) of a core"}


def _tpu_verdict(found: StatedFailure) -> Judgement:
    if found.message == "tpu-table":
        return _tpu_table_verdict(found)
    program, limit = found.fact("program"), found.fact("limit")
    on_chip = next((name for mark, name in _ON_CHIP.items() if mark in found.marks), "")
    if on_chip:
        above = found.fact("exceeded")
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_LIMIT,
            f"{'One operation' if 'stack' in found.marks else 'The program'} needs {_size(program or 0)} of the "
            f"{_size(limit or 0)} that it may use of the {on_chip}, "
            f"which lies on the chip{'' if above is None else f': {_size(above)} too much'}.",
            StatedCause.REQUEST_EXCEEDS_DEVICE,
        )
    if program is not None and limit is not None:
        program += found.fact("sparse_core") or 0
        exceeded = found.fact("exceeded")
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_DEVICE,
            f"The compiler refused: the program needs {_size(program)} of {_size(limit)} that a core can use, "
            f"{_size(exceeded if exceeded is not None else max(0, program - limit))} too much, whatever else runs."
            f"{_largest_on_tpu(found)}",
            StatedCause.REQUEST_EXCEEDS_LIMIT,
        )
    request, free = found.fact("requested"), found.fact("device_free")
    if request is None or free is None:
        return _NO_NUMBERS
    if free >= request:
        return Judgement(
            StatedCause.CACHED_FRAGMENTATION,
            f"{_size(request)} were asked and {_size(free)} are free on the core, but not in one piece.",
            StatedCause.CAPACITY,
        )
    return Judgement(
        StatedCause.CAPACITY,
        f"{_size(request)} were asked, {_size(free)} are free on the core: {_size(request - free)} are missing. "
        "Only this program uses it, but arrays of an earlier run in it, as in a notebook, count too.",
        StatedCause.UNKNOWN,
    )


def _tpu_table_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a compiler's table without its first line, which says how much a core has."""
    program, exceeded = found.fact("program"), found.fact("exceeded")
    needs = "The program needs more" if program is None else f"The program needs {_size(program)}"
    if exceeded is None:
        return _undecided(
            f"{needs}, and the compiler lists its parts, as it does when it refuses one. How much a core has stands in "
            f"the line before, which is missing.{_largest_on_tpu(found)}",
            StatedCause.REQUEST_EXCEEDS_DEVICE,
        )
    return Judgement(
        StatedCause.REQUEST_EXCEEDS_DEVICE,
        f"The compiler refused: {needs[0].lower()}{needs[1:]}, {_size(exceeded)} more than a core can use, whatever "
        f"else runs.{_largest_on_tpu(found)}",
        StatedCause.REQUEST_EXCEEDS_LIMIT,
    )


# ------------------------------------------------------------------------------
# The others.


def _cupy_verdict(found: StatedFailure) -> Judgement:
    request, pool, limit = found.fact("requested") or 0, found.fact("allocated"), found.fact("limit")
    if limit is not None:
        fits = (
            " The free blocks of the pool count, too, and CuPy does not return them first."
            if request <= limit
            else ""
        )
        return Judgement(
            StatedCause.CAP_BY_SETTING,
            f"The pool holds {_size(pool or 0)}; with {_size(request)} more it passes the limit of {_size(limit)} "
            f"that was set.{fits}",
            StatedCause.CAPACITY,
        )
    held = "" if pool is None else f" with {_size(pool)} in CuPy's pool"
    refused = f"{_size(request)} were refused{held}, and no limit is set: the device has not so much free."
    if pool is not None and request > _LARGE_DEVICE and pool < SLIVER * request:
        return _undecided(
            f"{refused} CuPy holds next to nothing, so the request is probably more than the whole device. How large "
            "it is is not in the text.",
            StatedCause.REQUEST_EXCEEDS_DEVICE,
        )
    return _undecided(f"{refused} How large it is, and who holds it, is not in the text.")


_LARGE_DEVICE: Final = 32 * GiB  # most devices have less


def _rmm_verdict(found: StatedFailure) -> Judgement:
    request, pool, limit = found.fact("requested"), found.fact("reserved"), found.fact("limit")
    asked = _request_words(found)
    if pool is not None and limit is not None and request is not None:
        if pool + request > limit:
            return Judgement(
                StatedCause.CAP_BY_SETTING,
                f"The pool holds {_size(pool)} of its maximum of {_size(limit)}; {_size(request)} more pass it.",
                StatedCause.CAPACITY,
            )
        return Judgement(
            StatedCause.CAPACITY,
            f"The pool holds {_size(pool)} of its maximum of {_size(limit)}, and its upstream refused "
            f"{_size(request)} more.",
            StatedCause.OTHER_PROCESS,
        )
    if "pool_start" in found.marks:
        return _undecided(
            "The pool failed while it was made: the driver had less free than the size that it shall start with, or "
            "that size passes the maximum of the pool. Nothing of the program lies in it yet.",
            StatedCause.OTHER_PROCESS,
        )
    if "upstream" in found.marks:
        return _undecided(
            f"{asked} was refused by the driver. How much the device has and who holds it is not in the text."
        )
    if "adaptor" in found.marks:
        return Judgement(
            StatedCause.CAP_BY_SETTING,
            f"{asked} passes the limit that the program set.",
            StatedCause.CAPACITY,
        )
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        f"{asked} found the pool at its maximum, or its upstream refused: this version prints one text for both.",
        StatedCause.CAPACITY,
    )


def _onnx_verdict(found: StatedFailure) -> Judgement:
    asked, available = _request_words(found), found.fact("available")
    if available is not None:
        return Judgement(
            StatedCause.CAP_BY_SETTING,
            f"{asked} was refused: the limit that the program set leaves {_size(available)} for the arena.",
            StatedCause.CAPACITY,
        )
    return _undecided(
        f"{asked} was refused, also after the arena asked for less. Whether it is the arena of a GPU or that "
        "of system memory is not in the text, nor how much is free there."
    )


_BUFFERS: Final = {"compute": "compute buffer", "kv": "KV cache", "weights": "buffer for weights"}


def buffer_of(found: StatedFailure) -> str:
    """For a verdict, which buffer of ggml was refused: `compute`, `kv`, `weights`, or "" where not told."""
    left = found.marks - ({"weights"} if "given_weights" in found.marks else set())
    return next((name for name in _BUFFERS if name in left), "")


def _ggml_verdict(found: StatedFailure) -> Judgement:
    if "one_buffer" in found.marks:
        return _largest_buffer_verdict(found)
    request, free = found.fact("requested"), found.fact("device_free_at_start")
    asked = _request_words(found, f"A {_BUFFERS.get(buffer_of(found), 'buffer')}")
    if request is not None and free is not None and request > free:
        return Judgement(
            StatedCause.CAPACITY,
            f"{asked} was refused: {_size(free)} were free at the start.",
            StatedCause.OTHER_PROCESS,
        )
    return _undecided(
        f"{asked} was refused. How much the device has and what else lies on it is not in the text."
    )


def _vllm_start_verdict(found: StatedFailure) -> Judgement:
    free, total, wanted = found.fact("device_free"), found.fact("device_total"), found.fact("requested")
    if free is None or total is None or wanted is None:
        return Judgement(
            StatedCause.CAP_BY_SETTING,
            "vLLM shall take a larger share of the device than is free before it loads anything. How much is free is "
            "not in the text.",
            StatedCause.OTHER_PROCESS,
        )
    held = total - free
    is_of_others = held >= CONTEXT * total
    return Judgement(
        StatedCause.OTHER_PROCESS if is_of_others else StatedCause.CAP_BY_SETTING,
        f"vLLM shall take {_size(wanted)} of {_size(total)}, but {_size(free)} are free before it loads anything: "
        f"{_size(held)} are in use already, by others and by this process's own context.",
        StatedCause.CAP_BY_SETTING if is_of_others else StatedCause.OTHER_PROCESS,
        held,
    )


def _vllm_verdict(found: StatedFailure) -> Judgement:
    total, needed = found.fact("device_total"), found.fact("requested")
    if "profiling" in found.marks:
        return Judgement(
            StatedCause.OTHER_PROCESS,
            "Another process took or freed memory while vLLM measured its own peak.",
            StatedCause.UNKNOWN,
        )
    left = found.fact("kv_available")
    if needed is not None and left is not None:
        return Judgement(
            StatedCause.CAP_BY_SETTING,
            f"One request of the maximum length needs {_size(needed)} of KV cache, and {_size(left)} are left for it.",
            StatedCause.CAPACITY,
        )
    tokens, length = found.facts.get("kv_tokens"), found.facts.get("max_tokens")
    if tokens is not None and length is not None:
        return Judgement(
            StatedCause.CAP_BY_SETTING,
            f"The KV cache that is left holds {tokens:,} tokens, and one request may have {length:,}.",
            StatedCause.CAPACITY,
        )
    weights, share = found.fact("weights"), found.fact("limit")
    if weights is not None and share is not None:
        needed = weights + (found.fact("outside") or 0) + (found.fact("peak") or 0)
        return Judgement(
            StatedCause.CAPACITY if total is not None and needed > total else StatedCause.CAP_BY_SETTING,
            f"Of the {_size(share)} that vLLM may take, the weights need {_size(weights)} and the trial run the "
            "rest: nothing is left for the KV cache.",
            StatedCause.CAP_BY_SETTING if total is not None and needed > total else StatedCause.CAPACITY,
        )
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        "The share of the device, less weights and the peak of the trial run, leaves nothing for the KV cache. The "
        "device refused nothing.",
        StatedCause.CAPACITY,
    )


def _vllm_warmup_verdict(found: StatedFailure) -> Judgement:
    if found.fact("requested") is not None:  # PyTorch's message stands in the text, too
        return _torch_verdict(found)
    requests = counted(found.facts.get("max_requests", 0), "made-up request")
    return _undecided(
        f"vLLM made a trial run with {requests} at once, and PyTorch was refused memory. How much the device has and "
        "who holds it is not in the text."
    )


def _sglang_fraction_verdict(found: StatedFailure) -> Judgement:
    weights, free = found.fact("weights"), found.fact("device_free")
    missing = found.facts.get("missing_tokens")
    said = ""
    if weights is not None and free is not None:
        said = f" The weights take {_size(weights)} of each device, and {_size(free)} are free after them."
    if missing is not None:
        said += (
            f" The share is too small by {missing:,} tokens of KV cache, before it has room for the first."
        )
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        "The share of the device that --mem-fraction-static allows, less the weights, leaves nothing for the KV "
        f"cache. The device refused nothing.{said}",
        StatedCause.CAPACITY,
    )


def _tgi_verdict(found: StatedFailure) -> Judgement:
    if found.fact("requested") is not None:  # the error of PyTorch stands in the text, too
        return _torch_verdict(found)
    tokens, total = found.facts.get("prefill_tokens"), found.facts.get("total_tokens")
    what = "of a batch" if tokens is None else f"of {tokens:,} prefill tokens"
    what = what if total is None else f"with a KV cache for {total:,} tokens"
    return _undecided(
        f"The trial run {what} at the start did not fit the device beside the weights. How much the device has and "
        "who holds it is not in the text."
    )


def _bitsandbytes_verdict(found: StatedFailure) -> Judgement:
    if "managed" in found.marks:
        return _undecided(
            "bitsandbytes asked for managed memory, which a paged optimizer uses: it needs system memory, too. There "
            "is no number in the text.",
            StatedCause.HOST_MEMORY,
        )
    return _undecided(
        "A call of bitsandbytes returned out of memory: too little of the device is free or, with a paged optimizer, "
        "of the system. There is no number in the text."
    )


def _earlier_error_verdict(found: StatedFailure) -> Judgement | None:
    """The verdict where a library failed for a reason that the text names, and that is not memory."""
    if "kernel_error" in found.marks:
        return _undecided(
            "The text tells of a kernel that failed: every call of CUDA in its process fails after that. Memory is "
            "most likely not the reason.",
            StatedCause.NOT_LACK_OF_MEMORY,
        )
    if "library_mismatch" in found.marks:
        return Judgement(
            StatedCause.NOT_LACK_OF_MEMORY,
            "The cuDNN that was loaded is not of the version that the program was built with, as the text says.",
        )
    return None


def _driver_call_verdict(found: StatedFailure) -> Judgement:
    earlier = _earlier_error_verdict(found) if "library" in found.marks else None
    if earlier is not None:
        return earlier
    if {"ggml", "pool"} <= found.marks:
        return _undecided(
            "ggml's pool for intermediate results asked the driver for more while it computed, and was refused. How "
            "much, and how much was free, is not in the text."
        )
    if "nccl" in found.marks:
        request = found.fact("requested")
        what = "memory" if request is None else f"{_size(request)} for its own buffers"
        return _undecided(
            f"NCCL asked the driver for {what}, outside of the framework's allocator, and was refused. How much was "
            "free, and who holds the rest, is not in the text.",
            StatedCause.OTHER_PROCESS,
        )
    told = next((judged for mark, judged in _CALL_VERDICTS.items() if mark in found.marks), None)
    if told is not None:
        return told
    if has_own_allocator(found):
        return _outside_allocator_verdict(found)
    request = found.fact("requested")
    amount = "memory" if request is None else _size(request)
    what = next(
        (text for mark, text in _CALL_TEXTS.items() if mark in found.marks),
        f"The driver refused {amount} to the program, or to a library that it uses.",
    )
    missing = "How much was asked, and how much was free," if request is None else "How much was free"
    return _undecided(f"{what} {missing} is not in the text.")


_NO_CONTEXT: Final = _undecided(
    "The driver could not make a context on the device, which a process needs before it can hold anything there. Most "
    "often other processes hold the device; a process that made very many contexts is told the same. There is no "
    "number in the text.",
    StatedCause.OTHER_PROCESS,
)

_CALL_VERDICTS: Final = {
    "library_start": _undecided(
        "cuBLAS could not allocate what it needs to start. Most often too little of the device is free for it; an "
        "earlier error of a kernel, such as an index out of range, says the same. There is no number in the text."
    ),
    "pin_memory": _undecided(
        "The call asked for pinned system memory, from which the GPU copies: system memory ran out, or what the "
        "process may lock of it; seldom the device, on which the thread may need a context. There is no number in the "
        "text.",
        StatedCause.HOST_MEMORY,
    ),
    "no_context": _NO_CONTEXT,
}
"""A mark of a refused call -> the verdict on it; the first that fits."""

_CALL_TEXTS: Final = {
    "cumem": "vLLM's allocator for its sleep mode, which holds weights and KV cache, asked the driver for more, at the "
    "start or when it woke up, and was refused.",
    "onnx_pool": "ONNX Runtime asked the driver for memory, and was refused.",
    "mxnet_pool": "MXNet's pool asked the driver for more, and was refused.",
    "cupy": "A library of CUDA was refused memory for its work, outside of the pool of CuPy, which keeps what its "
    "arrays no longer need.",
    "driver_call": "The driver refused memory to a call of PyTorch's: of its allocator with expandable segments, or "
    "for memory that several devices share.",
    "turbomind": "TurboMind, the engine of LMDeploy, asked the driver for weights or for its KV cache, which takes a "
    "share of what is free, and was refused.",
    "storage": "Torch asked the driver for the storage of a tensor, and was refused.",
}
"""A mark of a refused call -> who asked; the first that fits."""


def _outside_allocator_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a call of the driver beside the allocator of a framework."""
    if is_in_server(found):
        what = "While it captured a CUDA graph, a" if "capture" in found.marks else "A"
        return _undecided(
            f"{what} call outside of PyTorch's allocator returned out of memory. A server takes a share of the device "
            "for weights and KV cache; most often that leaves too little outside of it, for CUDA graphs, contexts and "
            "libraries. There is no number in the text."
        )
    if "library" in found.marks:
        return _undecided(
            "A library of CUDA was refused memory for its work, outside of the framework's allocator. Most often that "
            "holds most of the device and leaves the library too little. There is no number in the text."
        )
    return _undecided(
        "A call outside of the framework's allocator returned out of memory: for a context, a workspace, a graph, "
        "or pinned memory. There is no number in the text.",
        StatedCause.OTHER_PROCESS,
    )


_OWN_ALLOCATOR: Final = frozenset(
    {"torch", "onnx", "jax", "exla", "tensorflow", "reactant", "vllm", "sglang", "comfyui"}
)
"""Marks of frameworks that print their own text where their allocator fails."""


def has_own_allocator(found: StatedFailure) -> bool:
    """For a verdict, whether a refused call of the driver was one outside of the framework's allocator."""
    # torch_memory_saver and vLLM's cumem allocate in PyTorch's place
    if {"saver", "storage", "cumem", "driver_call", "onnx_pool"} & found.marks:
        return False
    return bool(_OWN_ALLOCATOR & found.marks) or found.framework.startswith("PyTorch")


def is_in_server(found: StatedFailure) -> bool:
    """For a verdict, whether a refused call of the driver was of a server that takes a share of the device."""
    return bool({"vllm", "sglang"} & found.marks) and found.framework.startswith("PyTorch")


def _driver_start_verdict(_found: StatedFailure) -> Judgement:
    return _undecided(
        "CUDA's driver could not start in this process, and called that `out of memory`: no memory of a device was "
        "asked for yet. System memory or a limit of the process ended, or the driver does not fit the kernel or the "
        "toolkit. The text does not say which.",
        StatedCause.HOST_MEMORY,
    )


def _cuda_library_verdict(found: StatedFailure) -> Judgement:
    earlier = _earlier_error_verdict(found)
    if earlier is not None:
        return earlier
    if found.message == "cuda-algorithm":
        return _undecided(
            "cuDNN found no algorithm for a convolution that ran. Most often no workspace could be allocated because "
            "too little of the device is free; a cuDNN that does not fit says the same. There is no number in the text."
        )
    return _undecided(
        "A library of CUDA could not start. Most often too little of the device is free for it; an earlier error of a "
        "kernel or a driver that does not fit says the same. There is no number in the text."
    )


def _metal_refused_verdict(found: StatedFailure) -> Judgement:
    return _undecided(
        f"{_request_words(found, 'A buffer')} was refused in the memory that the GPU shares with the system. How much "
        "is in use, and how much the system leaves to the GPU, is not in the text."
    )


def _tensorrt_verdict(found: StatedFailure) -> Judgement:
    request = found.fact("requested")
    much = "memory" if request is None else _size(request)
    rest = "How much, and who holds the device," if request is None else "Who holds the device"
    return _undecided(
        f"The driver refused {much} for an engine, its weights or its workspace. {rest} is not in the text."
    )


def _tensorrt_build_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a builder that left out ways to compute a layer until none was left."""
    workspace = _request_words(found, "no workspace")
    return _undecided(
        f"TensorRT left out ways to compute a layer for which it got {workspace}, and found no other: no engine was "
        "built. Whether the device is too small or others hold it is not in the text."
    )


def _sglang_pool_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a server's pool of the size that was set: of entries for requests, or of tokens."""
    said = "The table of running requests has no entry left for a batch"
    asked, free, what = found.facts.get("asked_requests"), found.facts.get("free_requests"), "request"
    if "tokens" in found.marks:
        said = "The pool for the KV cache has no room left for the tokens of a batch"
        asked, free, what = found.facts.get("asked_tokens"), found.facts.get("free_tokens"), "token"
    numbers, pages = "", ""
    if asked is not None and free is not None:
        numbers = f": {counted(asked, what)} asked, {free:,} free"
        if asked <= free and what == "token":
            pages = (
                " By their number they would fit, so that most likely pages are short: the pool gives whole pages of "
                "tokens, and a request whose last page is full needs one for its next token."
            )
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        f"{said}{numbers}.{pages} It has the size that was set at the start; the device refused nothing.",
        StatedCause.CAPACITY if what == "token" else None,
    )


def _trtllm_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a component of TensorRT-LLM that could not be created."""
    total, free = found.fact("device_total"), found.fact("device_free")
    before, after = found.fact("before_model"), found.fact("after_model")
    sizes = (
        "" if total is None or free is None else f" {_size(free)} of {_size(total)} were free before that."
    )
    if before is not None and after is not None and before >= after:
        sizes += f" The model took {_size(before - after)}."
    return _undecided(
        f"TensorRT-LLM could not create {f'a component ({found.op})' if found.op else 'a component'} at its start: "
        f"memory of the device was refused.{sizes} How much was asked is not in the text."
    )


def _hsa_verdict(found: StatedFailure) -> Judgement:
    free = found.fact("device_free")
    said = "" if free is None else f" {_size(free)} of the device were free then."
    return _undecided(
        "The runtime of ROCm could not allocate what a queue of the GPU needs, and ended it: memory of the device most "
        f"often, else of the system, or a thread.{said} How much was asked is not in the text."
    )


def _ggml_context_verdict(found: StatedFailure) -> Judgement:
    needed, size = found.fact("requested") or 0, found.fact("available") or 0
    return Judgement(
        StatedCause.REQUEST_EXCEEDS_LIMIT,
        f"ggml needs {_size(needed)} in its pool for the tensors of a context, and the pool has {_size(size)}: "
        f"{_size(max(0, needed - size))} too little. The program computes its size beforehand; neither the device nor "
        "the system refused anything.",
    )


def _flashinfer_verdict(found: StatedFailure) -> Judgement:
    request = found.fact("requested")
    return Judgement(
        StatedCause.REQUEST_EXCEEDS_LIMIT,
        f"{_size(request or 0)} are more than what is left of FlashInfer's workspace, a buffer of fixed size that the "
        "server allocates at the start. The device refused nothing.",
        StatedCause.CAP_BY_SETTING,
    )


def _stated_free_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a text that states the request and what the driver has free."""
    request, free, used = found.fact("requested"), found.fact("device_free"), found.fact("device_used")
    if request is None:
        return _NO_NUMBERS
    limited = _stated_limit_verdict(found, request)
    if limited is not None:
        return limited
    if free is None:
        return _undecided(
            f"{_size(request)} were refused. How much was free, and who holds the device, is not in the text."
        )
    use = device_use(found)
    if free < request and use.pool is not None:
        return _stated_pool_verdict(found, request - free, use)
    if free >= request:
        return Judgement(
            StatedCause.DRIVER_REFUSED,
            f"{_size(request)} were refused with {_size(free)} free on the device.",
        )
    rest = " Who holds the device"
    if used is not None:
        rest = f" {_size(used)} are in use, by this process and others together. Who holds them"
    return Judgement(
        StatedCause.CAPACITY,
        f"{_size(request - free)} are missing ({_size(request)} asked, {_size(free)} free).{rest} is not in the text.",
        StatedCause.OTHER_PROCESS,
    )


def _stated_limit_verdict(found: StatedFailure, request: int) -> Judgement | None:
    """The verdict where a limit that was set ends this process before the device does."""
    limit, free, held = found.fact("limit"), found.fact("device_free"), found.fact("allocated")
    if limit is None:
        return None
    if _is_fact_above(found, "requested", limit, "limit"):
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_LIMIT,
            f"{_size(request)} are more than the whole {_size(limit)} that this process may use: it can never fit.",
            StatedCause.CAP_BY_SETTING,
        )
    if held is not None:  # a pool asks the driver for larger pieces than a request needs
        passes = held + request > limit - _LEAST_MARGIN and (free is None or free >= request)
        rest = "" if free is None else f" {_size(free)} of the device are free."
    else:  # where the size of the device is not known, what is in use and free is that of the limit
        held, rest = found.fact("device_used"), ""
        passes = free is not None and found.fact("device_total") is None
    if not passes or held is None:
        return None
    if not rest and free is not None and free >= request:
        return _undecided(
            f"{_size(request)} were refused, though the limit leaves this process {_size(free)}: the device itself had "
            "less. Who holds it is not in the text.",
            StatedCause.OTHER_PROCESS,
        )
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        f"This process may use {_size(limit)}, and holds {_size(held)} of it: too little is left for {_size(request)}, "
        f"or for the piece that the pool takes for it.{rest}",
        StatedCause.CAPACITY,
    )


def _stated_pool_verdict(found: StatedFailure, missing: int, use: DeviceUse) -> Judgement:
    """The verdict on a text that also states what the pool of this process holds."""
    request, free, total = found.facts["requested"], found.facts["device_free"], found.fact("device_total")
    pool, cached, others = use.pool or 0, use.cached or 0, use.others or 0
    said = f"{_size(missing)} are missing ({_size(request)} asked, {_size(free)} free). The pool holds {_size(pool)}"
    part = f", {_size(cached)} of it cached" if cached else ""
    if total is not None and others >= max(CONTEXT * total, missing):
        cause = StatedCause.OTHER_PROCESS
        rest = f", and {_size(others)} lie outside of it: another process, or a library."
    elif cached >= missing:
        cause, rest = StatedCause.CACHED_FRAGMENTATION, ", in pieces that did not serve this request."
    else:
        cause, rest = StatedCause.CAPACITY, "."
    second = StatedCause.OTHER_PROCESS if cause is StatedCause.CAPACITY else StatedCause.CAPACITY
    return Judgement(cause, f"{said}{part}{rest}", second, others or None)


def _catboost_verdict(found: StatedFailure) -> Judgement:
    request, free = found.fact("requested"), found.fact("available")
    if request is None or free is None:
        return _NO_NUMBERS
    return Judgement(
        StatedCause.CAPACITY,
        f"{_size(max(0, request - free))} are missing: {_size(request)} were asked, and {_size(free)} are free at the "
        "end of CatBoost's pool, which takes most of the free part of the device at the start.",
        StatedCause.OTHER_PROCESS,
    )


def _opencl_verdict(found: StatedFailure) -> Judgement:
    return _undecided(
        f"OpenCL could not allocate {_request_words(found, 'a buffer')}: the device is full, or one buffer may not be "
        "so large there. The text does not say which."
    )


def _program_call_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a program that prints no number, or only of one buffer: what it says beyond a refusal."""
    if "one_buffer" in found.marks:
        return _largest_buffer_verdict(found)
    if "no_context" in found.marks:
        return _NO_CONTEXT
    if found.fact("requested") is not None:
        return _stated_free_verdict(found)
    said = next((text for mark, text in _PROGRAM_CALLS.items() if mark in found.marks), "")
    free, total = found.fact("device_free"), found.fact("device_total")
    if free is not None and total is not None and 2 * free > total:
        return _undecided(
            f"{said or f'{_who(found)} was refused memory of the device.'} {_size(free)} of {_size(total)} were free: "
            "the device was not full. A request for still more is refused, and one buffer that is larger than the "
            "driver allows; how much was asked is not in the text.",
            StatedCause.DRIVER_REFUSED,
        )
    missing = (
        "How much was asked, and how much was free,"
        if free is None
        else f"{_size(free)} were free; how much was asked"
    )
    return _undecided(
        f"{said or f'{_who(found)} was refused memory of the device.'} {missing} is not in the text."
    )


def _who(found: StatedFailure) -> str:
    return "A program" if found.framework == ENTRIES["any-memory"].framework else found.framework


def _guardrail_verdict(found: StatedFailure) -> Judgement | None:
    """The verdict on a program that counts before it loads a model; None for others."""
    if found.message != "any-memory" or found.framework != "LM Studio":
        return None
    needs = found.fact("requested")
    need = "the model needs" if needs is None else f"the model needs {_size(needs)},"
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        f"{found.framework} did not load the model: as it estimates, {need} more than its guardrails allow. Nothing "
        "was refused by the system or a GPU.",
        StatedCause.CAPACITY,
    )


def _any_verdict(found: StatedFailure) -> Judgement:
    """The verdict on words that any program may print."""
    if "gpu" in found.marks:
        return _program_call_verdict(found)
    limited = _guardrail_verdict(found) or _stated_limit_verdict(found, found.fact("requested") or 0)
    if limited is not None:
        return limited
    asked = "" if found.fact("requested") is None else f" {_size(found.facts['requested'])} were asked."
    return Judgement(
        StatedCause.UNKNOWN,
        f"{_who(found)} was refused memory; the text does not say whether of the system or of the GPU, nor what was "
        f"free.{asked}",
    )


def _hami_verdict(found: StatedFailure) -> Judgement:
    used, limit = found.fact("total_with_request"), found.fact("limit")
    if used is None or limit is None:
        return Judgement(
            StatedCause.UNKNOWN,
            "HAMi counts that the container holds more than any device has, which cannot be: its counter is wrong, and "
            "it refuses every request. The device refused nothing.",
            StatedCause.CAP_BY_SETTING,
        )
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        f"With this request the container would hold {_size(used)}, {_size(max(0, used - limit))} more than the "
        f"{_size(limit)} that HAMi allows it. The device refused nothing.",
        StatedCause.CAPACITY,
    )


def _kokkos_verdict(found: StatedFailure) -> Judgement:
    if "other_error" not in found.marks:
        return _program_call_verdict(found)
    return Judgement(
        StatedCause.NOT_LACK_OF_MEMORY,
        "The driver returned another error than out of memory, as the text says, for example because the device does "
        "not support the call.",
    )


def _status_limit_verdict(found: StatedFailure) -> Judgement:
    request, limit = found.fact("requested"), found.fact("limit")
    if request is None:
        return Judgement(
            StatedCause.NOT_LACK_OF_MEMORY,
            "A service refused because a quota of requests is used up: no memory was refused.",
        )
    above = "" if limit is None else f", {_size(limit)}"
    return Judgement(
        StatedCause.NOT_LACK_OF_MEMORY,
        f"A message of {_size(request)} is larger than gRPC allows for one{above}: no memory was refused.",
    )


_PROGRAM_CALLS: Final = {
    "cann": "CANN was refused memory of the device.",
    "counted": "hashcat counted that the attack needs more memory than the device, a GPU or the processor, lets it "
    "allocate.",
    "shared_host": "Blender got no memory of the GPU, nor any of the system that the GPU could read instead.",
}
"""A mark of a text -> what it says."""


def _relion_verdict(found: StatedFailure) -> Judgement:
    """The verdict on RELION's pool, whose text has what is free in it, and the largest piece of that."""
    request, free, largest = found.fact("requested"), found.fact("available"), found.fact("largest_free") or 0
    if request is None or free is None:
        return _NO_NUMBERS
    said = f"{_size(request)} were asked, and RELION's pool has {_size(free)} free"
    if request > free:
        return Judgement(
            StatedCause.CAPACITY,
            f"{said}: {_size(request - free)} are missing, even if all of it were one piece.",
            StatedCause.OTHER_PROCESS,
        )
    return Judgement(
        StatedCause.CACHED_FRAGMENTATION,
        f"{said}, but at most {_size(largest)} in one piece.",
        StatedCause.CAPACITY,
    )


def _bank_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a buffer that the runtime divides over equal banks."""
    request, bank = found.fact("requested"), found.fact("limit")
    free, largest = found.fact("available"), found.fact("largest_free")
    if request is None:
        return _NO_NUMBERS
    said = f"Each bank must hold {_size(request)} of the buffer"
    if bank is not None and request > bank:
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_LIMIT,
            f"{said}, and a bank has {_size(bank)} in all: it can never fit.",
        )
    if free is None or largest is None:
        return _undecided(f"{said}. What is free in a bank is not in the text.")
    if request > free:
        return Judgement(
            StatedCause.CAPACITY, f"{said}, and {_size(free)} are free: {_size(request - free)} are missing."
        )
    return Judgement(
        StatedCause.CACHED_FRAGMENTATION,
        f"{said}, and {_size(free)} are free, but at most {_size(largest)} in one piece.",
        StatedCause.CAPACITY,
    )


def _no_context_verdict(found: StatedFailure) -> Judgement:
    total = found.fact("device_total")
    size = "" if total is None else f" of {_size(total)}"
    return Judgement(
        StatedCause.OTHER_PROCESS,
        f"The driver could not make a context on the device{size}: it was full before this program allocated anything.",
        StatedCause.DRIVER_REFUSED,
    )


def _pinned_pool_verdict(found: StatedFailure) -> Judgement | None:
    """The verdict on a pool of pinned system memory: a limit of its own, 64 GiB where no other is set."""
    request, limit, used = found.fact("requested"), found.fact("limit"), found.fact("in_use")
    if not tensorflow.PINNED_POOLS.keys() & found.marks or request is None or limit is None or used is None:
        return None
    if request <= limit - used:
        return None
    return Judgement(
        StatedCause.CAP_BY_SETTING,
        f"The pool of pinned system memory is at its limit: {_size(used)} of {_size(limit)} are in use, and "
        f"{_size(request)} more were asked. It is not memory of a GPU.",
        StatedCause.HOST_MEMORY,
    )


SMALL_PROCESS: Final = 64 * MiB
"""A process that holds less of the system's memory does not fill it."""


def _host_memory_verdict(found: StatedFailure) -> Judgement:
    if found.message == "host-worker":
        why = "The system killed a worker of the data loader, as it does when system memory runs out"
        if "shared_memory" in found.marks:
            why = "The memory that the workers of the data loader share (/dev/shm) is full"
        return Judgement(StatedCause.HOST_MEMORY, f"{why}: not GPU memory.")
    if found.message == "host-killed":
        where = " of a container or a job reached its limit" if "cgroup" in found.marks else " ran out"
        rest = f" If {found.op} is not your program, yours may still run." if found.op else ""
        held = found.fact("process_in_use")
        if held is not None and held < SMALL_PROCESS:
            rest += f" It held only {_size(held)}: what fills the memory is another process, or the kernel itself."
        return Judgement(
            StatedCause.HOST_MEMORY,
            f"The system ended {found.op or 'a process'} because system memory{where}. It is not GPU memory.{rest}",
        )
    if found.message in BY_SIGNAL or ENTRIES[found.message] in HOST:
        return _told_by_system_verdict(found)
    request, limit = found.fact("requested"), found.fact("limit")
    asked = found.facts.get("requested", 0)
    if found.message == "host-program" and request is not None and limit is not None:
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_LIMIT,
            f"{_size(request)} of system memory in one array: the program allows at most {_size(limit)}, by a setting.",
            StatedCause.HOST_MEMORY,
        )
    if found.message in {"torch-cpu", "host-program"} and asked >= IMPOSSIBLE:
        return Judgement(
            StatedCause.REQUEST_EXCEEDS_DEVICE,
            f"{_size(asked)} of system memory in one request: no system has so much. A shape or an index is wrong.",
        )
    what = (
        "System memory was refused" if request is None else f"{_size(request)} of system memory were refused"
    )
    free = found.fact("available")
    rest = "" if free is None else f" {_size(free)} of it are free."
    if "backs_off" in found.marks:
        rest = " The pool of pinned memory then asked for a tenth less, again and again, and was refused that, too."
    return Judgement(StatedCause.HOST_MEMORY, f"{what}, not GPU memory.{rest}")


def _told_by_system_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a text that says itself what it means, or only that a process was ended."""
    if found.message in BY_SIGNAL:
        code = "Exit code 137 is 128 + 9: a" if found.message == "host-exit" else "A"
        used, total = found.fact("memory_used"), found.fact("memory_total")
        if used is not None and total is not None and used >= _FULL * total:
            return Judgement(
                StatedCause.HOST_MEMORY,
                f"{code} process was ended by SIGKILL (signal 9), and its job used {_size(used)} of the {_size(total)} "
                "that it may have: most likely it reached this limit, which is not one of GPU memory.",
            )
        if "timeout" in found.marks:
            return _undecided(
                f"{code} process was ended by SIGKILL (signal 9), and the text has a `timeout` that sends it when the "
                "time is over: most likely that ended the process, not a lack of memory.",
                StatedCause.NOT_LACK_OF_MEMORY,
            )
        if "below_limit" in found.marks:
            return _undecided(
                f"{code} process was ended by SIGKILL (signal 9). `OOMKilled` is false in the text: hardly by the "
                "limit of its container, but by the system because its memory, not GPU memory, ran out, by docker "
                "stop or docker kill, or by a person.",
                StatedCause.HOST_MEMORY,
            )
        return _undecided(
            f"{code} process was ended by SIGKILL (signal 9): by the system because system memory, not GPU memory, ran "
            "out, by the limit of a container or a batch system, by its launcher, or by a person. The text does not "
            "say which.",
            StatedCause.HOST_MEMORY,
        )
    entry, used, total = ENTRIES[found.message], found.fact("memory_used"), found.fact("memory_total")
    numbers = "" if used is None or total is None else f" {_size(used)} of {_size(total)} were in use."
    is_of_kernel = found.message in {"host-invoked", "host-reaped"}
    if entry.is_weak and not is_of_kernel:
        return _undecided(f"{entry.means}{numbers}", StatedCause.HOST_MEMORY)
    means = entry.means
    if is_of_kernel and found.op:
        means = (
            "A program asked for system memory, none was left in the machine or in its container, and the system ended "
            f"{found.op}. It is not GPU memory."
        )
    return Judgement(StatedCause.HOST_MEMORY, f"{means}{numbers}")


def _lost_rank_verdict(found: StatedFailure) -> Judgement:
    """The verdict on a text that tells only what other ranks saw of the one that failed."""
    missing = sorted(set(range(max(found.ranks, default=0))) - set(found.ranks))
    where = ""
    if 0 < len(missing) <= len(found.ranks) // 4:
        named = f"rank{'s' * (len(missing) > 1)} {listed(list(map(str, missing)))}"
        where = f" Of the ranks below {max(found.ranks)} only {named} did not tell so: look there first."
    return Judgement(
        StatedCause.CONSEQUENCE,
        f"{_lost_rank_words(found)} waited too long for another one, or lost the connection to it: a consequence. "
        f"Which one failed or hung first, and why, is in no message that bfcviz knows.{where}",
    )


def _lost_rank_words(found: StatedFailure) -> str:
    ranks = listed(list(map(str, found.ranks)))
    if not ranks:
        return listed(list(found.streams)) or "A rank"
    return f"{'Ranks' if len(found.ranks) > 1 else 'Rank'} {ranks}"


def _lost_ranks_within(found: StatedFailure) -> str:
    """The words on lost ranks within a sentence of a verdict."""
    words = _lost_rank_words(found)
    return words if found.streams and not found.ranks else words.lower()


# ------------------------------------------------------------------------------
# Refusals that are no failure, and tables.


def _soft_lost_rank_text(found: StatedFailure) -> str:
    told = f"{_lost_ranks_within(found)} waited too long for another one, or lost the connection to it"
    if "before" in found.marks:
        return f"{told}, and told so before the first failure above: what failed first, the text does not say"
    return f"{told}: a consequence"


def _soft_ended_rank_text(found: StatedFailure) -> str:
    were = "were" if found.count > 1 else "was"
    return f"{_lost_ranks_within(found)} {were} ended by SIGTERM, as a launcher ends the rest of a job that failed"


def _soft_request_text(found: StatedFailure) -> str:
    if ENTRIES[found.message].role in {Role.BEFORE, Role.AFTER, Role.REPORT}:
        return "numbers of the program: not a failure"
    request = found.fact("requested")
    what = "a request" if request is None else f"a request of {_size(request)}"
    if "warned" in found.marks:
        return (
            f"{what} was refused, and the program only warns of it: not a failure, unless it ended after that"
        )
    if "left_out" in found.marks:
        return f"{what} was refused, and the program left the batch out: not a failure"
    return f"{what} was refused, and the caller goes on with less: not a failure, at most slower"


def _soft_buffer_text(found: StatedFailure) -> str:
    return (
        f"a {_BUFFERS.get(buffer_of(found), 'buffer')} of {_size(found.fact('requested') or 0)} was refused, and "
        "the program tries another way: not a failure, unless a line after it says so"
    )


def _soft_counters_text(found: StatedFailure) -> str:
    return f"a table of counters, {counted(found.facts.get('num_ooms', 0), 'failed request')}: not a failure"


def _soft_table_text(found: StatedFailure) -> str:
    total, used = found.fact("device_total"), found.fact("device_used")
    if total is None:
        return "a table of devices and settings: not a failure"
    if used is None:
        start = found.fact("device_free_at_start")
        began = "" if start is None else f", {_size(start)} of it free when the program started"
        return f"a device of {_size(total)}{began}: not a failure"
    held = sorted(found.processes.items(), key=lambda item: -item[1])[:3]
    names = ", ".join(f"{pid}: {_size(size)}" for pid, size in held)
    return f"{_size(used)} of {_size(total)} in use{f' ({names})' if names else ''}: not a failure"


def _soft_usage_text(found: StatedFailure) -> str:
    used, total = found.fact("memory_used"), found.fact("memory_total")
    sizes = " and ".join(
        text
        for text in (
            "" if used is None else f"used {_size(used)}",
            "" if total is None else f"could use {_size(total)}",
        )
        if text
    )
    near = used is not None and total is not None and used >= _FULL * total
    what = "near its limit" if near else "not a failure"
    return f"the job {sizes} of system memory, not GPU memory: {what}"


def _soft_wired_text(found: StatedFailure) -> str:
    used, limit = found.fact("allocated"), found.fact("limit")
    sizes = "" if used is None or limit is None else f" ({_size(used)} of {_size(limit)})"
    return f"more is allocated than Metal recommends for one process{sizes}: a warning, not a failure"


def _soft_pinned_text(found: StatedFailure) -> str:
    request = found.fact("requested")
    what = "pinned system memory was" if request is None else f"{_size(request)} of pinned system memory were"
    return f"{what} refused, and ordinary memory serves instead: not a failure"


def fits_by_count(found: StatedFailure) -> bool:
    """For a verdict, whether Ollama counts at least as much free on the device as it needs there."""
    needed, free = found.fact("device_needed"), found.fact("device_available")
    return needed is not None and free is not None and needed <= free


def _soft_offload_text(found: StatedFailure) -> str:
    why = "by the count of what is needed and free there"
    if fits_by_count(found):
        why = "though by its count no more is needed than is free there, so that these numbers are not the reason"
    if "not_returned" in found.marks:
        why += ", and a model before it had not given its memory back in time"
    return f"no layer of the model lies on the GPU, {why}: not a failure, but slower"


def _soft_tactic_text(found: StatedFailure) -> str:
    workspace = _request_words(found, "a workspace")
    return f"{workspace} was refused, and the builder leaves out that way to compute a layer: not a failure"


def _soft_kernel_text(found: StatedFailure) -> str:
    what = "failed while it ran"
    if "address" in found.marks:
        what = "read or wrote at an address that it may not use"
    if "registers" in found.marks:
        what = "needs more registers or threads than a multiprocessor has"
    return f"a kernel {what}. No memory was refused: not a failure that a smaller program mends"


def _soft_growth_text(found: StatedFailure) -> str:
    refused = found.fact("extension_refused") or found.fact("requested") or 0
    said = (
        f"the driver refused to let the pool grow by {_size(refused)}; the pool tries less, again and again, and no "
        "request failed in this text: not a failure"
    )
    if refused > _LARGEST_DEVICE:
        return f"{said}. No device has so much: the runtime told the program a wrong amount of free memory"
    if "host_and_device" in found.marks:
        return said
    return f"{said}. What the program took for free may be held by another process"


_SOFT: Final[Mapping[str, Callable[[StatedFailure], str]]] = {
    "tf-refused": _soft_growth_text,
    "ggml-buffer": _soft_buffer_text,
    "ggml-wired": _soft_wired_text,
    "ggml-pinned": _soft_pinned_text,
    "ollama-offload": _soft_offload_text,
    **dict.fromkeys(("torch-summary", "torch-stats"), _soft_counters_text),
    **dict.fromkeys(("nvidia-smi", "tf-device", "ggml-device"), _soft_table_text),
    **dict.fromkeys(("usage-slurm", "usage-grid"), _soft_usage_text),
    **dict.fromkeys(("trt-tactic", "trt-skipped", "trt-memory"), _soft_tactic_text),
    "peer-lost": _soft_lost_rank_text,
    "peer-ended": _soft_ended_rank_text,
    "cuda-kernel": _soft_kernel_text,
}

_SOFT_TEXTS: Final[Mapping[str, str]] = {
    "tf-large": "a request of {requested} of system memory is more than 10 % of it, or of what was free: a warning, "
    "not a failure",
    **dict.fromkeys(
        ("sglang-retract", "vllm-preempt"),
        "the KV cache was full, and the server put requests back and goes on with them later: not a failure, but "
        "slower",
    ),
    "lmcache-full": "the pool of the KV cache was full, and a part of it was not kept or not loaded: it is computed "
    "again, which is slower, not a failure",
    "triton-fallback": "a pool of memory that the server makes at its start is used up or was not made, and other "
    "memory serves instead: not a failure, at most slower",
    "xla-remat": "a warning of the compiler, which could not bring the program below {limit}: not a failure, the "
    "program may still run",
    "cuda-shared": "one way to compute a kernel needs {requested} of shared memory, more than a kernel may use, and "
    "the compiler leaves it out: not a failure",
}
"""What a refusal is, where only its size differs."""

_FIXED: Final[Mapping[str, Judgement]] = {
    "torch-size": Judgement(
        StatedCause.REQUEST_EXCEEDS_DEVICE,
        "The request is 1 EiB or more: a size is negative or overflowed, or the shape is wrong. PyTorch did not ask "
        "the driver, and the memory of the device has nothing to do with it.",
    ),
    "torch-mps-private": _undecided(
        "Metal gave PyTorch no buffer of this size that only the GPU uses: what is in use and this buffer are together "
        "more than the system leaves to the GPU, or the buffer is too large. What was in use is not in the text."
    ),
    "torch-nvml": _undecided(
        "PyTorch's allocator was refused, and NVML refused the query for the message, as on a MIG slice, in a "
        "container or on a Jetson. There is no number in the text."
    ),
    "ggml-nil": _undecided(
        "ggml found no Metal buffer that holds a tensor: a buffer before it was refused or is too small; a fault of "
        "the program says the same. There is no number in this line."
    ),
    "metal-array": Judgement(
        StatedCause.REQUEST_EXCEEDS_LIMIT,
        "One array is larger than Metal's library for tensors allows for any, 4 GiB or 2^31 elements. How much is free "
        "has nothing to do with it.",
    ),
    "metal-command": _undecided(
        "Metal could not keep all buffers of a running command in memory: weights, caches and intermediate results are "
        "together more than the system leaves to the GPU. There is no number in the text."
    ),
    "program-windows": _undecided(
        "A call of Windows returned E_OUTOFMEMORY: memory of the GPU, or of the system, ran out. The text does not say "
        "which, and holds no number."
    ),
    "program-exllama": _undecided(
        "ExLlama puts layers and cache on one device after the other, and the last had too little for the rest: of its "
        "free memory, or of the share of it that is set. The text does not say which, and holds no number."
    ),
    "program-resources": _undecided(
        "The driver returned `out of resources`: most often memory of the device, else something that a kernel needs, "
        "or a kernel that failed. There is no number in the text."
    ),
    "status-exhausted": Judgement(
        StatedCause.UNKNOWN,
        "The status says only that something ran out: of TensorFlow, XLA and JAX it is memory, of gRPC also a quota "
        "or a message that is too large. The text that follows it decides, and is missing.",
    ),
    "trtllm-tokens": Judgement(
        StatedCause.CAP_BY_SETTING,
        "The KV cache holds fewer tokens than one sequence of the longest length needs. Its size was set, or is a "
        "share of what was free after the weights. The device refused nothing.",
        StatedCause.CAPACITY,
    ),
    "program-dispatch": _undecided(
        "device_map found too little room on the devices for the quantized model, so that a part of it would lie in "
        "system memory or on disk. No device refused anything; how much was free is not in the text."
    ),
    "program-encoder": _undecided(
        "NVENC opened no session and called it `out of memory`. On a GeForce the driver allows a few sessions at once, "
        "of all programs together, and returns this error above that; memory is rarely the reason.",
        StatedCause.CAP_BY_SETTING,
    ),
}
"""The verdicts on texts that say the same each time."""

_RULES: Final[Mapping[str, Callable[[StatedFailure], Judgement]]] = {
    **dict.fromkeys(("torch-mps", "torch-mps-buffer", "metal-buffer"), _mps_verdict),
    **dict.fromkeys(("torch-summary", "torch-stats"), _torch_counters_verdict),
    **dict.fromkeys(("torch-cpu", "tf-host", "ollama-system"), _host_memory_verdict),
    **dict.fromkeys(("cuda-shared", "cuda-shared-call", "program-limit"), _largest_buffer_verdict),
    "torch-xpu-block": _largest_buffer_verdict,
    "metal-refused": _metal_refused_verdict,
    "tf-context": _no_context_verdict,
    "vllm-start": _vllm_start_verdict,
    "vllm-warmup": _vllm_warmup_verdict,
    "sglang-fraction": _sglang_fraction_verdict,
    "sglang-tokens": _sglang_pool_verdict,
    "tgi-tokens": _tgi_verdict,
    "bnb-call": _bitsandbytes_verdict,
    "cuda-call": _driver_call_verdict,
    "cuda-init": _driver_start_verdict,
    **dict.fromkeys(("cuda-library", "cuda-algorithm"), _cuda_library_verdict),
    "trt-memory": _tensorrt_verdict,
    **dict.fromkeys(("trt-tactic", "trt-skipped"), _tensorrt_build_verdict),
    "trtllm-executor": _trtllm_verdict,
    "ggml-context": _ggml_context_verdict,
    "flashinfer-workspace": _flashinfer_verdict,
    **dict.fromkeys(("program-call", "program-gaudi", "program-neuron"), _program_call_verdict),
    "program-hsa": _hsa_verdict,
    "program-kokkos": _kokkos_verdict,
    "program-tenstorrent": _bank_verdict,
    "program-hami": _hami_verdict,
    "program-relion": _relion_verdict,
    "program-catboost": _catboost_verdict,
    "program-opencl": _opencl_verdict,
    "status-limit": _status_limit_verdict,
}
"""The rule for a text, where it is not that of its group; a test holds all against the tables."""

_GROUPS: Final[Mapping[str, Callable[[StatedFailure], Judgement]]] = {
    "torch": _torch_verdict,
    **dict.fromkeys(("tf", "xla"), _bfc_verdict),
    "tpu": _tpu_verdict,
    "cupy": _cupy_verdict,
    "rmm": _rmm_verdict,
    "onnx": _onnx_verdict,
    "ggml": _ggml_verdict,
    "vllm": _vllm_verdict,
    **dict.fromkeys(("host", "usage"), _host_memory_verdict),
    **dict.fromkeys(("paddle", "program"), _stated_free_verdict),
    "peer": _lost_rank_verdict,
    "any": _any_verdict,
}
"""First part of an entry's name -> its rule."""
