"""The account of a device: who holds its memory, part by part, so that the parts add up to the total.

::

    total = other processes | driver | this process outside its pools | each pool: in use, cached | free
            `----------------------------- what the driver counts as used -------------------'

The figures come from a text (`figures_of_facts`), from a trace (`account_at`), or from the driver and NVML now
(`bfcviz.live.device_account`). They are read one after the other and may be rounded, so they may differ by `slack`; a
larger difference is a contradiction: the account names the figure that cannot be, and leaves it out. Nothing is
guessed: what no figure explains is the part "not accounted for".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from html import escape
from typing import Any, Final, Literal

from bfcviz.answers import Answer
from bfcviz.errors import MissingExtra
from bfcviz.events.origin import RecordedFailure, facts_of, recorded_failures
from bfcviz.events.trace import Trace
from bfcviz.formats.message_grammar import IMPOSSIBLE
from bfcviz.model.model import Model
from bfcviz.terminal import printable
from bfcviz.units import GiB, KiB, MiB, format_bytes

# ------------------------------------------------------------------------------
# What is known of a device. Sizes in bytes, None where unknown.

Whole = Literal["device", "limit"]
"""What `total` is: the memory of a device, or the limit of one heap."""

LEAST_CONTEXT: Final = 64 * MiB
"""A process that uses a GPU takes more than this for its context alone (CUDA 12: 150 to 500 MiB)."""


@dataclass(frozen=True)
class AccountPoolFigures:
    """The pool of one allocator of this process, as an account takes it.

    Attributes:
        name: of the allocator.
        in_use: bytes that the program uses.
        cached: bytes of the pool that are not in use.
        size: bytes of the pool, where they cannot be told apart.
    """

    name: str
    in_use: int | None = None
    cached: int | None = None
    size: int | None = None

    @property
    def total(self) -> int | None:
        """Bytes of the whole pool, for the account of its device; None where a part is unknown."""
        if self.size is not None:
            return self.size
        return None if self.in_use is None or self.cached is None else self.in_use + self.cached

    @property
    def least(self) -> int:
        """Bytes that a pool has at least, for the account of its device."""
        return self.size if self.size is not None else (self.in_use or 0) + (self.cached or 0)


@dataclass(frozen=True)
class AccountFigures:
    """What is known of a device, before its account is checked.

    Attributes:
        device: its name.
        number: its number, as this process counts its devices.
        total: its memory.
        free: what its driver had free.
        free_at_start: what its driver had free when the program started.
        process: what this process has of it, as the driver counts it.
        outside: what this process has outside its pools, where that is counted by itself.
        others: what other processes have.
        reserved: what the driver keeps for itself.
        processes: pid -> bytes of each process that the driver lists; this process may be one of them.
        pid: of this process in that list, if it is known.
        pools: of this process's allocators.
        has_all_pools: whether all allocators of this process are among `pools`.
        whole: what `total` is.
        slack: by how much the figures may differ from each other because they are rounded, or were read at different
            moments.
        requested: a request that failed.
    """

    device: str = "device"
    number: int | None = None
    total: int | None = None
    free: int | None = None
    free_at_start: int | None = None
    process: int | None = None
    outside: int | None = None
    others: int | None = None
    reserved: int | None = None
    processes: Mapping[int, int] = field(default_factory=dict)
    pid: int | None = None
    pools: tuple[AccountPoolFigures, ...] = ()
    has_all_pools: bool = False
    whole: Whole = "device"
    slack: int = 0
    requested: int | None = None


_ALLOCATED: Final = ("allocated", "in_use")
_CACHED: Final = ("reserved_unallocated", "cached")
_NAMES: Final = {
    "device_total",
    "device_free",
    "process_in_use",
    "other_allocations",
    "other_processes",
    "limit",
    "reserved",
    *_ALLOCATED,
    *_CACHED,
}
"""The facts that an account is made of."""


def figures_of_facts(
    facts: Mapping[str, Any],
    slack: Mapping[str, int] | None = None,
    processes: Mapping[int, int] | None = None,
    allocator: str = "the allocator",
) -> AccountFigures:
    """The figures for the account of a device, from the facts of a text.

    Args:
        facts: bytes by name, as in `bfcviz why --json`: `device_total`, `allocated`, `reserved_unallocated`, ...; None
            and other entries are ignored. `process_N` is a process of the driver's list.
        slack: how far each fact may be off; None: half of the last digit that a framework prints.
        processes: pid -> bytes of each process of the driver's list.
        allocator: the name of the allocator whose facts they are.
    """
    sizes = {name: value for name, value in facts.items() if type(value) is int}
    listed = {
        int(name.removeprefix("process_")): value
        for name, value in sizes.items()
        if re.fullmatch(r"process_\d{1,10}", name)
    }
    used = _NAMES & sizes.keys()
    off = {name: _account_slack_of(sizes[name]) if slack is None else slack.get(name, 0) for name in used}
    found = AccountFigures(
        total=sizes.get("device_total"),
        free=sizes.get("device_free"),
        free_at_start=sizes.get("device_free_at_start"),
        process=sizes.get("process_in_use"),
        outside=sizes.get("other_allocations"),
        others=sizes.get("other_processes"),
        processes=listed | dict(processes or {}),
        pools=_account_pools_of(sizes, allocator),
        slack=sum(off.values()),
        requested=sizes.get("requested"),
    )
    if found.total is None and found.free is None and found.pools and "limit" in sizes:
        found = replace(found, device="limit", total=sizes["limit"], whole="limit")
    return found


def _account_pools_of(sizes: Mapping[str, int], name: str) -> tuple[AccountPoolFigures, ...]:
    """PyTorch counts the cached blocks of private pools as allocated (CUDACachingAllocator.cpp)."""
    used = next((sizes[name] for name in _ALLOCATED if name in sizes), None)
    cached = next((sizes[name] for name in _CACHED if name in sizes), None)
    reserved, private = sizes.get("reserved"), sizes.get("private_pools", 0)
    if used is None:
        return () if reserved is None else (AccountPoolFigures(name, size=reserved),)
    if cached is None and reserved is not None:
        cached = reserved - used
    if cached is not None and 0 < private <= used:
        used, cached = used - private, cached + private
    return (AccountPoolFigures(name, used, cached),)


def _account_slack_of(value: int) -> int:
    """How far a sum of an account may be off: half of the last digit of a size that is printed as `4.22 GiB`."""
    unit = next((unit for unit in (GiB, MiB, KiB) if abs(value) >= unit), 0)
    return unit // 200 + 1 if unit else 0


# ------------------------------------------------------------------------------
# DeviceAccount: the parts of a device's memory.


class PartKind(StrEnum):
    """What a part of a device's memory is, in an account."""

    OTHERS = "other_processes"
    DRIVER = "driver"
    OUTSIDE = "outside_pools"  # this process outside its allocators' pools: contexts, NCCL, cuBLAS, graphs
    PROCESS = "this_process"  # this process, where its pools are not known
    IN_USE = "in_use"
    CACHED = "cached"
    POOL = "pool"  # of a pool, in use or cached
    UNACCOUNTED = "not_accounted_for"
    FREE = "free"


