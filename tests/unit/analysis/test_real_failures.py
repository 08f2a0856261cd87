"""Failures of TensorFlow's own heap: golden traces, and logs that users posted."""

from importlib.util import find_spec

import numpy as np
import pytest
from conformance import compare
from shared import ROOT, SHARED, needs_shared

import bfcviz
from bfcviz.analysis.diagnosis import Verdict
from bfcviz.analysis.why import all_failures
from bfcviz.events.origin import Status
from bfcviz.model.trace_from_source import trace_of

GOLDEN = sorted((ROOT / "tests" / "data" / "golden").glob("*.npz"))
LOGS = SHARED / "real" / "logs"
MIB = 1 << 20

needs_log_reader = pytest.mark.skipif(
    find_spec("bfcviz.importers.bfc_log") is None or find_spec("bfcviz.importers.bfc_log.read") is None,
    reason="logs are not read yet",
)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_failed_request_of_a_golden_trace(path):
    golden = compare.Trace(path)
    trace = trace_of(golden.allocator)
    golden.run()
    trace.refresh()
    asked = golden.z["size"][(golden.z["op"] == 0) & (golden.z["offset"] == -1) & (golden.z["size"] > 0)]
    found = all_failures(trace)
    assert [each.requested for each in found] == asked[-len(found) :].tolist() if found else len(asked) == 0
    for each in found:
        assert each.verdict is plain_verdict(each, golden.allocator.limit)


def plain_verdict(found, limit):
    """The verdict by its definition, from the numbers of the heap."""
    if found.rounded > limit:
        return Verdict.ABOVE_LIMIT
    if found.largest_free_chunk >= found.rounded:
        return Verdict.UNKNOWN
    if limit - found.pool_bytes >= found.rounded:
        return Verdict.REFUSED
    if found.free_bytes < found.rounded:
        return Verdict.CAPACITY
    releasable = sum(size for _, size in found.regions.wholly_free) + max(0, limit - found.pool_bytes)
    if found.regions.largest < found.rounded or releasable >= found.rounded:
        return Verdict.REGIONS
    return Verdict.FRAGMENTATION


@needs_shared
@needs_log_reader
@pytest.mark.parametrize(
    ("name", "verdict", "asked", "free", "largest"),
    [
        ("tf2.14_2023-10_cifar10", "fragmentation", 585.9, 2_913_752_064, 558_759_936),
        ("tf1.12_2019-04_summit_resnet_1gpu", "fragmentation", 392.0, 633_304_576, 325_018_112),
        ("xla_2025-01_reactant", "capacity", 4_000_000_000 / MIB, 2_995_773_440, 2_995_773_440),
    ],
)
def test_the_first_failure_of_a_real_log(name, verdict, asked, free, largest):
    found = all_failures(bfcviz.open(LOGS / f"{name}.log"))[0]
    assert (found.verdict, found.free_bytes, found.largest_free_chunk) == (verdict, free, largest)
    assert found.requested / MIB == pytest.approx(asked, abs=0.05)
    places = [run for run in found.runs if run.bytes_in_use < found.rounded]
    assert bool(places) == (verdict == "fragmentation")
    assert np.all([run.size >= found.rounded for run in found.runs])


@needs_shared
@needs_log_reader
def test_what_the_file_lacks_is_about_the_chunks_of_the_places_shown():
    found = all_failures(bfcviz.open(LOGS / "tf1.4_2017-11_alexnet_k40c.log"))[0]
    told = [each.numbers["chunks"] for each in found.advice if "unnamed" in each.numbers]
    assert told == [sum(run.chunks_in_use for run in found.useful_runs or found.runs)]


@needs_shared
@needs_log_reader
def test_four_chunks_of_thousands_decide_nothing():
    log = LOGS / "tf2.2_windows_cvnn_truncated.log"
    found = all_failures(trace := bfcviz.open(log))[0]
    assert (found.verdict, found.pool_bytes) == ("unknown", 216_320)
    assert trace.origin.status is Status.DEGRADED
    (failure,) = bfcviz.why(log).failures
    assert (str(failure.judgement.cause), failure.stated.fact("requested")) == ("capacity", 115_200)
    assert failure.stated.fact("in_use") == 568_350_976
