"""Deferred release: memory is freed when the device has finished, or when it runs out."""

import gc
import math

import numpy as np
import pytest
from heaps import MIB, assert_model_agrees, new_heap
from hypothesis import given, settings
from hypothesis import strategies as st

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices import networks as op
from bfcviz.devices.kernel_runner import Deferred, Eager, KernelRunner
from bfcviz.devices.networks import (
    MLP,
    Attention,
    ConvNet,
    Graph,
    Heads,
    conv2d,
    mean_pool,
    scores,
    weighted_values,
)
from bfcviz.devices.tensors import MemoryLog, Tensor
from bfcviz.devices.training import Adam, Momentum, Training
from bfcviz.errors import InvalidRequest, OutOfMemory
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind

SMALL = {
    "MLP": MLP(batch=8, classes=3, sizes=(6, 12)),
    "convnet": ConvNet(batch=4, classes=3, image=8, channels=(2, 4, 4)),
    "attention": Attention(batch=4, classes=3, tokens=5, width=8, heads=2, layers=2),
}


def host_heap(limit=16 * MIB, **options):
    return new_heap(limit, HostSubAllocator(), **options)


def test_deferred_memory_makes_room_before_it_fails():
    model = SMALL["convnet"]
    heap = host_heap()
    Training(model, heap).run(2)
    peak = heap.stats().peak_bytes_in_use
    tight = 2 * peak
    with pytest.raises(OutOfMemory):
        Training(model, host_heap(tight), release="end of step").run(2)
    fits = Training(model, host_heap(tight), release=Deferred(10_000))
    assert fits.run(2) == Training(model, host_heap()).run(2)


class Fence:
    """A fence of a device that finishes on demand."""

    made = 0
    reached = 0

    def __init__(self):
        Fence.made += 1
        self.number = Fence.made

    @property
    def done(self):
        return self.number <= Fence.reached

    def synchronize(self):
        Fence.reached = max(Fence.reached, self.number)


def test_a_fence_says_when_memory_goes_back():
    heap = host_heap()
    training = Training(SMALL["MLP"], heap, release=Deferred(fence=Fence))
    training.run(2)
    held = heap.stats().chunks_in_use
    assert held > 20  # the device has not started
    Fence.reached = Fence.made
    training.step()
    assert heap.stats().chunks_in_use <= held
    training.finish()
    assert heap.stats().chunks_in_use == 2 * len(training.weights)


# ------------------------------------------------------------------------------
# Gradients checked against finite differences of the loss; operations against NumPy.


MODELS = [
    MLP(batch=5, classes=3, sizes=(4, 6, 5)),
    ConvNet(batch=2, classes=3, image=4, channels=(2, 3, 2)),
    ConvNet(batch=1, classes=2, image=6, channels=(1, 2), size=5),
    Attention(batch=2, classes=3, tokens=3, width=4, heads=2, layers=2),
]


def runner():
    return KernelRunner(new_heap(4 * MIB, HostSubAllocator()), Eager(), "float64")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name} {model.input_shape}")
def test_gradients_of_models_are_those_of_the_loss(model):
    training = Training(model, new_heap(4 * MIB, HostSubAllocator()), dtype="float64", seed=3)
    graph = Graph(training.runner)
    values, loss = training.forward(graph)
    gradients = graph.gradients(loss)
    del loss
    chance = np.random.default_rng(1)
    for name, value in values.items():
        gradient = gradients[value.key].numpy()
        weight = training.weights[name].numpy()
        for place in chance.integers(0, weight.size, 2):
            there = np.unravel_index(place, weight.shape)
            assert gradient[there] == pytest.approx(slope(training, weight, there), rel=1e-4, abs=1e-8), name


def slope(training, weight, there, by=1e-6):
    """The finite difference of the loss along one number of a weight."""
    kept, losses = weight[there], []
    for sign in (1, -1):
        weight[there] = kept + sign * by
        losses.append(float(training.forward(Graph(training.runner))[1].tensor.numpy()))
    weight[there] = kept
    return (losses[0] - losses[1]) / (2 * by)


def weigh(graph, result, factors):
    """A single number that depends on every element of the result differently."""
    run, shape = graph.runner.run, result.shape
    made = run("weigh", (), lambda xp, out, x: xp.sum(x * factors, out=out), result.tensor)
    return graph.result(
        "weigh",
        made,
        [(result, lambda g: run("by", shape, lambda xp, out, g: xp.multiply(factors, g, out=out), g))],
    )


HEADS = Heads(batch=2, tokens=3, heads=2)
CASES = {
    "matmul": ([(3, 4), (4, 2)], op.matmul),
    "add": ([(3, 4), (3, 4)], op.add),
    "add to itself": ([(3, 4)], lambda graph, x: op.add(graph, x, x)),
    "bias": ([(2, 3, 4), (4,)], op.bias_add),
    "relu": ([(5, 4)], op.relu),
    "softmax": ([(2, 3, 4)], op.softmax),
    "reshape": ([(4, 6)], lambda graph, x: op.reshape(graph, x, 2, -1)),
    "mean": ([(2, 6, 3)], lambda graph, x: op.mean(graph, x, 3)),
    "conv2d": ([(2, 4, 5, 3), (3, 3, 3, 2)], conv2d),
    "wide conv2d": ([(1, 2, 3, 1), (5, 5, 1, 2)], conv2d),
    "pool": ([(2, 4, 6, 3)], mean_pool),
    "scores": ([(6, 4), (6, 4)], lambda graph, q, k: scores(graph, q, k, HEADS)),
    "weighted_values": ([(2, 2, 3, 3), (6, 4)], lambda graph, p, v: weighted_values(graph, p, v, HEADS)),
}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_gradients_of_operations_are_those_of_their_results(case, seed):
    shapes, operation = CASES[case]
    chance, runs = np.random.default_rng(seed), runner()
    inputs = [Tensor.of(runs.allocator, chance.normal(size=shape)) for shape in shapes]
    factors = None

    def total():
        nonlocal factors
        graph = Graph(runs)
        values = [graph.value(tensor, needs_gradient=True) for tensor in inputs]
        result = operation(graph, *values)
        factors = chance.normal(size=result.shape) if factors is None else factors
        return graph, values, weigh(graph, result, factors)

    graph, values, loss = total()
    gradients = graph.gradients(loss)
    del loss
    for tensor, value in zip(inputs, values, strict=True):
        numbers, gradient = tensor.numpy(), gradients[value.key].numpy()
        assert gradient.shape == numbers.shape
        for place in chance.integers(0, numbers.size, 3):
            there, by = np.unravel_index(place, numbers.shape), 1e-6
            kept, found = numbers[there], []
            for sign in (1, -1):
                numbers[there] = kept + sign * by
                found.append(float(total()[2].tensor.numpy()))
            numbers[there] = kept
            assert gradient[there] == pytest.approx((found[0] - found[1]) / (2 * by), rel=1e-5, abs=1e-7)


