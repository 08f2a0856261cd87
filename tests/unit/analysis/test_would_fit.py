"""Whether a request would fit: the chunk that takes it, or what is in the way."""

import json

import pytest
from shared import sample_trace
from unit.analysis.built import state
from unit.figures.synthetic import KiB, MiB, PlainHeap

import bfcviz
from bfcviz.analysis.diagnosis import AdviceKind, Verdict
from bfcviz.analysis.would_fit import Request, fit_of, fit_sentence, in_the_way, request_at, would_fit
from bfcviz.cli import main
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.units import format_bytes


def at_end(trace):
    model = Model(trace)
    model.seek(len(trace))
    return model


def limited(heap, limit, **options):
    """The heap's trace, which states a limit."""
    trace = heap.trace()
    pools = (Pool("heap", limit, options),)
    origin = Origin("bfcviz", "", Status.COMPLETE, (), pools, {})
    return Trace.from_events(trace.read(0, len(trace)), trace.labels, origin)


@pytest.fixture
def heap():
    """[free 16 | gradients 12 | free 18 | weights 9 | free 9] MiB, and no room to grow."""
    heap = PlainHeap(64 * MiB)
    sizes = {"a": 16, "gradients": 12, "b": 18, "weights": 9, "c": 9}
    places = {name: heap.allocate(size * MiB, name) for name, size in sizes.items()}
    for name in ("a", "b", "c"):
        heap.free(places[name])
    return heap