@dataclass(frozen=True)
class Part:
    """A part of a device's memory, in an account.

    Attributes:
        kind: what it is.
        name: the same for people, with the allocator's name.
        size: bytes, 0 or more.
        note: what it may be, where that is not known.
    """

    kind: PartKind
    name: str
    size: int
    note: str = ""


_OUTSIDE: Final = "this process outside its pools"
_OUTSIDE_NOTE: Final = "contexts, libraries (NCCL, cuBLAS), CUDA graphs, other allocators"


@dataclass(frozen=True, repr=False)
class DeviceAccount(Answer):
    """Who holds the memory of a device. Sizes in bytes, None where unknown.

    Attributes:
        device: its name.
        number: its number, as this process counts its devices; None: not known.
        whole: what `total` is: the memory of a device, or the limit of one heap.
        total: all of it.
        free: what its driver had free; what is left below a limit.
        process: what this process has, as the driver counts it.
        others: what other processes have; with the driver's own part where no list of processes is known.
        outside: what this process has outside its pools.
        pools: of this process's allocators, as they count them.
        parts: the parts, never negative; their sum is `total` where that is known.
        spilled: what this process uses beyond the device's memory, at least: it lies in system memory.
        contradictions: the figures that cannot be, as sentences.
        requested: a request that failed.
    """

    device: str
    number: int | None
    whole: Whole
    total: int | None
    free: int | None
    process: int | None
    others: int | None
    outside: int | None
    pools: tuple[AccountPoolFigures, ...]
    parts: tuple[Part, ...]
    spilled: int | None = None
    contradictions: tuple[str, ...] = ()
    requested: int | None = None

    @property
    def unaccounted(self) -> int:
        """Bytes of the device that no figure of its account explains."""
        return self.size_of(PartKind.UNACCOUNTED)

    @property
    def shortfall(self) -> int | None:
        """Bytes that the request lacked; negative: the driver had more free than was requested."""
        return None if self.requested is None or self.free is None else self.requested - self.free

    @property
    def is_of_device(self) -> bool:
        """Whether an account says anything of the device, beyond the pools of this process."""
        return self.whole == "device" and not (self.total is None and self.free is None)

    def size_of(self, *kinds: PartKind) -> int:
        """Bytes of all parts of some kinds in an account."""
        return sum(part.size for part in self.parts if part.kind in kinds)

    # -- in words

    @property
    def short(self) -> str:
        """What is free on the device of an account, in a few words."""
        if self.total is None:
            return f"{format_bytes(self.size_of(*PartKind))} known, total unknown"
        if self.free is None:
            return f"{format_bytes(self.unaccounted)} of {format_bytes(self.total)} not accounted for"
        words = "left under the limit" if self.whole == "limit" else "free"
        return f"{format_bytes(self.free)} of {format_bytes(self.total)} {words}"

    @property
    def line(self) -> str:
        """The parts of an account in one line."""
        whole = "total unknown:" if self.total is None else f"{format_bytes(self.total)} ="
        parts = " + ".join(f"{format_bytes(part.size)} {part.name}" for part in self.parts if part.size)
        return f"{whole} {parts or 'nothing'}"

    @property
    def sentence(self) -> str:
        """The parts of an account, and the figures that cannot be, as a sentence."""
        return " ".join([f"{self.line}.", *self.contradictions])

    def lines(self) -> list[str]:
        """The table of an account as text: a row for each part."""
        rows = [(part.name, part.size, part.note) for part in self.parts if part.size]
        wide = max([len(name) for name, _, _ in rows] + [len("total")])
        head = f"{self.device}: {self.short}"
        body = [
            f"  {name:<{wide}}  {format_bytes(size):>10}  {_percent_of_device(size, self.total):>5}  {note}".rstrip()
            for name, size, note in rows
        ]
        total = [] if self.total is None else [f"  {'total':<{wide}}  {format_bytes(self.total):>10}"]
        return [head, *body, *total, *(f"  {text}" for text in self.contradictions)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """The account of a device as JSON values: sizes in bytes, null for unknown."""
        return {
            "device": self.device,
            "number": self.number,
            "total_is": self.whole,
            "total_bytes": self.total,
            "free_bytes": self.free,
            "process_bytes": self.process,
            "other_processes_bytes": self.others,
            "outside_pools_bytes": self.outside,
            "not_accounted_for_bytes": self.unaccounted,
            "spilled_bytes": self.spilled,
            "pools": [
                {
                    "allocator": pool.name,
                    "pool_bytes": pool.total,
                    "in_use_bytes": pool.in_use,
                    "cached_bytes": pool.cached,
                }
                for pool in self.pools
            ],
            "parts": [{"kind": str(part.kind), "name": part.name, "bytes": part.size} for part in self.parts],
            "contradictions": list(self.contradictions),
            "sentence": self.sentence,
        }

    def _repr_html_(self) -> str:
        return Account((self,))._repr_html_()


def _percent_of_device(size: int, total: int | None) -> str:
    return f"{size / total:.0%}" if total else ""


@dataclass(frozen=True, repr=False)
class Account(Answer):
    """The accounts of some devices; `print` it for a table.

    Attributes:
        devices: one for each device.
        notes: what could not be read, and what to do.
    """

    devices: tuple[DeviceAccount, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The accounts of devices as JSON values: sizes in bytes, null for unknown."""
        return {"devices": [each.to_json() for each in self.devices], "notes": list(self.notes)}

    def __str__(self) -> str:
        return "\n".join([*(str(each) for each in self.devices), *self.notes])

    def _repr_html_(self) -> str:
        try:  # the one import of a picture's colours from here: only a notebook asks for this
            from bfcviz.figures.theme import following  # noqa: PLC0415
        except MissingExtra:
            return super()._repr_html_()  # the text

        tables = "".join(
            f"<div><b>{_account_html_text(each.device)}</b>: {each.short}</div>{account_bar(each)}{account_table(each)}"
            for each in self.devices
        )
        notes = "".join(f"<p>{_account_html_text(note)}</p>" for note in self.notes)
        style = f"<style>{following('.bfcviz-account')}{ACCOUNT_STYLE}{_NOTEBOOK_STYLE}</style>"
        return f'{style}<div class="bfcviz-account">{tables}{notes}</div>'


# ------------------------------------------------------------------------------
# From figures to parts: each figure is checked against the others, and left out where it cannot be.


def account_of(figures: AccountFigures) -> DeviceAccount:
    """The account of a device, from figures that are checked first.

    Free memory and the pools count first, then this process, then the others; each gets at most what is left, which
    takes off no more than `slack`. So the parts add up to the total.
    """
    wrong: list[str] = []
    known = _possible_figures(figures, wrong)
    known = _without_impossible_free(_without_limit(_account_with_own_process(known), wrong), wrong)
    spilled = _spilled_pool_bytes(known, wrong)
    known = _consistent_figures(known, wrong)
    pools = () if spilled is not None else known.pools
    parts = _account_parts(known, pools)
    left = [part.size for part in parts if part.kind is PartKind.FREE]
    return DeviceAccount(
        device=figures.device,
        number=figures.number,
        whole=figures.whole,
        total=known.total,
        free=known.free if known.whole == "device" else next(iter(left), None),
        process=known.process,
        others=_other_processes_bytes(known),
        outside=_outside_pools_bytes(known, pools),
        pools=known.pools,
        parts=tuple(parts),
        spilled=spilled,
        contradictions=tuple(wrong),
        requested=known.requested,
    )


def _possible_figures(figures: AccountFigures, wrong: list[str]) -> AccountFigures:
    """The figures of an account without negative numbers, and those that a driver prints for `unknown`."""

    def checked(value: int | None, name: str) -> int | None:
        if value is None or 0 <= value < IMPOSSIBLE:
            return value
        wrong.append(
            f"The figure for {name} cannot be: {value:,} bytes. Drivers print such a number where they do not know it "
            "(Windows: WDDM)."
        )
        return None

    total = checked(figures.total, "the total")
    pools = []
    for pool in figures.pools:
        in_use, cached = checked(pool.in_use, f"what {pool.name} has in use"), pool.cached
        if cached is not None and cached < -figures.slack:
            wrong.append(f"The figures for {pool.name} cannot be: more is in use than its pool has.")
            cached = None
        cached = checked(None if cached is None else max(cached, 0), f"what {pool.name} caches")
        pools.append(
            AccountPoolFigures(pool.name, in_use, cached, checked(pool.size, f"the pool of {pool.name}"))
        )
    listed = {
        pid: size for pid, size in figures.processes.items() if checked(size, f"process {pid}") is not None
    }
    return replace(
        figures,
        total=total or None,
        free=checked(figures.free, "free memory"),
        process=checked(figures.process, "this process"),
        outside=checked(figures.outside, _OUTSIDE),
        others=checked(figures.others, "other processes"),
        reserved=checked(figures.reserved, "the driver's own memory"),
        processes=listed,
        pools=tuple(pools),
    )


def _account_with_own_process(known: AccountFigures) -> AccountFigures:
    """The figures of an account with this process found in the driver's list, and the sum of the others."""
    if not known.processes or known.process is not None:
        return known
    pid, listed = own_pid(known), sum(known.processes.values())
    if pid is not None:
        size = known.processes[pid]
        others = listed - size if len(known.processes) > 1 else known.others
        return replace(known, process=size, others=others)
    if known.others is not None or _large_enough(known):  # one of them may be this process
        return known
    return replace(known, others=listed)


def own_pid(known: AccountFigures) -> int | None:
    """For an account, the pid of this process in the driver's list; None: it is not there, or not clear which one.

    In a container the driver prints pids of the host. Where the list explains all that is in use, this process is in
    it, and it is the one that is as large as its pools.
    """
    large = _large_enough(known)
    if known.pid in large:
        return known.pid
    return large[0] if len(large) == 1 and _lists_all(known) else None


def _large_enough(known: AccountFigures) -> list[int]:
    """The processes in the driver's list that are as large as this process's pools in the account."""
    return [pid for pid, size in known.processes.items() if size >= _bytes_in_pools(known) - known.slack]


def _lists_all(known: AccountFigures) -> bool:
    """Whether the driver's list of processes, in an account, leaves no room for one that is not in it."""
    if known.total is None or known.free is None:
        return False
    rest = known.total - known.free - sum(known.processes.values()) - (known.reserved or 0)
    return abs(rest) < LEAST_CONTEXT + known.slack


def _without_limit(known: AccountFigures, wrong: list[str]) -> AccountFigures:
    """The figures of an account without a limit that the pools exceed. Below a limit, free is what is left."""
    if known.whole == "device":
        return known
    pools = _bytes_in_pools(known)
    held = pools + (known.outside or 0)
    if known.total is None or held <= known.total + known.slack:
        return replace(known, free=None)
    if pools <= known.total + known.slack:  # the limit holds for requests of the pools alone
        wrong.append(
            f"In use are {format_bytes(held)}, {format_bytes(held - known.total)} more than the limit: what lies "
            "outside of the pools may pass it, and then every request of them fails."
        )
        return replace(known, free=None, total=None)
    wrong.append(
        f"The limit cannot be that of these pools: it is {format_bytes(known.total)}, and they have "
        f"{format_bytes(held)}."
    )
    return replace(known, free=None, total=None)


def _without_impossible_free(known: AccountFigures, wrong: list[str]) -> AccountFigures:
    """The figures of an account without free bytes that exceed the total of the device."""
    if known.total is None or known.free is None or known.free <= known.total + known.slack:
        return known
    wrong.append(
        f"The figure for free memory cannot be of the device alone: {format_bytes(known.free)} free of "
        f"{format_bytes(known.total)}. Some drivers count system memory that the device can use."
    )
    return replace(known, free=None)


def _bytes_in_pools(known: AccountFigures) -> int:
    """Bytes that an account counts in the pools of this process."""
    return sum(pool.least for pool in known.pools)


def _spilled_pool_bytes(known: AccountFigures, wrong: list[str]) -> int | None:
    """Bytes that the pools of an account have beyond the device, at least; None where they fit."""
    held = _bytes_in_pools(known)
    if known.total is None or held <= known.total + known.slack:
        return None
    used = sum(pool.in_use or 0 for pool in known.pools)
    beyond = (used if used > known.total else held) - known.total
    in_use = f", {format_bytes(used)} of it in use" if used > known.total else ""
    in_use = "" if format_bytes(used) == format_bytes(held) else in_use
    wrong.append(
        f"The pools have {format_bytes(held)}{in_use}, and the device only {format_bytes(known.total)}: at least "
        f"{format_bytes(beyond)} lie in system memory (spilled by the driver, or managed memory)."
    )
    return beyond


def _consistent_figures(known: AccountFigures, wrong: list[str]) -> AccountFigures:
    """The figures of an account without those that contradict the pools, the total, or what is free."""
    held, slack, total = _bytes_in_pools(known), known.slack, known.total
    fits = total is None or held <= total + slack
    if total is not None and known.free is not None and fits and held > total - known.free + slack:
        wrong.append(
            f"The figure for free memory cannot be: {format_bytes(known.free)} free of {format_bytes(total)}, but the "
            f"pools of this process have {format_bytes(held)}. Part of them lies in system memory, or the figures are "
            "of different moments."
        )
        known = replace(known, free=None)
    most = None if total is None else total - (known.free or 0)
    if known.process is not None and (
        (most is not None and known.process > most + slack) or (fits and known.process < held - slack)
    ):
        limit = f"its pools have {format_bytes(held)}"
        if most is not None and known.process > most + slack:
            limit = f"{format_bytes(most)} are in use on the device"
        wrong.append(
            f"The figure for this process cannot be: the driver counts {format_bytes(known.process)}, but {limit}."
        )
        known = replace(known, process=None)
    for name, words in (("outside", _OUTSIDE), ("others", "other processes"), ("reserved", "the driver")):
        value = getattr(known, name)
        base = held if fits else 0
        own = base if name == "outside" else max(known.process or 0, base + (known.outside or 0))
        if value is not None and most is not None and value > most - min(own, most) + slack:
            wrong.append(
                f"The figure for {words} cannot be: {format_bytes(value)}, and at most "
                f"{format_bytes(max(most - own, 0))} are left for it."
            )
            unknown: dict[str, Any] = {name: None}
            known = replace(known, **unknown)
    return known


def _outside_pools_bytes(known: AccountFigures, pools: Sequence[AccountPoolFigures]) -> int | None:
    """In an account, what this process has outside its pools; None where its pools are not all known."""
    if known.outside is not None:
        return known.outside
    sizes = [pool.total for pool in pools]
    if known.process is None or not (pools or known.has_all_pools) or None in sizes:
        return None
    return max(known.process - sum(pool.least for pool in pools), 0)


def _other_processes_bytes(known: AccountFigures) -> int | None:
    """What other processes have; where they are not counted by themselves, all that is not this process."""
    if known.others is not None or known.process is None or known.total is None or known.free is None:
        return known.others
    return max(known.total - known.free - known.process - (known.reserved or 0), 0)


def _account_parts(known: AccountFigures, pools: Sequence[AccountPoolFigures]) -> list[Part]:
    """The parts, in the order of a bar: others first, free memory last."""
    left = _Left(known.total)
    free = left.take(PartKind.FREE, "free", known.free)
    own = [part for pool in pools for part in _pool_account_parts(left, pool)]
    outside = _outside_pools_bytes(known, pools)
    if outside is not None:
        note = _OUTSIDE_NOTE if known.outside is None else ""
        own = [*left.take(PartKind.OUTSIDE, _OUTSIDE, outside, note), *own]
    elif known.process is not None:
        more = max(known.process - sum(part.size for part in own), 0)
        name = "this process, cached or outside its pools" if own else "this process, in pools or outside"
        own = [*left.take(PartKind.PROCESS, name, more), *own]
    listed = known.others is not None
    name = "other processes" if listed or known.reserved is not None else "other processes and the driver"
    others = left.take(PartKind.OTHERS, name, _other_processes_bytes(known))
    driver = left.take(PartKind.DRIVER, "reserved by the driver", known.reserved)
    rest: list[Part] = []
    if known.total is not None and left.size:
        rest = [Part(PartKind.UNACCOUNTED, "not accounted for", left.size, _rest_note(known, pools))]
    if known.total is not None and known.whole == "limit":
        note = "" if known.pools and None not in [pool.total for pool in pools] else "or free in the pool"
        rest, free = [], [Part(PartKind.FREE, "left under the limit", left.size or 0, note)]
    return [*others, *driver, *own, *rest, *free]


class _Left:
    """What an account has left of the device's total; None: the total is unknown."""

    def __init__(self, size: int | None) -> None:
        self.size = size

    def take(self, kind: PartKind, name: str, size: int | None, note: str = "") -> list[Part]:
        """A part of an account, of at most what is left of the total; none where its size is unknown."""
        if size is None:
            return []
        if self.size is not None:
            size = min(size, self.size)
            self.size -= size
        return [Part(kind, name, size, note)]


def _pool_account_parts(left: _Left, pool: AccountPoolFigures) -> list[Part]:
    if pool.size is not None:
        return left.take(PartKind.POOL, f"{pool.name}, in use or cached", pool.size)
    if pool.cached is None:
        return left.take(PartKind.POOL, f"{pool.name}, allocated", pool.in_use)
    return [
        *left.take(PartKind.IN_USE, f"{pool.name}, in use", pool.in_use),
        *left.take(PartKind.CACHED, f"{pool.name}, cached", pool.cached),
    ]


def _rest_note(known: AccountFigures, pools: Sequence[AccountPoolFigures]) -> str:
    """What may be in the part of an account that no figure explains."""
    may_be = []
    if known.free is None:
        may_be.append("free memory")
    if known.process is None:
        may_be.append("this process outside its pools" if pools else "this process")
    if any(pool.size is None and pool.cached is None for pool in pools):
        may_be.append("cached in its pools")
    if _other_processes_bytes(known) is None:
        may_be.append("other processes")
    if known.reserved is None:
        may_be.append("the driver")
    start, total = known.free_at_start, known.total
    if start is not None and total is not None and 0 <= start <= total:
        may_be.append(f"{format_bytes(total - start)} were not free when the program started")
    return ", ".join(may_be)


# ------------------------------------------------------------------------------
# The account of a recorded moment: what the file says of the device, and the heaps of the trace on it.

_DEVICE: Final = re.compile(r"(?:cuda|cupy|gpu|rmm|torch|xpu|hip)\w*[:_ ]{1,2}(\d{1,3})", re.IGNORECASE)


def account_at(trace: Trace, step: int | None = None, pool: int = 0) -> DeviceAccount:
    """The account of the device of a heap at a step: of the device where the file says that, else of the limit.

    Args:
        trace: the events.
        step: the state after that many events; None: at the last failed request of which the file has figures of the
            device, else the last state.
        pool: index of the heap.

    Raises:
        TraceError: the trace has no such step.
    """
    failed = _recorded_device_failure(trace, step, pool)
    if failed is not None:
        return account_of_failure(trace, failed, pool, {})
    heap = trace.origin.pools[pool]
    own = _pool_at(trace, pool, len(trace) if step is None else step, Model(trace, pool))
    return account_of(AccountFigures(device=heap.name, total=heap.limit, pools=(own,), whole="limit"))


def account_of_failure(
    trace: Trace, failed: RecordedFailure, pool: int, models: dict[int, Model]
) -> DeviceAccount:
    """The account of a heap's device when a request failed: of all heaps of the trace that have this device.

    Args:
        trace: the events.
        failed: what the file says of the failure.
        pool: index of the heap.
        models: models of this trace by the index of their heap, to use and to add to.
    """
    device = device_number(trace, pool)
    same = {pool} if device is None else _heaps_beside(trace, pool, device)
    pools = sorted(same) if failed.has_heap else []
    models |= {each: Model(trace, each) for each in pools if each not in models}
    return account_of(
        AccountFigures(
            device="device" if device is None else f"device {device}",
            number=device,
            total=failed.device_total,
            free=failed.device_free,
            free_at_start=failed.device_free_at_start,
            pools=tuple(_pool_at(trace, each, failed.event, models[each]) for each in pools),
            requested=int(trace.read(failed.event, failed.event + 1)["requested"][0]) or None,
        )
    )


def _recorded_device_failure(trace: Trace, step: int | None, pool: int) -> RecordedFailure | None:
    """The failure at a step, or the last one, if the file says something of the device."""
    for each in reversed(recorded_failures(trace.origin.details)):
        is_there = step in {None, each.event, each.event + 1} and trace.first <= each.event < len(trace)
        if is_there and each.tells_of_device and trace.read(each.event, each.event + 1)["pool"][0] == pool:
            return each
    return None


def device_number(trace: Trace, pool: int) -> int | None:
    """The number of a heap's device, from its name; None: the name says none."""
    found = _DEVICE.search(trace.origin.pools[pool].name)
    return None if found is None else int(found[1])


def _heaps_beside(trace: Trace, pool: int, device: int) -> set[int]:
    """A heap and the others of its device for an account, not the same one twice: a log may have several dumps."""
    options = [each.options for each in trace.origin.pools]
    name = options[pool].get("allocator_name") if "dump" in options[pool] else None
    beside = [each for each in range(len(options)) if device_number(trace, each) == device]
    return {
        each for each in beside if each == pool or name is None or options[each].get("allocator_name") != name
    }


def _pool_at(trace: Trace, pool: int, step: int, model: Model) -> AccountPoolFigures:
    """What a heap has at a step, for the account of its device, as far as the trace knows it."""
    facts = facts_of(trace.origin.details, pool)
    with model.visiting(step) as there:
        used, size = there.table.bytes_in_use, there.table.pool_bytes
    knows_pool = all(facts.get(name, 0) is not None for name in ("pool_bytes", "free_bytes"))
    return AccountPoolFigures(
        trace.origin.pools[pool].name, used, max(size - used, 0) if knows_pool else None
    )


# ------------------------------------------------------------------------------
# The account as HTML: a bar and a table. The colours are the variables of `figures.theme`.

ACCOUNT_STYLE: Final = """
.bfcviz-account-bar{display:flex;height:16px;margin:4px 0;border:1px solid var(--pool-line);box-sizing:border-box}
.bfcviz-account-bar span{flex:1 1 0;min-width:0;box-sizing:border-box}
.bfcviz-account-bar span+span{border-left:1px solid var(--paper)}
.bfcviz-account .p-other_processes{background:var(--class-1)}
.bfcviz-account .p-driver{background:var(--pool)}
.bfcviz-account .p-outside_pools{background:var(--class-3)}
.bfcviz-account .p-this_process{background:repeating-linear-gradient(135deg,var(--class-3) 0 4px,var(--pool) 4px 7px)}
.bfcviz-account .p-in_use{background:var(--in-use)}
.bfcviz-account .p-pool{background:repeating-linear-gradient(135deg,var(--in-use) 0 4px,var(--free) 4px 7px)}
.bfcviz-account .p-cached{background:var(--free)}
.bfcviz-account .p-not_accounted_for{
  background:repeating-linear-gradient(135deg,var(--muted) 0 2px,var(--paper) 2px 6px)}
.bfcviz-account .p-free{background:var(--paper)}
.bfcviz-account-table{border-collapse:collapse;width:auto;margin:0 0 10px;color:inherit;font:inherit;
  font-variant-numeric:tabular-nums}
.bfcviz-account-table td{border:0;padding:1px 14px 1px 0;text-align:left;vertical-align:baseline;white-space:nowrap}
.bfcviz-account-table td.size{text-align:right}
.bfcviz-account-table td.note{white-space:normal}
.bfcviz-account-table tr.total td{border-top:1px solid var(--muted);font-weight:600}
.bfcviz-account-table .swatch{display:inline-block;width:11px;height:11px;margin-right:7px;box-sizing:border-box;
  border:1px solid var(--pool-line)}
.bfcviz-account .note{color:var(--muted)}
"""
"""The rules of the bar and of the table; they stand inside of an element of the class `bfcviz-account`."""

_NOTEBOOK_STYLE: Final = """
.bfcviz-account{max-width:760px;font-size:13px;line-height:1.4;color:var(--jp-ui-font-color1,var(--text));
  font-family:var(--jp-ui-font-family,system-ui,sans-serif)}
.bfcviz-account .note{color:var(--jp-ui-font-color2,var(--muted))}
.bfcviz-account-table tr{background:none!important}  /* JupyterLab has stripes */
"""

_LONGEST: Final = 300  # characters of a text: names of allocators come from files


def _account_html_text(text: str) -> str:
    return escape(printable(text[:_LONGEST]))


def account_bar(account: DeviceAccount) -> str:
    """The parts of an account side by side, to scale."""
    parts = "".join(
        f'<span class="p-{part.kind}" style="flex-grow:{part.size}" '
        f'title="{_account_html_text(part.name)}: {format_bytes(part.size)}"></span>'
        for part in account.parts
        if part.size
    )
    return f'<div class="bfcviz-account-bar" role="img" aria-label="{_account_html_text(account.line)}">{parts}</div>'


def account_table(account: DeviceAccount) -> str:
    """A row for each part of an account, and the figures that cannot be."""
    rows = "".join(
        f'<tr><td><span class="swatch p-{part.kind}"></span>{_account_html_text(part.name)}</td>'
        f'<td class="size">{format_bytes(part.size)}</td>'
        f'<td class="size">{_percent_of_device(part.size, account.total)}</td>'
        f'<td class="note">{_account_html_text(part.note)}</td></tr>'
        for part in account.parts
        if part.size
    )
    total = "unknown" if account.total is None else format_bytes(account.total)
    wrong = "".join(f"<p>{_account_html_text(text)}</p>" for text in account.contradictions)
    return (
        f'<table class="bfcviz-account-table"><tbody>{rows}<tr class="total"><td>total</td>'
        f'<td class="size">{total}</td><td></td><td></td></tr></tbody></table>{wrong}'
    )