def test_the_backward_pass_lets_go_of_what_it_has_used():
    runs = runner()
    graph = Graph(runs)
    x = graph.value(Tensor.of(runs.allocator, np.ones((4, 4))), needs_gradient=True)
    value = x
    for _ in range(6):
        value = op.softmax(graph, value)
    loss = weigh(graph, value, np.ones((4, 4)))
    del value
    assert runs.allocator.stats().chunks_in_use == 8
    runs.allocator.clear_stats()
    gradients = graph.gradients(loss)
    assert runs.allocator.stats().peak_bytes_in_use <= 12 * 256  # not six more
    assert list(gradients) == [x.key]
    del loss, graph, gradients
    assert runs.allocator.stats().chunks_in_use == 1


# ------------------------------------------------------------------------------
# Operations agree with their definitions; test_autodiff.py checks their gradients.


def test_the_loss_is_the_cross_entropy():
    runs = runner()
    logits, targets = np.array([[1.0, 2, 3], [0, 0, 900]]), np.array([[0.0, 1, 0], [0, 0, 1]])
    graph = Graph(runs)
    pair = [graph.value(Tensor.of(runs.allocator, array)) for array in (logits, targets)]
    made = float(op.cross_entropy(graph, *pair).tensor.numpy())
    assert made == pytest.approx(-np.log(np.exp(2) / np.exp([1, 2, 3]).sum()) / 2)


# ------------------------------------------------------------------------------
# Convolutions agree with their definition.


def test_a_convolution_is_what_it_says():
    runs, chance = runner(), np.random.default_rng(0)
    image, filters = chance.normal(size=(2, 5, 4, 3)), chance.normal(size=(3, 3, 3, 2))
    graph = Graph(runs)
    made = conv2d(graph, *(graph.value(Tensor.of(runs.allocator, array)) for array in (image, filters)))
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.zeros((2, 5, 4, 2))
    for row in range(5):
        for column in range(4):
            around = padded[:, row : row + 3, column : column + 3]
            expected[:, row, column] = np.einsum("nijc,ijcd->nd", around, filters)
    np.testing.assert_allclose(made.tensor.numpy(), expected)


# ------------------------------------------------------------------------------
# Networks: impossible sizes are refused.


@pytest.mark.parametrize(
    ("model", "sizes", "said"),
    [
        (MLP, {"batch": 0}, "batch=0"),
        (ConvNet, {"classes": -1}, "classes=-1"),
        (MLP, {"sizes": ()}, "input"),
        (MLP, {"sizes": (4, 0)}, r"\(4, 0\)"),
        (ConvNet, {"image": 14, "channels": (3, 4, 4)}, "multiple of 4"),
        (ConvNet, {"image": 0}, "multiple of 4"),
        (ConvNet, {"channels": ()}, "channels"),
        (ConvNet, {"size": 2}, "odd"),
        (Attention, {"heads": 0}, "heads=0"),
        (Attention, {"width": 32, "heads": 5}, "width"),
    ],
)
def test_a_model_of_sizes_that_cannot_be_is_refused(model, sizes, said):
    with pytest.raises(InvalidRequest, match=said):
        model(**sizes)


# ------------------------------------------------------------------------------
# Optimizers keep to their formulas.


def test_optimizers_keep_to_their_formulas():
    heap = host_heap()
    for optimizer in (Momentum(0.1, 0.8), Adam(0.1, (0.7, 0.9), 1e-3)):
        training = Training(SMALL["MLP"], heap, optimizer=optimizer, dtype="float64")
        runner, weight = training.runner, training.weights["dense_1/bias"]
        expected, first, second = weight.numpy().copy(), 0, 0
        for step in range(1, 4):
            gradient = np.arange(12.0) - 3 * step
            given = runner.filled((12,), "gradient", lambda gradient=gradient: gradient)
            optimizer.update(runner, "dense_1/bias", weight, given)
            if isinstance(optimizer, Momentum):
                first = 0.8 * first + gradient
                expected -= 0.1 * first
            else:
                first, second = 0.7 * first + 0.3 * gradient, 0.9 * second + 0.1 * gradient**2
                rate = 0.1 * math.sqrt(1 - 0.9**step) / (1 - 0.7**step)
                expected -= rate * first / (np.sqrt(second) + 1e-3)
            np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-12)


# ------------------------------------------------------------------------------
# Training in a heap's memory: it learns under every release policy and leaks nothing.


RELEASES = ["eager", "end of step", "deferred"]


@pytest.fixture(params=SMALL)
def model(request):
    return SMALL[request.param]


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
