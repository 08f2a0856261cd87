"""Several policies compared on the requests of one trace: `compare_policies`, its table of measures, texts and figures.

The measures of fragmentation have many definitions; `MEASURES` has the one of each column. Sources: external
fragmentation is TensorFlow's (xla/tsl/framework/bfc_allocator.cc, `GetFragmentation`); reserved-not-in-use is that of
GMLake (Guo et al., ASPLOS 2024, arXiv 2401.08156) and STAlloc (arXiv 2507.16274).

May import everything but cli.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from math import isfinite
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.answers import AnswerTable
from bfcviz.errors import BfcvizError, InvalidRequest
from bfcviz.events.label_table import NO_LABEL
from bfcviz.events.marks import mark_value, value_text
from bfcviz.events.origin import BEGIN_MARKS
from bfcviz.extras import arrow, arrow_schema
from bfcviz.formats.tensorflow import COLLECTION
from bfcviz.public_functions import trace_from
from bfcviz.terminal import named_rows, printable
from bfcviz.units import bytes_range, format_bytes, seconds_text
from bfcviz.unwatched import unwatched
from bfcviz.whatif.outcome import FirstDifference, FreeMemory, Outcome, RecordedOutcome, first_difference
from bfcviz.whatif.own_rules import GROWING_BFC, OwnRules, usual_policies
from bfcviz.whatif.policy import Policy, checked_limit
from bfcviz.whatif.policy_replay import replay_limit
from bfcviz.whatif.policy_table import (
    BOUNDS,
    PLANS,
    is_compared,
    on_device,
    policy_of,
    policy_text,
    uncompared,
)
from bfcviz.whatif.requests import MARK, RequestStream, stream_of
from bfcviz.whatif.tie_breaking import InOrder, Orders, in_orders

if TYPE_CHECKING:
    from pyarrow import Table

    from bfcviz.figures import Picture
    from bfcviz.figures.compared_policies import DrawnJob, DrawnPolicy
    from bfcviz.figures.theme import ThemeName

CALL_COST_US: Final = 500.0
"""Microseconds that a call to the driver is assumed to take; measure those of your device, for its own number."""

MOST_RECORDED: Final = 300_000
"""Requests: the events of a longer stream are not recorded, and what needs them is not known."""

MEASURES: Final = {
    "peak_reserved": "most bytes that the driver had granted",
    "peak_in_use": "most bytes of blocks in use, after rounding",
    "reserved_not_in_use": "1 - most bytes in use / peak pool (F2: GMLake, STAlloc)",
    "external_fragmentation": "1 - largest free chunk / free bytes, where most is in use (F1: TensorFlow)",
    "internal_fragmentation": "1 - requested bytes / bytes in use, where most is in use (F3): what rounding adds",
    "splits": "free chunks cut in two, one for the request",
    "merges": "neighbours that became one free chunk",
    "driver_calls": "to the driver: grants, refused grants and releases",
    "stall_s": "calls to the driver x the assumed cost of one",
    "failure_external_fragmentation": "external at the first failure",
    "failure_free_bytes": "pool that is not in use at the first failure (F4)",
    "failure_room_bytes": "limit - pool at the first failure: what the driver would still grant",
}
"""Column -> its definition."""

Kind = Literal["allocator", "plan", "bound"]


@dataclass(frozen=True)
class PolicyResult:
    """What one of the compared policies did, up to its first failure: a job does not go on after it.

    Plans and bounds have no limit.

    Attributes:
        name: as it was asked for, such as `bfc:allow_growth=true`.
        outcome: None: the policy cannot serve the stream.
        message: why it cannot; empty if it can.
        kind: an allocator; a plan of `PLANS`; or a lower bound of `BOUNDS`.
        role: `as recorded` or `own rules` for the heap of the trace itself; else empty.
        orders: peak pool and whether it fits, where ties between equal free blocks are decided otherwise.
    """

    name: str
    outcome: Outcome | None
    message: str = ""
    kind: Kind = "allocator"
    role: str = ""
    orders: Orders | None = None

    @property
    def is_allocator(self) -> bool:
        """Whether the compared policy has rules that a heap can have: it is no plan, no bound."""
        return self.kind == "allocator"

    @property
    def title(self) -> str:
        """The name of the compared policy, with the role before it."""
        return f"{self.role}: {self.name}" if self.role else self.name

    @property
    def failed_request(self) -> int | None:
        """Index of the first request that failed under the compared policy; None: none did."""
        return None if self.outcome is None or self.outcome.fits else int(self.outcome.failures[0])

    @cached_property
    def recorded(self) -> RecordedOutcome | None:
        """The outcome of the compared policy with its trace, if it was recorded."""
        if self.outcome is None or self.outcome.trace is None or not self.is_allocator:
            return None
        return RecordedOutcome(self.outcome)

    @cached_property
    def free_at_peak(self) -> FreeMemory | None:
        """The free memory under the compared policy where most is in use; None: not known."""
        if self.outcome is None or not self.outcome.served:
            return None
        return self._free_memory(int(self.outcome.in_use.argmax()))

    @cached_property
    def free_at_failure(self) -> FreeMemory | None:
        """The free memory under the compared policy at its first failure; None: none, or not known."""
        return None if self.failed_request is None else self._free_memory(self.failed_request)

    def _free_memory(self, request: int) -> FreeMemory | None:
        if self.outcome is None or not self.is_allocator:
            return None
        if self.outcome.largest_free is None and self.recorded is not None:
            return self.recorded.free_memory(request)
        return self.outcome.free_memory(request)


@dataclass(frozen=True)
class Comparison:
    """The outcomes of several policies that serve one stream.

    Attributes:
        limit: memory limit in bytes; None: none.
        results: of each policy, in the order asked; plans and bounds last.
        call_cost_us: assumed cost of a driver call, in microseconds.
        own: the rules of the trace's own heap, if they are among the policies.
        complete: whether no Ctrl-C stopped it; then the policies after that have a message instead of an outcome.
    """

    stream: RequestStream = field(repr=False)
    limit: int | None
    results: tuple[PolicyResult, ...]
    call_cost_us: float = CALL_COST_US
    own: OwnRules | None = None
    complete: bool = True

    def __getitem__(self, name: str) -> PolicyResult:
        """The result of the policy that was asked for by this name.

        Raises:
            InvalidRequest: there is none.
        """
        for result in self.results:
            if result.name == name:
                return result
        names = ", ".join(result.name for result in self.results)
        raise InvalidRequest(f"no policy {name!r} was compared; there are: {names}")

    def to_rows(self) -> list[dict[str, Any]]:
        """One row a compared policy; sizes in bytes, shares from 0 to 1; None: not known, or no such moment.

        `compared`: whether the rules were compared with those of the real allocator; None: a plan, a bound or your own.
        """
        return [dict.fromkeys(_COLUMNS) | self._row(result) for result in self.results]

    def to_arrow(self) -> "Table":
        """The compared policies as a table, of `to_rows`.

        Raises:
            MissingExtra: pyarrow is not installed.
        """
        return arrow("to_arrow()").Table.from_pylist(self.to_rows(), arrow_schema(_COLUMNS))

    def first_difference(self, one: str, other: str) -> FirstDifference | None:
        """The first request that the policies of these names place differently; None: there is none.

        What counts as different: see `bfcviz.whatif.outcome.first_difference`.

        Raises:
            InvalidRequest: one was not compared, cannot serve the stream, is no allocator, or was not recorded.
        """
        found = []
        for name in (one, other):
            recorded = self[name].recorded
            if recorded is None:
                raise InvalidRequest(
                    f"where {name!r} places requests is not known: {self._why_not_recorded(self[name])}"
                )
            found.append(recorded)
        return first_difference(found[0], found[1], (one, other))

    def _why_not_recorded(self, result: PolicyResult) -> str:
        if not result.is_allocator:
            return f"it is a {result.kind}, not an allocator"
        if result.outcome is None:
            return f"it cannot serve them: {result.message}"
        if len(self.stream) > MOST_RECORDED:
            return f"there are {len(self.stream):,} requests, and events of at most {MOST_RECORDED:,} are recorded"
        return "its outcome has no trace; let the `serve` of this policy return one if it is called with record=True"

    def is_above_limit(self, result: PolicyResult) -> bool:
        """Whether a compared policy is a plan or a bound that needs more than the limit.

        Above a bound no allocator can serve the stream; above a plan one may.
        """
        if result.is_allocator or result.outcome is None or self.limit is None:
            return False
        return result.outcome.peak_reserved > self.limit

    def _row(self, result: PolicyResult) -> dict[str, Any]:
        outcome, request = result.outcome, result.failed_request
        row: dict[str, Any] = {"policy": result.name, "kind": result.kind, "message": result.message}
        row |= {"role": result.role, "compared": is_compared(result.name)}
        if outcome is None:
            return row
        calls = outcome.driver_calls
        row |= {
            "limit": outcome.limit if result.is_allocator else self.limit,
            "fits": outcome.fits and not self.is_above_limit(result),
            "requests_served": outcome.served,
            "peak_reserved": outcome.peak_reserved,
            "peak_in_use": outcome.peak_in_use,
            "reserved_not_in_use": outcome.reserved_not_in_use,
            "internal_fragmentation": outcome.internal_fragmentation,
            "external_fragmentation": _compared_fragmentation(result.free_at_peak),
        }
        if result.is_allocator:
            row |= {f"driver_{name}": number for name, number in calls._asdict().items()}
            row["stall_s"] = sum(calls) * self.call_cost_us / 1e6
        if result.recorded is not None:
            counts = result.recorded.counts
            row |= {f"{kind}s": counts[kind] for kind in ("split", "merge", "extend", "release")}
        return row if request is None else row | self._failure(result, outcome, request)

    def _failure(self, result: PolicyResult, outcome: Outcome, request: int) -> dict[str, Any]:
        rows = self.stream.rows
        marks = rows[:request][rows["kind"][:request] == MARK]
        reserved, free = int(outcome.reserved[request]), result.free_at_failure
        return {
            "failed_request": request,
            "failed_event": int(rows["event"][request]),
            "failed_size": int(rows["size"][request]),
            "failed_label": self.stream.labels.name(int(rows["label"][request])),
            "failed_after_mark": self.stream.labels.name(int(marks["label"][-1])) if len(marks) else None,
            "failed_after_mark_value": self._last_mark_value(marks),
            "marks_before_failure": len(marks),
            "failure_external_fragmentation": _compared_fragmentation(free),
            "failure_free_bytes": reserved - int(outcome.in_use[request]),
            "failure_largest_free_bytes": None if free is None else free.largest,
            "failure_room_bytes": None if outcome.limit is None else max(0, outcome.limit - reserved),
        }

    def _last_mark_value(self, marks: NDArray[np.void]) -> float | None:
        if not len(marks):
            return None
        size = int(marks["size"].view(np.uint64)[-1])
        value = float(mark_value(self.stream.labels, int(marks["label"][-1]), size))
        return value if isfinite(value) else None


_COLUMNS: Final[dict[str, str]] = {
    **dict.fromkeys(("policy", "role", "kind", "message"), "string"),
    "compared": "bool_",
    "limit": "int64",
    "fits": "bool_",
    **dict.fromkeys(("requests_served", "peak_reserved", "peak_in_use"), "int64"),
    **dict.fromkeys(("reserved_not_in_use", "external_fragmentation", "internal_fragmentation"), "float64"),
    **dict.fromkeys(("splits", "merges", "extends", "releases"), "int64"),
    **dict.fromkeys(("driver_grants", "driver_refusals", "driver_releases"), "int64"),
    "stall_s": "float64",
    **dict.fromkeys(("failed_request", "failed_event", "failed_size"), "int64"),
    **dict.fromkeys(("failed_label", "failed_after_mark"), "string"),
    "failed_after_mark_value": "float64",
    "marks_before_failure": "int64",
    "failure_external_fragmentation": "float64",
    **{f"failure_{name}_bytes": "int64" for name in ("free", "largest_free", "room")},
}
"""Column of the table -> its type, as pyarrow calls it."""


def compare(
    stream: RequestStream,
    policies: Sequence[str | Policy | OwnRules],
    limit: int | None = None,
    *,
    bounds: bool = True,
    call_cost_us: float = CALL_COST_US,
) -> Comparison:
    """Serve a stream under each policy, each up to its first failure.

    Args:
        stream: the requests.
        policies: names with options, such as `torch:expandable_segments=true`, policies, or the stream's own rules.
        limit: memory limit in bytes; None: none.
        bounds: whether those of `PLANS` and `BOUNDS` are added.
        call_cost_us: assumed cost of a driver call, in microseconds.

    Raises:
        InvalidRequest: a name or an option does not exist, or is given twice. A policy that cannot serve the stream
            is a result with a message.
    """
    served = [_asked_policy(policy, limit) for policy in policies]
    names = [each.name for each in served]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"a policy is given twice: {', '.join(names)}; give each once")
    if bounds:
        served += [_asked_policy(name, limit) for name in (*PLANS, *BOUNDS) if name not in names]
    own = next((policy for policy in policies if isinstance(policy, OwnRules)), None)
    results: list[PolicyResult] = []
    try:
        for each in served:
            results.append(_compared_policy_result(each, stream))  # noqa: PERF401  after Ctrl-C those that are done stay
    except KeyboardInterrupt:
        if not results:
            raise
    why = "not served: the comparison was stopped"
    stopped = [
        PolicyResult(each.name, None, why, _compared_policy_kind(each.policy), each.role)
        for each in served[len(results) :]
    ]
    return Comparison(stream, limit, (*results, *stopped), call_cost_us, own, complete=not stopped)


class _Asked(NamedTuple):
    """A policy that a comparison is asked for."""

    name: str
    policy: Policy
    limit: int | None
    role: str = ""


def _asked_policy(policy: str | Policy | OwnRules, limit: int | None) -> _Asked:
    if isinstance(policy, OwnRules):
        return _Asked(policy.text, policy.policy, policy.limit, policy.role)
    name = policy if isinstance(policy, str) else policy_text(policy.name, policy.options)
    return _Asked(name, policy_of(policy), limit)


def _compared_policy_kind(policy: Policy) -> Kind:
    """The `PolicyResult.kind` of a policy. Rounded sizes make the bound a plan: an allocator may round less."""
    if policy.name in PLANS:
        return "plan"
    if policy.name in BOUNDS:
        return "bound" if policy.options.get("unit", 1) == 1 else "plan"
    return "allocator"


def _compared_policy_result(asked: _Asked, stream: RequestStream) -> PolicyResult:
    kind = _compared_policy_kind(asked.policy)
    is_allocator = kind == "allocator"
    record = len(stream) <= MOST_RECORDED and is_allocator
    try:
        checked_limit(asked.limit)
        # Under a limit, a plan or bound would say only what it has served before its first failure.
        limit = asked.limit if is_allocator else None
        outcome = asked.policy.serve(stream, limit, record=record, stop_at_failure=True)

        def serve(rules: Policy) -> InOrder:
            found = rules.serve(stream, limit, stop_at_failure=True)
            return InOrder(found.fits, found.peak_reserved)

        first = InOrder(outcome.fits, outcome.peak_reserved)
        orders = in_orders(asked.policy, first, serve, requests=len(stream))
        return PolicyResult(asked.name, outcome, kind=kind, role=asked.role, orders=orders)
    except BfcvizError as error:
        return PolicyResult(asked.name, None, str(error), kind, asked.role)
    except Exception as error:  # noqa: BLE001  policies of users may raise anything
        return PolicyResult(asked.name, None, f"{type(error).__name__}: {error}", kind, asked.role)


def _compared_fragmentation(free: FreeMemory | None) -> float | None:
    return None if free is None else free.scattered_share


# ------------------------------------------------------------------------------
# The first failure of a policy as a sentence: when, what was asked, what was free, and why the pool could not grow.

_LONGEST: Final = 72  # characters of the label of a failed request

MOST_COUNT: Final = 1 << 32
"""A greater value of a mark is no count: TensorFlow makes up the step ids of its profiles."""


def failure_text(row: dict[str, Any]) -> str:
    """The failure of a compared policy, from its row of `Comparison.to_rows`."""
    label = printable(row["failed_label"] or "an allocation without label")
    label = label if len(label) <= _LONGEST else f"...{label[3 - _LONGEST :]}"
    event = f" (event {row['failed_event']:,})" if row["failed_event"] >= 0 else ""
    asked = format_bytes(row["failed_size"])
    return (
        f"out of memory at request {row['failed_request']:,}{event}{_compared_failure_moment(row)}: "
        f"{asked} asked for {label}; {_compared_failure_free(row)}; {_compared_failure_growth(row)}"
    )


def _compared_failure_moment(row: dict[str, Any]) -> str:
    """The last mark before the first failure of a compared policy."""
    name, value = row["failed_after_mark"], row["failed_after_mark_value"]
    if name is None or name in BEGIN_MARKS:
        return ""
    shown = printable(name) or NO_LABEL
    text = (
        ""
        if value is None or abs(value) >= MOST_COUNT
        else value_text(int(value) if value.is_integer() else value)
    )
    counted = f" {text}" if text else ""
    return f", after mark {row['marks_before_failure']:,} of the trace ({shown}{counted})"


def _compared_failure_free(row: dict[str, Any]) -> str:
    largest = row["failure_largest_free_bytes"]
    chunk = "" if largest is None else f", at most {format_bytes(largest)} in one chunk"
    return f"free in the pool: {format_bytes(row['failure_free_bytes'])}{chunk}"


def _compared_failure_growth(row: dict[str, Any]) -> str:
    """What the limit leaves a compared policy, and why no new region could serve its request."""
    room, asked = row["failure_room_bytes"], row["failed_size"]
    if row["role"] == "as recorded":
        return "a new region was refused, as in the trace"
    if room is None:
        return "no address is left for a new region"
    if room == 0:
        return "the pool has the whole limit, so it cannot grow"
    left = f"not yet taken below the limit: {format_bytes(room)}"
    if room >= asked:
        return f"{left}, less than the region that these rules ask for: they round its size up"
    return f"{left}, {format_bytes(asked - room)} too little for a new region"


# ------------------------------------------------------------------------------
# A comparison as text: a row a policy, then the definition of each measure, the assumptions and what is missing.

_WIDTH: Final = 80

_WORDS: Final = {
    "peak_reserved": "peak pool",
    "peak_in_use": "in use",
    "reserved_not_in_use": "not in use",
    "external_fragmentation": "external",
    "internal_fragmentation": "internal",
    "splits": "splits",
    "merges": "merges",
    "driver_calls": "calls",
    "stall_s": "stall",
}
"""Measure -> its name in texts: of its column."""

_WORDS_OF_FAILURES: Final = {
    "failure_external_fragmentation": "external in a failure",
    "failure_free_bytes": "free in a failure",
    "failure_room_bytes": "not yet taken in a failure",
}

_KINDS: Final = {
    "bound": "bound: no allocator can need less: `live_bytes` has only the requested bytes in use at a time",
    "plan": "plan: no allocator: all lifetimes are known before the first request; an allocator seldom needs less. "
    "`packed` puts all blocks into one region, sizes rounded up to 256 bytes",
}
"""Kind of a policy -> what it is."""

TRUST: Final = (
    "which to trust: peak pool says whether the job fits; not in use, what the rules add to it; external at a failure, "
    "why free memory did not serve; internal, what rounding costs; calls and stall, whether the job slows down"
)

COLUMNS: Final = ("policy", "result", *_WORDS.values())

_MEMORY: Final = ("policy", "peak pool", "in use", "not in use", "external", "internal", "result")
_WORK: Final = ("policy", "splits", "merges", "calls", "stall")
"""The columns of the two tables of a text: all in one are too wide for a terminal."""


def comparison_text(comparison: Comparison, *, explain: bool = True) -> str:
    """The comparison of policies as text; `explain`: with what the rules did, definitions and assumptions."""
    rows = table_rows(comparison)
    tables = [_MEMORY, _WORK] if explain else [_MEMORY]
    lines = [
        *wrap(f"{verdict_text(comparison)}.", _WIDTH),
        *wrap(_comparison_facts(comparison), _WIDTH),
    ]
    lines += [line for columns in tables for line in ("", *_comparison_table_lines(rows, columns))]
    lines.append("")
    failed = failures(comparison)
    said = (
        notes(comparison)
        if explain
        else [
            *remarks(comparison),
            "--explain says what each column means, and counts splits, merges and calls",
        ]
    )
    found = [*failed, *([""] if failed else []), *said]
    return "\n".join([*lines, *(line for text in found for line in wrap(text, _WIDTH) or [""])])


def comparison_html(comparison: Comparison) -> str:
    """The comparison of policies as HTML for a notebook: the table; failures and definitions below folds."""
    table = AnswerTable(COLUMNS, table_rows(comparison), texts=["result"])
    return (
        f'<div style="font-weight:600">{escape(verdict_text(comparison))}</div>'
        f"<div>{escape(_comparison_facts(comparison))}</div>{table.html}"
        f"{_comparison_html_list('Failures', failures(comparison))}"
        f"{_comparison_html_list('Definitions and assumptions', notes(comparison))}"
    )


def _comparison_html_list(title: str, lines: list[str]) -> str:
    """A list below a fold in the HTML of a comparison; empty without lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<details><summary>{title} ({len(lines)})</summary><ul>{items}</ul></details>" if lines else ""


