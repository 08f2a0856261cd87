"""Why a request failed: the diagnosis of one failure of a trace, or of all of them."""

from dataclasses import replace
from typing import Final

from bfcviz.analysis.diagnosis import (
    Diagnosis,
    Verdict,
    diagnosed_verdict,
    held_by,
    model_to_diagnose,
    undecided_diagnosis,
)
from bfcviz.analysis.leaks import growth_until
from bfcviz.analysis.pinned_runs import runs_with_pins
from bfcviz.errors import TraceError
from bfcviz.events.origin import RecordedFailure
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.find_steps import MOST_FAILURES, failed_steps, recorded_failures_by_event
from bfcviz.model.model import Model

RUNS: Final = 3
"""Runs of a diagnosis."""


def diagnose(  # noqa: PLR0913  a failure, and what the caller has read of it already
    trace: Trace,
    event: int,
    model: Model | None = None,
    *,
    runs: int = RUNS,
    recorded: RecordedFailure | None = None,
    models: dict[int, Model] | None = None,
    tries: bool = True,
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
        return judged_diagnosis(there, found, runs, tries=tries)


def all_failures(
    trace: Trace, pool: int | None = None, *, runs: int = RUNS, most: int = MOST_FAILURES
) -> list[Diagnosis]:
    """The diagnoses of the first failures of a trace, the requests that failed finally; see `failed_steps`."""
    models: dict[int, Model] = {}
    tried: set[int] = set()  # to serve all requests again for each of many failures would take minutes
    recorded = recorded_failures_by_event(trace)
    found = []
    for step in failed_steps(trace, pool)[:most]:
        number = int(trace.read(step - 1, step)["pool"][0])
        model = models.get(number) or models.setdefault(number, Model(trace, number))
        model.seek(step - 1)  # so that the next one is a short move
        known = recorded.get(step - 1, RecordedFailure(step - 1))
        tries = number not in tried
        found.append(diagnose(trace, step - 1, model, runs=runs, recorded=known, models=models, tries=tries))
        tried.add(number)
    return found


def judged_diagnosis(model: Model, found: Diagnosis, runs: int, *, tries: bool = True) -> Diagnosis:
    """A diagnosis of a failure with verdict, runs and advice; `tries`: growth is searched and settings are tried."""
    found = replace(found, verdict=diagnosed_verdict(found))
    if runs == 0:
        return found
    has_chunks = found.knows("largest_free_chunk")
    if has_chunks and found.verdict not in {Verdict.ABOVE_LIMIT, Verdict.NO_FAILURE}:
        found = replace(found, runs=runs_with_pins(model, found.rounded, runs), held_by=held_by(model))
    if tries and found.event is not None and found.verdict is not Verdict.NO_FAILURE:
        found = replace(found, growing=growth_until(model, found.event))
    from bfcviz.analysis.diagnosis_advice import advice_for  # noqa: PLC0415  with the tables of all messages: `info` needs none

    return replace(found, advice=tuple(advice_for(found, model.trace if tries else None)))
