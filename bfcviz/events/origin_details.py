"""The entries of `Origin.details` that importers write and other code reads.

============  ==============================================================================================
entry         value
============  ==============================================================================================
`history`     `STATE_ONLY`: the file holds states, and no history; the events before an OOM only build one
`facts`       one mapping a heap: numbers that the file states and events cannot give, None for unknown ones
`totals`      one mapping a heap: what the file counts in the words of its framework, such as `segments`
`failures`    one mapping a failed request, see `RecordedFailure`
`checks`      one mapping a heap: how a reconstruction compares with the recorded numbers
`threads`     name of each thread, by its number as text
`framework`   `tensorflow`, `jax`, `torch`, `rmm` or `vulkan`: whose settings an advice must name
`known_gaps`  the reasons of the origin that were known when the recording began, see `KnownGaps`
============  ==============================================================================================
"""
# ruff: noqa: TRY004  all damage in a file is one error, a ValueError

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

STATE_ONLY: Final = "state"

REGION_FACTS: Final = (
    "pool_bytes",
    "regions",
    "chunks_free",
    "free_bytes",
    "largest_free_chunk",
    "external_fragmentation",
)
"""The facts that are unknown where the regions are."""

_MAX_NUMBER: Final = 1 << 63
_MAX_TEXT: Final = 1 << 16
_FRACTION: Final = "external_fragmentation"

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
        """The entries of the details of a trace whose one heap has these gaps."""
        return {"known_gaps": list(self.reasons), "facts": [dict.fromkeys(self.unknown)]}


def later_reasons(details: Mapping[str, object], reasons: Iterable[str]) -> tuple[str, ...]:
    """The reasons of an origin that are no known gaps: what was lost during the recording or after it."""
    known = details.get("known_gaps", ())
    return tuple(reason for reason in reasons if not isinstance(known, list | tuple) or reason not in known)


@dataclass(frozen=True)
class RecordedFailure:
    """What a file says of a failed request, beyond its OOM event. Sizes are bytes, None where unknown.

    Attributes:
        event: index of the OOM event.
        is_exact: whether the event's `requested` is exact; otherwise it was printed with three or four digits.
        rounded: the request after the allocator's rounding.
        op: the operation that failed.
        tensor: shape and type of its tensor, as printed.
        device_free, device_total: memory of the device at that moment, as the driver counts it.
        in_use_requested: bytes that the owners of all chunks in use asked for; may be rounded.
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
    has_heap: bool = True
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """The entry of `details["failures"]`: the attributes that are not their defaults."""
        return {name: value for name, value in vars(self).items() if value != _DEFAULTS[name]}


def holds_only_states(details: Mapping[str, object]) -> bool:
    """Whether the file has no history: its events only build the state of one moment for each heap."""
    return details.get("history") == STATE_ONLY


def facts_of(details: Mapping[str, object], pool: int) -> Mapping[str, object]:
    """The entry of `details["facts"]` of one heap; empty where there is none."""
    facts = details.get("facts")
    own = facts[pool] if isinstance(facts, list | tuple) and pool < len(facts) else {}
    return own if isinstance(own, Mapping) else {}


def requested_bytes_known(details: Mapping[str, object], pool: int) -> bool:
    """Whether the trace has the requested bytes of a heap: some logs print only the sizes of chunks."""
    return facts_of(details, pool).get("requested_bytes_in_use", 0) is not None


def regions_known(details: Mapping[str, object], pool: int) -> bool:
    """Whether the trace has the regions of a heap, and so its free memory: some sources tell only who holds memory."""
    return facts_of(details, pool).get("pool_bytes", 0) is not None


def recorded_failures(details: Mapping[str, object]) -> list[RecordedFailure]:
    """The entries of `details["failures"]`.

    Raises:
        ValueError: one of them is not what `RecordedFailure.to_json` makes.
    """
    entries = details.get("failures", [])
    if not isinstance(entries, list):
        raise ValueError("has failures that are not a list")
    return [_failure(entry) for entry in entries]


def _failure(entry: object) -> RecordedFailure:
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
    """Check the entries that other code reads, if present.

    Args:
        details: of an origin.
        pools: number of heaps in the trace.
        guessed: whether the trace says that something is missing or was guessed, or may yet say it. Otherwise the
            events are complete, and facts could only contradict them.

    Raises:
        ValueError: one of them has a wrong type, is out of range, or has more heaps than the trace.
    """
    for entry in _entries(details, "facts", pools):
        for name, value in entry.items():
            if not _is_fact(name, value):
                raise ValueError(f"has an impossible fact {name[:40]!r}: {str(value)[:40]}")
        if entry and not guessed and details.get("history") != STATE_ONLY:
            raise ValueError("has facts beside the events, but the events are complete")
    for entry in _entries(details, "checks", pools):
        _check_check(entry)
    for entry in _entries(details, "totals", pools):
        if not all(_is_count(value) for value in entry.values()):
            raise ValueError("has totals that are not numbers")
    recorded_failures(details)
    threads = details.get("threads", {})
    if not isinstance(threads, dict) or not all(isinstance(name, str) for name in threads.values()):
        raise ValueError("has threads that are not a table of names")


def _entries(details: Mapping[str, object], name: str, pools: int) -> list[dict[str, object]]:
    """The list with one object per pool; empty if missing."""
    entries = details.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"has {name} that are not a list of objects")
    if len(entries) > pools:
        raise ValueError(f"has {name} of {len(entries)} heaps, but the trace has {pools}")
    return entries


def _is_fact(name: str, value: object) -> bool:
    if value is None:
        return True
    if name == _FRACTION:
        return type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]
    return _is_count(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _check_check(entry: Mapping[str, object]) -> None:
    if "checked" not in entry:
        return
    if not _is_count(entry["checked"]) or not _is_count(entry.get("differing")):
        raise ValueError("has checks without the numbers of compared and differing requests")
    if not isinstance(entry.get("pool"), str):
        raise ValueError("has checks of a heap without a name")


_CHECKS: Final[dict[object, Callable[[Any], bool]]] = {
    int: _is_count,
    int | None: lambda value: value is None or _is_count(value),
    bool: lambda value: type(value) is bool,
    str: lambda value: isinstance(value, str) and len(value) <= _MAX_TEXT,
}
"""Type of an attribute of `RecordedFailure` -> whether a value may be one."""

_FIELD_CHECKS: Final = {each.name: _CHECKS[each.type] for each in fields(RecordedFailure)}
_DEFAULTS: Final = {each.name: each.default for each in fields(RecordedFailure)}
