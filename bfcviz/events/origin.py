"""Origin: where a trace comes from, how reliable it is, and its heaps."""

import json
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

from bfcviz.errors import TraceError
from bfcviz.events.schema import MAX_POOLS as MAX_POOLS
from bfcviz.events.storage.files import parse_file_json
from bfcviz.units import parse_bytes

# ------------------------------------------------------------------------------
# The entries of `Origin.details` that importers write and other code reads.
#
# ============  ==============================================================================================
# entry         value
# ============  ==============================================================================================
# `history`     `STATE_ONLY`: the file holds states, and no history; the events before an OOM only build one
# `facts`       one mapping a heap: numbers that the file states and events cannot give, None for unknown ones
# `totals`      one mapping a heap: what the file counts in the words of its framework, such as `segments`
# `failures`    one mapping a failed request, see `RecordedFailure`
# `checks`      one mapping a heap: how a reconstruction compares with the recorded numbers
# `threads`     name of each thread, by its number as text
# `framework`   `tensorflow`, `jax`, `torch`, `rmm` or `vulkan`: whose settings an advice must name
# `known_gaps`  the reasons of the origin that were known when the recording began, see `KnownGaps`
# `keep_bytes`  how many bytes of the newest events a recording keeps; all where it is missing
# `ended_by_signal`  the signal that ended the recorded process; missing: none did, or it is not known which
# `end_missing` the file was not written to its end, see `end_missing`
# ============  ==============================================================================================

# ruff: noqa: TRY004  all damage in a file is one error, a ValueError


STATE_ONLY: Final = "state"

_FRACTION: Final = "external_fragmentation"

REGION_FACTS: Final = ("pool_bytes", "regions", "chunks_free", "free_bytes", "largest_free_chunk", _FRACTION)
"""The facts that are unknown where the regions are."""

_MAX_NUMBER: Final = 1 << 63
_MAX_TEXT: Final = 1 << 16

HISTORY_BEGINS: Final = "history begins here"
TORCH_OBSERVED: Final = "PyTorch is observed from here"
RMM_OBSERVED: Final = "RMM is observed from here"
BEGIN_MARKS: Final = (HISTORY_BEGINS, TORCH_OBSERVED, RMM_OBSERVED)
"""Names of marks that say where a history begins, not where the job is."""


@dataclass(frozen=True)
class KnownGaps:
    """What the events of a heap cannot hold because of the way it is recorded; known before the first event.

    Attributes:
        reasons: what is missing or made up, and why, as sentences.
        unknown: names of the numbers that the events only seem to give, such as `free_bytes`.
    """

    reasons: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    def to_details(self) -> dict[str, Any]:
        """The entries of an origin's details for a trace whose one heap has these gaps."""
        return {"known_gaps": list(self.reasons), "facts": [dict.fromkeys(self.unknown)]}


def later_reasons(details: Mapping[str, object], reasons: Iterable[str]) -> tuple[str, ...]:
    """The reasons of an origin that are no known gaps: what was lost during the recording or after it."""
    known = details.get("known_gaps", ())
    return tuple(reason for reason in reasons if not isinstance(known, list | tuple) or reason not in known)


@dataclass(frozen=True)
class RecordedFailure:
    """What an origin says of a failed request, beyond its OOM event. Sizes are bytes, None where unknown.

    Attributes:
        event: index of the OOM event.
        is_exact: whether the event's `requested` is exact; otherwise it was printed with three or four digits.
        rounded: the request after the allocator's rounding.
        op: the operation that failed.
        tensor: shape and type of its tensor, as printed.
        device_free, device_total: memory of the device at that moment, as the driver counts it.
        in_use_requested: bytes that the owners of all chunks in use asked for; may be rounded.
        room: bytes by which the pool may still grow, where the file says it.
        device_free_at_start: what was free on the device when the program started.
        has_heap: whether the file holds the chunks of that moment; otherwise the numbers of the event are 0.
        message: what else the file says of it.
    """

    event: int
    is_exact: bool = True
    rounded: int | None = None
    op: str = ""
    tensor: str = ""
    device_free: int | None = None
    device_total: int | None = None
    in_use_requested: int | None = None
    room: int | None = None
    device_free_at_start: int | None = None
    has_heap: bool = True
    message: str = ""

    @property
    def tells_of_device(self) -> bool:
        """Whether the origin says anything of the device's memory at a failure."""
        return self.device_free is not None or self.device_total is not None

    def to_json(self) -> dict[str, Any]:
        """A failure as an entry of an origin's `details["failures"]`: what is not its default."""
        return {name: value for name, value in vars(self).items() if value != _DEFAULTS[name]}