def verdict_text(comparison: Comparison) -> str:
    """Which policy needs the least memory, and how many fail, in one sentence."""
    allocators = [result for result in comparison.results if result.is_allocator]
    fitting = [result for result in allocators if result.outcome is not None and result.outcome.fits]
    failing = len(allocators) - len(fitting)
    limit = "" if comparison.limit is None else f" in {format_bytes(comparison.limit)}"
    if not allocators:
        return "No allocator was asked about"
    if not fitting:
        return f"{'The policy does' if failing == 1 else f'All {failing} policies do'} not fit{limit}"
    best = min(fitting, key=_compared_peak)
    least = f"Least memory: {printable(best.name)}, {format_bytes(_compared_peak(best))}"
    fails = f"{failing} of {len(allocators)} {'does' if failing == 1 else 'do'} not fit"
    rest = fails if failing else "all fit"
    return f"{least}; {rest}{limit}"


def _compared_peak(result: PolicyResult) -> int:
    return 0 if result.outcome is None else result.outcome.peak_reserved


def table_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The cells of each policy, as text; the names of the columns are `COLUMNS`."""
    numbers = comparison.to_rows()
    return [_comparison_row(result, row) for result, row in zip(comparison.results, numbers, strict=True)]


def failures(comparison: Comparison) -> list[str]:
    """A sentence for each compared policy that failed or cannot serve the requests."""
    numbers = comparison.to_rows()
    return [
        f"{result.name}: {printable(result.message) if result.message else failure_text(row)}"
        for result, row in zip(comparison.results, numbers, strict=True)
        if result.message or (result.failed_request is not None and result.is_allocator)
    ]


def notes(comparison: Comparison) -> list[str]:
    """The notes below a comparison of policies: definitions, assumptions, and the remarks."""
    failed = any(result.failed_request is not None for result in comparison.results)
    words = _WORDS | (_WORDS_OF_FAILURES if failed else {})
    found = [f"{word}: {MEASURES[name]}" for name, word in words.items()]
    kinds = {result.kind for result in comparison.results}
    found += [text for kind, text in _KINDS.items() if kind in kinds]
    if failed:
        found.append(
            "numbers of a policy that fails end at its first failure: they are no numbers of the whole job"
        )
    found += [TRUST, f"assumption: a driver call takes {comparison.call_cost_us:g} microseconds"]
    return [*found, *_comparison_assumptions(comparison), *remarks(comparison)]


def remarks(comparison: Comparison) -> list[str]:
    """What is particular to this comparison: the job's own rules, policies without a real peer, notes of the stream."""
    own = comparison.own
    found = [] if own is None else [f"{own.role}: {printable(own.why)}"]
    found += uncompared(result.name for result in comparison.results)
    found += [text for result in comparison.results if (text := _range_of_orders(result))]
    found += _unknown_cells(comparison)
    found += outcome_notes(comparison)
    return [*found, *(f"note: {printable(note)}" for note in comparison.stream.notes)]


