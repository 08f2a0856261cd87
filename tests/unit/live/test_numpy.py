"""NumPy on our heap: the same results, errors, the `with`, and arrays that outlive everything."""

import asyncio
import contextvars
import gc
import pickle
import random
import weakref

import numpy as np
import pytest
from heaps import KIB, MIB, assert_model_agrees
from processes import needs_compiled

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.errors import AllocatorError, BfcvizError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live import memory_limits
from bfcviz.live.numpy import get_handler, serve_numpy, unserved
from bfcviz.model import Model

pytestmark = needs_compiled


def served(limit="64MiB", **options):
    return serve_numpy(limit, log=EventLog(1 << 18), **options)


def is_ours(array, heap):
    """Whether an array's first and last byte lie in one chunk in use."""
    with unserved():
        begin, end = np.uint64(array.ctypes.data), np.uint64(array.ctypes.data + array.nbytes)
        chunks = heap.memory_map()
        chunks = chunks[chunks["in_use"]]
        return bool(np.any((chunks["address"] <= begin) & (chunks["address"] + chunks["size"] >= end)))


def busy(seed):
    """Arrays of every sort, made, changed and dropped; the same for the same seed."""
    generator, chooser, held = np.random.default_rng(seed), random.Random(seed), []
    for _ in range(400):
        size = chooser.choice((0, 1, 7, 300, 5000, 70_000))
        made = chooser.choice(
            (
                lambda n: generator.normal(size=n),
                lambda n: np.zeros((n, 3), np.float32),
                lambda n: np.arange(n, dtype=np.int16)[::-1].copy(),
                lambda n: np.fromiter((i * i for i in range(n // 10)), np.int64),
                lambda n: np.full(n, 2.5).cumsum(),
                lambda n: np.array([str(i) for i in range(n // 100)]),
                lambda n: np.array([None] * (n // 100), object),
                lambda n: np.concatenate([np.ones(n), np.arange(n) / 7]),
                lambda n: pickle.loads(pickle.dumps(np.linspace(0, 1, n))),  # noqa: S301
                lambda n: np.sort(generator.integers(0, 1000, n)),
            )
        )(size)
        if made.base is None and made.ndim == 1 and made.dtype.kind in "if":
            made.resize(chooser.randrange(size + 100), refcheck=False)
        held.append(made)
        if len(held) > 20:
            del held[chooser.randrange(len(held))]
    return held


def test_results_are_those_of_plain_numpy():
    plain = busy(5)
    with served() as service:
        ours = busy(5)
        assert all(is_ours(array, service.allocator) for array in ours if array.base is None)
    for left, right in zip(plain, ours, strict=True):
        np.testing.assert_array_equal(left, right)
    del ours, right
    gc.collect()
    service.settle()
    assert service.allocator.stats().chunks_in_use == 0
    assert service.allocator.rejected_frees == 0
    service.allocator.check_invariants()
    assert_model_agrees(service.allocator)


def test_hundreds_of_thousands_of_allocations_and_none_lost(tmp_path):
    number, chooser, held = 300_000, random.Random(1), [None] * 500
    places = [chooser.randrange(500) for _ in range(1000)]
    sizes = [chooser.choice((8, 100, 1000, 30_000)) for _ in range(997)]
    with Recording(tmp_path / "run") as recording:
        with serve_numpy("256MiB", log=recording) as service:
            for i in range(number):
                held[places[i % 1000]] = np.empty(sizes[i % 997], np.uint8)
            assert all(is_ours(array, service.allocator) for array in held if array is not None)
        stats = service.allocator.stats()
        assert (stats.num_allocs, service.left_to_numpy) == (number, 0)
        assert stats.chunks_in_use == sum(array is not None for array in held)
        trace = recording.trace()
        assert sum(np.count_nonzero(block["kind"] == Kind.ALLOCATE) for block in trace.blocks()) == number
        model = Model(trace)
        model.seek(len(trace))
        theirs = model.chunks()
        ours = service.allocator.memory_map()
        for mine, name in (("address", "address"), ("size", "size"), ("in_use", "in_use")):
            np.testing.assert_array_equal(ours[mine], theirs[name])
    service.allocator.check_invariants()


# -- out of memory --------------------------------------------------------------------------------------------------


def test_out_of_memory_is_numpys_error_with_our_numbers():
    with served("1MiB") as service:
        assert service.out_of_memory is None
        held = np.zeros(600 * KIB, np.uint8)
        with pytest.raises(MemoryError):
            np.zeros(500 * KIB, np.uint8)
        error = service.out_of_memory
        assert isinstance(error, OutOfMemory)
        assert (error.requested, error.rounded) == (500 * KIB, 500 * KIB)
        assert (error.free_bytes, error.largest_free_chunk) == (0, 0)  # too little was left over to split off
        assert (error.pool_bytes, error.bytes_limit) == (MIB, MIB)
    assert not held.any()
    with unserved():
        kinds = service.allocator.log.copy(0, service.allocator.log.head)["kind"]
    assert np.count_nonzero(kinds == Kind.OOM) == 1


def test_an_error_that_leaves_says_why():
    with pytest.raises(MemoryError) as caught, served("1MiB"):
        np.ones(2 * MIB, np.uint8)
    assert "2.0 MiB requested" in caught.value.__notes__[0]
    with pytest.raises(MemoryError) as caught, served("1MiB"):
        raise MemoryError
    assert not hasattr(caught.value, "__notes__")


# -- the with -------------------------------------------------------------------------------------------------------


def test_leaving_restores_what_was_there():
    before = get_handler()
    with pytest.raises(ZeroDivisionError), served():
        print(get_handler() is not before, 1 // 0)
    assert get_handler() is before
    service = served()
    with service, unserved():
        np.ones(10)
    assert service.allocator.stats().num_allocs == 0


def test_it_can_be_entered_again():
    service = served()
    for number in (1, 2, 3):
        with service:
            np.empty(10)
        assert service.allocator.stats().num_allocs == number
        np.empty(10)


def test_a_second_heap_is_refused():
    with served("64MiB") as service:
        for other in (served("1MiB"), service):
            with pytest.raises(LiveError, match=r"served already .*64\.0 MiB"):
                other.__enter__()
        assert is_ours(np.ones(10), service.allocator)
    with served("1MiB") as other:
        assert is_ours(np.ones(10), other.allocator)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"small": -1}, InvalidRequest), ({"limit": 0}, InvalidRequest), ({"limit": "much"}, ValueError)],
)
def test_what_cannot_be_is_refused(arguments, error):
    with pytest.raises(error):
        serve_numpy(**arguments)


def test_the_limit_leaves_the_machine_room_unless_told():
    heap = serve_numpy().allocator
    assert 64 * MIB <= heap.limit <= memory_limits.total_memory() * 7 // 8
    assert heap.sub_allocator.keep_available == memory_limits.total_memory() // 32


# -- arrays that outlive it -----------------------------------------------------------------------------------------


def test_arrays_outlive_the_with_and_what_it_returned():
    with served() as service:
        array, other = np.arange(1000), np.arange(0, 2000, 2)
    heap = service.allocator
    del service
    gc.collect()
    array += 1
    other.resize(2000, refcheck=False)  # a new request: NumPy's own from now on
    assert array.sum() == 500_500
    assert other[:1000].tolist() == list(range(0, 2000, 2))
    assert heap.stats().num_allocs == 2


def test_the_heap_goes_with_the_last_array():
    with served() as service:
        array = np.arange(1000)
    heap = weakref.ref(service.allocator)
    gc.collect()
    gc.disable()  # nothing waits for the collector
    try:
        del service
        assert heap() is not None
        view = array[10:]
        del array
        assert heap() is not None
        assert view[0] == 10
        del view
        assert heap() is None
    finally:
        gc.enable()


def test_the_heap_is_not_closed_under_its_arrays():
    with served() as service:
        with pytest.raises(AllocatorError, match="0 chunks"):
            service.allocator.close()
        array = np.arange(1000)
        with pytest.raises(BfcvizError, match="1 chunks"), service.allocator:
            pass
    with pytest.raises(AllocatorError, match="1 chunks"):
        service.allocator.close()
    assert array.sum() == 499_500
    del array
    service.settle()
    service.allocator.close()
    assert isinstance(service.allocator, BFCAllocator)


def test_a_closed_recording_leaves_the_heap_working(tmp_path):
    with served() as service, Recording(tmp_path / "run") as recording:
        pass
    with serve_numpy("1MiB", log=recording) as service:
        array = np.arange(1000)
        recording.close()
        other = np.arange(1000)
    assert (array == other).all()
    assert service.allocator.stats().num_allocs == 2


# -- errors in flight, tasks, options -------------------------------------------------------------------------------


def test_errors_survive_arrays_that_die_with_them():
    with served() as service:
        for _ in range(20):
            with pytest.raises(ZeroDivisionError):
                print(np.ones(1000), 1 // 0)
            with pytest.raises(ZeroDivisionError):
                np.fromiter((1 // (5 - k) for k in range(10)), np.int64)
            with pytest.raises(ValueError, match="broadcast"):
                np.ones(1000) + np.ones(7)
    service.settle()
    assert service.allocator.stats().chunks_in_use == 0


def test_tasks_begun_inside_are_served_even_when_they_go_on_outside():
    async def task(go_on):
        first = np.ones(10)
        await go_on.wait()
        return first, np.ones(10)

    async def main():
        go_on = asyncio.Event()
        outside = asyncio.create_task(task(go_on))
        await asyncio.sleep(0)
        with served() as service:
            inside = asyncio.create_task(task(go_on))
            await asyncio.sleep(0)
        go_on.set()
        return service, await outside, await inside

    service, outside, inside = asyncio.run(main())
    heap = service.allocator
    assert [is_ours(array, heap) for array in (*outside, *inside)] == [False, False, True, False]


def test_another_context_can_be_served_too():
    context, late = contextvars.Context(), contextvars.Context()

    def ours():
        return is_ours(np.empty(1000), on.allocator)

    with served() as on:
        assert not context.run(ours)
        context.run(on.watch_here)
        assert context.run(ours)
    late.run(on.watch_here)
    assert (context.run(ours), late.run(ours)) == (False, False)
    assert late.run(get_handler) is get_handler()


def test_the_heap_behaves_as_told():
    options = AllocatorOptions(allow_growth=False)
    with serve_numpy("8MiB", options=options) as service:
        np.ones(1)
    assert service.allocator.stats().pool_bytes == 8 * MIB
    assert service.allocator.options is options


def test_it_says_how_numpy_is_watched():
    with served("512MiB") as service:
        assert service.heaps == [service.allocator]
        assert service.way == "serve"
        assert "NumPy is served" in service.description
        assert "512.0 MiB" in service.description


# ------------------------------------------------------------------------------
# The memory handler that NumPy calls: new, zeroed, resized and freed arrays, and those of NumPy's own memory.


@pytest.mark.parametrize("num_bytes", [0, 1, 100, 5 * MIB, 40 * MIB + 12_345])
def test_zeros_are_zero_in_memory_used_before(num_bytes):
    with served("128MiB"):
        for _ in range(3):
            array = np.zeros(num_bytes, np.uint8)
            assert not array.any()
            array += 7
            del array


def test_sorting_a_column_which_frees_null_too_does_no_harm():
    rows = np.zeros(50, [("a", "<u8"), ("b", "<u4")])
    with served() as service:
        for _ in range(3):
            np.argsort(rows["a"])
            np.empty(10)
    assert service.allocator.stats().chunks_in_use == 0
    assert service.allocator.rejected_frees == 0


def test_resizing_keeps_contents():
    with served() as service:
        array = np.arange(1000)
        array.resize(100_000, refcheck=False)
        assert array[:1000].tolist() == list(range(1000))
        assert not array[1000:].any()
        array.resize(10, refcheck=False)
        assert array.tolist() == list(range(10))
        assert is_ours(array, service.allocator)
        assert service.allocator.stats().requested_bytes_in_use == 80


def test_arrays_made_before_stay_numpys():
    before = np.arange(100)
    with served() as service:
        before.resize(1000, refcheck=False)
        assert before[:100].tolist() == list(range(100))
        del before
        view = np.frombuffer(bytearray(100), np.uint8)
        assert not is_ours(view, service.allocator)
        assert service.allocator.stats().num_allocs == 0
    assert service.allocator.rejected_frees == 0


def test_small_requests_can_be_left_to_numpy():
    with served(small=1000) as service:
        small, large = np.empty(100), np.empty(200)
        small[:], large[:] = np.arange(100), 1
        assert (is_ours(small, service.allocator), is_ours(large, service.allocator)) == (False, True)
        assert service.left_to_numpy >= 1
        assert service.allocator.stats().num_allocs == 1
        small.resize(5000, refcheck=False)
        large.resize(5, refcheck=False)
        assert (small[:100].tolist(), large.tolist()) == (list(range(100)), [1] * 5)
    del small, large
    service.settle()
    assert service.allocator.stats().chunks_in_use == 0


@pytest.mark.parametrize("make", [np.empty, np.zeros])
def test_in_a_full_heap_numpy_serves_scalars_and_the_array_without_room_fails(make):
    with served("1MiB") as service:
        held = make(MIB, np.uint8)
        scalars = [make((), np.int64) for _ in range(3)]
        assert (service.left_to_numpy, service.out_of_memory) == (3, None)
        with pytest.raises(MemoryError):
            make(257, np.uint8)
        assert service.out_of_memory.requested == 257
        largest = make(256, np.uint8)
        assert not any(is_ours(array, service.allocator) for array in (*scalars, largest))
        assert service.allocator.stats().num_allocs == 1
        assert "4 arrays" in service.description
        events = service.allocator.log.copy(0, service.allocator.log.head)
        assert events["requested"][events["kind"] == Kind.OOM].tolist() == [257]
        del held
        assert is_ours(make((), np.int64), service.allocator)
    for array in (*scalars, largest):
        array[...] = 7
    service.allocator.check_invariants()


def test_a_resize_that_fails_changes_nothing():
    with served("1MiB"):
        array = np.arange(1000)
        with pytest.raises(MemoryError):
            array.resize(MIB, refcheck=False)
        assert array.tolist() == list(range(1000))