def holds_only_states(details: Mapping[str, object]) -> bool:
    """Whether, by its origin, a trace has no history: its events only build the state of one moment."""
    return details.get("history") == STATE_ONLY


def facts_of(details: Mapping[str, object], pool: int) -> Mapping[str, object]:
    """The entry of `details["facts"]` of one heap; empty where there is none."""
    facts = details.get("facts")
    own = facts[pool] if isinstance(facts, list | tuple) and pool < len(facts) else {}
    return own if isinstance(own, Mapping) else {}


def chunks_known(details: Mapping[str, object], pool: int) -> bool:
    """Whether, by its origin, a trace has the chunks of a heap: some logs only say that one had no room."""
    return facts_of(details, pool).get("bytes_in_use", 0) is not None


def requested_bytes_known(details: Mapping[str, object], pool: int) -> bool:
    """Whether, by its origin, a trace has the requested bytes of a heap: some logs print only sizes."""
    return facts_of(details, pool).get("requested_bytes_in_use", 0) is not None


def unknown_of_chunks(details: Mapping[str, object], pool: int) -> frozenset[str]:
    """The numbers of chunks in use that, by its origin, a trace does not have; what its events hold is made up.

    Some of `requested`, `waste`, `born`, `age`, `thread` and `stream`. The state of a moment tells neither when a chunk
    was allocated nor by which thread; only that of PyTorch tells its stream.
    """
    found = set() if requested_bytes_known(details, pool) else {"requested", "waste"}
    if holds_only_states(details):
        found |= {"born", "age", "thread"} | (set() if details.get("framework") == "torch" else {"stream"})
    return frozenset(found)


def regions_known(details: Mapping[str, object], pool: int) -> bool:
    """Whether, by its origin, a trace has the regions of a heap, and so its free memory."""
    return facts_of(details, pool).get("pool_bytes", 0) is not None


def stated_peak(details: Mapping[str, object], pool: int, found: int) -> int | None:
    """The most bytes in use of a heap as the file states it, such as `MaxInUse`; `found` where it states nothing.

    None where the file says that it is not known. At least `found`: logs print it with three or four digits.
    """
    stated = facts_of(details, pool).get("peak_bytes_in_use", found)
    return max(stated, found) if isinstance(stated, int) else None


def recorded_failures(details: Mapping[str, object]) -> list[RecordedFailure]:
    """The entries of an origin's `details["failures"]`.

    Raises:
        ValueError: one of them is not what `RecordedFailure.to_json` makes.
    """
    entries = details.get("failures", [])
    if not isinstance(entries, list):
        raise ValueError("has failures that are not a list")
    return [_origin_failure(entry) for entry in entries]


def _origin_failure(entry: object) -> RecordedFailure:
    if not isinstance(entry, dict):
        raise ValueError("has a failure that is not an object")
    try:
        found = RecordedFailure(**entry)
    except TypeError:
        raise ValueError("has a failure with unknown entries, or without its event") from None
    for name, is_possible in _FIELD_CHECKS.items():
        value = getattr(found, name)
        if not is_possible(value):
            raise ValueError(f"has a failure with an impossible {name}: {str(value)[:40]}")
    return found