def outcome_notes(comparison: Comparison) -> list[str]:
    """What compared policies were asked for and did not do, a sentence each."""
    return [
        f"{result.name}: {result.outcome.note}"
        for result in comparison.results
        if result.outcome is not None and result.outcome.note
    ]


def _range_of_orders(result: PolicyResult) -> str:
    """What ties between equal free blocks change for a compared policy; empty: nothing."""
    orders, outcome = result.orders, result.outcome
    if orders is None or outcome is None or not orders.decide:
        return ""
    # A margin reaches neither below what the requests need nor above the limit.
    least = max(orders.least, outcome.peak_in_use if outcome.fits else 0)
    most = orders.most if outcome.limit is None else min(orders.most, outcome.limit)
    fits = f"; it fits with {orders.fitting} of them" if 0 < orders.fitting < orders.tried else ""
    return (
        f"{result.title}: peak pool {bytes_range(least, most)}: {orders.by} decides between free "
        f"blocks of one size; {orders.tried} orders tried, and a margin{fits}"
    )


def _comparison_assumptions(comparison: Comparison) -> list[str]:
    named = {result.name.partition(":")[0] for result in comparison.results}
    found = []
    if any(result.name == GROWING_BFC for result in comparison.results):
        found.append(
            f"{GROWING_BFC}: garbage collection is on, as TensorFlow sets it for GPUs ({COLLECTION})"
        )
    if "stream_ordered" in named:
        found.append(
            "stream_ordered: the driver's pool of cudaMallocAsync, whose rules are not public; assumed: it grows by "
            "multiples of 32 MiB, unless `segment` says otherwise, and keeps all it has"
        )
    return found