def sizes_of(chunks):
    return [size // MiB for size in chunks["size"].tolist()]


def test_the_best_fit_comes_first_of_those_that_would_take_it(heap):
    fit = fit_of(at_end(limited(heap, 64 * MiB)), 10 * MiB)
    assert (fit.fits, fit.grows, fit.miss) == (True, False, None)
    assert sizes_of(fit.takers) == [16, 18]


def test_the_nearest_miss_needs_the_fewest_bytes_freed(heap):
    trace = limited(heap, 64 * MiB)
    fit = fit_of(at_end(trace), 22 * MiB)
    assert (fit.fits, fit.grows, fit.found.verdict) == (False, False, Verdict.FRAGMENTATION)
    assert [trace.labels.name(int(chunk["label"])) for chunk in fit.blockers] == ["weights"]
    assert (fit.miss.size, fit.miss.bytes_in_use) == (36 * MiB, 9 * MiB)
    sentence = fit_sentence(fit, trace.labels)
    assert all(fact in sentence for fact in ("22.0 MiB", "weights", "9.0 MiB", "36.0 MiB"))


def test_blockers_are_named_by_their_bytes(heap):
    trace = limited(heap, 64 * MiB)
    fit = fit_of(at_end(trace), 50 * MiB)
    assert sizes_of(fit.blockers) == [12, 9]
    sentence = fit_sentence(fit, trace.labels)
    assert sentence.index("gradients") < sentence.index("weights")


def test_growth_of_the_pool_would_serve_it(heap):
    fit = fit_of(at_end(limited(heap, 96 * MiB)), 32 * MiB)
    assert (fit.fits, fit.grows) == (False, True)
    assert not fit_of(at_end(limited(heap, 96 * MiB)), 33 * MiB).grows


def test_garbage_collection_makes_room_from_free_regions():
    heap = PlainHeap(8 * MiB, regions=2, gap=MiB)
    first, second = heap.allocate(8 * MiB), heap.allocate(8 * MiB)
    heap.free(second)
    assert first
    for collects in (True, False):
        trace = limited(heap, 20 * MiB, garbage_collection=collects)
        fit = fit_of(at_end(trace), 12 * MiB)
        assert fit.grows is collects


def test_a_size_is_rounded_as_the_heap_rounds(heap):
    model = at_end(limited(heap, 64 * MiB))
    assert fit_of(model, 18 * MiB).fits
    assert not fit_of(model, 18 * MiB + 1).fits
    assert fit_of(model, 1).found.rounded == 256


def test_a_request_above_the_limit_or_every_region_never_fits(heap):
    above = fit_of(at_end(limited(heap, 64 * MiB)), 65 * MiB)
    assert (above.found.verdict, above.miss, above.grows) == (Verdict.ABOVE_LIMIT, None, False)
    split = PlainHeap(MiB, regions=2, gap=MiB)
    split.allocate(MiB)
    split.allocate(KiB)
    fit = fit_of(at_end(limited(split, 2 * MiB)), 2 * MiB)
    assert (fit.fits, fit.miss) == (False, None)
    assert "1.0 MiB" in fit_sentence(fit, split.labels)


def test_the_failed_request_is_the_one_before_the_step(heap):
    assert heap.allocate(24 * MiB, "step") is None
    trace = limited(heap, 256 * MiB)
    model = at_end(trace)
    request = request_at(model, None)
    assert (request.size, trace.labels.name(request.label), request.failed) == (24 * MiB, "", True)
    assert not fit_of(model, request.size).grows  # the pool did not grow for it
    assert fit_of(model, 25 * MiB).grows
    assert request_at(model, MiB) == Request(MiB)
    model.back()
    assert request_at(model, None) is None
    assert fit_of(model, 24 * MiB).grows


def test_a_file_without_the_heap_gives_no_answer():
    trace = sample_trace("oom_log")
    fit = fit_of(at_end(trace), 1)
    assert fit.is_known
    unknown = {"facts": [{"free_bytes": None, "largest_free_chunk": None}], "history": "state"}
    origin = Origin("other", "", Status.COMPLETE, (), trace.origin.pools, unknown)
    bare = Trace.from_events(trace.read(0, len(trace)), trace.labels, origin)
    fit = fit_of(at_end(bare), 1)
    assert (fit.is_known, fit.fits, fit.miss) == (False, False, None)


def test_a_request_has_bytes(heap):
    with pytest.raises(ValueError, match="-1"):
        fit_of(at_end(heap.trace()), -1)


def test_an_answer_is_kept_until_the_step_or_the_size_changes(heap):
    model = at_end(limited(heap, 64 * MiB))
    first = fit_of(model, 9 * MiB)
    assert fit_of(model, 9 * MiB) is first
    assert fit_of(model, 10 * MiB) is not first
    assert fit_of(model, 9 * MiB) is not first
    model.back()
    assert fit_of(model, 9 * MiB).found.step == model.step


def torch_state(regions, **more):
    """A heap of PyTorch: regions in MiB as for `state`, positive in use, negative free."""
    return state(regions, framework="torch", **more)


@pytest.mark.parametrize(
    ("size", "limit", "verdict"),
    [
        (30, None, Verdict.NO_FAILURE),  # the free chunk of 40
        (50, 130, Verdict.NO_FAILURE),  # 130 - 100 in the pool + 40 given back
        (80, 130, Verdict.CAPACITY),
        (50, 105, Verdict.CAPACITY),
        (200, 130, Verdict.ABOVE_LIMIT),
        (50, None, Verdict.UNKNOWN),
    ],
)
def test_pytorch_gives_back_its_empty_regions_before_a_request_fails(size, limit, verdict):
    trace = torch_state([[-40], [20, -5, 35]])
    found = would_fit(trace, len(trace), size * MiB, limit=None if limit is None else limit * MiB)
    assert found.verdict is verdict
    if limit is None:
        assert found.deciding_limit == (60 + max(size, 20)) * MiB
        assert (
            would_fit(trace, len(trace), size * MiB, limit=found.deciding_limit).verdict is Verdict.NO_FAILURE
        )
        one_less = would_fit(trace, len(trace), size * MiB, limit=found.deciding_limit - 1)
        assert one_less.verdict in {Verdict.CAPACITY, Verdict.FRAGMENTATION}


@pytest.mark.parametrize(
    ("size", "limit", "verdict"),
    [
        (50, 40, Verdict.ABOVE_LIMIT),
        (30, 40, Verdict.CAPACITY),  # 55 are in use
        (4, 40, Verdict.CAPACITY),  # although 5 are free between chunks in use
        (50, 104, Verdict.CAPACITY),
        (4, 60, Verdict.NO_FAILURE),
        (30, 89, Verdict.FRAGMENTATION),  # the free chunk of 40 is given back to be below the limit
        (30, 90, Verdict.NO_FAILURE),
    ],
)
def test_a_limit_below_the_pool_leaves_what_the_allocator_cannot_give_back(size, limit, verdict):
    trace = torch_state([[-40], [20, -5, 35]])
    found = would_fit(trace, len(trace), size * MiB, limit=limit * MiB)
    assert found.verdict is verdict
    assert fit_of(at_end(trace), 4 * MiB).fits  # without a limit
    larger = [each.numbers["needed"] for each in found.advice if each.kind is AdviceKind.LARGER_LIMIT]
    assert all(each == found.deciding_limit for each in larger)


def test_a_heap_that_keeps_its_regions_does_not_fit_below_them():
    trace = state([[-40], [20, -5, 35]])
    assert would_fit(trace, len(trace), 4 * MiB, limit=99 * MiB).verdict is Verdict.CAPACITY
    assert would_fit(trace, len(trace), 4 * MiB, limit=100 * MiB).verdict is Verdict.NO_FAILURE


def test_pytorch_keeps_small_requests_apart():
    trace = torch_state([[0.5, -1.5]])
    assert would_fit(trace, len(trace), MiB, limit=2 * MiB).verdict is Verdict.NO_FAILURE
    assert would_fit(trace, len(trace), MiB + 1, limit=2 * MiB).verdict is not Verdict.NO_FAILURE
    assert would_fit(trace, len(trace), MiB + 1, limit=22 * MiB).verdict is Verdict.NO_FAILURE


def test_a_limit_is_asked_about_on_the_command_line(tmp_path, capsys):
    path = torch_state([[-40], [20, -5, 35]]).save(tmp_path / "torch.parquet")
    for words, verdict in (
        (["--limit", "130MiB"], "no_failure"),
        (["--device", "105MiB"], "capacity"),
        ([], "unknown"),
    ):
        assert main(["why", str(path), "--size", "50MiB", *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["failures"][0]["verdict"] == verdict
    assert main(["why", str(path), "--limit", "1GiB"]) != 0
    assert bfcviz.why(path, size="50MiB", limit="130MiB").verdict is Verdict.NO_FAILURE


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, Verdict.NO_FAILURE),
        ({"streams": (0, 7)}, Verdict.UNKNOWN),  # the free chunk of 40 is kept for stream 7
        ({"streams": (7, 7)}, Verdict.NO_FAILURE),  # most lies there: the question is one of that stream
        ({"private": ("", "1:1")}, Verdict.UNKNOWN),
    ],
)
def test_pytorch_keeps_streams_and_private_pools_apart(more, verdict):
    trace = torch_state([[60, -5], [20, -40]], **more)
    model = at_end(trace)
    found = would_fit(trace, len(trace), 30 * MiB)
    assert found.verdict is verdict
    assert fit_of(model, 30 * MiB).fits == (verdict is Verdict.NO_FAILURE)
    assert found.largest_usable == (40 if verdict is Verdict.NO_FAILURE else 5) * MiB
    assert would_fit(trace, len(trace), 4 * MiB).verdict is Verdict.NO_FAILURE
    if verdict is Verdict.UNKNOWN:
        assert found.deciding_limit == (125 + 30) * MiB
        assert "another stream" in str(found)
        full = would_fit(trace, len(trace), 30 * MiB, limit=130 * MiB)
        assert full.verdict is Verdict.FRAGMENTATION
        assert "25.0 MiB too small" in str(full)


