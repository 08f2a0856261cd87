"""Why a request failed: the diagnosis of one failure of a trace, or of all of them, also as JSON values."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bfcviz.analysis.diagnosis import (
    AdviceKind,
    Diagnosis,
    Verdict,
    diagnosed_verdict,
    held_by,
    model_to_diagnose,
    undecided_diagnosis,
)
from bfcviz.analysis.diagnosis_advice import others_hold_it
from bfcviz.analysis.growth_forecast import Forecast
from bfcviz.analysis.heap_settings import Family
from bfcviz.analysis.leaks import Growth, growing_name, growing_text, growth_until
from bfcviz.analysis.message_advice import AdviceWord
from bfcviz.analysis.message_verdict import StatedCause
from bfcviz.analysis.pinned_runs import Pin, Run, runs_with_pins
from bfcviz.errors import TraceError
from bfcviz.events.origin import RecordedFailure
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.find_steps import MOST_FAILURES, failed_steps, recorded_failures_by_event
from bfcviz.model.model import Model

RUNS: Final = 3
"""Runs of a diagnosis."""

_LIMITS_SEARCHED: Final = 10
"""Failures of a trace for which a limit is searched, about 0.3 s each at most."""


def diagnose(  # noqa: PLR0913  a failure, and what the caller has read of it already
    trace: Trace,
    event: int,
    model: Model | None = None,
    *,
    runs: int = RUNS,
    recorded: RecordedFailure | None = None,
    models: dict[int, Model] | None = None,
    tries: bool = True,
    searches: bool = True,
) -> Diagnosis:
    """Diagnose one failure of a trace, that of an OOM event: why the request failed.

    Args:
        trace: the events.
        event: index of its OOM event.
        model: a model of this trace and pool to use; it returns to its step.
        runs: the most runs to find; 0: only the verdict and its numbers, without advice.
        recorded: what the file says of this failure, if the caller has it; otherwise it is searched for.
        models: models of other heaps of this trace by their index, to use and to add to: for the account of the device.
        tries: search the events up to the failure for what grows with every step, and try the settings of an advice on
            the requests, where the trace has them all.
        searches: search the limit under which these requests are served.

    Raises:
        TraceError: the event is not an OOM, or the trace does not have it.
    """
    record = trace.read(event, event + 1)[0]
    if record["kind"] != Kind.OOM:
        raise TraceError(f"event {event} is not an OOM: it is {Kind(int(record['kind'])).name}")
    recorded = recorded or recorded_failures_by_event(trace).get(event, RecordedFailure(event))
    with model_to_diagnose(trace, int(record["pool"]), model).visiting(event) as there:
        found = undecided_diagnosis(there, int(record["requested"]), recorded)
        found = replace(
            found,
            event=event,
            label=trace.labels.name(int(record["label"])),
            free_bytes=int(record["address"]),
            largest_free_chunk=int(record["size"]),
        )
        if runs and recorded.tells_of_device:
            from bfcviz.analysis.account import account_of_failure  # noqa: PLC0415  as the advice below

            others = {} if models is None else models
            others[there.pool] = there
            found = replace(found, account=account_of_failure(trace, recorded, there.pool, others))
        return judged_diagnosis(there, found, runs, tries=tries, searches=searches)


def all_failures(
    trace: Trace, pool: int | None = None, *, runs: int = RUNS, most: int = MOST_FAILURES
) -> list[Diagnosis]:
    """The diagnoses of the first failures of a trace, the requests that failed finally; see `failed_steps`."""
    models: dict[int, Model] = {}
    tried: set[int] = set()  # to serve all requests again for each of many failures would take minutes
    recorded = recorded_failures_by_event(trace)
    found: list[Diagnosis] = []
    for step in failed_steps(trace, pool)[:most]:
        number = int(trace.read(step - 1, step)["pool"][0])
        model = models.get(number) or models.setdefault(number, Model(trace, number))
        model.seek(step - 1)  # so that the next one is a short move
        known = recorded.get(step - 1, RecordedFailure(step - 1))
        tries = number not in tried
        searches = len(found) < _LIMITS_SEARCHED
        found.append(
            diagnose(
                trace,
                step - 1,
                model,
                runs=runs,
                recorded=known,
                models=models,
                tries=tries,
                searches=searches,
            )
        )
        tried.add(number)
    return found


def judged_diagnosis(
    model: Model, found: Diagnosis, runs: int, *, tries: bool = True, searches: bool = True
) -> Diagnosis:
    """A diagnosis of a failure with verdict, runs and advice; `tries`, `searches`: as of `diagnose`."""
    found = replace(found, verdict=diagnosed_verdict(found))
    if runs == 0:
        return found
    has_chunks = found.knows("largest_free_chunk")
    if has_chunks and found.verdict not in {Verdict.ABOVE_LIMIT, Verdict.NO_FAILURE}:
        found = replace(found, runs=runs_with_pins(model, found.rounded, runs), held_by=held_by(model))
    if tries and found.event is not None and found.verdict is not Verdict.NO_FAILURE:
        found = replace(found, growing=growth_until(model, found.event, still_held=True))
    from bfcviz.analysis.diagnosis_advice import advice_for  # noqa: PLC0415  with the tables of all messages: `info` needs none

    return replace(found, advice=tuple(advice_for(found, model.trace, tries=tries, searches=searches)))


def growing_sentence(trace: Trace, found: Growth, forecast: Forecast | None) -> str:
    """Where no request failed: which holder grows with every step of the program, by how much, and until when."""
    until = "" if forecast is None else f" If that goes on, {forecast.clause}."
    return f"{growing_name(trace, found)} grows: {growing_text(found)}.{until}"


# ------------------------------------------------------------------------------
# A diagnosis as JSON values: sizes in bytes, null for unknown; its cause in the words that texts use, too.

_CAUSES: Final = {
    Verdict.UNKNOWN: StatedCause.UNKNOWN,
    Verdict.CAPACITY: StatedCause.CAPACITY,
    Verdict.REGIONS: StatedCause.CACHED_FRAGMENTATION,
    Verdict.FRAGMENTATION: StatedCause.CACHED_FRAGMENTATION,
}

_WORDS: Final[Mapping[Any, str]] = {
    AdviceKind.EXPANDABLE_SEGMENTS: AdviceWord.EXPANDABLE,
    AdviceKind.SPLIT_SIZE: AdviceWord.MAX_SPLIT,
    AdviceKind.LARGER_LIMIT: AdviceWord.RAISE_LIMIT,
    AdviceKind.OTHER_USERS: AdviceWord.OTHER_PROCESSES,
    AdviceKind.SYSTEM_MEMORY: AdviceWord.SYSTEM_MEMORY,
    AdviceKind.BATCH_SIZE: AdviceWord.SMALLER_REQUEST,
    AdviceKind.FEED_IN_PARTS: AdviceWord.SMALLER_REQUEST,
    AdviceKind.OPTIMIZER_STATE: AdviceWord.OPTIMIZER,
    AdviceKind.RERUN: AdviceWord.RECORD,
    **{
        (family, AdviceKind.OTHER_ALLOCATOR): AdviceWord.MALLOC_ASYNC
        for family in (Family.TENSORFLOW, Family.JAX, Family.TORCH, Family.RMM, Family.CUPY)
    },
    **{
        (family, AdviceKind.GROWTH_OFF): AdviceWord.PREALLOCATION
        for family in (Family.TENSORFLOW, Family.JAX, Family.REACTANT)
    },
}
"""Kinds of advice on heaps -> the words that advice on texts uses; others keep their own."""


def cause_for_json(found: Diagnosis) -> str:
    """The verdict of a diagnosis for its JSON, in the words for texts without a heap; it also looks at the device."""
    if found.verdict is Verdict.NO_FAILURE:
        return found.verdict
    recorded, limit = found.recorded, found.bytes_limit
    total, start = recorded.device_total, recorded.device_free_at_start
    if total is not None and found.rounded > total:
        return StatedCause.REQUEST_EXCEEDS_DEVICE
    if start is not None and others_hold_it(found):
        return StatedCause.OTHER_PROCESS
    if found.verdict is Verdict.ABOVE_LIMIT:
        is_set = found.settings.family is Family.TORCH and limit is not None
        return StatedCause.CAP_BY_SETTING if is_set else StatedCause.REQUEST_EXCEEDS_LIMIT
    return _cause_of_refusal(found) if found.verdict is Verdict.REFUSED else _CAUSES[found.verdict]


def _cause_of_refusal(found: Diagnosis) -> str:
    """The cause for the JSON of a diagnosis where memory below the limit was refused."""
    if found.settings.is_on_host:
        return StatedCause.HOST_MEMORY
    free = found.recorded.device_free
    is_free = free is not None and free >= found.rounded
    return StatedCause.DRIVER_REFUSED if is_free else StatedCause.OTHER_PROCESS


_HEAP_FACTS: Final = {
    "in_use": "bytes_in_use",
    "reserved": "pool_bytes",
    "free": "free_bytes",
    "largest_free": "largest_free_chunk",
}
"""Names of texts -> the number in `Diagnosis`."""


def facts_of_failure(found: Diagnosis) -> dict[str, int]:
    """The numbers of a diagnosis for its JSON, by the names that texts without a heap use; only those known."""
    recorded = found.recorded
    known = {
        "requested": found.requested or None,
        "rounded": found.rounded if found.requested else None,
        "limit": found.bytes_limit,
        **{
            name: getattr(found, number) if found.knows(number) and not found.gaps else None
            for name, number in _HEAP_FACTS.items()
        },
        "available": recorded.room,
        "device_total": recorded.device_total,
        "device_free": recorded.device_free,
        "device_free_at_start": recorded.device_free_at_start,
    }
    return {name: value for name, value in known.items() if value is not None}


_SOURCES: Final = {
    "free_chunks": "chunks_free",
    "largest_region": "regions",
    "wholly_free_regions": "regions",
}
"""Names here -> the number in `Diagnosis.unknown` that they depend on; the others have the same name in both."""


def diagnosis_json(found: Diagnosis) -> dict[str, Any]:
    """The entry of `bfcviz why --json`."""
    return {
        "verdict": str(cause_for_json(found)),
        "heap_verdict": str(found.verdict),
        "facts": facts_of_failure(found),
        "event": found.event,
        "step": found.step,
        "pool": found.pool,
        "allocator": found.pool_name,
        "label": found.label,
        "requested_bytes": found.requested,
        "rounded_bytes": found.rounded,
        "exact": found.recorded.is_exact,
        **_diagnosed_heap_json(found),
        "bytes_limit": found.bytes_limit,
        "device_bytes_in_use": found.device_used,
        "device_bytes_free": found.recorded.device_free,
        "device_bytes": found.recorded.device_total,
        "account": None if found.account is None else found.account.to_json(),
        "held_by": [each._asdict() for each in found.held_by],
        "pinned_by": [_pin_json(pin) for pin in found.pinned_by],
        "runs": [_pinned_run_json(run) for run in found.runs],
        "advice": [
            {
                "kind": _WORDS.get((found.settings.family, each.kind))
                or _WORDS.get(each.kind)
                or str(each.kind),
                "own_kind": str(each.kind),
                "text": each.text,
                "numbers": dict(each.numbers),
            }
            for each in found.advice
        ],
        "op": found.recorded.op,
        "tensor": found.recorded.tensor,
        "message": found.recorded.message,
    }


def _diagnosed_heap_json(found: Diagnosis) -> dict[str, Any]:
    """The heap of a diagnosis as JSON: what the chunks say; null where the file does not have them."""
    heap = {
        "free_bytes": found.free_bytes,
        "largest_free_chunk": found.largest_free_chunk,
        "external_fragmentation": found.external_fragmentation,
        "free_chunks": found.free_chunks,
        "pool_bytes": found.pool_bytes,
        "bytes_in_use": found.bytes_in_use,
        "chunks_in_use": found.chunks_in_use,
        "wasted_bytes": found.wasted,
        "regions": found.regions.count,
        "largest_region": found.regions.largest,
        "wholly_free_regions": [
            {"address": address, "size": size} for address, size in found.regions.wholly_free
        ],
    }
    return {name: value if found.knows(_SOURCES.get(name, name)) else None for name, value in heap.items()}


def _pinned_run_json(run: Run) -> dict[str, Any]:
    """One run of a diagnosis as JSON."""
    return {
        "address": run.address,
        "size": run.size,
        "region": run.region,
        "bytes_in_use": run.bytes_in_use,
        "chunks_in_use": run.chunks_in_use,
        "pinned_by": [_pin_json(pin) for pin in run.pins],
    }


def _pin_json(pin: Pin) -> dict[str, Any]:
    """One pin of a diagnosis as JSON."""
    return {
        "address": pin.address,
        "size": pin.size,
        "label": pin.label,
        "requested": pin.requested,
        "details": pin.details,
        "stream": pin.stream,
        "age_events": pin.age,
        "age_s": pin.age_s,
        "freed_at_event": pin.freed,
    }