def check_details(details: Mapping[str, object], pools: int, *, guessed: bool) -> None:
    """Check the entries of an origin's details that other code reads, if present.

    Args:
        details: of an origin.
        pools: number of heaps in the trace.
        guessed: whether the trace says that something is missing or was guessed, or may yet say it. Otherwise the
            events are complete, and facts could only contradict them.

    Raises:
        ValueError: one of them has a wrong type, is out of range, or has more heaps than the trace.
    """
    for entry in _origin_pool_entries(details, "facts", pools):
        for name, value in entry.items():
            if not _is_origin_fact(name, value):
                raise ValueError(f"has an impossible fact {name[:40]!r}: {str(value)[:40]}")
        if entry and not guessed and details.get("history") != STATE_ONLY:
            raise ValueError("has facts beside the events, but the events are complete")
    for entry in _origin_pool_entries(details, "checks", pools):
        _check_origin_checks(entry)
    for entry in _origin_pool_entries(details, "totals", pools):
        if not all(_is_origin_count(value) for value in entry.values()):
            raise ValueError("has totals that are not numbers")
    recorded_failures(details)
    threads = details.get("threads", {})
    if not isinstance(threads, dict) or not all(isinstance(name, str) for name in threads.values()):
        raise ValueError("has threads that are not a table of names")


THREADS: Final = "threads"


def thread_name(details: Mapping[str, object], number: int) -> str:
    """The name of a thread by the origin's details; empty where the trace does not have it."""
    names = details.get(THREADS)
    return str(names.get(str(number), "")) if isinstance(names, dict) else ""


def thread_text(details: Mapping[str, object], number: int) -> str:
    """A thread by its number, and its name where the origin's details have it."""
    name = thread_name(details, number)
    return f"{number}: {name}" if name else f"{number}"


KEEP_BYTES: Final = "keep_bytes"
"""The detail with how many bytes of packed events a recording keeps, the newest ones."""

_END_MISSING: Final = "end_missing"


def end_missing(why: Sequence[str] | None) -> dict[str, object]:
    """The entry of the details of a file whose end is missing; empty without a reason why."""
    return {_END_MISSING: True} if why else {}


ENDED_BY_SIGNAL: Final = "ended_by_signal"
"""The detail with the number of the signal that ended the recorded process."""


def ending_signal(details: Mapping[str, object]) -> int | None:
    """By an origin's details, the signal that ended the recorded process; None: none, or unknown."""
    value = details.get(ENDED_BY_SIGNAL)
    return value if type(value) is int and 0 < value < 1 << 10 else None


def signal_text(number: int) -> str:
    """The name of a signal: `SIGTERM`; of one that this system does not have its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


PROCESS_PEAK: Final = "process_peak_bytes"
"""The detail with the most memory that the recorded process had at once, whatever it was for."""


def process_peak(details: Mapping[str, object]) -> int | None:
    """By an origin's details, the most memory that the recorded process had at once, in bytes; None: unknown."""
    value = details.get(PROCESS_PEAK)
    return value if _is_origin_count(value) and isinstance(value, int) else None


MEMORY_LIMITS: Final = "memory_limits"
"""The detail with what limits the host memory that the recorded process may have: bytes by name."""

ADDRESS_SPACE: Final = "address_space"
"""Of these limits: that of `ulimit -v`."""

CONTAINER: Final = "container"
"""Of these limits: that of the control groups."""

MACHINE: Final = "machine"
"""Of these limits: the memory of the machine."""


def memory_limits(details: Mapping[str, object]) -> dict[str, int]:
    """By an origin's details, what limits the host memory of the recorded process, in bytes by name; {}: unknown."""
    found = details.get(MEMORY_LIMITS)
    if not isinstance(found, dict):
        return {}
    known = {name: found.get(name) for name in (ADDRESS_SPACE, CONTAINER, MACHINE)}
    return {
        name: value for name, value in known.items() if isinstance(value, int) and _is_origin_count(value)
    }