def _unknown_cells(comparison: Comparison) -> list[str]:
    """Which cells of a comparison are empty, because a stream is too long to record its events."""
    if len(comparison.stream) <= MOST_RECORDED:
        return []
    known = ["splits", "merges"]
    served = [result for result in comparison.results if result.is_allocator and result.outcome is not None]
    if any(result.free_at_peak is None for result in served):
        known.insert(0, "external of some policies")
    return [
        f"not known: {', '.join(known)}: above {MOST_RECORDED:,} requests the events of a policy are not recorded"
    ]


def _comparison_facts(comparison: Comparison) -> str:
    """What was asked of the policies, and the least that any could need."""
    stream = comparison.stream
    limit = "no limit" if comparison.limit is None else f"limit {format_bytes(comparison.limit)}"
    least = format_bytes(int(stream.live_bytes.max(initial=0)))
    rest = f" without the {stream.left_out:,} that failed" if stream.left_out else ""
    return (
        f"{printable(stream.source) or 'requests'}: {len(stream):,} requests{rest}, {limit}; no allocator can "
        f"need less than {least} (the peak of the requested bytes in use)."
    )


def _comparison_row(result: PolicyResult, row: dict[str, Any]) -> tuple[str, ...]:
    if result.outcome is None:
        return (result.title, "cannot serve", *[""] * (len(COLUMNS) - 2))
    calls = [row[f"driver_{kind}"] for kind in ("grants", "refusals", "releases")]
    stall = row["stall_s"]
    shares = ("reserved_not_in_use", "external_fragmentation", "internal_fragmentation")
    return (
        result.title,
        _comparison_verdict(result, fits=row["fits"]),
        format_bytes(row["peak_reserved"]),
        format_bytes(row["peak_in_use"]),
        *("" if row[share] is None else f"{100 * row[share]:.1f} %" for share in shares),
        *("" if row[kind] is None else f"{row[kind]:,}" for kind in ("splits", "merges")),
        "" if calls[0] is None else f"{sum(calls):,}",
        "" if stall is None else seconds_text(stall),
    )