def test_an_expandable_segment_grows_behind_its_free_end():
    regions, options = [[60, -15], [20, -30, 5]], {"expandable_segments": True}
    trace = torch_state(regions, options=options)
    found = would_fit(trace, len(trace), 32 * MiB)
    assert (found.verdict, found.tail, found.deciding_limit) == (Verdict.UNKNOWN, 15 * MiB, (130 + 20) * MiB)
    assert would_fit(trace, len(trace), 32 * MiB, limit=150 * MiB).verdict is Verdict.NO_FAILURE
    unsure = would_fit(trace, len(trace), 32 * MiB, limit=149 * MiB)  # 30 in the middle may be unmapped
    assert unsure.verdict is Verdict.UNKNOWN
    assert "unmap" in str(unsure)
    assert would_fit(trace, len(trace), 70 * MiB, limit=150 * MiB).verdict is Verdict.CAPACITY
    plain = torch_state(regions)
    assert would_fit(plain, len(plain), 32 * MiB).deciding_limit == (130 + 32) * MiB


def test_without_a_limit_the_answer_is_the_pool_that_would_be_needed(heap):
    trace = limited(heap, None)
    fit = fit_of(at_end(trace), 50 * MiB)
    assert fit.depends_on_limit
    assert not fit.grows
    assert format_bytes(fit.found.deciding_limit) in fit_sentence(fit, trace.labels)
    names = [(each.name, each.bytes, each.chunks) for each in in_the_way(fit, trace.labels)]
    assert names == [("gradients", 12 * MiB, 1), ("weights", 9 * MiB, 1)]
    assert not fit_of(at_end(limited(heap, 64 * MiB)), 50 * MiB).depends_on_limit