def _origin_pool_entries(details: Mapping[str, object], name: str, pools: int) -> list[dict[str, object]]:
    """The list in an origin's details with one object per pool; empty if missing."""
    entries = details.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"has {name} that are not a list of objects")
    if len(entries) > pools:
        raise ValueError(f"has {name} of {len(entries)} heaps, but the trace has {pools}")
    return entries


def _is_origin_fact(name: str, value: object) -> bool:
    if value is None:
        return True
    if name == _FRACTION:
        return type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]
    return _is_origin_count(value)


def _is_origin_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _check_origin_checks(entry: Mapping[str, object]) -> None:
    if "checked" not in entry:
        return
    if not _is_origin_count(entry["checked"]) or not _is_origin_count(entry.get("differing")):
        raise ValueError("has checks without the numbers of compared and differing requests")
    if not isinstance(entry.get("pool"), str):
        raise ValueError("has checks of a heap without a name")


_CHECKS: Final[dict[object, Callable[[Any], bool]]] = {
    int: _is_origin_count,
    int | None: lambda value: value is None or _is_origin_count(value),
    bool: lambda value: type(value) is bool,
    str: lambda value: isinstance(value, str) and len(value) <= _MAX_TEXT,
}
"""Type of an attribute of `RecordedFailure` -> whether a value may be one."""

_FIELD_CHECKS: Final = {each.name: _CHECKS[each.type] for each in fields(RecordedFailure)}
_DEFAULTS: Final = {each.name: each.default for each in fields(RecordedFailure)}


T = TypeVar("T")

VERSION = 1
"""Of the file format; increased when an older bfcviz could misread new files."""

MAX_ORIGIN_BYTES = 1 << 24


class Status(StrEnum):
    """The status in an origin: how reliable the events of a trace are."""

    RECORDING = "recording"  # more events may come: `Trace.refresh`
    COMPLETE = "complete"
    TRUNCATED = "truncated"  # the events are right, but the end is missing, or the beginning
    DEGRADED = "degraded"  # events or names are missing or were guessed


@dataclass(frozen=True, init=False)
class Pool:
    """What an origin says of one heap of a trace.

    Args:
        name: of the heap.
        limit: the memory limit, in bytes or as text; None: unknown.
        options: the options of the heap.

    Raises:
        ValueError: a text is not a size.
    """

    name: str
    limit: int | None
    options: Mapping[str, object]

    def __init__(
        self, name: str, limit: int | str | None = None, options: Mapping[str, object] | None = None
    ) -> None:
        given = {"name": name, "limit": None if limit is None else parse_bytes(limit, "limit")}
        vars(self).update(given, options={} if options is None else options)


@dataclass(frozen=True)
class Origin:
    """The origin of a trace: where it comes from.

    Attributes:
        format: of the file it was read from: `bfcviz`, `xplane`, ...
        source: name of that file, without its folder.
        status: how reliable the events are.
        reasons: why it is not complete, as sentences.
        pools: its heaps; the `pool` of an event is an index of them.
        details: further facts from an importer or recorder, as JSON values; see `origin_details`.
    """

    format: str = "bfcviz"
    source: str = ""
    status: Status = Status.COMPLETE
    reasons: tuple[str, ...] = ()
    pools: tuple[Pool, ...] = (Pool("bfc"),)
    details: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < len(self.pools) <= MAX_POOLS:
            raise TraceError(f"a trace has 1 to {MAX_POOLS} pools; got {len(self.pools)}")

    @property
    def lacks_end(self) -> bool:
        """Whether an imported file was not written to its end; its beginning may be missing as well, or instead."""
        return self.details.get(_END_MISSING) is True

    @property
    def has_ended_whole(self) -> bool:
        """Whether, by its origin, nothing of a recording was lost; its known gaps do not count."""
        # A recording that keeps its newest events only is truncated, too.
        cut = self.status is Status.TRUNCATED and KEEP_BYTES in self.details
        ended = cut or self.status in (Status.COMPLETE, Status.DEGRADED)
        return ended and not later_reasons(self.details, self.reasons)

    @property
    def truncated(self) -> str:
        """A sentence on what is missing of a truncated trace, and what that means for an answer; empty: nothing."""
        if self.status is not Status.TRUNCATED:
            return ""
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"the trace is truncated{why}. This is about the events that could be read; the job may have had more"

    def to_json(self, **more: object) -> str:
        """The origin as JSON text, with the entries `more` beside it.

        Raises:
            TraceError: options or details hold values that JSON cannot express.
        """
        pools = [{"name": p.name, "bytes_limit": p.limit, "options": dict(p.options)} for p in self.pools]
        origin = {"bfcviz": VERSION, **vars(self), "pools": pools, "details": dict(self.details), **more}
        try:
            text = json.dumps(origin, indent=1, allow_nan=False, default=_plain_origin_value)
        except (TypeError, ValueError, RecursionError) as error:
            raise TraceError(f"options and details of an origin must be JSON values: {error}") from error
        if len(text) > MAX_ORIGIN_BYTES:
            raise TraceError(f"the origin has {len(text)} bytes; the limit is {MAX_ORIGIN_BYTES}")
        return text


