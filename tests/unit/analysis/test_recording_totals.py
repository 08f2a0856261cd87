"""Totals of a recording, against the model at its peak and its end, and plain counts."""

import itertools

import numpy as np
import pytest
from shared import sample_trace
from unit.analysis.programs import Training, sides
from unit.figures.synthetic import busy_trace

from bfcviz.analysis.comparison import POINTS, recording_totals, totals_table
from bfcviz.events.schema import Kind
from bfcviz.model import Model, navigation
from bfcviz.model.timelines import highest_between


def totals_of(trace, moments=()):
    side, _ = sides(trace, trace)
    return recording_totals(side, moments)


@pytest.mark.parametrize(
    "trace", [busy_trace(300), busy_trace(4 * POINTS, seed=1), Training(leak=True).trace()]
)
def test_every_measure_is_that_of_the_model(trace):
    found = totals_of(trace)
    model = Model(trace)
    model.seek(len(trace))
    end = model.stats()
    assert found.peak == navigation.peak(trace)
    model.seek(found.peak)
    peak = model.stats()
    counts = np.bincount(trace.read(0, len(trace))["kind"], minlength=9).tolist()
    worst = navigation.worst_fragmentation(trace)
    model.seek(worst)
    at_worst = model.stats()
    times = trace.read(0, len(trace))["time"]
    assert found.values == {
        "peak_bytes_in_use": end.peak_bytes_in_use,
        "peak_pool_bytes": end.peak_pool_bytes,
        "requested_at_peak": peak.requested_bytes_in_use,
        "bytes_in_use_at_end": end.bytes_in_use,
        "pool_bytes_at_end": end.pool_bytes,
        "external_fragmentation": pytest.approx(1 - peak.largest_free_chunk / peak.free_bytes),
        "worst_external_fragmentation": pytest.approx(1 - at_worst.largest_free_chunk / at_worst.free_bytes),
        "peak_reserved_not_in_use": pytest.approx(1 - end.peak_bytes_in_use / end.peak_pool_bytes),
        "internal_fragmentation": pytest.approx(1 - peak.requested_bytes_in_use / peak.bytes_in_use),
        "failures": counts[Kind.OOM],
        "allocations": counts[Kind.ALLOCATE],
        "splits": counts[Kind.SPLIT],
        "merges": counts[Kind.MERGE],
        "extends": counts[Kind.EXTEND],
        "releases": counts[Kind.RELEASE],
        "seconds": (int(times[-1]) - int(times[0])) / 1e9,
    }


def test_the_highest_use_between_moments_is_found_whatever_the_rows():
    trace = busy_trace(4 * POINTS, seed=3)
    moments = [17, 18, 1000, 4321]
    found = totals_of(trace, moments)
    assert len(found.series) <= POINTS + len(moments)
    steps = np.array([0, *moments, len(trace)])
    model, values = Model(trace), [0]
    for step in range(1, len(trace) + 1):
        model.seek(step)
        values.append(model.table.bytes_in_use)
    plain = [max(values[start + 1 : stop + 1], default=0) for start, stop in itertools.pairwise(steps)]
    assert highest_between(found.series, steps).tolist() == plain


def test_what_a_file_does_not_say_is_unknown():
    dump = totals_of(sample_trace("oom_dump"))
    log = totals_of(sample_trace("oom_log"))
    assert (len(dump.series), dump.values["splits"], dump.values["seconds"]) == (0, None, None)
    assert (log.values["requested_at_peak"], log.values["failures"]) == (None, 1)
    rows = {row["measure"]: row for row in totals_table(dump, log).to_pylist()}
    # The dump states its exact peak; the log prints it with four digits, so that of its state counts.
    assert (rows["peak_bytes_in_use"]["a"], rows["peak_bytes_in_use"]["b"]) == (10721280, 10613248)
    assert rows["requested_at_peak"]["change"] is None
    assert {row["unit"] for row in rows.values()} == {"bytes", "share", "count", "seconds"}
