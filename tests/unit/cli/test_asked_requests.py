"""The requests that `whatif` and `fit` serve: those of the allocator that failed, or that was asked for."""

import argparse

import numpy as np
import pytest
from unit.figures.synthetic import KiB, MiB, PlainHeap

from bfcviz.cli.common import add_request_arguments, asked_requests
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace
from bfcviz.policy_comparison import compare_policies
from bfcviz.whatif.requests import stream_of
from bfcviz.whatif.sweep import sweep


@pytest.fixture
def two_heaps(tmp_path):
    """A file with two allocators; a request of the second one fails."""
    heap = PlainHeap(MiB)
    heap.free(heap.allocate(KiB, "a"))
    events = heap.trace().read(0, len(heap.events)).copy()
    other = PlainHeap(MiB)
    held = other.allocate(64 * KiB, "b")
    other.allocate(4 * MiB, "too large")
    other.free(held)
    second = other.trace().read(0, len(other.events)).copy()
    second["pool"], second["label"] = 1, 0
    joined = Trace.from_events(
        _renumbered(events, second), heap.labels, Origin(pools=(Pool("cuda:0", MiB), Pool("cuda:1", MiB)))
    )
    return joined.save(tmp_path / "two.parquet")


def _renumbered(first, second):
    frees = second["other"].copy()
    second["other"] = frees + len(first)
    joined = np.concatenate([first, second])
    joined["seq"] = np.arange(len(joined))
    return joined


def asked(path, *words, with_failed=True):
    parser = argparse.ArgumentParser()
    add_request_arguments(parser, with_failed=with_failed)
    return asked_requests(parser.parse_args([str(path), *words]))


def test_every_way_to_ask_takes_the_heap_that_failed(two_heaps):
    failing = asked(two_heaps)
    assert failing.live_bytes.max() == 4 * MiB + 64 * KiB
    assert (stream_of(two_heaps).rows == failing.rows).all()
    (point,) = sweep(two_heaps, "first_fit", "1MiB").points
    assert (point.pool, point.failures) == ("", 1)
    (first,) = sweep(two_heaps, "first_fit", "1MiB", pool="cuda:0").points
    assert (first.pool, first.failures) == ("cuda:0", 0)
    found = compare_policies(two_heaps, "first_fit", MiB)
    assert not found.outcome("first_fit").fits


def test_another_heap_and_without_the_failed_request(two_heaps):
    assert asked(two_heaps, "--pool", "cuda:0").live_bytes.max() == KiB
    assert asked(two_heaps, "--pool", "0").live_bytes.max() == KiB
    assert asked(two_heaps, "--without-failed").live_bytes.max() == 64 * KiB


def test_what_failed_is_served_or_left_out_by_default(two_heaps):
    left_out = asked(two_heaps, with_failed=False)
    assert left_out.live_bytes.max() == 64 * KiB
    assert any("failed" in note for note in left_out.notes)
    assert asked(two_heaps, "--with-failed", with_failed=False).live_bytes.max() > 4 * MiB