def origin_from_json(text: bytes) -> tuple[Origin, dict[str, object]]:
    """The origin that `to_json` wrote, and the entries beside it.

    Raises:
        ValueError: `text` is not an origin, or of a later version.
    """
    entry = _whole_characters(parse_file_json(text))
    if not isinstance(entry, dict) or "bfcviz" not in entry:
        raise ValueError("is not the origin of a bfcviz trace")
    if entry["bfcviz"] != VERSION:
        raise ValueError(f"is of version {str(entry['bfcviz'])[:20]}; this bfcviz reads version {VERSION}")
    entry.pop("bfcviz")
    pools = _take_origin_entry(entry, "pools", list)
    reasons = _take_origin_entry(entry, "reasons", list)
    if not 0 < len(pools) <= MAX_POOLS or not all(isinstance(reason, str) for reason in reasons):
        raise ValueError("has a wrong list of pools or reasons")
    origin = Origin(
        format=_take_origin_entry(entry, "format", str),
        source=_take_origin_entry(entry, "source", str),
        status=Status(_take_origin_entry(entry, "status", str)),
        reasons=tuple(reasons),
        pools=tuple(_origin_pool(pool) for pool in pools),
        details=_take_origin_entry(entry, "details", dict),
    )
    check_details(origin.details, len(pools), guessed=origin.status is not Status.COMPLETE)
    return origin, entry


def _whole_characters(entry: object) -> object:
    """Replace lone surrogates of an origin by `?`: JSON can hold them, but web pages and files cannot."""
    plain = json.dumps(entry, ensure_ascii=False)
    return entry if plain.isascii() else parse_file_json(plain.encode("utf-8", "replace"))


def _origin_pool(entry: object) -> Pool:
    if not isinstance(entry, dict):
        raise ValueError("has a pool that is not an object")
    limit = entry.get("bytes_limit")
    if limit is not None and (type(limit) is not int or not 0 <= limit < 1 << 63):
        raise ValueError("has a pool whose bytes_limit is not a number of bytes")
    options = _take_origin_entry(entry, "options", dict)
    fraction = options.get("fragmentation_fraction", 0.0)
    if type(fraction) not in (int, float) or not 0 <= fraction <= 1:
        raise ValueError("has a pool whose fragmentation_fraction is not a number from 0 to 1")
    return Pool(_take_origin_entry(entry, "name", str), limit, options)


def _take_origin_entry(entry: dict[str, object], key: str, kind: type[T]) -> T:
    value = entry.pop(key, None)
    if not isinstance(value, kind):
        raise ValueError(f"has no {key}, or one of a wrong type")
    return value


def _plain_origin_value(value: object) -> object:
    """A value of an origin for JSON: NumPy scalars as Python numbers; all other objects as text."""
    return value.item() if hasattr(value, "item") else str(value)
