"""Training in a heap's memory: it learns under every release policy and leaks nothing."""

import gc
import math

import numpy as np
import pytest
from heaps import MIB, assert_model_agrees, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.tensors import MemoryLog
from bfcviz.devices.training import MLP, Adam, Attention, ConvNet, Deferred, Training
from bfcviz.errors import InvalidRequest, OutOfMemory
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind

SMALL = {
    "MLP": MLP(batch=8, classes=3, sizes=(6, 12)),
    "convnet": ConvNet(batch=4, classes=3, image=8, channels=(2, 4, 4)),
    "attention": Attention(batch=4, classes=3, tokens=5, width=8, heads=2, layers=2),
}
RELEASES = ["eager", "end of step", "deferred"]


@pytest.fixture(params=SMALL)
def model(request):
    return SMALL[request.param]


def host_heap(limit=16 * MIB, **options):
    return new_heap(limit, HostSubAllocator(), **options)


def requests(heap):
    """Sizes and names of all requests, in order."""
    events = Reader(heap.log, 0).read(1 << 20)
    made = events[events["kind"] == Kind.ALLOCATE]
    return [(int(event["requested"]), heap.labels.name(int(event["label"]))) for event in made]


def test_it_learns(model):
    losses = Training(model, host_heap(), optimizer=Adam(0.02)).run(40)
    assert losses[0] > 0.5
    assert np.mean(losses[-8:]) < 0.4 * np.mean(losses[:8])


def test_when_memory_goes_back_changes_no_number(model):
    runs, peaks = {}, {}
    for release in RELEASES:
        heap = host_heap()
        training = Training(model, heap, release=release)
        runs[release] = training.run(6), [weight.tolist() for weight in training.weights.values()]
        peaks[release] = heap.stats().peak_bytes_in_use
    assert runs["eager"] == runs["end of step"] == runs["deferred"]
    assert peaks["eager"] < peaks["deferred"]
    assert peaks["eager"] < peaks["end of step"]


@pytest.mark.parametrize("release", RELEASES)
def test_a_step_leaves_weights_and_slots_and_nothing_else(model, release):
    heap = host_heap()
    gc.disable()  # no cycles: references alone free it
    try:
        training = Training(model, heap, release=release)
        training.run(3)
        training.finish()
        assert heap.stats().chunks_in_use == 2 * len(model.parameters())
        del training
        assert heap.stats().chunks_in_use == 0
    finally:
        gc.enable()
    heap.check_invariants()
    assert_model_agrees(heap)


@pytest.mark.parametrize("release", RELEASES)
def test_many_steps_leak_nothing(release):
    heap = host_heap()
    training = Training(MLP(batch=4, classes=2, sizes=(3, 4)), heap, release=release)
    training.run(5)
    training.finish()
    names = len(heap.labels)
    before, chunks = heap.stats(), heap.memory_map()["in_use"].sum()
    with MemoryLog() as log:
        training.run(50)
        training.finish()
        assert log.alive == []
    after = heap.stats()
    assert (after.chunks_in_use, after.bytes_in_use) == (before.chunks_in_use, before.bytes_in_use)
    assert (after.pool_bytes, after.peak_bytes_in_use) == (before.pool_bytes, before.peak_bytes_in_use)
    assert heap.memory_map()["in_use"].sum() == chunks
    assert len(heap.labels) == names
    assert after.num_allocs - before.num_allocs > 1_000
    heap.check_invariants()


def test_pretended_memory_gets_the_same_requests(model):
    real, pretended, still = host_heap(), new_heap(16 * MIB), host_heap()
    computed = Training(model, real).run(2)
    dry = Training(model, pretended).run(2)
    Training(model, still, compute=False).run(2)
    assert not any(math.isnan(loss) for loss in computed)
    assert all(math.isnan(loss) for loss in dry)
    assert requests(real) == requests(pretended) == requests(still)


def test_the_trace_says_what_a_step_does():
    heap = host_heap()
    Training(SMALL["MLP"], heap).run(2)
    events = Reader(heap.log, 0).read(1 << 20)
    marks = events[events["kind"] == Kind.MARK]
    names = [heap.labels.name(int(number)) for number in marks["label"]]
    phases = [
        f"{name} {side}" for name in ("forward", "backward", "optimizer") for side in ("begins", "ends")
    ]
    assert names == ["step", *phases] * 2
    numbers = [int(mark["size"]) for mark in marks]
    assert numbers[1] == numbers[2] != numbers[3] == numbers[4]  # as `bfcviz.phase` does
    assert heap.labels[int(marks["label"][1])].details == {"begins": "forward"}
    assert [int(mark["size"]) for mark in marks if heap.labels.name(int(mark["label"])) == "step"] == [1, 2]
    made = [name for _, name in requests(heap)]
    assert made[:2] == ["weights/dense_1/kernel", "weights/dense_1/bias"]
    for name in (
        "batch/examples",
        "dense_1/MatMul",
        "CrossEntropy/Softmax/scratch",
        "gradients/dense_2/MatMul/by_left",
        "optimizer/dense_1/kernel/momentum",
    ):
        assert name in made
    assert made.count("optimizer/dense_1/kernel/momentum") == 1  # the first step allocates the slot


def test_the_memory_log_knows_the_step():
    with MemoryLog() as log:
        Training(SMALL["MLP"], host_heap()).run(2)
    steps = {record.kernel: record.step_id for record in log.records if record.kind == "allocate"}
    assert steps["weights/dense_1/kernel"] < 0
    assert steps["optimizer/dense_1/kernel/momentum"] == 1
    assert steps["dense_1/MatMul"] == 2


@pytest.mark.parametrize("release", RELEASES)
def test_a_step_that_runs_out_of_memory_leaves_nothing_behind(release):
    model = ConvNet(batch=64, classes=3, image=16, channels=(2, 8))
    heap = host_heap(MIB)
    training = Training(model, heap, release=release)
    held = heap.stats().chunks_in_use
    with pytest.raises(OutOfMemory):
        training.step()
    training.finish()
    gc.collect()
    assert heap.stats().chunks_in_use == held
    heap.check_invariants()


def test_equal_seeds_give_equal_runs(model):
    def run(seed):
        return Training(model, host_heap(), seed=seed).run(3)

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_wrong_arguments_are_refused():
    with pytest.raises(InvalidRequest, match="eager"):
        Training(SMALL["MLP"], host_heap(), release="never")
    with pytest.raises(InvalidRequest):
        Deferred(-1)
    heap = new_heap(1024)
    with pytest.raises(OutOfMemory):
        Training(MLP(), heap)
    gc.collect()
    assert heap.stats().chunks_in_use == 0