def _comparison_verdict(result: PolicyResult, *, fits: bool) -> str:
    if result.is_allocator:
        return "fits" if fits else "out of memory"
    return result.kind if fits else f"{result.kind}: above limit"


def _comparison_table_lines(all_rows: list[tuple[str, ...]], columns: tuple[str, ...]) -> list[str]:
    """Some columns of a comparison, aligned: the names and the results at their left, numbers at their right.

    A long name has a line of its own. A word of the head with a space before its last word has two lines.
    """
    rows = [tuple(row[COLUMNS.index(name)] for name in columns) for row in all_rows]
    head = [name.rpartition(" ") if name.startswith("not ") else ("", "", name) for name in columns]
    over, below = (tuple(each[place] for each in head) for place in (0, 2))
    numbers = [place for place, name in enumerate(columns) if name not in ("policy", "result")]
    found = named_rows([*([over] if any(over) else []), below, *rows], numbers, _WIDTH)
    return [line for lines in found for line in lines]


# ------------------------------------------------------------------------------
# `compare_policies`, and what it returns.


class PolicyComparison:
    """What `compare_policies` returns: policies on the requests of one job; a notebook shows its table and figure.

    Attributes:
        comparison: the outcomes.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @property
    def table(self) -> "Table":
        """One row a compared policy; see `Comparison.to_arrow`."""
        return self.comparison.to_arrow()

    @property
    def text(self) -> str:
        """The comparison of policies as text, with the definition of each measure."""
        return comparison_text(self.comparison)

    def outcome(self, name: str) -> Outcome:
        """The outcome of the policy that was asked for by this name; its `trace` has the events.

        Raises:
            InvalidRequest: there is none: the message says why.
        """
        result = self.comparison[name]
        if result.outcome is None:
            raise InvalidRequest(f"{name} has no outcome: {result.message}")
        return result.outcome

    def first_difference(self, one: str, other: str) -> FirstDifference | None:
        """The first request that two of the policies place differently; `print` it for the sentence.

        A place is different if another block in use lies next below it, or if it is in another region (a segment of
        the driver). As long as all blocks had the same sizes under both, another offset is different, too.

        Raises:
            InvalidRequest: where one of them places requests is not known; the message says why.
        """
        return self.comparison.first_difference(one, other)

    def figure(self, theme: "ThemeName" = "light") -> "Picture":
        """Peak pool and fragmentation of each policy, and its bytes over the job."""
        from bfcviz.figures import Look  # noqa: PLC0415  plotly, which texts do not need
        from bfcviz.figures.compared_policies import comparison_figure  # noqa: PLC0415

        return comparison_figure(*self._data(), self.table, Look(theme=theme))

    def curves(self, theme: "ThemeName" = "light") -> "Picture":
        """Bytes over the job under each compared policy; its table has the points."""
        from bfcviz.figures import Look  # noqa: PLC0415  plotly, which texts do not need
        from bfcviz.figures.compared_policies import curves_figure  # noqa: PLC0415

        return curves_figure(*self._data(), Look(theme=theme))

    def maps(
        self, request: int | None = None, names: Sequence[str] | None = None, theme: "ThemeName" = "light"
    ) -> "Picture":
        """The heaps of the compared policies after the same request, side by side.

        Args:
            request: its index; None: where the requested bytes in use are highest among those that all of them served.
            names: of the policies; None: all that have a heap.
            theme: light or dark.

        Raises:
            InvalidRequest: none of the policies has a heap, or there is no such request.
        """
        from bfcviz.figures import Look  # noqa: PLC0415  plotly, which texts do not need
        from bfcviz.figures.compared_policies import PolicyHeap, policy_maps_figure  # noqa: PLC0415

        results = [result for result in self.comparison.results if names is None or result.name in names]
        recorded = {result.name: result.recorded for result in results}
        known = {name: found for name, found in recorded.items() if found is not None}
        if not known:
            raise InvalidRequest(
                "none of these policies has a heap to draw: each is no allocator or cannot serve the requests"
            )
        stream = self.comparison.stream
        if not len(stream):
            raise InvalidRequest("there is no request: no heap has anything to draw")
        served = min(found.outcome.served for found in known.values())
        chosen = int(stream.live_bytes[:served].argmax()) if request is None else request
        if not 0 <= chosen < len(stream):
            raise InvalidRequest(f"there is no request {chosen:,}; give one of 0 to {len(stream) - 1:,}")
        heaps = []
        for name, found in known.items():
            result = self.comparison[name]
            failed = result.failed_request is not None and result.failed_request <= chosen
            heap = PolicyHeap(name, found.trace, found.step_after(chosen), failed=failed, role=result.role)
            heaps.append(heap)
        moment = f"{stream.source or 'requests'}: after request {chosen:,} of {len(stream):,}"
        return policy_maps_figure(heaps, moment, Look(theme=theme, colour="holder"))

    def _data(self) -> "tuple[DrawnJob, list[DrawnPolicy]]":
        """The job and the policies as the figures take them."""
        from bfcviz.figures.compared_policies import DrawnJob  # noqa: PLC0415  needs plotly

        stream, comparison = self.comparison.stream, self.comparison
        live = int(stream.live_bytes.max(initial=0))
        job = DrawnJob(stream.source, len(stream), live, comparison.limit, verdict_text(comparison))
        return job, [_compared_policy(result, comparison) for result in comparison.results]

    def __repr__(self) -> str:
        return f"<PolicyComparison of {self.comparison.stream.source or 'requests'}: {verdict_text(self.comparison)}>"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return comparison_html(self.comparison)


@unwatched()
def compare_policies(  # noqa: PLR0913  the question, and what is assumed
    source: Any,
    policies: str | Policy | Iterable[str | Policy] | None = None,
    limit: int | str | None = None,
    *,
    pool: int | str | None = None,
    with_failed: bool = True,
    device: int | str | None = None,
    call_cost_us: float = CALL_COST_US,
) -> PolicyComparison:
    """Serve the requests of a trace under several policies, each up to its first failure.

    Args:
        source: as for `bfcviz.explain`, or a `RequestStream`.
        policies: one or several names with options, such as `"torch:expandable_segments=true"`; None: the job's own
            rules, if they are known, and those of `bfcviz.whatif.policy_table.USUAL`.
        limit: memory limit, in bytes or as text such as `"64MiB"`; None: none.
        pool: the heap: its index among `trace.origin.pools`, or its name; None: the one with a failed request, else
            the first. A `RequestStream` has one only.
        with_failed: whether requests that failed in the trace are served, too; see `RequestStream.without_failed`.
        device: memory of the device, of which the limit is a share, as with `set_per_process_memory_fraction`; None:
            the limit is that of the device.
        call_cost_us: microseconds that a call to the driver is assumed to take.

    Raises:
        InvalidRequest: there is no such policy, option, limit, heap or time. A policy that cannot serve the requests
            under this limit is a row with a message.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    num_bytes, device_bytes = replay_limit(limit), replay_limit(device, "device")
    if not 0 <= call_cost_us < float("inf"):
        raise InvalidRequest(f"call_cost_us={call_cost_us!r} is no time; give microseconds, from 0 on")
    given = source if isinstance(source, RequestStream) else trace_from(source)
    stream = stream_of(given, pool, with_failed=with_failed)
    if policies is None:
        chosen: Iterable[str | Policy | OwnRules] = usual_policies(stream, num_bytes)
    elif isinstance(policies, str) or not isinstance(policies, Iterable):
        chosen = (policies,)
    else:
        chosen = policies
    if device_bytes is not None:
        chosen = [
            replace(each, policy=on_device(each.policy, device_bytes))
            if isinstance(each, OwnRules)
            else on_device(each, device_bytes)
            for each in chosen
        ]
    return PolicyComparison(compare(stream, tuple(chosen), num_bytes, call_cost_us=call_cost_us))


def _compared_policy(result: PolicyResult, comparison: Comparison) -> "DrawnPolicy":
    from bfcviz.figures.compared_policies import DrawnPolicy  # noqa: PLC0415  needs plotly

    outcome, role = result.outcome, result.role
    if not result.is_allocator:  # no policy like the others
        role = "lower bound" if result.kind == "bound" else result.kind
    if outcome is None:
        none = np.zeros(0, np.uint64)
        return DrawnPolicy(result.name, none, none, message=result.message, role=role)
    stream, calls = comparison.stream, sum(outcome.driver_calls)
    at = int(outcome.in_use.argmax()) if outcome.served else None
    failed, free = result.failed_request, result.free_at_peak
    return DrawnPolicy(
        name=result.name,
        reserved=outcome.reserved,
        in_use=outcome.in_use,
        requested_at_peak=0 if at is None else int(outcome.requested[at]),
        scattered_share=None if free is None else free.scattered_share,
        failed=failed,
        failed_size=0 if failed is None else int(stream.rows["size"][failed]),
        driver_calls=calls if result.is_allocator else None,
        stall_s=calls * comparison.call_cost_us / 1e6,
        role=role,
        is_allocator=result.is_allocator,
        is_compared=is_compared(result.name) is not False,
    )
